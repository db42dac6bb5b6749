"""What of Slurm's nodes is not for berth: jobs of others, and what Slurm charges ours beyond what they asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from berth.files.quantities import MILLI
from berth.live.core.jobs import Job, Place, Role, Server
from berth.live.engines.slurm.foreign_jobs import Taken, asked_for, shares
from berth.live.engines.slurm.parsing import SlurmJob, read_jobs
from berth.live.engines.slurm.spool import Spool
from berth.live.engines.slurm.submission import MIB
from tests.live.engines.slurm.recorded import VERSIONS, recording

both_versions = pytest.mark.parametrize("version", VERSIONS)
OLDER = {
    "job_id": 7,
    "job_state": "RUNNING",
    "nodes": "n[3-4]",
    "cpus": 6,
    "memory_per_cpu": 64,
    "gres_detail": ["gpu:a100:1(IDX:0),lic(CNT:2)", "gpu:a100:2(IDX:0-1)"],
    "job_resources": {
        "nodes": "n[3-4]",
        "allocated_cores": 3,
        "allocated_nodes": [
            {
                "sockets": {"0": {"cores": {"0": "allocated"}}, "1": {"cores": {"0": "allocated_and_in_use"}}},
                "nodename": "n3",
                "cpus_used": 0,
                "memory_used": 0,
                "memory_allocated": 256,
            },
            {"sockets": {"0": {"cores": {"0": "allocated"}}}, "nodename": "n4", "memory_allocated": 128},
        ],
    },
}
"""As 22.05 writes it, of two CPUs a core; that of 24.11 is made after data_parser/v0.0.42 of slurmrestd's OpenAPI."""
NEWER = {
    **OLDER,
    "job_state": ["RUNNING"],
    "job_resources": {
        "cpus": 6,
        "nodes": {
            "list": "n[3-4]",
            "count": 2,
            "allocation": [
                {"name": "n3", "cpus": {"count": 4, "used": 0}, "memory": {"used": 0, "allocated": 256}},
                {"name": "n4", "cpus": {"count": 2, "used": 0}, "memory": {"used": 0, "allocated": 128}},
            ],
        },
    },
}
WHOLE = {
    "n3": {"cpu": 4 * MILLI, "memory": 256 * MIB, "gpu": MILLI, "lic": 2 * MILLI},
    "n4": {"cpu": 2 * MILLI, "memory": 128 * MIB, "gpu": 2 * MILLI},
}


def read(job: dict[str, Any], **changes: Any) -> SlurmJob:
    (found,) = read_jobs(json.dumps({"jobs": [{**job, **changes}]}))
    return found


@pytest.mark.parametrize("job", [OLDER, NEWER], ids=["22.05", "24.11"])
def test_both_shapes_tell_each_nodes_share(job: dict[str, Any]) -> None:
    assert shares(read(job)) == WHOLE
    cleaned = read(job, nodes="n4", job_state=["FAILED", "COMPLETING"], gres_detail=[])
    assert cleaned.holding
    assert shares(cleaned) == {"n4": {"cpu": 2 * MILLI, "memory": 128 * MIB}}


@both_versions
@pytest.mark.parametrize("counted", [True, False])
def test_the_cores_of_each_node_tell_its_share(version: str, counted: bool) -> None:
    """Whether or not Slurm counts the CPUs of each node beside its list of cores."""
    jobs = {job["name"]: job for job in json.loads(recording(version, "squeue.json"))["jobs"]}
    nodes = jobs["uneven"]["job_resources"]["nodes"]
    if isinstance(nodes, dict) and not counted:
        for node in nodes["allocation"]:
            del node["cpus"]
    share = {"cpu": MILLI, "memory": 64 * MIB}
    assert shares(read(jobs["uneven"])) == {"n3": {name: 2 * milli for name, milli in share.items()}, "n4": share}


@pytest.mark.parametrize("resources", [None, {"allocated_nodes": None}, {"nodes": {"count": 2, "list": "n[3-4]"}}, "?"])
def test_where_slurm_does_not_say_it_is_shared_out_evenly(resources: object) -> None:
    job = read(OLDER, job_resources=resources, gres_detail=[], tres_per_node="gres:gpu:1")
    share = {"cpu": 3 * MILLI, "memory": 192 * MIB, "gpu": MILLI}
    assert shares(job) == {"n3": share, "n4": share}


@pytest.mark.parametrize(
    ("state", "holds"),
    [("RUNNING", True), ("SUSPENDED", True), ("COMPLETING", True), ("PENDING", False), ("COMPLETED", False)],
)
def test_who_holds_something(state: str, holds: bool) -> None:
    assert read(OLDER, job_state=state).holding is holds


def test_ours_count_only_beyond_what_they_asked_for() -> None:
    taken = Taken()
    asked = asked_for((Place("n3", "w", 2), Place("n4", "w", 1)), {"w": {"cpu": 2 * MILLI, "gpu": MILLI}})
    taken.add(read(OLDER), asked)
    capacity = {"cpu": 8 * MILLI, "memory": 1000 * MIB, "gpu": 4 * MILLI}
    assert taken.of(Server("n3", capacity)).taken == {"memory": 256 * MIB}
    assert taken.of(Server("n4", capacity)).taken == {"memory": 128 * MIB, "gpu": MILLI}
    taken.add(read(OLDER))
    assert taken.of(Server("n3", capacity)).taken == {"memory": 512 * MIB, "cpu": 4 * MILLI, "gpu": MILLI}
    same = Server("n9", capacity)
    assert taken.of(same) is same


def test_what_was_asked_for_is_known_after_a_restart(tmp_path: Path) -> None:
    """A spool that an older berth wrote says nothing of it."""
    job = Job("j", "t", (Role("w", 1, {"cpu": MILLI}),))
    first = Spool(tmp_path)
    first.asked(("j", 1), (Place("n1", "w", 1),), job=job)
    first.close()
    path = tmp_path / "attempts.jsonl"
    again = Spool(tmp_path)
    assert again.records["j", 1].demands == {"w": {"cpu": MILLI}}
    again.close()
    line = json.loads(path.read_text())
    del line["demands"]
    path.write_text(json.dumps(line) + "\n")
    older = Spool(tmp_path)
    assert older.records["j", 1].demands is None
    older.close()
