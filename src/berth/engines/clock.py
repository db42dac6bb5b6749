"""Time that may run faster than that of the wall."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """Seconds since the epoch, from `start` on or from now, `faster` times as fast; it never runs backwards."""

    def __init__(self, faster: float = 1.0, start: float | None = None) -> None:
        self.faster = faster
        self._began = time.time()
        self._start = self._last = self._began if start is None else start

    def __call__(self) -> float:
        self._last = max(self._last, self._start + (time.time() - self._began) * self.faster)
        return self._last

    def wait(self, until: float) -> float:
        """How many real seconds it takes until then."""
        return max(until - self(), 0.0) / self.faster
