"""How long jobs run: learned predictions, and bounds calibrated against what runs actually took.

A run time is lognormal around the job's work over the expected speed (`berth.live.core.speeds`), as wide as earlier
runs differed, and very wide before anything is learned. Bounds are quantiles of that, moved outward by the errors of
recent predictions (conformalized quantiles), so that a bound holds as often as it says whatever the true distribution
is.

Axes: n jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from berth.live.core.jobs import Job
from berth.live.core.records import JobRecord
from berth.live.core.state import State
from berth.model import Floats

__all__ = ["Means", "expected", "latest_end", "remaining", "seconds_left", "slowest", "speeds"]

Means = dict[str, tuple[float, int]]
"""The mean speed of each type of job over all servers, and the number of runs."""
OUTLASTED = 0.25
"""A reservation expects a run that has outlasted its prediction to continue for this share of the time it has run."""
LONGER = 0.05
"""A run that has outlasted its prediction is expected to continue for at least this share of the time it has run."""


def speeds(state: State) -> Means:
    """The mean speed of each type over all servers where it ran, and its runs."""
    means: Means = {}
    for type_, _, speed in state.learned:
        mean, runs = means.get(type_, (0.0, 0))
        means[type_] = (mean * runs + speed.mean * speed.runs) / (runs + speed.runs), runs + speed.runs
    return means


def expected(state: State, job: Job, servers: Iterable[str]) -> tuple[float, float]:
    """How long a job is expected to run on these servers, and the spread of the logarithm."""
    speed, wide = slowest(state, job.type, servers)
    return state.learned.work(job) / speed, wide


def slowest(state: State, type_: str, servers: Iterable[str]) -> tuple[float, float]:
    """The expected speed of a job of a type on these servers together, and the spread of its logarithm."""
    places = list(dict.fromkeys(servers))
    known = min((state.learned.speed(type_, server) for server in places), key=lambda speed: speed.mean)
    return known.mean * (state.learned.apart(type_) if len(places) > 1 else 1.0), known.spread


def latest_end(state: State, job: Job, speed: tuple[float, float]) -> float:
    """Seconds by which a job that starts now has almost surely ended; infinity if its run time is unknown.

    `speed` is what `slowest` gives for its type on its servers. Its time limit is an upper bound in any case.
    """
    limit = math.inf if job.limit is None else job.limit
    if job.work is None and job.said_seconds is None and not state.learned.knows(job.type):
        return limit
    slow, wide = speed
    return min(limit, state.learned.work(job) / slow * math.exp(wide * state.calibration.high))


def seconds_left(state: State, records: Sequence[JobRecord], time: float) -> Floats:
    """Remaining seconds (n,) that each running job is expected to run, by its own estimate or by what was learned.

    A job that has outlasted that is expected to run until its time limit, or, without one, for a quarter of its time
    more.
    """
    left = np.zeros(len(records))
    for i, record in enumerate(records):
        elapsed = max(time - (record.since if record.started is None else record.started), 0.0)
        servers = [place.server for place in record.places]
        seconds = record.job.estimate or expected(state, record.job, servers)[0]
        most = OUTLASTED * elapsed if record.job.limit is None else max(record.job.limit - elapsed, 0.0)
        left[i] = most if elapsed >= seconds else min(seconds - elapsed, most if record.job.limit else math.inf)
    return left


def remaining(seconds: Floats, wide: Floats, elapsed: Floats, quantile: Floats | float) -> Floats:
    """The remaining run times at a quantile, given that runs last longer than what has elapsed."""
    past = np.where(elapsed > 0, np.log(np.maximum(elapsed, 1e-9) / seconds) / wide, -np.inf)
    below = ndtr(past)
    at = np.clip(below + (1.0 - below) * quantile, 1e-12, 1.0 - 1e-12)
    left: Floats = np.maximum(seconds * np.exp(wide * ndtri(at)), (1.0 + LONGER) * elapsed) - elapsed
    return left
