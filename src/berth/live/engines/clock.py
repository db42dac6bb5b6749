"""A clock that may run faster than the system clock, and never runs backwards or stands still."""

from __future__ import annotations

import logging
import time

__all__ = ["Clock", "elapsed"]

SLEW = 0.5
"""The most by which time runs slower or faster while it is adjusted to the system clock."""
JUMP = 2.0
"""Seconds of the system clock; a larger difference is logged."""
log = logging.getLogger(__name__)


def elapsed() -> float:
    """Seconds of a clock that cannot be set; if the system has such a clock, it also runs during a suspend."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class Clock:
    """Seconds since the epoch, from `start` or from now, `faster` times as fast as the system clock.

    It follows the system clock from `anchor` on, or from `start`. When the system clock is set, this one does
    not jump: it runs up to half as fast or half again as fast until both agree.
    """

    def __init__(self, faster: float = 1.0, start: float | None = None, anchor: float | None = None) -> None:
        self.faster = faster
        self._began, self._then = time.time(), elapsed()
        self._now = self._began if start is None else start
        self._anchor = self._now if anchor is None else anchor
        self._adjusting = False

    def __call__(self) -> float:
        then, self._then = self._then, elapsed()
        passed = max(self._then - then, 0.0) * self.faster
        self._now += passed
        off = self._anchor + (time.time() - self._began) * self.faster - self._now
        self._now += min(max(off, -SLEW * passed), SLEW * passed)
        self._tell(off / self.faster)
        return self._now

    def _tell(self, off: float) -> None:
        """Log once when the system clock was set, and once when both agree again."""
        if abs(off) > JUMP and not self._adjusting:
            self._adjusting = True
            log.warning("the system clock is %.1f s %s: time is adjusted", abs(off), "ahead" if off > 0 else "behind")
        elif abs(off) < JUMP / 2 and self._adjusting:
            self._adjusting = False
            log.info("time agrees with the system clock again")

    def wait(self, until: float) -> float:
        """Real seconds until then."""
        return max(until - self(), 0.0) / self.faster
