"""Sizes of jobs and zero run times in replays: which field counts, which jobs are played, and HPCOpt's numbers."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.cli import main
from berth.errors import InvalidInput
from berth.families.placement.pool_runs import run_pool
from berth.lab.replay import Measurement, ReplaySetting, replay
from berth.lab.replay.sweep import ReplaySweepFile, replay_sweep
from berth.traces.formats import load_trace
from berth.traces.formats.generic import write_trace
from berth.traces.trace import Trace
from tests.harness.examples import examples
from tests.reference import batch

TRACES = os.environ.get("BERTH_TRACES")
# job submit wait run allocated cpu memory requested estimate memory status user group application queue partition - -
JOBS = (
    (1, 0, 100, 4, 2, 120),
    (2, 10, 0, 4, 8, 60),
    (3, 20, 50, 8, -1, 60),
    (4, 30, 0, -1, 4, -1),
    (5, 40, 30, 2, 2, 30),
    (6, 50, -1, 2, 2, 30),
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Six jobs on eight processors: requests and allocations differ, two have no run time, one an unknown one."""
    lines = ["; MaxProcs: 8"]
    for job, submit, run, allocated, requested, estimate in JOBS:
        lines.append(f"{job} {submit} -1 {run} {allocated} -1 -1 {requested} {estimate} -1 1 1 1 -1 1 -1 -1 -1")
    file = tmp_path / "sizes.swf"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def starts(file: Path, policy: str = "fcfs", **setting: Any) -> dict[str, float]:
    found = replay(file, [policy], ReplaySetting(processors=8, **setting))
    return dict(zip(found.jobs["job"].to_list(), found.jobs["start_s"].to_list(), strict=True))


@pytest.mark.parametrize(
    ("size", "expected"),
    [("requested", [2, 8, 8, 4, 2, 2]), ("allocated", [4, 4, 8, 4, 2, 2]), ("larger", [4, 8, 8, 4, 2, 2])],
)
def test_the_field_that_is_the_size(log: Path, size: str, expected: list[int]) -> None:
    trace = load_trace(log, size=size)
    assert trace.jobs["pieces"].to_list() == expected
    assert trace.source.notes.get("size", "") == ("" if size == "requested" else f"{size} processors, as asked for")


def test_a_request_for_nodes_counts_only_if_it_agrees_with_the_size() -> None:
    file = Path(__file__).parents[1] / "data" / "traces" / "swf" / "metacentrum.swf"
    requested, allocated = load_trace(file), load_trace(file, size="allocated")
    asked = (requested.jobs["pieces"] * requested.jobs["cpu"]).to_list()
    got = (allocated.jobs["pieces"] * allocated.jobs["cpu"]).to_list()
    fields = [line.split() for line in file.read_text(encoding="utf-8").splitlines() if line[:1] not in (";", "")]
    expected = [float(line[4]) if float(line[4]) > 0 else float(line[7]) for line in fields]
    assert got == expected
    same = [place for place, line in enumerate(fields) if line[4] == line[7]]
    assert same
    assert [asked[place] for place in same] == [got[place] for place in same]


def test_jobs_of_zero_run_time_start_end_at_once_and_count(log: Path) -> None:
    assert starts(log) == {"1": 0.0, "3": 100.0, "5": 150.0}
    assert starts(log, zero_run_times=True) == {"1": 0.0, "2": 100.0, "3": 100.0, "4": 150.0, "5": 150.0}
    kept = starts(log, zero_run_times=True, size="allocated")
    assert kept == {"1": 0.0, "2": 10.0, "3": 100.0, "4": 150.0, "5": 150.0}
    found = replay(log, ["fcfs"], ReplaySetting(8, zero_run_times=True), Measurement(slowdown_bound=60.0))
    assert found.rows[0]["jobs"] == 5
    assert found.left_out["no run time"] == 1
    assert "run time not above 0" not in found.left_out
    slow = dict(zip(found.jobs["job"].to_list(), found.jobs["bounded_slowdown"].to_list(), strict=True))
    assert slow["2"] == 90 / 60


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "sjf", "wfp3", "wfp3:backfill=easy", "unicep"])
@pytest.mark.parametrize("exact", [False, True])
def test_kernels_and_engine_agree_on_zero_run_times(log: Path, policy: str, exact: bool) -> None:
    trace = load_trace(log)
    pool = replay(trace, [policy], ReplaySetting(8, exact=exact, zero_run_times=True)).jobs
    assert (pool["end_s"] == pool["start_s"]).sum() == 2
    setting = ReplaySetting(8, exact=exact, zero_run_times=True, outages=True)  # the engine plays outages
    assert replay(trace, [policy], setting).jobs["start_s"].to_list() == pool["start_s"].to_list()
    whole = trace.jobs.drop("memory").with_columns(cpu=pl.col("pieces").cast(pl.Float64), pieces=pl.lit(1))
    two = Trace.of(whole, {"machine": ["m"], "count": [2], "cpu": [8.0]})  # on machines
    setting = ReplaySetting(exact=exact, zero_run_times=True)
    placed = replay(two, [policy], setting).jobs["start_s"].to_list()
    assert placed == replay(two, [policy], replace(setting, outages=True)).jobs["start_s"].to_list()


