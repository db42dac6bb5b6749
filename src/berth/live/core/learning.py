"""What the scheduler learns from the ends of jobs: speeds, and the errors of predicted run times and starts.

Speed is work done a second. If a job does not state its work, the first job of its type to end sets it, at the speed
that was expected of it (`berth.live.core.speeds`). A run that was cut off, because it was cancelled or its server was
lost, is no measurement, but it was no faster than if it had ended just then. So it counts at that speed if that is
slower than expected. Without this, servers where long runs are cut off would seem fast.

A forecast of a start simulates the current queue. It cannot foresee later submissions or what the policy will do, so
on its own it is overconfident. Some waiting jobs are therefore forecast, and their starts score the forecasts; each
end of the next forecasts is moved so that it holds for nine of ten (conformalized quantiles). Errors are of
logarithms, because a forecast of hours is off by hours and one of seconds by seconds. A job that has waited past its
forecast counts too, though it has not started (it is censored): otherwise jobs that are held back for long would never
show in the scores.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from berth.live.core.events import Failed, Finished
from berth.live.core.jobs import UNTYPED
from berth.live.core.records import JobRecord, Outcome
from berth.live.core.speeds import Learned

__all__ = ["ENOUGH", "Calibration", "Foresight", "Range", "learn"]

SURE = 0.95
"""The share of runs that are to end before their upper bound."""
REMEMBERED = 200
"""The number of recent runs that the calibration uses."""
ENOUGH = 20
"""With fewer runs than this the lognormal distribution is taken as it is."""


class Calibration:
    """Scores of recent runs: how many spreads the logarithm of a run time was above its prediction."""

    def __init__(self) -> None:
        self._scores: deque[float] = deque(maxlen=REMEMBERED)

    def add(self, predicted: tuple[float, float], seconds: float, cut: bool) -> None:
        """Score a run that took `seconds` where `expected` gave `predicted`; a `cut` run would have run longer."""
        score = math.log(seconds / predicted[0]) / predicted[1]
        if not cut or score > 0:
            self._scores.append(score)

    @property
    def high(self) -> float:
        """The score below which a run stays with probability `SURE`."""
        if len(self._scores) < ENOUGH:
            return float(ndtri(SURE))
        level = min(math.ceil((len(self._scores) + 1) * SURE) / len(self._scores), 1.0)
        return max(float(np.quantile(np.array(self._scores), level, method="inverted_cdf")), 0.0)

    def copied(self) -> Calibration:
        """An independent copy."""
        return Calibration.load(self._scores)

    def dump(self) -> list[float]:
        """The state, for JSON."""
        return list(self._scores)

    @classmethod
    def load(cls, dumped: Iterable[float]) -> Calibration:
        """Restore what `dump` gave."""
        made = cls()
        made._scores.extend(dumped)
        return made


def learn(
    learned: Learned,
    calibration: Calibration,
    record: JobRecord,
    event: Finished | Failed,
    alike: Mapping[str, tuple[str, ...]],
) -> Outcome | None:
    """Learn from the end of an attempt; None if it says nothing about speed. `alike` comes from `Holdings.alike`.

    An attempt that did only a part of the work says nothing: how long it took to continue is not known.
    """
    job, cut = record.job, isinstance(event, Failed)
    if record.interruptions or (isinstance(event, Failed) and event.fault == "interrupted"):
        return None
    if job.type == UNTYPED or (isinstance(event, Failed) and (event.fault == "engine" or record.started is None)):
        return None
    began = record.started if record.started is not None else record.since
    seconds = event.time - began
    if event.seconds is not None and not record.started_moved:  # else the engine's clock may have been set as well
        seconds = event.seconds
    if not seconds > 0 or (record.unwanted and not cut):
        return None
    servers = list(dict.fromkeys(place.server for place in record.places))
    known = [learned.speed(job.type, server) for server in servers]
    if all(speed.runs for speed in known):
        wide = min(known, key=lambda speed: speed.mean).spread
        calibration.add((learned.work(job) / learned.slowest(job.type, servers), wide), seconds, cut)
    speed = (learned.add_cut if cut else learned.add)(job, servers, seconds)
    if speed is None:
        return None
    gains = event.gains if isinstance(event, Finished) else {}
    return Outcome(record.number, job, record.places, speed, gains, cut, alike)


SHORTEST = 5.0
"""Seconds that are added before logarithms are taken."""
DOUBT = math.log(2.0), 0.0, math.log(3.0)
"""How far the low end, the median and the high end of a forecast are moved before any is scored (logarithms)."""
INSIDE = 0.9
"""The share of starts that should be after the low end, and the share before the high end."""


@dataclass(frozen=True)
class Range:
    """Seconds until something happens: the 10%, 50% and 90% quantiles."""

    low: float
    middle: float
    high: float

    def holds(self, seconds: float) -> bool:
        """Whether it happens between the low and the high end."""
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

    def move(self, seconds: float) -> None:
        """Move the times of forecasts, because the system clock was set."""
        self.pending = {job: (then + seconds, played) for job, (then, played) in self.pending.items()}

    def forget(self, job: str) -> None:
        """Drop the forecast of a job that ended without a start."""
        self.pending.pop(job, None)

    def corrected(self, played: Range) -> Range:
        """The calibrated interval for a simulated one."""
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
        """How many of the latest forecasts are scored."""
        return len(self._off)

    @property
    def held(self) -> float:
        """The share of them that held, as calibrated when the job started; NaN if there is none."""
        return sum(one[3] for one in self._off) / len(self._off) if self._off else math.nan

    def copied(self) -> Foresight:
        """An independent copy."""
        made = Foresight()
        made.pending, made._off = dict(self.pending), self._off.copy()
        return made

    def dump(self) -> dict[str, list[Sequence[float | str]]]:
        """The state, for JSON."""
        pending = [(job, time, found.low, found.middle, found.high) for job, (time, found) in self.pending.items()]
        return {"pending": list(pending), "off": list(self._off)}

    @classmethod
    def load(cls, dumped: Mapping[str, Iterable[Sequence[float | str]]]) -> Foresight:
        """Restore what `dump` gave."""
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
