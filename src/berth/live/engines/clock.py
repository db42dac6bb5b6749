"""A clock for durations and moments: it may run faster than the system clock, and runs on when that is set."""

from __future__ import annotations

import logging
import time

__all__ = ["Clock", "elapsed"]

SLEW = 0.01
"""The most by which time runs slower or faster while a small difference to the system clock is adjusted."""
JUMP = 2.0
"""Seconds of the system clock; a larger difference is not adjusted slowly: `step` moves the clock."""
log = logging.getLogger(__name__)


def elapsed() -> float:
    """Seconds of a clock that cannot be set; if the system has such a clock, it also runs during a suspend."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def awake() -> float:
    """Seconds of a clock that cannot be set, and stands still during a suspend."""
    return time.monotonic()


def wall() -> float:
    """Seconds since the epoch, by the system clock."""
    return time.time()


class Clock:
    """Seconds since the epoch, from `start` or from now, `faster` times as fast as the system clock.

    It runs as fast as a clock that cannot be set, so differences of its times are durations. With `anchor` it follows
    the system clock, which is taken to show `anchor` now: when the system clock was set, `step` moves this one, and its
    caller must move all times that it has kept.
    """

    def __init__(self, faster: float = 1.0, start: float | None = None, anchor: float | None = None) -> None:
        self.faster = faster
        self._began, self._then, self._awake = wall(), elapsed(), awake()
        self._now = self._began if start is None else start
        self._anchor = anchor

    def __call__(self) -> float:
        then, self._then = self._then, elapsed()
        passed = max(self._then - then, 0.0)
        self._tell_suspend(passed)
        self._now += passed * self.faster
        off = self._off
        if abs(off) <= JUMP:
            self._now += min(max(off, -SLEW * passed), SLEW * passed) * self.faster
        return self._now

    @property
    def _off(self) -> float:
        """How many seconds the system clock is ahead of this one."""
        if self._anchor is None:
            return 0.0
        return (self._anchor - self._now) / self.faster + wall() - self._began

    def step(self) -> float:
        """Move this clock to the system clock, if that was set; returns by how many seconds, or 0."""
        self()
        off = self._off
        if abs(off) <= JUMP:
            return 0.0
        way, seconds = "ahead" if off > 0 else "back", off * self.faster
        log.warning("the system clock was set %.1f s %s: times follow it, and durations do not count it", abs(off), way)
        self._now += seconds
        return seconds

    def _tell_suspend(self, passed: float) -> None:
        before, self._awake = self._awake, awake()
        slept = passed - (self._awake - before)
        if slept > JUMP:
            log.warning("the machine was suspended for %.1f s: what fell due in that time is decided now", slept)

    def wait(self, until: float) -> float:
        """Real seconds until then."""
        return max(until - self(), 0.0) / self.faster
