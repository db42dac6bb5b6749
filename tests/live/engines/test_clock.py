"""The clock of engines and schedulers."""

from __future__ import annotations

import itertools
import logging

import pytest

from berth.live.engines.clock import Clock

DAY = 86400.0


class Times:
    """The system clock, the one that nobody can set, and the one that stands still in a suspend."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.real, self.awake = 1000.0, 50.0, 20.0
        for name in ("wall", "awake"):
            monkeypatch.setattr(f"berth.live.engines.clock.{name}", lambda name=name: getattr(self, name))
        monkeypatch.setattr("berth.live.engines.clock.elapsed", lambda: self.real)

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.real += seconds
        self.awake += seconds


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
def test_durations_are_right_and_moments_follow_the_system_clock_when_it_is_set(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, faster: float, jump: float
) -> None:
    times = Times(monkeypatch)
    clock = Clock(faster, 1000.0, anchor=1000.0)
    seen, steps, moved = [clock()], [], 0.0
    for away in (jump, -jump):
        times.wall += away
        for _ in range(10):
            times.pass_(60.0)
            steps.append(clock.step())
            moved += steps[-1]
            seen.append(clock() - moved)
            assert clock() == pytest.approx(1000.0 + (times.wall - 1000.0) * faster)
    assert [b - a for a, b in itertools.pairwise(seen)] == pytest.approx([60.0 * faster] * 20)
    assert [step for step in steps if step] == pytest.approx([jump * faster, -jump * faster])
    said = [record.getMessage() for record in caplog.records]
    ways = ("ahead", "back") if jump > 0 else ("back", "ahead")
    assert [text.partition(":")[0] for text in said] == [f"the system clock was set 86400.0 s {way}" for way in ways]


def test_nothing_moves_before_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(monkeypatch)
    clock = Clock(start=1000.0, anchor=1000.0)
    times.wall += DAY
    times.pass_(3600.0)
    assert clock() == 4600.0


def test_simulated_time_does_not_follow_the_system_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(monkeypatch)
    clock = Clock(60.0, 5000.0)
    times.wall += DAY
    times.pass_(1.0)
    assert clock.step() == 0.0
    assert clock() == 5060.0


def test_a_small_difference_is_adjusted_slowly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = Times(monkeypatch)
    clock = Clock(start=1000.0, anchor=1000.0)
    times.wall -= 1.5
    before = clock()
    for _ in range(200):
        times.pass_(1.0)
        assert 0.99 <= clock() - before <= 1.0 + 1e-9
        before = clock()
        assert clock.step() == 0.0
    assert clock() == pytest.approx(times.wall)
    assert not caplog.records


def test_a_start_in_the_future_is_a_step_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is ahead of the system clock, which was set back while the service was stopped."""
    times = Times(monkeypatch)
    clock = Clock(start=1000.0 + 100.0, anchor=1000.0)
    assert clock() == 1100.0
    assert clock.step() == -100.0
    assert clock() == times.wall


def test_a_suspend_counts_and_is_told_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    times = Times(monkeypatch)
    clock = Clock(start=1000.0, anchor=1000.0)
    before = clock()
    times.wall += DAY
    times.real += DAY
    assert clock.step() == 0.0
    assert clock() - before == DAY
    times.pass_(5.0)
    clock()
    assert [record.getMessage() for record in caplog.records] == [
        "the machine was suspended for 86400.0 s: what fell due in that time is decided now"
    ]
    assert caplog.records[0].levelno == logging.WARNING
