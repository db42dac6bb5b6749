"""Policies under which jobs never start: their means are bounds, which no test is made on and no rank is given to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from berth.cli import main
from berth.lab.replay.paired import difference_cells, differences, differences_in_words, with_intervals
from berth.random import stream
from berth.traces.formats.generic import write_trace
from berth.traces.trace import Trace

LARGE_NEVER = """
import numpy as np
from berth import PlacementDecision, WAIT

class Small:
    family = "placement"

    def __init__(self, problem, rng):
        self.problem = problem

    def decide(self, slot):
        free, server = slot.free.copy(), np.full(len(slot.ids), WAIT)
        for i, demand in enumerate(slot.tasks.demand):
            room = np.flatnonzero((demand <= free).all(axis=1))
            if len(room) and demand[0] <= 1:
                server[i] = room[0]
                free[room[0]] -= demand
        return PlacementDecision(server)

    def observe(self, outcome):
        pass
"""


def rows(waits: list[float], never: int = 0) -> list[dict[str, Any]]:
    return [
        {"jobs": 1000, "never_started": never, "mean_wait_seconds": wait, "mean_bounded_slowdown": 1 + wait / 100}
        | {"utilisation": 0.5}
        for wait in waits
    ]


BASE = [100.0 + i for i in range(8)]
LESS = [10.0 + 0.5 * i for i in range(8)]


def test_fewer_waits_of_a_policy_that_starves_jobs_get_no_star() -> None:
    each = {"easy": rows(BASE), "starves": rows(LESS, never=400), "good": rows(LESS)}
    found = differences(each, "easy")
    by = {(one.policy, one.measure): one for one in found}
    starved, good = by["starves", "mean_wait_seconds"], by["good", "mean_wait_seconds"]
    assert not starved.significant
    assert (starved.bound, starved.estimate.low) == ("at least", None)
    assert starved.as_dict()["bound"] == "at least"
    assert (good.significant, good.bound) == (True, None)
    assert by["starves", "utilisation"].bound == "unknown"
    cells = difference_cells(found)
    assert cells["starves"] == ["≥ −91.8 s", "≥ −0.9175", "not comparable"]
    assert cells["good"][0].endswith("*")
    alone = differences({"easy": each["easy"], "good": each["good"]}, "easy")
    assert good.adjusted == alone[0].adjusted  # what is not tested does not count for Holm's correction
    assert "jobs never started" in differences_in_words(found, 8, {"windows": 8})
    row = with_intervals({"policy": "starves", "never_started": 3200}, each["starves"], found)
    assert set(row["interval"]) == {"utilisation"}


def test_a_baseline_that_starves_jobs_bounds_from_above_and_two_are_not_compared() -> None:
    found = differences({"starves": rows(BASE, 1), "good": rows(LESS), "too": rows(LESS, 1)}, "starves")
    bounds = {(one.policy, one.measure): one.bound for one in found}
    assert bounds["good", "mean_wait_seconds"] == "at most"
    assert bounds["too", "mean_wait_seconds"] == "unknown"
    assert not any(one.significant for one in found)
    assert "*" not in str(difference_cells(found).values())


def test_a_replay_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The large jobs never start, so the small ones wait less: that is not better."""
    (tmp_path / "starves_large.py").write_text(LARGE_NEVER, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "starves_large", raising=False)
    draw, size = stream(5, "starved"), 400
    columns: dict[str, Any] = {
        "job": [str(i) for i in range(size)],
        "submit_s": np.sort(np.floor(draw.random(size) * 20000)),
        "run_s": np.ceil(draw.exponential(600.0, size)),
        "cpu": np.where(draw.random(size) < 0.4, 4.0, 1.0),
    }
    write_trace(Trace.of(columns, {"machine": ["node"], "count": [8], "cpu": [4.0]}), tmp_path / "jobs.csv")
    words = ["replay", str(tmp_path / "jobs.csv"), "-p", "easy", "-p", "starves_large:Small", "--windows", "8"]
    assert main([*words, "--window-jobs", "50", "-q", "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    said = " ".join(out.split())
    cells = [line for line in out.splitlines() if line.startswith("starves_large:Small ")]
    assert len(cells) == 2
    assert "≥" in cells[1]
    assert "*" not in cells[1]
    assert "listed last, without a rank" in said
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Not ranked, because jobs never started under them: starves_large:Small" in page
