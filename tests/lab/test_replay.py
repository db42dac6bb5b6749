"""A trace played again: what is kept and not played twice, who is refused, reservations, and what is left out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from berth.errors import InvalidInput, UnknownName, UnsupportedProblem
from berth.families.placement.kernels.gathering import Free, Pieces, Rows
from berth.families.placement.policies.rules import FCFS
from berth.families.placement.problem import PlacementDecision, PlacementSlot
from berth.lab.replay import Replay, ReplaySetting, replay
from berth.lab.replay import run as module
from berth.traces.trace import GPUS, OUTAGE_COLUMNS, Trace

JOBS: dict[str, list[Any]] = {
    "job": ["a", "b", "c", "d"],
    "submit_s": [0.0, 0.0, 1.0, 1.0],
    "run_s": [5.0, 5.0, 4.0, 2.0],
    "pieces": [2, 4, 2, 1],
    "user": ["ann", "bob", "ann", "eve"],
    "cpu": [1.0, 1.0, 1.0, 1.0],
}
POOL = ReplaySetting(processors=4)
CLUSTER: dict[str, list[Any]] = {"machine": ["m", "n"], "count": [1, 1], "cpu": [3.0, 2.0]}


def trace(**changes: list[Any]) -> Trace:
    return Trace.of({**JOBS, **changes})


def begun(found: Replay, policy: str | None = None) -> dict[str, float | None]:
    """Starts by job, of one policy."""
    jobs = found.jobs if policy is None else found.jobs.filter(pl.col("policy") == policy)
    return dict(jobs.select("job", "start_s").iter_rows())


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The policies that were really played."""
    names: list[str] = []
    truly = module.played

    def note(spec: Any, *rest: Any) -> Any:
        names.append(str(spec))
        return truly(spec, *rest)

    monkeypatch.setattr(module, "played", note)
    return names


# --- what comes out


def test_rows_and_jobs() -> None:
    found = replay(trace(), ["fcfs", "easy"], POOL)
    assert begun(found, "fcfs") == {"a": 0.0, "b": 5.0, "c": 10.0, "d": 10.0}
    assert begun(found, "easy") == {"a": 0.0, "b": 5.0, "c": 1.0, "d": 10.0}
    assert [row["policy"] for row in found.rows] == ["fcfs", "easy"]
    fcfs = found.rows[0]
    assert fcfs["mean_wait_seconds"] == (0 + 5 + 9 + 9) / 4
    assert fcfs["utilisation"] == (10 + 20 + 8 + 2) / (4 * 14)
    assert (fcfs["resource"], fcfs["utilisation_by_resource"]) == ("cpu", {"cpu": fcfs["utilisation"]})
    assert fcfs["owners"] == 3
    assert found.frame().height == 2
    first = found.jobs.row(1, named=True)
    assert (first["wait_s"], first["end_s"], first["bounded_slowdown"], first["user"]) == (5.0, 10.0, 1.0, "bob")


