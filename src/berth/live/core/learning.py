"""What the scheduler has learned: speeds of job types on servers, and how well run times and starts were predicted.

Speed is work done a second. Where a job does not state its work, the first job of its type that ended sets it; so 1 is
the stated speed, or that of the first job. A run that was cut off, because it was cancelled or its server was lost, is
no measurement, but it was no faster than if it had ended just then. So it counts at that speed where that is slower
than what is known. Without this, servers where long runs are cut off would seem fast.

A forecast of a start plays the queue as it is. It cannot foresee later submissions or what the policy will do, so on
its own it is overconfident. Some waiting jobs are therefore forecast, and when they start the error of the forecast is
scored; the next forecasts are moved by as much as holds for nine of ten on each side (conformalized quantiles).
Distances are of logarithms, because a forecast of hours is off by hours and one of seconds by seconds. A job that has
waited past its forecast counts too, though it has not started (it is censored): otherwise jobs that are held back for
long would never show in the figures.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from berth.live.core.events import Failed, Finished
from berth.live.core.jobs import UNTYPED, Job
from berth.live.core.records import JobRecord, Outcome

__all__ = ["ENOUGH", "LEAST", "Calibration", "Foresight", "Learned", "Range", "Speed", "learn"]

SEEN_ONCE, LEAST = 0.7, 0.05
"""The spread of logarithms where one run was seen, and at least."""
SURE = 0.95
"""The share of runs that are to end before their upper bound."""
REMEMBERED = 200
"""The number of recent runs that the calibration uses."""
ENOUGH = 20
"""With fewer runs than this the lognormal distribution is taken as it is."""


@dataclass(frozen=True)
class Speed:
    """Runs seen, their mean speed, and the standard deviation between them; `cut` of them were cut off."""

    runs: int
    mean: float
    deviation: float
    cut: int = 0

    @property
    def uncertainty(self) -> float:
        """Half of the 95 % interval of the mean; infinite where there is nothing to tell it by."""
        return 1.96 * self.deviation / math.sqrt(self.runs) if self.runs > 1 else math.inf

    @property
    def spread(self) -> float:
        """The spread of the logarithm of the next run's speed."""
        spread = SEEN_ONCE if self.runs == 1 else self.deviation / self.mean * math.sqrt(1.0 + 1.0 / self.runs)
        return max(spread, LEAST)


class Learned:
    """Running means and variances, a line for each channel (type of job, server)."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, str], tuple[int, float, float, int]] = {}
        self._reference: dict[str, float] = {}

    def add(self, job: Job, servers: Iterable[str], seconds: float) -> float:
        """A job ran so long on these servers; its speed."""
        work = job.work or self._reference.setdefault(job.type, seconds)
        speed = work / seconds
        self._count(job.type, servers, speed, 0)
        return speed

    def add_cut(self, job: Job, servers: Iterable[str], seconds: float) -> float | None:
        """A job was cut off after so long on these servers; the speed that it did not reach, None if that says nothing.

        >>> from berth.live.core.jobs import Role
        >>> learned, job = Learned(), Job("j", "t", (Role("w", 1, {}),), work=10.0)
        >>> learned.add(job, ["n1"], 5.0), learned.add_cut(job, ["n1"], 3.0), learned.add_cut(job, ["n1"], 20.0)
        (2.0, None, 0.5)
        >>> learned.speed("t", "n1").mean
        1.25
        """
        work = job.work or self._reference.get(job.type)
        if work is None:
            return None
        speed = work / seconds
        slower = [server for server in servers if speed < self._channels.get((job.type, server), (0, 1.0))[1]]
        self._count(job.type, slower, speed, 1)
        return speed if slower else None

    def _count(self, type_: str, servers: Iterable[str], speed: float, cut: int) -> None:
        for server in servers:
            runs, mean, squares, before = self._channels.get((type_, server), (0, 0.0, 0.0, 0))
            change = speed - mean
            mean += change / (runs + 1)
            self._channels[type_, server] = runs + 1, mean, squares + change * (speed - mean), before + cut

    def speed(self, type_: str, server: str) -> Speed | None:
        """What is known of a channel; None where nothing ran."""
        channel = self._channels.get((type_, server))
        if channel is None:
            return None
        runs, mean, squares, cut = channel
        return Speed(runs, mean, math.sqrt(squares / (runs - 1)) if runs > 1 else 0.0, cut)

    def work(self, job: Job) -> float:
        """How much there is to do, in seconds at speed 1, as far as is known."""
        return job.work or self._reference.get(job.type) or job.expected_seconds

    def knows(self, type_: str) -> bool:
        """Whether a run of this type has said how much work its jobs are."""
        return type_ in self._reference

    def __iter__(self) -> Iterator[tuple[str, str, Speed]]:
        for type_, server in sorted(self._channels):
            speed = self.speed(type_, server)
            if speed is not None:
                yield type_, server, speed

    def dump(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "channels": [[*key, *value] for key, value in self._channels.items()],
            "reference": dict(self._reference),
        }

    @classmethod
    def load(cls, dumped: Mapping[str, Any]) -> Learned:
        """What `dump` gave."""
        learned = cls()
        for type_, server, runs, mean, squares, *cut in dumped["channels"]:  # older dumps do not say what was cut
            known = int(runs), float(mean), float(squares), int(cut[0]) if cut else 0
            learned._channels[type_, server] = known
        learned._reference = {name: float(value) for name, value in dumped["reference"].items()}
        return learned


class Calibration:
    """Scores of recent runs: how many spreads the logarithm of a run time was above its prediction."""

    def __init__(self) -> None:
        self._scores: deque[float] = deque(maxlen=REMEMBERED)

    def add(self, predicted: tuple[float, float], seconds: float, cut: bool) -> None:
        """A run took this long where `expected` had given `predicted`; one that was `cut` off would have run longer."""
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
        """A copy that stays as it is."""
        return Calibration.load(self._scores)

    def dump(self) -> list[float]:
        """All of it, for JSON."""
        return list(self._scores)

    @classmethod
    def load(cls, dumped: Iterable[float]) -> Calibration:
        """What `dump` gave."""
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
    """Learn from the end of an attempt; None where it says nothing about speed. `alike` is of `Holdings.alike`."""
    job, cut = record.job, isinstance(event, Failed)
    if job.type == UNTYPED or (isinstance(event, Failed) and (event.fault == "engine" or record.started is None)):
        return None
    began = record.started if record.started is not None else record.since
    seconds = event.time - began if event.seconds is None else event.seconds
    if not seconds > 0 or (record.unwanted and not cut):
        return None
    known = [learned.speed(job.type, place.server) for place in record.places]
    seen = [speed for speed in known if speed is not None]
    if len(seen) == len(known):
        slowest = min(seen, key=lambda speed: speed.mean)
        calibration.add((learned.work(job) / slowest.mean, slowest.spread), seconds, cut)
    servers = dict.fromkeys(s for place in record.places for s in alike.get(place.server, (place.server,)))
    speed = (learned.add_cut if cut else learned.add)(job, servers, seconds)
    if speed is None:
        return None
    gains = event.gains if isinstance(event, Finished) else {}
    return Outcome(record.number, job, record.places, speed, gains, cut, alike)


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