@given(st.data())
@examples(60)
def test_starts_with_zero_run_times_are_those_of_the_reference(data: st.DataObject) -> None:
    whole = st.integers(0, 4).map(float)
    jobs = data.draw(st.lists(st.tuples(whole, st.integers(1, 4).map(float), whole, whole), min_size=1, max_size=12))
    jobs.sort(key=lambda job: job[0])
    jobs = [(submit, size, run, max(estimate, 1.0)) for submit, size, run, estimate in jobs]
    submit, size, run, estimate = np.array(jobs).T
    for backfill, decide in (
        ("none", batch.strict(batch.by_arrival)),
        ("any", batch.whoever_fits(batch.by_arrival)),
        ("easy", batch.easy(batch.by_arrival)),
    ):
        found = run_pool(submit, size, run, estimate, 4.0, backfill=backfill)
        assert found.tolist() == batch.simulate_batch(jobs, 4.0, decide)


def test_other_formats_have_one_size(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(load_trace(log), tmp_path / "jobs.csv")
    assert main(["replay", str(tmp_path / "jobs.csv"), "--processors", "8", "--size", "allocated"]) == 2
    assert "size: got a trace in the format generic, expected a log in the Standard Workload Format (swf)" in (
        capsys.readouterr().err
    )
    assert main(["replay", str(log), "--size", "alocated"]) == 2
    assert "did you mean 'allocated'?" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match="chooses a field when a log is read"):
        replay(load_trace(log), ["fcfs"], ReplaySetting(8, size="allocated"))


@pytest.mark.usefixtures("undrawn")
def test_results_of_another_size_are_not_reused(log: Path, tmp_path: Path) -> None:
    replay(log, ["fcfs"], ReplaySetting(8, size="allocated", zero_run_times=True), out=tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["setting"]["size"] == "allocated"
    assert manifest["setting"]["zero_run_times"]
    assert manifest["command"].endswith("--size allocated --zero-run-times")
    for other in ({"size": "larger", "zero_run_times": True}, {"size": "allocated"}):
        with pytest.raises(InvalidInput, match="which has others"):
            replay(log, ["fcfs"], ReplaySetting(8, **other), out=tmp_path / "out")


def test_a_sweep_over_sizes(log: Path, tmp_path: Path) -> None:
    plan: dict[str, Any] = {
        "trace": str(log),
        "set": {"processors": 8, "zero_run_times": True},
        "grid": {"size": ["requested", "allocated"]},
        "policies": ["fcfs"],
    }
    found = replay_sweep(ReplaySweepFile(**plan), out=tmp_path / "out", workers=1)
    assert not found.failed
    table = found.frame()
    assert table["size"].to_list() == ["requested", "allocated"]
    assert table["jobs"].to_list() == [5, 5]
    expected = [
        replay(log, ["fcfs"], ReplaySetting(8, size=size, zero_run_times=True)).rows[0]["mean_wait_seconds"]
        for size in ("requested", "allocated")
    ]
    assert table["mean_wait_seconds"].to_list() == expected
    assert expected[0] > expected[1]


@pytest.mark.slow
@pytest.mark.skipif(not TRACES, reason="BERTH_TRACES is not set: the traces are not there")
def test_the_numbers_of_hpcopt(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(str(TRACES)) / "swf" / "SDSC-SP2-1998-4.2-cln.swf.gz"
    options = ["--processors", "128", "--size", "allocated", "--zero-run-times", "--slowdown-bound", "60"]
    assert main(["replay", str(file), *options, "-p", "fcfs", "-o", "json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["jobs"] == 54_044
    assert round(found["mean_wait_seconds"]) == 1_552_128
    assert round(found["p95_wait_seconds"]) == 5_103_921
    assert round(found["p95_bounded_slowdown"], 2) == 56_784.93
    assert found["makespan_seconds"] == 68_440_542