@pytest.mark.parametrize("policy", ["sjf", "easy"])
def test_short_logs_on_machines_start_as_the_kernel_has_them(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: dict[str, list[Any]] = {
        "job": list("abcdef"),
        "submit_s": [0.0, 0, 1, 2, 3, 4],
        "run_s": [5.0, 9, 3, 4, 2, 6],
        "gpu": [2.0] * 6,
    }
    machines: dict[str, list[Any]] = {"machine": ["m", "n"], "count": [1, 1], "gpu": [2.0, 4.0]}
    short = begun(replay(Trace.of(jobs, machines, [GPUS]), [policy]), policy)
    monkeypatch.setattr(module, "SHORT", 0)
    assert begun(replay(Trace.of(jobs, machines, [GPUS]), [policy]), policy) == short


def test_policies_are_the_classic_ones_unless_said() -> None:
    assert [row["policy"] for row in replay(trace(), None, POOL).rows] == ["fcfs", "sjf", "easy", "conservative"]
    machines: dict[str, list[Any]] = {"machine": ["m"], "count": [2], "gpu": [2.0]}
    jobs: dict[str, list[Any]] = {"submit_s": [0.0, 1.0], "run_s": [5.0, 5.0], "pieces": [1, 1], "gpu": [0.5, 2.0]}
    shared = replay(Trace.of(jobs, machines, [GPUS]))
    assert [row["policy"] for row in shared.rows] == ["fcfs", "best-fit", "tetris", "fgd"]
    assert all(0 <= row["fragmentation"] <= 1 for row in shared.rows)


def test_a_policy_given_twice_is_played_once(played: list[str]) -> None:
    assert len(replay(trace(), ["fcfs", "easy", "fcfs"], POOL).rows) == 2
    assert played == ["fcfs", "easy"]


def test_what_is_left_out_is_counted() -> None:
    found = replay(trace(pieces=[2, 9, 2, 1], run_s=[5.0, 5.0, 0.0, 2.0]), ["fcfs"], POOL)
    assert found.left_out["larger than any machine"] == 1
    assert found.left_out["run time not above 0"] == 1
    assert list(begun(found)) == ["a", "d"]


def test_only_the_first_jobs() -> None:
    assert list(begun(replay(trace(), ["fcfs"], ReplaySetting(processors=4, first=2)))) == ["a", "b"]


def test_load_is_the_work_over_the_time_in_which_it_comes() -> None:
    found = replay(trace(), ["fcfs"], ReplaySetting(processors=4, load=0.5))
    assert found.jobs["submit_s"].to_list() == [0.0, 0.0, 20.0, 20.0]  # 40 s of work on 4 processors


def test_estimates_are_what_policies_know() -> None:
    """c says that it takes 9 s and so may not pass b; told the truth, or stopped at 3 s, it may."""
    late = trace(estimate_s=[5.0, 5.0, 9.0, 2.0])
    assert begun(replay(late, ["easy"], POOL))["c"] == 10.0
    assert begun(replay(late, ["easy"], ReplaySetting(processors=4, exact=True)))["c"] == 1.0
    short = trace(estimate_s=[5.0, 5.0, 3.0, 2.0])
    stopped = replay(short, ["easy"], ReplaySetting(processors=4, stopped=True))
    row = stopped.jobs.row(2, named=True)
    assert (row["start_s"], row["end_s"]) == (1.0, 4.0)


# --- policies that are asked at every moment


class LastFirst(FCFS):
    """A queue that starts tasks in its own way, and so is no rule."""

    def start(self, slot: PlacementSlot, pieces: Pieces, free: Free, rows: Rows) -> None:
        super().start(slot, pieces, free, rows)


class Hasty(LastFirst):
    """One that declares the rule of its base class all the same."""

    queue_rule = FCFS.queue_rule

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        raise AssertionError("a policy that is a rule is not asked")


def test_policies_declare_their_rule() -> None:
    told: list[tuple[str, int, int]] = []
    names = [f"{__name__}:{kind}" for kind in ("LastFirst", "Hasty")]
    asked, pooled = (replay(trace(), [name], POOL, progress=lambda *now: told.append(now)) for name in names)
    assert begun(asked) == begun(pooled) == begun(replay(trace(), ["fcfs"], POOL))
    assert {name for name, _, _ in told} == {names[0]}


def test_reservations_start_when_they_were_reserved_for() -> None:
    """A policy that commits to later starts: b is placed at 0, to begin at 5, and that is when it starts."""
    jobs: dict[str, list[Any]] = {
        "submit_s": [0.0, 0.0],
        "run_s": [5.0, 4.0],
        "pieces": [1, 1],
        "cpu": [3.0, 2.0],
        "job": ["a", "b"],
    }
    found = replay(Trace.of(jobs), ["greedy:waiting=commit-any"], ReplaySetting(processors=4, exact=True))
    ends = dict(found.jobs.select("start_s", "end_s").iter_rows())
    assert ends in ({0.0: 5.0, 5.0: 9.0}, {0.0: 4.0, 4.0: 9.0})


def test_a_reservation_on_a_machine_that_goes_away_never_starts() -> None:
    jobs: dict[str, list[Any]] = {"submit_s": [0.0, 0.0], "run_s": [5.0, 4.0], "pieces": [1, 1], "cpu": [3.0, 2.0]}
    away = pl.DataFrame([("m", 3.0, None)], schema=dict(OUTAGE_COLUMNS), orient="row")
    one = Trace.of(jobs, {"machine": ["m"], "count": [1], "cpu": [4.0]}, outages=away)
    found = replay(one, ["greedy:waiting=commit-any"], ReplaySetting(exact=True, outages=True))
    assert found.rows[0] == {**found.rows[0], "jobs": 2, "never_started": 2}  # one ran and was lost
    assert found.jobs["start_s"].null_count() == 2


def test_who_cannot_serve_is_named() -> None:
    gangs = Trace.of(JOBS, CLUSTER)
    found = replay(gangs, ["random-placement", "fcfs"])
    assert [row["policy"] for row in found.rows] == ["fcfs"]
    assert list(found.refused) == ["random-placement"]
    assert "gangs" in found.refused["random-placement"]
    with pytest.raises(UnsupportedProblem, match="gangs"):
        replay(gangs, ["random-placement"])


@pytest.mark.parametrize(
    ("policies", "setting", "said"),
    [
        (["fcsf"], POOL, "did you mean 'fcfs'"),
        (["complet"], POOL, "did you mean 'completion'"),
        (["fcfs:fit=tight"], POOL, "one of first, best"),
        (["fcfs"], ReplaySetting(), "a number of --processors"),
        (["fcfs"], ReplaySetting(resource="cpu"), "processors too"),
        (["fcfs"], ReplaySetting(processors=4, resource="gpu"), "gpu"),
        (["fcfs"], ReplaySetting(processors=4, load=-1.0), "a number above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(policies: list[str], setting: ReplaySetting, said: str) -> None:
    with pytest.raises((InvalidInput, UnknownName), match=said):
        replay(trace(), policies, setting)


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    replay(Trace.of(JOBS, CLUSTER), ["drf-placement"], progress=lambda *now: told.append(now))
    assert told[-1] == ("drf-placement", 2, 2)


# --- results that are kept


def cells(folder: Path, ending: str) -> list[Path]:
    return sorted((folder / "cells").glob(f"*{ending}"))


@pytest.mark.usefixtures("undrawn")
def test_a_finished_policy_is_not_played_again(tmp_path: Path, played: list[str]) -> None:
    before = replay(trace(), ["fcfs", "easy"], POOL, out=tmp_path)
    again = replay(trace(), ["fcfs", "easy", "sjf"], POOL, out=tmp_path)
    assert played == ["fcfs", "easy", "sjf"]
    assert again.rows[:2] == before.rows
    assert begun(again, "easy") == begun(before, "easy")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [row["policy"] for row in summary] == ["fcfs", "easy", "sjf"]
    assert pl.read_parquet(tmp_path / "jobs.parquet").height == 12
    assert pl.read_parquet(tmp_path / "summary.parquet")["mean_wait_seconds"].to_list()[:2] == [
        row["mean_wait_seconds"] for row in before.rows
    ]
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["setting"]["processors"] == 4
    assert manifest["finished"]
    assert list(tmp_path.rglob("*.png"))


@pytest.mark.usefixtures("undrawn")
def test_a_half_written_cell_does_not_count(tmp_path: Path, played: list[str]) -> None:
    replay(trace(), ["fcfs", "easy"], POOL, out=tmp_path)
    for path, bytes_left in ((cells(tmp_path, ".json")[0], 7), (cells(tmp_path, ".parquet")[1], 40)):
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:bytes_left])
    found = replay(trace(), ["fcfs", "easy"], POOL, out=tmp_path)
    assert sorted(played[2:]) == ["easy", "fcfs"]
    assert begun(found, "fcfs")["b"] == 5.0
    cells(tmp_path, ".parquet")[0].unlink()
    replay(trace(), ["fcfs", "easy"], POOL, out=tmp_path)
    assert len(played) == 5


@pytest.mark.usefixtures("undrawn")
def test_what_was_done_before_a_stop_is_kept(
    tmp_path: Path, played: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("berth.lab.replay.run.batch_world", stop)
        with pytest.raises(KeyboardInterrupt):
            replay(trace(), ["fcfs", "drf-placement"], POOL, out=tmp_path)
    found = replay(trace(), ["fcfs", "drf-placement"], POOL, out=tmp_path)
    assert played == ["fcfs", "drf-placement", "drf-placement"]
    assert len(found.rows) == 2


@pytest.mark.usefixtures("undrawn")
def test_a_policy_whose_code_has_changed_is_played_again(
    tmp_path: Path, played: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, policy = tmp_path / "replayed_policies.py", "replayed_policies:Mine"
    code = "from berth.families.placement.policies.rules import FCFS\n\nclass Mine(FCFS):\n    mark = 1\n"
    file.write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    for text in (code, code, code.replace("1", "22")):
        file.write_text(text)
        sys.modules.pop("replayed_policies", None)
        replay(trace(), ["fcfs", policy], POOL, out=tmp_path / "out")
    assert played == ["fcfs", policy, policy]


@pytest.mark.usefixtures("undrawn")
def test_directories_of_earlier_versions_are_continued(tmp_path: Path, played: list[str]) -> None:
    """Their cells have no key, and their manifests neither the machine nor the number of cells."""
    replay(trace(), ["fcfs"], POOL, out=tmp_path)
    for path, more in ((cells(tmp_path, ".json")[0], {"key"}), (tmp_path / "manifest.json", {"machine", "platform"})):
        path.write_text(
            json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key not in more})
        )
    found = replay(trace(), ["easy"], POOL, out=tmp_path)
    assert [row["policy"] for row in found.rows] == ["easy"]
    assert [row["policy"] for row in json.loads((tmp_path / "summary.json").read_text())] == ["easy", "fcfs"]
    assert len(replay(trace(), ["fcfs"], POOL, out=tmp_path).rows) == 1
    assert played == ["fcfs", "easy"]


@pytest.mark.usefixtures("undrawn")
def test_results_of_another_trace_or_setting_are_not_mixed(tmp_path: Path) -> None:
    replay(trace(), ["fcfs"], POOL, out=tmp_path)
    before = (tmp_path / "manifest.json").read_bytes()
    for other, setting in (
        (trace(run_s=[5.0, 5.0, 4.0, 3.0]), POOL),
        (trace(), ReplaySetting(processors=5)),
        (trace(), ReplaySetting(processors=4, stopped=True)),
    ):
        with pytest.raises(InvalidInput, match="this very trace and setting"):
            replay(other, ["fcfs"], setting, out=tmp_path)
    assert (tmp_path / "manifest.json").read_bytes() == before


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidInput):
        replay(trace(), ["fcfs"], POOL, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
