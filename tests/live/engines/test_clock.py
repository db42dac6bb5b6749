"""The clock of engines and schedulers."""

from __future__ import annotations

import itertools
import logging

import pytest

from berth.live.engines.clock import Clock

DAY = 86400.0


class Times:
    """The system clock, and the one that nobody can set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.real = 1000.0, 50.0
        monkeypatch.setattr("time.time", lambda: self.wall)
        monkeypatch.setattr("berth.live.engines.clock.elapsed", lambda: self.real)

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.real += seconds


def test_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(monkeypatch)
    clock = Clock(10.0, 5000.0)
    assert clock() == 5000.0
    times.pass_(2.0)
    assert clock() == 5020.0
    assert clock.wait(5050.0) == 3.0
    assert clock.wait(0.0) == 0.0
    assert Clock()() == 1002.0


@pytest.mark.parametrize("faster", [1.0, 60.0])
@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_system_clock_that_jumps_away_and_back_neither_stops_nor_turns_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, faster: float, jump: float
) -> None:
    caplog.set_level(logging.INFO, "berth.live.engines.clock")
    times = Times(monkeypatch)
    clock = Clock(faster, 5000.0)
    seen = [clock()]
    for away in (jump, -jump):
        times.wall += away
        for _ in range(100):
            times.pass_(1.0)
            seen.append(clock())
    steps = [(b - a) / faster for a, b in itertools.pairwise(seen)]
    assert min(steps) == pytest.approx(0.5)
    assert max(steps) == pytest.approx(1.5)
    assert seen[-1] == pytest.approx(5000.0 + 200.0 * faster)
    assert steps[-1] == pytest.approx(1.0, abs=0.51)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"the system clock is 86400.0 s {'ahead' if jump > 0 else 'behind'}: time is adjusted",
        "time agrees with the system clock again",
    ]


def test_a_start_in_the_future_comes_back_to_the_system_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(monkeypatch)
    clock = Clock(start=1000.0 + 100.0, anchor=1000.0)
    before = clock()
    assert before == 1100.0
    for _ in range(199):
        times.pass_(1.0)
        assert before < clock() < before + 1.0
        before = clock()
        assert before > times.wall
    times.pass_(10.0)
    assert clock() == pytest.approx(times.wall)
