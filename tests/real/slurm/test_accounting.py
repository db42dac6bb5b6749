"""Limits of a QOS, licences and priorities of a real Slurm with accounting: none of them ever fails a job."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.harness.waiting import eventually
from tests.live.service.live import serving
from tests.real.slurm.accounting import AccountedSlurm, accounted_slurm, missing_accounting
from tests.real.slurm.test_transient import submissions_wait

pytestmark = pytest.mark.slow

LIMIT = 2
"""The most jobs that the QOS lets a user submit."""
ONCE_FATAL = 21
"""Refusals after which a job failed for good, though none was its own fault."""


@pytest.fixture(scope="module")
def slurm_cluster() -> Iterator[AccountedSlurm]:
    """A cluster with accounting, instead of the shared one."""
    if missing := missing_accounting():
        pytest.skip(f"{', '.join(missing)} not installed (python3 scripts/slurm.py install --accounting)")
    with accounted_slurm() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def cluster(slurm_cluster: AccountedSlurm) -> AccountedSlurm:
    """The cluster without limits and jobs."""
    for name in ("MaxSubmitJobsPerUser", "MaxJobsPerUser"):
        slurm_cluster.limit(name, -1)
    empty(slurm_cluster)
    return slurm_cluster


def empty(cluster: AccountedSlurm) -> None:
    """End all jobs."""
    if jobs := cluster.ask("squeue", "-h", "-o", "%A").split():
        cluster.ask("scancel", *jobs)
    eventually(lambda: cluster.ask("squeue", "-h", "-o", "%A %T"), operator.not_, "jobs do not end")


def foreign(cluster: AccountedSlurm, *words: str) -> None:
    """Submit a job that is not berth's."""
    cluster.ask("sbatch", "-J", "foreign", "-o", "/dev/null", *words, "--wrap", "sleep 600")


def test_a_limit_on_submitted_jobs_pauses_submissions(cluster: AccountedSlurm, tmp_path: Path) -> None:
    settings = tmp_path / "slurm.yaml"
    settings.write_text(f"conf: {cluster.conf}\nspool: {tmp_path / 'spool'}\npoll: 0.5\n")
    cluster.limit("MaxSubmitJobsPerUser", LIMIT)
    for _ in range(LIMIT):
        foreign(cluster)
    with serving(tmp_path, "--engine", f"slurm:{settings}") as live:
        names = [f"j{i}" for i in range(5 * LIMIT)]
        submissions_wait(live, names, "Job violates accounting/QOS policy", lambda: empty(cluster))


HELD: dict[str, tuple[str, list[list[str]]]] = {
    "QOSMaxJobsPerUserLimit": ("limited", [[]]),
    "Licenses": ("licensed", [["-L", "matlab:1"]]),
    "Priority": ("behind", [["-w", "n1"], ["--exclusive", "-N2"]]),
}
"""Slurm's reason for a job that waits, the name of that job, and the options of foreign jobs before it."""


@pytest.mark.limit(600)
@pytest.mark.parametrize("reason", HELD)
def test_a_job_that_slurm_holds_back_for_long_never_fails(
    reason: str, cluster: AccountedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused more often than was once fatal: its rests, and those of servers, are kept short here."""

    def rest(seconds: float) -> None:
        for name in ("FIRST", "LONGEST", "EACH", "FIRST_REST", "LONGEST_REST", "SHORT_REST"):
            monkeypatch.setattr(f"berth.live.core.refusals.{name}", seconds)

    rest(0.1)
    settings = tmp_path / "slurm.yaml"
    settings.write_text(f"conf: {cluster.conf}\nspool: {tmp_path / 'spool'}\npoll: 0.2\npatience: 1\n")
    name, others = HELD[reason]
    if name == "limited":
        cluster.limit("MaxJobsPerUser", 1)
    start(cluster, others)
    with serving(tmp_path, "--engine", f"slurm:{settings}") as live:
        live.ask("POST", "/v1/jobs", {"name": name, "resources": {"cpu": 1}, "command": ["true"], "retries": 0})
        often = live.wait_for(f"/v1/jobs/{name}", lambda job: job["attempt"] > ONCE_FATAL + 1)
        assert often["phase"] in ("waiting", "starting")
        assert often["failures"] == 0
        rest(3.0)  # so that it is seen
        live.wait_for(f"/v1/jobs/{name}/explain", lambda told: reason in told["text"])
        cluster.ask("scancel", "-n", "foreign")
        ended = live.wait_for(f"/v1/jobs/{name}", lambda job: job["phase"] in ("finished", "failed"))
        assert (ended["phase"], ended["failures"]) == ("finished", 0)


def start(cluster: AccountedSlurm, others: Sequence[Sequence[str]]) -> None:
    """Submit foreign jobs, and wait until the first runs."""
    for words in others:
        foreign(cluster, *words)
    eventually(lambda: cluster.ask("squeue", "-h", "-t", "running", "-o", "%A"), bool, "no job runs")
