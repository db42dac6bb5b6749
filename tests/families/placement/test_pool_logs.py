"""Whole logs on one pool, against references that share no code with the package: equal to the last digit.

The real logs are read where BERTH_TRACES says they are; one that is made here is always there.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from berth.families.placement.pool_runs import run_pool
from berth.lab.replay import Replay, ReplaySetting, replay
from tests.reference import batch

REAL = os.environ.get("BERTH_TRACES")
MADE = "made"
LOGS: dict[str, tuple[str, float]] = {MADE: ("", 64.0)}
if REAL:
    LOGS["lublin_256"] = ("swf/lublin_256-synthetic.swf.gz", 256.0)
    LOGS["SDSC-SP2"] = ("swf/SDSC-SP2-1998-4.2-cln.swf.gz", 128.0)
SOME = 1500


def _made() -> list[batch.Job]:
    """Jobs in bursts and pauses, sizes mostly powers of two, run times from seconds to a day, poor estimates."""
    rng = np.random.default_rng(7)
    count = 4000
    submit = np.cumsum(np.floor(rng.lognormal(4.0, 2.0, count)))
    size = np.minimum(2.0 ** rng.integers(0, 7, count) + rng.integers(0, 2, count), 64.0)
    run = np.clip(np.floor(rng.lognormal(5.0, 2.0, count)), 1.0, 86_400.0)
    estimate = np.maximum(np.floor(run * rng.choice([0.9, 1.0, 1.5, 4.0], count)), 1.0)
    return list(zip(submit.tolist(), size.tolist(), run.tolist(), estimate.tolist(), strict=True))


def _written(folder: Path) -> Path:
    """The made log as a file in the Standard Workload Format."""
    rows = (
        f"{i + 1} {int(submit)} -1 {int(run)} {int(size)} -1 -1 {int(size)} {int(estimate)} -1 1 1 1 -1 1 -1 -1 -1"
        for i, (submit, size, run, estimate) in enumerate(_made())
    )
    path = folder / "made.swf"
    path.write_text("; MaxProcs: 64\n" + "\n".join(rows) + "\n")
    return path


@cache
def _jobs(name: str) -> list[batch.Job]:
    return _made() if name == MADE else batch.swf_jobs(Path(str(REAL)) / LOGS[name][0])


def _played(name: str, policy: str, folder: Path) -> Replay:
    path = _written(folder) if name == MADE else Path(str(REAL)) / LOGS[name][0]
    return replay(path, [policy], ReplaySetting(processors=LOGS[name][1]))


@pytest.mark.parametrize("name", LOGS)
def test_strict_fcfs_is_exact(name: str, tmp_path: Path) -> None:
    """Times are whole seconds, so that sums are exact and a mean has one value, whatever the order of its sum."""
    jobs = _jobs(name)
    start = batch.strict_fcfs(jobs, LOGS[name][1])
    found = _played(name, "fcfs", tmp_path)
    assert found.jobs["start_s"].to_list() == start
    wait = sum(at - job[0] for at, job in zip(start, jobs, strict=True)) / len(jobs)
    assert wait > 0
    assert found.rows[0]["mean_wait_seconds"] == wait


@pytest.mark.parametrize("name", LOGS)
def test_backfilling_of_a_log_is_the_reference(name: str) -> None:
    jobs, processors = _jobs(name)[:SOME], LOGS[name][1]
    plain = batch.simulate_batch(jobs, processors, batch.easy(batch.by_arrival))
    submit, size, run, estimate = np.array(jobs).T
    assert run_pool(submit, size, run, estimate, processors, backfill="easy").tolist() == plain
    if name == MADE:  # its queue is long, and the reference takes the cube of that
        jobs = jobs[:400]
    submit, size, run, estimate = np.array(jobs).T
    plain = batch.conservative(jobs, processors)
    assert run_pool(submit, size, run, estimate, processors, backfill="conservative").tolist() == plain


@pytest.mark.parametrize("name", LOGS)
def test_the_fast_reference_is_the_plain_one(name: str) -> None:
    jobs, processors = _jobs(name)[:SOME], LOGS[name][1]
    plain = batch.simulate_batch(jobs, processors, batch.strict(batch.by_arrival))
    assert batch.strict_fcfs(jobs, processors) == plain
