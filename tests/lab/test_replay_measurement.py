"""What of a log is played and counted: parts, warm-up, windows, replicas, and paired differences with intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.cli import main
from berth.errors import InvalidInput
from berth.lab.replay import Measurement, Replay, ReplaySetting, replay
from berth.lab.replay.paired import differences, over_samples
from berth.lab.replay.results import batch_metrics
from berth.lab.replay.samples import _apart
from berth.random import stream
from berth.statistics import holm
from berth.traces.trace import Source, Trace
from tests.harness.examples import examples

POOL = ReplaySetting(processors=8)
DAY = 86400.0


def log(count: int = 120, **notes: str) -> Trace:
    """Jobs an hour apart, of changing sizes and lengths, that have to queue at times."""
    draw = stream(1, "log")
    jobs: dict[str, Any] = {
        "job": [str(i) for i in range(count)],
        "submit_s": 3600.0 * np.arange(count),
        "run_s": draw.integers(600, 9000, count).astype(float),
        "pieces": draw.integers(1, 8, count),
        "cpu": np.ones(count),
        "user": [f"u{i % 5}" for i in range(count)],
    }
    return Trace.of(jobs, source=Source("swf", (), notes))


def played(found: Replay, policy: str = "fcfs") -> list[str]:
    return found.jobs.filter(pl.col("policy") == policy)["job"].to_list()


# --- parts of the log


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        ("1d", None, range(24, 120)),
        (None, "1d", range(24)),
        ("2h", "4h", range(2, 4)),
        (7200.0, 14400.0, range(2, 4)),
        ("2000-01-02", "2000-01-03T12:00", range(12, 48)),
        ("2000-01-02T00:00+00:00", None, range(12, 120)),
    ],
)
def test_a_part_of_the_log(since: Any, until: Any, expected: range) -> None:
    noon = log(UnixStartTime="946728000")  # 2000-01-01, 12:00 UTC
    found = replay(noon, ["fcfs"], POOL, Measurement(since=since, until=until))
    assert played(found) == [str(i) for i in expected]


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        (Measurement(since="2000-01-02"), "this log does not say when it began"),
        (Measurement(since="2000-13-02"), "a date such as"),
        (Measurement(since="30d"), "none from 30d to the end of a log of 4.958 days"),
        (Measurement(until="soon"), "until: got 'soon', expected a duration"),
        (Measurement(warm_up="60%", cool_down="60%"), "leave jobs to count"),
        (Measurement(warm_up="150%"), "a share from 0% to below 100%"),
        (Measurement(warm_up="9d"), "leave jobs to count"),
        (Measurement(windows=3), "either window_jobs or window_length"),
        (Measurement(windows=3, window_jobs=10, window_length="1d"), "either window_jobs or window_length"),
        (Measurement(window_jobs=10), "a number of windows, or their starts"),
        (Measurement(windows=13, window_jobs=10), "at most 12 fit"),
        (Measurement(windows=1, window_jobs=500), "no window of this length fits"),
        (Measurement(windows=2, window_jobs=10, window_starts=(1,)), "not both"),
        (Measurement(window_jobs=10, window_starts=(115,)), "a window full of jobs"),
        (Measurement(window_jobs=10, window_starts=("-1",)), "the number of a job"),
        (Measurement(windows=2, window_jobs=10, replicas=2), "windows or replicas, not both"),
        (Measurement(replicas=0), "a whole number ≥ 1"),
    ],
)
def test_what_cannot_be_measured_is_one_error(measure: Measurement, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        replay(log(), ["fcfs"], POOL, measure)


# --- warm-up and cool-down


def test_jobs_of_the_warm_up_are_played_and_do_not_count() -> None:
    whole = replay(log(), ["fcfs"], POOL)
    part = replay(log(), ["fcfs"], POOL, Measurement(warm_up="25%", cool_down="24h"))
    assert part.jobs["start_s"].to_list() == whole.jobs["start_s"].to_list()
    counted = part.jobs.filter("counted")
    assert counted["job"].to_list() == [str(i) for i in range(30, 96)]
    row = part.rows[0]
    assert row["jobs"] == 66
    assert row["mean_wait_seconds"] == pytest.approx(counted["wait_s"].mean())
    assert row["mean_bounded_slowdown"] == pytest.approx(counted["bounded_slowdown"].mean())


@given(st.integers(0, 10**6), st.floats(0.05, 0.6), st.floats(0.05, 0.35))
@examples(30)
def test_use_within_a_time_is_what_every_second_shows(seed: int, begin: float, rest: float) -> None:
    """The slow twin looks at every second."""
    draw = np.random.default_rng(seed)
    submit = np.sort(draw.integers(0, 60, 12)).astype(float)
    start = submit + draw.integers(0, 9, 12).astype(float)
    end = start + draw.integers(1, 20, 12).astype(float)
    amount = draw.integers(1, 4, (12, 1)).astype(float)
    span = (np.floor(60 * begin), np.ceil(60 * (1 - rest)) + 1)
    found = batch_metrics(submit, start, end, amount, np.array([40.0]), None, 0, span)
    inside = (submit >= span[0]) & (submit <= span[1])
    assert found["jobs"] == inside.sum()
    if not inside.any():
        return
    seconds = np.arange(span[0], span[1])
    held = [(amount[:, 0] * ((start <= t) & (t < end))).sum() for t in seconds]
    waits = [((submit <= t) & (t < start)).any() for t in seconds]
    idle = [40.0 - use if some else 0.0 for use, some in zip(held, waits, strict=True)]
    assert found["utilisation"] == pytest.approx(sum(held) / (40 * len(seconds)))
    assert found["idle_while_waiting"] == pytest.approx(sum(idle) / (40 * len(seconds)))
    assert found["mean_wait_seconds"] == pytest.approx((start - submit)[inside].mean())


def test_the_bound_of_slowdowns() -> None:
    found = replay(log(), ["fcfs"], POOL, Measurement(slowdown_bound=5000.0, warm_up="10%"))
    run = (found.jobs["end_s"] - found.jobs["start_s"]).to_numpy()
    slow = np.maximum((found.jobs["wait_s"].to_numpy() + run) / np.maximum(run, 5000.0), 1.0)
    assert found.jobs["bounded_slowdown"].to_numpy() == pytest.approx(slow)
    assert found.rows[0]["mean_bounded_slowdown"] == pytest.approx(slow[found.jobs["counted"].to_numpy()].mean())
    with pytest.raises(InvalidInput, match="seconds above 0"):
        replay(log(), ["fcfs"], POOL, Measurement(slowdown_bound=0.0))


# --- windows and replicas


@given(st.integers(1, 20), st.integers(1, 12), st.integers(0, 99), st.booleans())
def test_drawn_windows_do_not_overlap(length: int, count: int, seed: int, whole: bool) -> None:
    starts = _apart(250, length, count, seed, whole=whole)
    assert starts[0] >= 0
    assert starts[-1] + length <= 250
    assert (np.diff(starts) >= length).all()
    assert starts.tolist() == _apart(250, length, count, seed, whole=whole).tolist()


def test_windows_are_played_each_on_an_empty_cluster() -> None:
    found = replay(log(), ["fcfs", "easy"], POOL, Measurement(window_jobs=10, window_starts=(20, "70")))
    assert found.samples == ("from job 20", "from job 70")
    assert played(found) == [str(i) for i in (*range(20, 30), *range(70, 80))]
    alone = replay(log(), ["fcfs"], POOL, Measurement(since="20h", until="30h"))
    first = found.jobs.filter((pl.col("policy") == "fcfs") & (pl.col("sample") == "from job 20"))
    assert first["start_s"].to_list() == alone.jobs["start_s"].to_list()
    assert found.each[0]["mean_wait_seconds"] == alone.rows[0]["mean_wait_seconds"]
    assert found.rows[0]["jobs"] == 20
    assert found.rows[0]["mean_wait_seconds"] == pytest.approx(
        np.mean([row["mean_wait_seconds"] for row in found.each if row["policy"] == "fcfs"])
    )


def test_windows_of_a_time() -> None:
    found = replay(log(), ["fcfs"], POOL, Measurement(window_length="6h", window_starts=("1d", 2 * DAY)))
    assert played(found) == [str(i) for i in (*range(24, 30), *range(48, 54))]
    drawn = replay(log(), ["fcfs"], POOL, Measurement(windows=4, window_length="12h"))
    assert len(drawn.samples) == 4
    assert set(drawn.jobs["sample"].value_counts()["count"].to_list()) <= {12, 13}


def test_every_window_has_the_load_asked_for() -> None:
    setting = ReplaySetting(processors=8, load=0.8)
    found = replay(log(), ["fcfs"], setting, Measurement(windows=3, window_jobs=30))
    assert [row["offered_load"] for row in found.each] == pytest.approx([0.8] * 3)


def test_replicas_of_a_trace_and_of_a_workload() -> None:
    setting = ReplaySetting(processors=8, first=40)
    found = replay(log(), ["fcfs", "easy"], setting, Measurement(replicas=3))
    assert found.samples == ("replica 0", "replica 1", "replica 2")
    assert found.rows[0]["jobs"] == 120
    assert len({row["mean_wait_seconds"] for row in found.each if row["policy"] == "fcfs"}) == 3
    other = replay("sdsc-sp2", ["fcfs"], ReplaySetting(first=40, seed=5), Measurement(replicas=2))
    assert other.samples == ("replica 5", "replica 6")


# --- differences


def test_differences_are_paired_and_corrected() -> None:
    draw = np.random.default_rng(0)
    level = 100 * draw.random(12)  # windows differ far more than policies
    each = {
        name: [
            {"mean_wait_seconds": value + gap + noise, "mean_bounded_slowdown": noise, "utilisation": 0.5}
            for value, noise in zip(level, draw.normal(0, 1, 12), strict=True)
        ]
        for name, gap in (("base", 0.0), ("worse", 5.0), ("same", 0.0))
    }
    found = {(one.policy, one.measure): one for one in differences(each, "base")}
    assert len(found) == 6
    wait = found["worse", "mean_wait_seconds"]
    assert wait.significant
    assert 3 < wait.estimate.mean < 7
    assert wait.estimate.half is not None
    assert wait.estimate.half < 2  # unpaired it would be about 60
    assert not found["same", "mean_wait_seconds"].significant
    assert found["same", "utilisation"].estimate.mean == 0
    for one in found.values():
        assert one.adjusted is not None
        assert one.estimate.chance is not None
        assert one.adjusted >= one.estimate.chance


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=12))
def test_holm_is_between_the_value_and_bonferroni(chances: list[float | None]) -> None:
    found = holm(chances)
    known = [chance for chance in chances if chance is not None]
    assert [value is None for value in found] == [value is None for value in chances]
    for chance, value in zip(chances, found, strict=True):
        if chance is not None:
            assert value is not None
            assert chance <= value <= min(1.0, len(known) * chance)
    if known:
        smallest = chances.index(min(known))
        assert found[smallest] == min(1.0, len(known) * min(known))


def test_a_window_in_which_nothing_started_gives_no_interval() -> None:
    each = {"a": [{"mean_wait_seconds": 1.0}, {}], "b": [{"mean_wait_seconds": 1.0}, {"mean_wait_seconds": 2.0}]}
    assert differences(each, "a") == []
    assert over_samples(each["a"]) == {"mean_wait_seconds": 1.0}


def test_one_sample_has_no_differences() -> None:
    found = replay(log(), ["fcfs", "easy"], POOL)
    assert (found.differences, found.samples) == ([], ("",))
    assert "interval" not in found.rows[0]


# --- files and the command line


@pytest.mark.usefixtures("undrawn")
def test_windows_are_kept_and_resumed(tmp_path: Path) -> None:
    measure = Measurement(windows=3, window_jobs=20)
    before = replay(log(), ["fcfs"], POOL, measure, out=tmp_path)
    assert len(list((tmp_path / "cells").glob("*.json"))) == 3
    again = replay(log(), ["fcfs", "easy"], POOL, measure, out=tmp_path)
    assert again.rows[0]["mean_wait_seconds"] == before.rows[0]["mean_wait_seconds"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary[1]["against"]["baseline"] == "fcfs"
    assert pl.read_parquet(tmp_path / "samples.parquet").height == 6
    with pytest.raises(InvalidInput, match="this very trace and setting"):
        replay(log(), ["fcfs"], POOL, Measurement(windows=2, window_jobs=20), out=tmp_path)


LUBLIN = ["replay", "sdsc-sp2", "--replicas", "3", "--first", "60", "-p", "fcfs", "-p", "easy", "-q"]


def test_the_command_line_shows_differences(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(LUBLIN) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "180 jobs in 3 replicas" in shown
    assert "Difference to fcfs, replica by replica: mean ± half of the 95 % interval" in shown
    assert "significant at 5 % after Holm's correction for 3 differences" in shown
    assert main([*LUBLIN, "--baseline", "easy", "-o", "csv"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert {"interval.utilisation.low", "against.baseline", "against.mean_wait_seconds.p_holm"} <= set(head.split(","))
    assert len(rows) == 2


def test_results_as_latex(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LUBLIN, "-o", "latex"]) == 0
    shown = capsys.readouterr().out
    assert shown.count(r"\begin{tabular}") == shown.count(r"\end{tabular}") == 2
    assert r"$\pm$" in shown
    tables = shown.split(r"\begin{tabular}")
    for line in "\n".join(part.split(r"\end{tabular}")[1] for part in tables[1:]).splitlines():
        assert not line or line.startswith("%")
    for line in (row for part in tables[1:] for row in part.split(r"\end{tabular}")[0].splitlines()):
        assert line.count("&") in (0, 3, 7)
        assert "±" not in line
