"""Replays of policies that do not start jobs: they never look better for it, and the load is no policy's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.cli import main
from berth.lab.replay import replay
from berth.lab.replay.faults import load_notes
from berth.lab.replay.unstarted import fair_metrics
from berth.random import stream
from berth.traces.formats.generic import write_trace
from berth.traces.trace import Trace

BREAKS = """
import numpy as np
from berth import PlacementDecision, WAIT

class OnePiece:
    family = "placement"

    def __init__(self, problem, rng):
        self.problem = problem

    def decide(self, slot):
        free, server = slot.free.copy(), np.full(len(slot.ids), WAIT)
        for i, demand in enumerate(slot.tasks.demand):
            room = np.flatnonzero((demand <= free).all(axis=1))
            if len(room):
                server[i] = room[0]
                free[room[0]] -= demand
        return PlacementDecision(server)

    def observe(self, outcome):
        pass

class Never(OnePiece):
    def decide(self, slot):
        return PlacementDecision(np.full(len(slot.ids), WAIT))
"""


@pytest.fixture
def breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "breaks_gangs.py").write_text(BREAKS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "breaks_gangs", raising=False)
    return "breaks_gangs:OnePiece"


def gangs(size: int = 60) -> Trace:
    rng = stream(5, "gangs")
    columns: dict[str, Any] = {
        "job": [str(i) for i in range(size)],
        "submit_s": np.sort(np.floor(rng.random(size) * 6 * 3600)),
        "run_s": np.ceil(rng.exponential(300.0, size)),
        "pieces": rng.choice([1, 2, 4, 8], size, p=[0.2, 0.3, 0.3, 0.2]),
        "user": ["a", "b"] * (size // 2),
        "cpu": np.ones(size),
    }
    return Trace.of(columns, {"machine": ["node"], "count": [8], "cpu": [1.0]})


def test_a_policy_that_breaks_gangs_is_not_the_best(
    breaks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {row["policy"]: row for row in replay(gangs(), [breaks, "easy", "breaks_gangs:Never"]).rows}
    broken, easy, never = found[breaks], found["easy"], found["breaks_gangs:Never"]
    assert broken["never_started"] > 30
    assert broken["broken_decisions"] > 0
    assert (easy["never_started"], easy["broken_decisions"]) == (0, 0)
    for number in ("mean_wait_seconds", "mean_turnaround_seconds", "mean_bounded_slowdown"):
        assert broken[number] > easy[number], number
    assert broken["offered_load"] == easy["offered_load"] == never["offered_load"]
    assert (never["never_started"], never["utilisation"], never["broken_decisions"]) == (60, 0.0, 0)
    assert never["mean_wait_seconds"] > 0
    write_trace(gangs(), tmp_path / "jobs.csv")
    assert main(["replay", str(tmp_path / "jobs.csv"), "-p", breaks, "-p", "easy", "-q"]) == 0
    out = capsys.readouterr().out
    said = " ".join(out.split())
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["easy", breaks]  # last, though given first
    assert out.splitlines()[0].split() == ["policy", "unstarted", "broken", "wait", "p95", "slowdown", "used"]
    assert f"{broken['never_started']} of 60 jobs never started" in said
    assert f"{broken['broken_decisions']} decisions broke constraints" in said
    assert main(["replay", str(tmp_path / "jobs.csv"), "-p", "easy", "-q"]) == 0
    assert "never started" not in capsys.readouterr().out


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 50), st.booleans()), min_size=1))
def test_a_job_that_never_starts_waits_longest(rows: list[tuple[int, int, int, bool]]) -> None:
    submit, wait, run, ran = np.array(rows, dtype=np.float64).T
    order = np.argsort(submit, kind="stable")
    submit, wait, run, ran = submit[order], wait[order], run[order], ran[order]
    start = np.where(ran > 0, submit + wait, np.nan)
    found = fair_metrics(submit, start, start + run, run, np.ones((len(run), 1)), np.ones(1), None)
    late = max([*(start + run)[ran > 0], submit[-1]])
    plain = [b - s if done else late - s for s, b, done in zip(submit, start, ran > 0, strict=True)]
    assert found["mean_wait_seconds"] == pytest.approx(float(np.mean(plain)))
    assert found["never_started"] == int((ran == 0).sum())
    span = submit[-1] - submit[0]
    assert found["offered_load"] == (pytest.approx(run.sum() / span) if span > 0 else None)


def test_a_load_that_one_job_makes_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = 200
    run = np.full(size, 10.0)
    run[70] = 1e6
    columns: dict[str, Any] = {
        "job": [str(i) for i in range(size)],
        "submit_s": np.arange(size) * 60.0,
        "run_s": run,
        "pieces": np.ones(size, dtype=np.int64),
        "cpu": np.ones(size),
    }
    write_trace(Trace.of(columns, {"machine": ["node"], "count": [50], "cpu": [1.0]}), tmp_path / "jobs.csv")
    assert main(["replay", str(tmp_path / "jobs.csv"), "-p", "fcfs", "--load", "0.9", "-q"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The offered load of 0.9 says little here: at most " in said
    assert "the largest job has 99.8 % of all work; without it the offered load is 0.0018" in said
    assert load_notes([{"offered_load": 0.9, "utilisation_while_arriving": 0.8, "largest_job_share": 0.3}]) == []
    assert load_notes([{"offered_load": None}]) == []
    (note,) = load_notes([{"offered_load": 0.9, "utilisation_while_arriving": 0.1, "largest_job_share": 0.01}])
    assert "after the last submission" in note
