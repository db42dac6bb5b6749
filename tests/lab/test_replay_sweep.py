"""Sweeps of replays: points, results, curves and report, what resumes, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import berth.lab.replay.sweep as sweeps
from berth.cli import main
from berth.errors import InvalidInput
from berth.lab.replay import Measurement, ReplaySetting, replay
from berth.lab.replay.sweep import ReplaySweep, ReplaySweepFile, load_replay_sweep, replay_sweep
from berth.lab.replay.sweep_cells import ReplayedCells
from berth.lab.run.processes import run_cells
from berth.lab.show.sweeps import SweepLine, SweepTable, draw_curves
from berth.lab.sweep import load_sweep, sweep
from berth.statistics import Estimate
from berth.traces.formats.generic import write_trace
from tests.lab.test_replay_measurement import log


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cells run in this process; gives those that ran."""
    ran: list[str] = []

    def run(points: Sequence[Any], works: Sequence[Any], done: Callable[[Any, Any], None], **more: Any) -> None:
        def noted(work: Any, result: Any) -> None:
            ran.append(str(work.cell))
            done(work, result)

        run_cells(points, works, noted, workers=1, kind=more["kind"])

    monkeypatch.setattr(sweeps, "run_cells", run)
    return ran


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A log of 120 jobs."""
    file = tmp_path / "jobs.csv"
    write_trace(log(), file)
    return file


def plan(jobs: Path, **more: Any) -> ReplaySweepFile:
    common: dict[str, Any] = {
        "trace": str(jobs),
        "set": {"processors": 8},
        "grid": {"load": [0.5, 0.9]},
        "policies": ["fcfs", "easy"],
    }
    return ReplaySweepFile(**{**common, **more})


def waits(found: ReplaySweep) -> list[float]:
    return [row["mean_wait_seconds"] for rows in found.rows.values() for row in rows]


def test_a_point_is_a_replay(jobs: Path, here: list[str]) -> None:
    found = replay_sweep(plan(jobs))
    for place, load in enumerate((0.5, 0.9)):
        alone = replay(jobs, ["fcfs", "easy"], ReplaySetting(processors=8, load=load))
        for ours, theirs in zip(found.rows[place], alone.rows, strict=True):
            assert {**ours, "simulation_seconds": 0} == {**theirs, "simulation_seconds": 0}
    assert found.frame().select("load", "policy").rows() == [
        (0.5, "fcfs"),
        (0.5, "easy"),
        (0.9, "fcfs"),
        (0.9, "easy"),
    ]
    assert len(here) == 4


def test_windows_have_intervals_at_every_point(jobs: Path, here: list[str]) -> None:
    settings = {"processors": 8, "windows": 4, "window_jobs": 25, "warm_up": "10%"}
    found = replay_sweep(plan(jobs, set=settings, baseline="easy"))
    assert len(here) == 2 * 2 * 4
    measure = Measurement(windows=4, window_jobs=25, warm_up="10%")
    alone = replay(jobs, ["fcfs", "easy"], ReplaySetting(processors=8, load=0.9), measure, baseline="easy")
    assert found.differences[1] == alone.differences
    assert found.frame()["against.mean_wait_seconds.p_holm"].null_count() == 2  # those of the baseline


def test_a_sweep_resumes_and_reports(jobs: Path, here: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = sweep(plan(jobs, title="two loads"), out=out)
    more = sweep(plan(jobs, grid={"load": [0.5, 0.7, 0.9]}), out=out)
    assert isinstance(before, ReplaySweep)
    assert isinstance(more, ReplaySweep)
    assert (len(here), more.reused) == (6, 4)
    assert waits(more)[:2] == waits(before)[:2]
    assert pl.read_parquet(out / "summary.parquet").height == 6
    page = (out / "report.html").read_text()
    assert "Against load" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert {path.name for path in (out / "plots").iterdir()} == {"curves-load.png", "curves-load.svg"}
    damaged = next((out / "cells").glob("*.json"))
    damaged.write_text("{")
    sweep(plan(jobs, grid={"load": [0.5, 0.7, 0.9]}), out=out)
    assert len(here) == 7


def test_the_command_in_processes(jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Traces are relative to the sweep file; a policy that fails stops no other."""
    file = tmp_path / "sweep.yaml"
    file.write_text("grid: {trace: [jobs.csv], load: [0.5, 0.9]}\nset: {processors: 8}\npolicies: [easy, fcfs]\n")
    words = ["sweep", str(file), "--out", str(tmp_path / "out"), "--workers", "1", "-q"]
    assert main([*words, "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [point["changes"]["load"] for point in shown["points"]] == [0.5, 0.9]
    assert shown["failed"] == {}
    assert main(words) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["trace", "load", "policy", "wait", "slowdown", "used"]
    assert lines[1][:3] == ["jobs.csv", "0.5", "easy"]
    assert main([*words, "--on", "ray"]) == 2
    assert "sweeps of replays run on this machine" in capsys.readouterr().err


def test_a_failing_cell_is_listed(jobs: Path, here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("out of paper")

    monkeypatch.setattr("berth.families.placement.policies.rules.EASY.queue_rule", property(broken))
    found = replay_sweep(plan(jobs, grid={"load": [0.5]}))
    assert [row["policy"] for row in found.rows[0]] == ["fcfs"]
    assert found.failed == {"point 0, easy, sample 0": "ValueError: out of paper"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grid: {load: [0.5]}\ntrace: nowhere.swf", "nowhere.swf"),
        (
            "grid: {load: [0.5, -1]}\ntrace: jobs.csv\nset: {processors: 8}",
            "sweep.yaml:1: load .point 1.*a number above 0",
        ),
        ("grid: {loads: [0.5]}\ntrace: jobs.csv", "loads"),
        (
            "grid: {load: [0.5]}\ntrace: jobs.csv\nset: {processors: 8, windows: 3}",
            "either window_jobs or window_length",
        ),
        ("grid: {load: [0.5]}\ntrace: jobs.csv\nset: {processors: 8}\npolicies: [ogasched]", "placement family"),
        ("trace: jobs.csv", "nothing to sweep"),
        ("grid: {load: [0.5]}\ntrace: jobs.csv\nseeds: 3", "seeds"),
    ],
)
def test_a_wrong_file_is_one_error(text: str, said: str, jobs: Path, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=said):
        replay_sweep(load_replay_sweep(file))


def test_files_tell_which_kind_they_are(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    for text, kind in (("trace: a.swf\ngrid: {load: [1]}", "Replay"), ("scenario: small\ngrid: {horizon: [9]}", "")):
        file.write_text(text)
        assert type(load_sweep(file)).__name__ == f"{kind}SweepFile"


def table(keys: Sequence[str], points: Sequence[Sequence[Any]]) -> SweepTable:
    lines = [
        SweepLine(dict(zip(keys, point, strict=True)), policy, {"a": Estimate(gain + len(str(point)), None, None, 1)})
        for point in points
        for policy, gain in (("x", 1.0), ("y", 2.0))
    ]
    return SweepTable("", tuple(keys), {"a": sweeps.MEASURED["mean_bounded_slowdown"]}, lines, {}, {})


def test_curves_have_a_panel_for_every_combination() -> None:
    few = draw_curves(table(["load", "trace"], [(0.5, "a"), (0.9, "a"), (0.5, "b"), (0.9, "b")]), "load")
    assert [axes.get_title(loc="left") for axes in few.axes] == ["trace = a", "trace = b"]
    assert all(len(line.get_xdata()) == 2 for axes in few.axes for line in axes.get_lines())  # type: ignore[arg-type]
    many = draw_curves(table(["load", "seed"], [(0.1 * i, i) for i in range(9)]), "load")
    assert len(many.axes) == 1
    assert {line.get_linestyle() for line in many.axes[0].get_lines()} == {"None"}
    words = draw_curves(table(["trace"], [("a",), ("b",)]), "trace")
    assert [label.get_text() for label in words.axes[0].get_xticklabels()] == ["a", "b"]


def test_a_point_without_its_last_window_has_no_means(
    jobs: Path, here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, windows = ReplayedCells.compute, {"processors": 8, "windows": 3, "window_jobs": 25}

    def broken(self: ReplayedCells, context: Any, cell: Any) -> Any:
        if cell.sample == 2:
            raise ValueError("out of paper")
        return compute(self, context, cell)

    monkeypatch.setattr(ReplayedCells, "compute", broken)
    found = replay_sweep(plan(jobs, set=windows, grid={"load": [0.5]}))
    assert sorted(found.failed) == ["point 0, easy, sample 2", "point 0, fcfs, sample 2"]
    assert found.rows[0] == []


def test_a_log_that_changed_is_read_again(jobs: Path, here: list[str], tmp_path: Path) -> None:
    before = replay_sweep(plan(jobs, set={"processors": 8, "first": 60}), out=tmp_path / "out")
    jobs.unlink()
    write_trace(log().replace(jobs=log().jobs.with_columns(pl.col("run_s") * 9, pl.col("estimate_s") * 9)), jobs)
    after = replay_sweep(plan(jobs, set={"processors": 8, "first": 60}, grid={"exact": [False]}), out=tmp_path / "out")
    again = replay_sweep(plan(jobs, set={"processors": 8, "first": 60}), out=tmp_path / "out")
    assert (after.reused, again.reused) == (0, 0)
    assert waits(again) != waits(before)
