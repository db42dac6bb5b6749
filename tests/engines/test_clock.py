"""The clock of engines and schedulers."""

from __future__ import annotations

import pytest

from berth.engines.clock import Clock


def test_faster_and_never_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = 1000.0
    monkeypatch.setattr("time.time", lambda: wall)
    clock = Clock(10.0, 5000.0)
    assert clock() == 5000.0
    wall = 1002.0
    assert clock() == 5020.0
    assert clock.wait(5050.0) == 3.0
    wall = 900.0  # somebody sets the wall's clock back
    assert clock() == 5020.0
    assert clock.wait(0.0) == 0.0
    assert Clock()() == 900.0
