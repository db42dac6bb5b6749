"""Refusals of a real Slurm that are not the fault of jobs: a closed partition, and a full disk of slurmctld."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from berth.live.service.engine_link import PARALLEL
from tests.harness.waiting import eventually
from tests.live.service.live import Live, serving
from tests.real.slurm.shared import SharedSlurm

JOBS = 40
"""More than the 32 processors of the cluster."""


@contextmanager
def closed_partition(cluster: SharedSlurm) -> Iterator[tuple[str, Callable[[], object]]]:
    """A partition that takes no jobs; what Slurm says, and what opens it."""
    cluster.ask("scontrol", "update", "PartitionName=main", "State=INACTIVE")
    up = "scontrol", "update", "PartitionName=main", "State=UP"
    try:
        yield "Required partition not available (inactive or drain)", lambda: cluster.ask(*up)
    finally:
        cluster.ask(*up)


@contextmanager
def full_disk(cluster: SharedSlurm) -> Iterator[tuple[str, Callable[[], object]]]:
    """No room for the scripts of jobs, which slurmctld keeps in ten folders; what Slurm says, and what makes room."""
    places = [cluster.directory / "state" / f"hash.{i}" for i in range(10)]
    mounted: list[Path] = []

    def free() -> None:
        while mounted:
            subprocess.run(["umount", "--lazy", str(mounted.pop())], capture_output=True)

    try:
        for place in places:
            place.mkdir(exist_ok=True)
            words = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(place)]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
            mounted.append(place)
            (place / "ballast").write_bytes(b"x" * 4096)
        yield "I/O error writing script/environment to file", free
    finally:
        free()


def health(live: Live) -> dict[str, Any]:
    """What the service says of its health; it is not ready while slurmctld has only just been started."""
    try:
        return dict(live.ask("GET", "/readyz"))
    except HTTPError as error:
        with error:
            return dict(json.loads(error.read()))


def refused(live: Live) -> int:
    """How many attempts have failed."""
    jobs = live.ask("GET", "/v1/jobs?limit=1000")["jobs"]
    return sum(job["attempt"] - (job["phase"] == "starting") for job in jobs)


def phases(live: Live) -> dict[str, str]:
    """The phase of every job."""
    return {job["id"]: job["phase"] for job in live.ask("GET", "/v1/jobs?limit=1000")["jobs"]}


def submissions_wait(live: Live, names: Sequence[str], said: str, end: Callable[[], object]) -> None:
    """No job fails while Slurm says this; health and explain tell it. After `end`, all jobs finish."""
    spec = {"resources": {"cpu": 1}, "command": ["true"], "retries": 0}
    live.ask("POST", "/v1/jobs", [{**spec, "name": name} for name in names])
    ready = eventually(lambda: health(live), lambda found: said in str(found["paused"]), "health")
    assert ready["ready"] is True
    text = eventually(lambda: live.ask("GET", f"/v1/jobs/{names[-1]}/explain")["text"], lambda text: said in text)
    assert "one is tried" in text
    longer = re.compile(r"in ([2-9]|\d\d) s")
    eventually(lambda: health(live), lambda found: longer.search(str(found["paused"])), "a second refusal")
    assert refused(live) < PARALLEL + 10  # those that were under way when Slurm refused the first, and one a pause
    assert set(phases(live).values()) <= {"waiting", "starting"}
    end()
    ended = eventually(lambda: phases(live), lambda found: set(found.values()) <= {"finished", "failed"}, "the end")
    assert ended == dict.fromkeys(names, "finished")
    assert health(live)["paused"] is None


@pytest.mark.parametrize("trouble", [closed_partition, full_disk])
def test_no_job_fails_and_all_run_when_slurm_takes_jobs_again(
    trouble: Callable[[SharedSlurm], AbstractContextManager[tuple[str, Callable[[], object]]]],
    slurm_cluster: SharedSlurm,
    tmp_path: Path,
) -> None:
    settings = tmp_path / "slurm.yaml"
    settings.write_text(f"conf: {slurm_cluster.conf}\nspool: {tmp_path / 'spool'}\npoll: 0.5\n")
    with trouble(slurm_cluster) as (said, end), serving(tmp_path, "--engine", f"slurm:{settings}") as live:
        submissions_wait(live, [f"j{i}" for i in range(JOBS)], said, end)
