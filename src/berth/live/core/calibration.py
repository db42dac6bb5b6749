"""Calibration of start forecasts against actual start times.

A forecast simulates the queue as it is. It cannot foresee later submissions or what the policy will do, so on its own
it is overconfident. Some waiting jobs are therefore forecast, and when they start the error of the forecast is scored;
the next forecasts are moved by as much as holds for nine of ten on each side (conformalized quantiles).
Distances are of logarithms, because a forecast of hours is off by hours and one of seconds by seconds. A job that has
waited past its forecast counts too, though it has not started (it is censored): otherwise jobs that are held back for
long would never show in the figures.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["ENOUGH", "Foresight", "Range"]

REMEMBERED = 200
"""So many of the latest forecasts count."""
ENOUGH = 20
"""Fewer than so many say too little."""
SHORTEST = 5.0
"""Seconds that are added before logarithms are taken."""
DOUBT = math.log(2.0), 0.0, math.log(3.0)
"""How much earlier than at the low end, and later than at the high end, things may happen before anything was seen."""
INSIDE = 0.9
"""The part of starts that are to be after the low end, and before the high end."""


@dataclass(frozen=True)
class Range:
    """In how many seconds something happens: in 10, 50 and 90 of 100 cases before."""

    low: float
    middle: float
    high: float

    def holds(self, seconds: float) -> bool:
        """Whether it happens between the ends."""
        return self.low <= seconds <= self.high


class Foresight:
    """Forecasts of jobs that still wait, and the errors of the latest forecasts."""

    def __init__(self) -> None:
        self.pending: dict[str, tuple[float, Range]] = {}
        """When a job was forecast, and the interval as it was simulated."""
        self._off: deque[tuple[float, float, float, bool]] = deque(maxlen=REMEMBERED)

    def forecast(self, job: str, time: float, played: Range) -> None:
        """Keep the forecast of a waiting job."""
        self.pending[job] = time, played
        if len(self.pending) > REMEMBERED:
            del self.pending[next(iter(self.pending))]

    def starts(self, job: str, time: float) -> None:
        """Score the forecast of a job that starts, if it has one."""
        if job not in self.pending:
            return
        then, played = self.pending.pop(job)
        seconds = max(time - then, 0.0)
        self._score(played, seconds, self.corrected(played).holds(seconds))

    def _score(self, played: Range, seconds: float, held: bool) -> None:
        low, middle, high = (_log(seconds) - _log(end) for end in (played.low, played.middle, played.high))
        self._off.append((-low, middle, high, held))

    def at(self, time: float) -> Foresight:
        """A copy in which jobs that have waited past their forecasts until now count as if they started now."""
        made = self.copied()
        for then, played in self.pending.values():
            if time - then > self.corrected(played).high:
                made._score(played, time - then, False)
        return made

    def forget(self, job: str) -> None:
        """A job is gone and never started."""
        self.pending.pop(job, None)

    def corrected(self, played: Range) -> Range:
        """What is to be said where this was played."""
        earlier, shift, later = DOUBT
        if len(self._off) >= ENOUGH:
            low, middle, high = (np.array([one[i] for one in self._off]) for i in range(3))
            level = min(math.ceil((len(self._off) + 1) * INSIDE) / len(self._off), 1.0)
            earlier, later = (float(np.quantile(off, level, method="inverted_cdf")) for off in (low, high))
            shift = float(np.median(middle))
        middle_ = _moved(played.middle, shift)
        return Range(min(_moved(played.low, -earlier), middle_), middle_, max(_moved(played.high, later), middle_))

    @property
    def checked(self) -> int:
        """How many of the latest forecasts were compared with what came."""
        return len(self._off)

    @property
    def held(self) -> float:
        """The part of them that held, corrected as far as was known when the job started; NaN where there was none."""
        return sum(one[3] for one in self._off) / len(self._off) if self._off else math.nan

    def copied(self) -> Foresight:
        """One that stays as it is."""
        made = Foresight()
        made.pending, made._off = dict(self.pending), self._off.copy()
        return made

    def dump(self) -> dict[str, list[Sequence[float | str]]]:
        """All of it, for JSON."""
        pending = [(job, time, found.low, found.middle, found.high) for job, (time, found) in self.pending.items()]
        return {"pending": list(pending), "off": list(self._off)}

    @classmethod
    def load(cls, dumped: Mapping[str, Iterable[Sequence[float | str]]]) -> Foresight:
        """What `dump` gave."""
        made = cls()
        for job, time, low, middle, high in dumped.get("pending", ()):
            made.pending[str(job)] = float(time), Range(float(low), float(middle), float(high))
        for low, middle, high, held in dumped.get("off", ()):
            made._off.append((float(low), float(middle), float(high), bool(held)))
        return made


def _log(seconds: float) -> float:
    return math.log(seconds + SHORTEST)


def _moved(seconds: float, by: float) -> float:
    return max((seconds + SHORTEST) * math.exp(by) - SHORTEST, 0.0)
