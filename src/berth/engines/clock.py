"""Time that may run faster than that of the wall."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """Seconds since the epoch, from `start` on or from now, `faster` times as fast; it never runs backwards."""

    def __init__(self, faster: float = 1.0, start: float | None = None) -> None:
        self.faster = faster
        self._start = time.time() if start is None else start
        self._began = time.monotonic()

    def __call__(self) -> float:
        return self._start + (time.monotonic() - self._began) * self.faster

    def wait(self, until: float) -> float:
        """How many real seconds it takes until then."""
        return max(until - self(), 0.0) / self.faster
