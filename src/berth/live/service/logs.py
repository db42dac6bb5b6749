"""A limit on repeated log lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["Repeats"]


class Repeats(logging.Filter):
    """Lets each line of the program log a few warnings or errors in a period, and says how many were left out.

    >>> now = [0.0]
    >>> repeats = Repeats(most=2, period=10.0, clock=lambda: now[0])
    >>> record = logging.makeLogRecord({"msg": "no store", "levelno": logging.WARNING})
    >>> [repeats.filter(record) for _ in range(4)]
    [True, True, False, False]
    >>> now[0] = 11.0
    >>> repeats.filter(record), record.getMessage()
    (True, 'no store (2 more like this were left out)')
    """

    def __init__(self, most: int = 20, period: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most, self._period, self._clock = most, period, clock
        self._seen: dict[tuple[str, str, int], tuple[float, int]] = {}
        """For each line of the program: when its period began, and how many messages came since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message is logged."""
        if record.levelno < logging.WARNING:
            return True
        now, key = self._clock(), (record.name, record.pathname, record.lineno)
        began, count = self._seen.get(key, (now, 0))
        if now - began >= self._period:
            if count > self._most:
                record.msg = f"{record.getMessage()} ({count - self._most} more like this were left out)"
                record.args = None
            began, count = now, 0
        self._seen[key] = began, count + 1
        return count < self._most
