"""How long jobs run: learned predictions, and bounds calibrated against what runs actually took.

A run time is lognormal around the job's work over the learned speed, as wide as earlier runs differed, and very wide
where nothing was learned. Bounds are quantiles of that, moved outward by how far recent runs were from their own
predictions (conformalized quantiles), so that a bound holds as often as it says whatever the true distribution is.

Axes: n jobs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri

from berth.live.core.jobs import Job
from berth.live.core.records import JobRecord
from berth.model import Floats

if TYPE_CHECKING:
    from berth.live.core.state import State

__all__ = ["Calibration", "Means", "expected", "latest_end", "remaining", "seconds_left", "slowest", "speeds"]

Means = dict[str, tuple[float, int]]
"""The mean speed of each type of job over all servers, and the number of runs."""
UNKNOWN, SEEN_ONCE, LEAST = 1.0, 0.7, 0.05
"""The spread of logarithms where nothing is learned, where one run was seen, and at least."""
SURE = 0.95
"""The share of runs that are to end before their upper bound."""
REMEMBERED = 200
"""The number of recent runs that the calibration uses."""
ENOUGH = 20
"""With fewer runs than this the lognormal distribution is taken as it is."""
OUTLASTED = 0.25
"""A reservation expects a run that has outlasted its prediction to go on for this part of the time it has run."""
LONGER = 0.05
"""A run that has outlasted its prediction is expected to go on for at least this part of the time it has run."""


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


def speeds(state: State) -> Means:
    """The mean speed of each type over all servers where it ran, and its runs."""
    found: Means = {}
    for type_, _, speed in state.learned:
        mean, runs = found.get(type_, (0.0, 0))
        found[type_] = (mean * runs + speed.mean * speed.runs) / (runs + speed.runs), runs + speed.runs
    return found


def expected(state: State, job: Job, servers: Iterable[str], means: Means) -> tuple[float, float]:
    """How long a job is expected to run on these servers, and the spread of the logarithm."""
    speed, wide = slowest(state, job.type, servers, means)
    return state.learned.work(job) / speed, wide


def slowest(state: State, type_: str, servers: Iterable[str], means: Means) -> tuple[float, float]:
    """The speed of jobs of a type on the slowest of these servers, and the spread of its logarithm."""
    found, wide = math.inf, LEAST
    for server in servers:
        known = state.learned.speed(type_, server)
        if known is not None:
            mean = known.mean
            spread = SEEN_ONCE if known.runs == 1 else known.deviation / known.mean * math.sqrt(1.0 + 1.0 / known.runs)
        else:
            mean, spread = means[type_][0] if type_ in means else state.servers[server].server.speed, UNKNOWN
        if mean < found:
            found, wide = mean, max(spread, LEAST)
    return found, wide


def latest_end(state: State, job: Job, speed: tuple[float, float]) -> float:
    """After how many seconds a job that starts now has ended almost surely; infinity where nothing tells.

    `speed` is what `slowest` gives for its type on its servers. Its time limit is an upper bound in any case.
    """
    limit = math.inf if job.limit is None else job.limit
    if job.work is None and job.said_seconds is None and not state.learned.knows(job.type):
        return limit
    slow, wide = speed
    return min(limit, state.learned.work(job) / slow * math.exp(wide * state.calibration.high))


def seconds_left(state: State, records: Sequence[JobRecord], time: float, means: Means) -> Floats:
    """How many more seconds (n,) each running job is expected to run: by its own estimate, or by what was learned.

    A job that has outlasted that is expected to run until its time limit, or, without one, for a quarter of its time
    more.
    """
    found = np.zeros(len(records))
    for i, record in enumerate(records):
        elapsed = max(time - (record.since if record.started is None else record.started), 0.0)
        servers = [place.server for place in record.places]
        seconds = record.job.estimate or expected(state, record.job, servers, means)[0]
        most = OUTLASTED * elapsed if record.job.limit is None else max(record.job.limit - elapsed, 0.0)
        found[i] = most if elapsed >= seconds else min(seconds - elapsed, most if record.job.limit else math.inf)
    return found


def remaining(seconds: Floats, wide: Floats, elapsed: Floats, quantile: Floats | float) -> Floats:
    """What is left of run times at a quantile, given that they last longer than what has elapsed."""
    past = np.where(elapsed > 0, np.log(np.maximum(elapsed, 1e-9) / seconds) / wide, -np.inf)
    below = ndtr(past)
    at = np.clip(below + (1.0 - below) * quantile, 1e-12, 1.0 - 1e-12)
    found: Floats = np.maximum(seconds * np.exp(wide * ndtri(at)), (1.0 + LONGER) * elapsed) - elapsed
    return found
