"""How long jobs run: learned predictions, and bounds calibrated against what runs actually took.

A run time is lognormal around the job's work over the expected speed (`berth.live.core.speeds`), as wide as earlier
runs differed, and very wide before anything is learned. Bounds are quantiles of that, moved outward by the errors of
recent predictions (conformalized quantiles), so that a bound holds as often as it says whatever the true distribution
is.

Axes: n jobs, p places.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy.special import ndtr, ndtri

from berth.live.core.jobs import NOTHING_SAID, Job
from berth.live.core.speeds import Learned
from berth.live.core.state import State
from berth.live.core.table import JobTable, Running
from berth.model import Floats, Ints

__all__ = [
    "Means",
    "elapsed",
    "expected",
    "latest_end",
    "left_after",
    "lengths",
    "remaining",
    "run_times",
    "seconds_left",
    "slowest",
    "speeds",
    "works",
]

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


def works(table: JobTable, rows: Ints, learned: Learned) -> Floats:
    """How much work (n,) the jobs in these rows are, as `Learned.work` has it."""
    work, estimate, limit = table.said(rows)
    types, kind = table.types(rows)
    known = np.array([learned.reference(type_) for type_ in types])[kind]
    left = table.left(rows)
    said = np.where(estimate > 0, estimate, np.where(np.isfinite(limit), limit, NOTHING_SAID * left))
    found: Floats = np.where(work > 0, work, np.where(known > 0, known * left, said))
    return found


def elapsed(running: Running, time: float) -> Floats:
    """How long each job has run (n,)."""
    return np.maximum(time - running.began, 0.0)


def run_times(table: JobTable, running: Running, learned: Learned) -> Floats:
    """How long each running job is expected to run (n,) on the servers that it has."""
    if not len(running.rows):
        return np.zeros(0)
    types, kind = table.types(running.rows)
    first, server = running.start[:-1], running.server
    speed = np.stack([learned.speeds(type_) for type_ in types])[kind[running.job], server]
    several = np.maximum.reduceat(server, first) > np.minimum.reduceat(server, first)
    apart = np.array([learned.apart(type_) for type_ in types])[kind]
    slowest = np.minimum.reduceat(speed, first) * np.where(several, apart, 1.0)
    seconds: Floats = works(table, running.rows, learned) / slowest
    return seconds


def lengths(state: State, running: Running) -> tuple[Floats, Floats]:
    """How long each job (n,) is expected to run, by its own estimate or by what was learned, and its time limit."""
    _, estimate, limit = state.table.said(running.rows)
    seconds = run_times(state.table, running, state.learned)
    return np.where(estimate > 0, estimate, seconds), limit


def left_after(past: Floats, seconds: Floats, limit: Floats) -> Floats:
    """Remaining seconds (n,) that jobs with these `lengths` are expected to run after they have run for `past`.

    A job that has outlasted its expected length is expected to run until its time limit, or, without one, for a quarter
    of its time more.
    """
    limited = np.maximum(limit - past, 0.0)
    late = np.where(np.isinf(limit), OUTLASTED * past, limited)
    left: Floats = np.where(past >= seconds, late, np.minimum(seconds - past, limited))
    return left


def seconds_left(state: State, running: Running, time: float) -> Floats:
    """Remaining seconds (n,) that each running job is expected to run."""
    return left_after(elapsed(running, time), *lengths(state, running))


def remaining(seconds: Floats, wide: Floats, elapsed: Floats, quantile: Floats | float) -> Floats:
    """The remaining run times at a quantile, given that runs last longer than what has elapsed."""
    past = np.where(elapsed > 0, np.log(np.maximum(elapsed, 1e-9) / seconds) / wide, -np.inf)
    below = ndtr(past)
    at = np.clip(below + (1.0 - below) * quantile, 1e-12, 1.0 - 1e-12)
    left: Floats = np.maximum(seconds * np.exp(wide * ndtri(at)), (1.0 + LONGER) * elapsed) - elapsed
    return left
