"""The linter: every rule catches what it must and nothing near it, and both ways through the rules agree."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from berth.errors import InvalidInput
from berth.traces.formats import Reading, load_trace, open_trace
from berth.traces.lint import Findings, lint, usable
from berth.traces.rows import Report
from berth.traces.rules import DROPPED, RULES, Seen
from berth.traces.summary import Arrivals, Spread
from berth.traces.trace import CORES, JOB_COLUMNS, MACHINE_COLUMNS, MEMORY, Source, Trace, filled
from tests.reference.trace_rules import judged

SWF = Path(__file__).parents[1] / "data" / "traces" / "swf"
RESOURCES = (CORES, MEMORY)
GOOD: dict[str, Any] = {
    "job": "a", "submit_s": 10.0, "wait_s": 0.0, "run_s": 60.0, "estimate_s": 60.0, "pieces": 2, "cpu": 4.0,
    "memory": 1.0,
}  # fmt: skip
MACHINES = pl.DataFrame(
    {
        "machine": ["big", "small"],
        "count": [1, 3],
        "label": ["fast", "slow"],
        "cpu": [16.0, 4.0],
        "memory": [None, 8.0],
    }
)


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    wanted = {**JOB_COLUMNS, **{resource.name: pl.Float64 for resource in RESOURCES}}
    return pl.DataFrame([{**GOOD, **row} for row in rows], schema=wanted, orient="row")


def found(*rows: dict[str, Any], machines: pl.DataFrame | None = MACHINES, strict: bool = False) -> Findings:
    """What the linter finds in these rows, each in a table of its own, so that it must remember what came before."""
    jobs = table(*rows).with_columns(pl.int_range(2, 2 + len(rows), dtype=pl.Int64).alias("line"))
    known = None if machines is None else filled(machines, MACHINE_COLUMNS, RESOURCES)
    source, report = Source("test", ("own.csv",)), Report(strict=strict)
    return lint(Reading((jobs[at] for at in range(len(jobs))), RESOURCES, source, report, known))


def reasons(findings: Findings) -> dict[str, int]:
    return {problem.reason: problem.count for problem in findings.problems}


# For each rule: what makes a good row one that it catches, and what makes one that it must leave.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no submit time": ({"submit_s": None}, {"submit_s": 0.0}),
    "negative submit time": ({"submit_s": -0.5}, {"submit_s": 0.0}),
    "still running": ({"run_s": None, "status": "running"}, {"run_s": 1.0, "status": "running"}),
    "no run time": ({"run_s": None}, {"run_s": 0.001}),
    "run time not above 0": ({"run_s": 0.0}, {"run_s": 0.001}),
    "no size": ({"pieces": None, "cpu": None, "memory": None}, {"pieces": 1, "cpu": None, "memory": None}),
    "size not above 0": ({"pieces": 0}, {"pieces": 1}),
    "negative amount": ({"memory": -0.1}, {"memory": 0.0}),
    "label that no machine has": ({"needs": "quick|swift"}, {"needs": "quick|slow"}),
    # only small machines have memory, and only 8 GiB; the big one has 16 cores, but memory that nobody told: none
    "larger than any machine": ({"cpu": 5.0, "memory": 1.0}, {"cpu": 5.0, "memory": 0.0}),
    "larger than the cluster": ({"pieces": 8, "memory": 0.0}, {"pieces": 7, "memory": 0.0}),
    "started before it came": ({"wait_s": -1.0}, {"wait_s": 0.0}),
    "estimate not above 0": ({"estimate_s": 0.0}, {"estimate_s": 60.0}),
    "no estimate": ({"estimate_s": None}, {"estimate_s": 61.0}),
    "no number of pieces": ({"pieces": None}, {"pieces": 1}),
    "ran longer than estimated": ({"estimate_s": 59.9}, {"estimate_s": 60.0}),
    "no amount of memory": ({"memory": None}, {"memory": 0.0}),
    "no amount of cpu": ({"cpu": None}, {"cpu": 0.0}),
}


@pytest.mark.parametrize("reason", CASES)
def test_each_rule_catches_its_rows_and_no_others(reason: str) -> None:
    caught, near = CASES[reason]
    findings = found(GOOD, {**caught, "job": "b"})
    assert reasons(findings)[reason] == 1
    rule = next(problem for problem in findings.problems if problem.reason == reason)
    dropped = rule.action == DROPPED
    assert (findings.rows, findings.usable, findings.clean) == (2, 1 if dropped else 2, not dropped)
    assert len(rule.examples) == 1
    assert str(rule.examples[0]).startswith("own.csv:3: ")
    assert reason not in reasons(found(GOOD, {**near, "job": "b"}))


def test_every_rule_has_a_case() -> None:
    beside = {"name seen before", "out of order"}
    assert {rule.reason for rule in RULES} | {"no amount of cpu", "no amount of memory"} == CASES.keys() | beside


def test_a_good_row_is_caught_by_nothing() -> None:
    findings = found(GOOD)
    assert findings.clean
    assert reasons(findings) == {}


def test_the_second_job_of_a_name_is_left_out() -> None:
    findings = found(GOOD, {"job": "b"}, GOOD, {"job": None}, {"job": None})
    assert reasons(findings) == {"name seen before": 1}
    assert str(findings.problems[0].examples[0]) == "own.csv:4: job: got 'a', expected a name that no job above has"
    # a name whose first job is impossible is still free
    assert reasons(found({"run_s": 0.0}, GOOD)) == {"run time not above 0": 1}


def test_jobs_out_of_order_are_counted_and_sorted() -> None:
    rows = [{"job": name, "submit_s": at} for name, at in (("a", 5.0), ("b", 3.0), ("c", 5.0), ("d", 4.0), ("e", 6.0))]
    assert reasons(found(*rows)) == {"out of order": 2}
    sorted_trace, counts = usable(Trace.of(table(*rows), MACHINES, RESOURCES))
    assert counts == {"out of order": 2}
    assert sorted_trace.jobs["job"].to_list() == ["b", "d", "a", "c", "e"]


def test_fractions_that_fill_a_machine_fit() -> None:
    machines = pl.DataFrame({"machine": ["m"], "count": [1], "cpu": [0.3], "memory": [0.7]})
    assert found({"cpu": 0.1, "memory": 0.1, "pieces": 3}, machines=machines).clean
    assert reasons(found({"cpu": 0.1, "memory": 0.1, "pieces": 4}, machines=machines)) == {"larger than the cluster": 1}


def test_amounts_next_to_nothing_fit() -> None:
    assert found({"cpu": 5e-324, "memory": 0.0, "pieces": 10**9}).clean


def test_without_machines_nothing_is_too_large() -> None:
    assert found({"pieces": 10**6, "cpu": 1e9, "needs": "quick"}, machines=None).clean


def test_a_strict_reading_refuses_the_first_impossible_row() -> None:
    with pytest.raises(InvalidInput, match=r"own.csv:3: run_s: got 0, expected a run time above 0"):
        found(GOOD, {"job": "b", "run_s": 0.0}, {"job": "c", "pieces": 0}, strict=True)
    assert found({"wait_s": -1.0}, strict=True).clean


def test_what_is_repaired() -> None:
    jobs = table(
        {"job": "a", "estimate_s": None, "pieces": None, "memory": None, "wait_s": -3.0},
        {"job": "b", "estimate_s": -1.0, "wait_s": 2.0},
    )
    trace, counts = usable(Trace.of(jobs, MACHINES, RESOURCES))
    assert trace.jobs.select("estimate_s", "pieces", "cpu", "memory", "wait_s").rows() == [
        (60.0, 1, 4.0, 0.0, None),
        (60.0, 2, 4.0, 1.0, 2.0),
    ]
    assert trace.machines.select("count", "speed", "cpu", "memory").rows() == [(1, 1.0, 16.0, 0.0), (3, 1.0, 4.0, 8.0)]
    assert sum(counts.values()) == 5


def test_resources_that_nobody_tells_of_are_left_out() -> None:
    silent = Trace.of(table({"memory": None}), MACHINES, RESOURCES)
    assert usable(silent)[0].resources == (CORES,)
    assert usable(silent)[1] == {}
    machines = MACHINES.with_columns(pl.lit(None, dtype=pl.Float64).alias("memory"))
    assert usable(Trace.of(table({"memory": 99.0}), machines, RESOURCES))[0].resources == (CORES,)
    bare = Trace.of({"submit_s": [0.0], "run_s": [1.0]}, None, ())
    assert usable(bare)[0].jobs["pieces"].to_list() == [1]
    assert usable(usable(silent)[0])[1] == {}


def test_where_no_job_tells_its_size_each_is_one_piece() -> None:
    silent = {"pieces": None, "cpu": None, "memory": None}
    rows = [{**silent, "job": name} for name in ("a", "b", "a")] + [{**silent, "run_s": 0.0}]
    findings = found(*rows)
    assert reasons(findings) == {"name seen before": 1, "run time not above 0": 1, "no number of pieces": 2}
    assert (findings.usable, findings.spreads["pieces"].count) == (2, 2)
    # one job that does, and the others have none
    findings = found(*rows, GOOD)
    assert reasons(findings) == {"no size": 3, "run time not above 0": 1}
    assert (findings.usable, findings.spreads["pieces"].count) == (1, 1)
    problem = next(problem for problem in findings.problems if problem.reason == "no size")
    assert [example.line for example in problem.examples] == [2, 3, 4]


def test_an_empty_trace_stays_empty() -> None:
    trace, counts = usable(Trace.of({}, MACHINES, RESOURCES))
    assert (len(trace), counts) == (0, {})


# ---------------------------------------------------------------------------- against the plain twin


def few(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


ROW = st.fixed_dictionaries(
    {
        "job": few(None, "a", "b", "c", "d", "e"),
        "submit_s": few(None, -1.0, 0.0, 5.0, 7.5, 100.0),
        "wait_s": few(None, -1.0, 0.0, 3.0),
        "run_s": few(None, -1.0, 0.0, 1.0, 60.0, 60.0),
        "estimate_s": few(None, -1.0, 0.0, 30.0, 90.0),
        "pieces": few(None, -1, 0, 1, 2, 3, 8, 50),
        "needs": few(None, None, "x", "y", "x|y", "z"),
        "status": few(None, "done", "running"),
        "cpu": few(None, 0.0, 1.0, 2.5, 8.0, -1.0),
        "memory": few(None, 0.0, 0.5, 4.0, 64.0),
    }
)
MACHINE = st.fixed_dictionaries(
    {
        "machine": few("m"),
        "count": st.integers(1, 4),
        "label": few(None, "x", "y"),
        "cpu": few(None, 0.0, 4.0, 8.0),
        "memory": few(None, 2.0, 64.0),
    }
)


SILENT = ROW.map(lambda row: {**row, "pieces": None, "cpu": None, "memory": None})


@given(
    st.tuples(st.lists(SILENT, max_size=10), st.lists(ROW, max_size=30)).map(lambda two: two[0] + two[1]),
    st.lists(MACHINE, max_size=3),
    st.integers(1, 10),
)
def test_both_ways_agree_with_the_plain_twin(
    rows: list[dict[str, Any]], machines: list[dict[str, Any]], size: int
) -> None:
    names = ["cpu", "memory"]
    kept, counts = judged(rows, machines, names)
    jobs = table(*rows)
    trace = Trace.of(jobs, pl.DataFrame(machines, schema=_machine_types()) if machines else None, RESOURCES)
    cleaned, mine = usable(trace)
    assert mine == counts
    assert_frame_equal(cleaned.jobs.select("submit_s", "run_s", "job"), jobs[kept].select("submit_s", "run_s", "job"))
    chunks = (jobs[at : at + size] for at in range(0, len(jobs), size))
    findings = lint(Reading(chunks, RESOURCES, Source("test"), Report(), trace.machines))
    assert reasons(findings) == counts
    assert findings.usable == len(kept)
    assert findings.rows == len(rows)
    assert findings.missing == {name: sum(row.get(name) is None for row in rows) for name in jobs.columns}
    again, left = usable(cleaned)  # what is usable once is usable for good, and nothing is left to repair
    assert left.keys() <= {"ran longer than estimated"}
    assert_frame_equal(again.jobs, cleaned.jobs)
    used = cleaned.jobs
    for name in findings.work:
        if name in used.columns:
            work = sum(a * b * c for a, b, c in used.select("run_s", "pieces", name).rows())
            assert findings.work[name] == pytest.approx(work)
    times = sorted(row["submit_s"] for row in rows if row["submit_s"] is not None and row["submit_s"] >= 0)
    assert findings.arrivals.times().tolist() == times


def _machine_types() -> dict[str, Any]:
    return {"machine": pl.String, "count": pl.Int64, "label": pl.String, "cpu": pl.Float64, "memory": pl.Float64}


@given(st.lists(st.lists(st.integers(0, 20), max_size=12), max_size=12))
def test_seen_is_a_set(parts: list[list[int]]) -> None:
    seen, before = Seen(), set[int]()
    for part in parts:
        expected = []
        for value in part:
            expected.append(value in before)
            before.add(value)
        assert seen.add(np.array(part, np.uint64)).tolist() == expected
    assert sum(map(len, seen.runs)) == len(before)


@given(st.lists(st.lists(st.none() | st.floats(0, 1e9), max_size=20), min_size=1, max_size=4), st.integers(1, 100))
def test_spread_has_percentiles_to_four_digits(parts: list[list[float | None]], percent: int) -> None:
    spread = Spread()
    for part in parts:
        spread.add(pl.Series(part, dtype=pl.Float64))
    values = sorted(value for part in parts for value in part if value is not None)
    assert spread.count == len(values)
    if values:
        exact = values[math.ceil(percent / 100 * len(values)) - 1]
        assert spread.percentile(percent) == pytest.approx(exact, rel=6e-4)
        assert (spread.low, spread.high) == (values[0], values[-1])
        assert spread.histogram(7)[1].sum() == len(values)
    else:
        assert spread.percentile(percent) is None


def test_arrivals_of_one_moment_have_no_rate() -> None:
    arrivals = Arrivals(0.0)
    assert (arrivals.first_s, arrivals.span_s, arrivals.jobs_per_hour, arrivals.cv2) == (None, 0.0, None, None)
    arrivals.add(pl.Series([7.0, 7.0, None, -1.0]))
    assert (arrivals.first_s, arrivals.span_s, arrivals.jobs_per_hour, arrivals.cv2) == (7.0, 0.0, None, None)


# ---------------------------------------------------------------------------- logs


def test_a_clean_log() -> None:
    findings = lint(open_trace(SWF / "clean.swf"))
    assert findings.clean
    assert findings.problems == ()
    assert (findings.rows, findings.machines, findings.capacity) == (4, 4, {"cpu": 8.0})
    # 2·100 + 8·3600 + 1·60 + 4·1200 processor seconds in 7200 s on 8 processors
    assert findings.load == {"cpu": pytest.approx(33860 / 7200 / 8)}
    assert findings.dominant == "cpu"
    assert findings.arrivals.jobs_per_hour == 2.0
    gaps = np.array([1800.0, 1800.0, 3600.0])
    assert findings.arrivals.cv2 == pytest.approx(gaps.var() / gaps.mean() ** 2)
    # the trace's zero is 9 o'clock there
    assert np.flatnonzero(findings.arrivals.by_hour()).tolist() == [9, 10, 11]
    assert findings.missing["estimate_s"] == 0
    assert findings.missing["memory"] == 4
    assert findings.spreads.keys() == {"run_s", "wait_s", "pieces", "cpu"}
    assert findings.spreads["run_s"].as_dict() == {
        "count": 4, "mean": 1240.0, "min": 60.0, "p5": 60.0, "p50": 100.0, "p95": 3600.0, "p99": 3600.0, "max": 3600.0,
    }  # fmt: skip


def test_a_dirty_log() -> None:
    findings = lint(open_trace(SWF / "dirty.swf"))
    assert {problem.reason: problem.count for problem in findings.skipped} == {
        "no finite number": 1,
        "wrong number of columns": 1,
    }
    assert reasons(findings) == {
        "run time not above 0": 1,
        "no run time": 1,
        "no size": 1,
        "larger than the cluster": 1,
        "name seen before": 1,
        "started before it came": 1,
        "no estimate": 1,
        "out of order": 1,
        "ran longer than estimated": 1,
    }
    assert (findings.rows, findings.usable) == (9, 4)
    lines = {problem.reason: problem.examples[0].line for problem in findings.problems}
    assert lines["run time not above 0"] == 6
    assert lines["name seen before"] == 13
    assert lines["out of order"] == 12
    assert usable(load_trace(SWF / "dirty.swf"))[1] == reasons(findings)


USABLE = {  # usable jobs and rows, as the archive's own rule counts them: run time and size above 0
    "SDSC-SP2-1998-4.2-cln": (54_034, 59_715),
    "NASA-iPSC-1993-3.1-cln": (18_066, 18_239),
    "LLNL-Atlas-2006-2.1-cln": (36_600, 43_778),
    "HPC2N-2002-head": (3_145, 3_170),
    "wagap-2013": (17_897, 17_900),  # and one that asks for 512 GiB on one of the machines of 505 GiB
    "lublin_256-synthetic": (10_000, 10_000),
}


def logs() -> Sequence[Path]:
    """The real logs where they are, and in any case the one made by hand."""
    real = os.environ.get("BERTH_TRACES")
    return [SWF / "clean.swf", *(sorted((Path(real) / "swf").glob("*.swf*")) if real else [])]


# What lies beside jobs and machines: usage, instances, histograms. Reading it as a trace is an error.
OTHER = (
    "MANIFEST", "README", "batch_instance", "dag_shape", "gavel", "machine_usage", "marginal", "minibatch",
    "pai_instance", "pai_job", "pai_published", "sia",
)  # fmt: skip


def files() -> Sequence[Path]:
    """Every sample, and every real file where they are."""
    real = os.environ.get("BERTH_TRACES")
    places = [SWF.parent, *([Path(real)] if real else [])]
    return [path for place in places for path in sorted(place.glob("*/*")) if path.is_file()]


@pytest.mark.parametrize("path", files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_file_is_linted_and_both_ways_agree(path: Path) -> None:
    if path.name.startswith(OTHER):
        with pytest.raises(InvalidInput):
            lint(open_trace(path))
        return
    findings = lint(open_trace(path))
    trace, counts = usable(load_trace(path))
    assert counts == reasons(findings)
    assert len(trace) == findings.usable
    assert findings.rows or findings.machines
    assert trace.jobs["submit_s"].is_sorted()
    needed = ["submit_s", "run_s", "estimate_s", "pieces", *(resource.name for resource in trace.resources)]
    assert sum(trace.jobs.select(needed).null_count().row(0)) == 0
    for name, load in findings.load.items():
        assert load == pytest.approx(findings.work[name] / findings.arrivals.span_s / findings.capacity[name])


@pytest.mark.parametrize("path", logs(), ids=lambda path: path.name)
def test_usable_jobs_of_the_archive(path: Path) -> None:
    findings = lint(open_trace(path))
    if path.parent != SWF:
        assert (findings.usable, findings.rows) == USABLE[path.name.removesuffix(".gz").removesuffix(".swf")]
    else:
        assert findings.clean
