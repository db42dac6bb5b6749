"""A whole service on a real Slurm cluster."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.cli import main
from tests.live.service.live import Live, serving
from tests.real.slurm.shared import SharedSlurm
from tests.real.time_limits import check_time_limits


@pytest.fixture(scope="module")
def live(slurm_cluster: SharedSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A service of all tests here."""
    folder = tmp_path_factory.mktemp("service")
    settings = folder / "slurm.yaml"
    settings.write_text(f"conf: {slurm_cluster.conf}\nspool: {folder / 'spool'}\npoll: 0.3\n")
    with serving(folder, "--engine", f"slurm:{settings}") as found:
        yield found


def test_time_limits(live: Live, cluster: SharedSlurm) -> None:
    check_time_limits(live, {})
    limits = dict(line.split("|") for line in cluster.ask("squeue", "-h", "-t", "all", "-o", "%j|%l").splitlines())
    assert limits["quick"] not in ("UNLIMITED", "365-00:00:00")  # Slurm is told, for when the service is away


def test_a_maintenance_window(live: Live, cluster: SharedSlurm) -> None:
    """A short job runs before it; a long one, and one without a limit, wait until it is over, and berth says why."""
    nodes = ",".join(node.name for node in cluster.nodes)
    window = (f"Users={pwd.getpwuid(os.getuid()).pw_name}", "StartTime=now+15minutes", "Duration=60", "Flags=MAINT")
    words = ["reservation", "ReservationName=maintenance", f"Nodes={nodes}", *window]
    cluster.ask("scontrol", "create", *words)
    base = {"resources": {"cpu": 1}, "command": ["true"], "workdir": "/"}
    waiting = {"long": {**base, "name": "long", "limit": "1h"}, "endless": {**base, "name": "endless"}}
    live.wait_for("/v1/servers", lambda found: len(found) == 8 and all(server["until"] for server in found))
    for spec in waiting.values():
        live.ask("POST", "/v1/jobs", spec)
    live.ask("POST", "/v1/jobs", {**base, "name": "short", "limit": "1m"})
    live.wait_for("/v1/jobs/short", lambda job: job["phase"] == "finished")
    for name in waiting:
        assert live.ask("GET", f"/v1/jobs/{name}")["phase"] == "waiting"
        assert "Slurm reservation maintenance begins at" in str(live.ask("GET", f"/v1/jobs/{name}/explain"))
    cluster.ask("scontrol", "delete", "ReservationName=maintenance")
    for name in waiting:
        live.wait_for(f"/v1/jobs/{name}", lambda job: job["phase"] == "finished")


SBATCH = "#!/bin/sh\n#SBATCH --time=90\n#SBATCH -c 2 --mem=4G\n#SBATCH --array=1-9\n"
ROLES = """
roles: {head: {resources: {cpu: 1}}, worker: {count: 2, resources: {cpu: 1}}}
script: srun hostname
"""


def test_a_script_submitted_to_the_service(live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What Slurm or berth would not do as the script says is refused at once or warned of; the rest runs."""

    def submit(text: str) -> tuple[int, str]:
        """Give a file to `berth submit -f`: its exit code, and what it says."""
        (tmp_path / "job").write_text(text)
        code = main(["submit", "--url", live.url, "--name", "seven", "-f", str(tmp_path / "job")])
        return code, " ".join(capsys.readouterr().err.split())

    code, said = submit(ROLES)
    assert code == 2
    assert "several roles (head, worker)" in said
    code, said = submit(SBATCH + "srun hostname\n")
    assert code == 2
    assert "job:2: got '#SBATCH --time=90', expected #BERTH lines" in said
    assert "seven" not in [job["id"] for job in live.ask("GET", "/v1/jobs")["jobs"]]
    code, said = submit(SBATCH + "#BERTH -n 7 --resources=cpu=1\nsrun echo task\n")
    assert code == 0, said
    assert "line 2 of its script, #SBATCH --time=90, is not read: #BERTH has --time too" in said
    assert "line 3 of its script, #SBATCH -c 2 --mem=4G, is not read: say what each task needs" in said
    assert "line 4 of its script, #SBATCH --array=1-9, is not read: berth has no option like --array" in said
    job = live.wait_for("/v1/jobs/seven", lambda found: found["phase"] in ("finished", "failed"))
    assert job["phase"] == "finished", job
    assert Path(job["details"]["output"]).read_text().splitlines() == ["task"] * 7
