"""What running jobs tell before they end: one that takes longer than expected is slower there than was known.

Fast runs end first. Learned from ended runs alone, a type that was only just met looks fast everywhere, until its slow
runs end too. So a run that has outlasted its expected time counts, for the decision at hand, as a run with the speed
that is expected of it given that it is below what was possible so far (a truncated lognormal). Nothing of this is kept:
when the run ends it is learned as it was.

Axes: n running jobs.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from berth.live.core.jobs import UNTYPED
from berth.live.core.speeds import EVERY, Learned
from berth.live.core.table import JobTable, Running
from berth.model import Floats

__all__ = ["overdue_runs"]

TELLING = 0.1
"""A run is counted where the logarithm of the expected speed changes at least by this."""
STEP = 1.2
"""A run that is counted is looked at again when it has run this times as long."""
Told = tuple[str, tuple[str, ...], float]


def overdue_runs(
    table: JobTable, learned: Learned, running: Running, seconds: Floats, elapsed: Floats
) -> tuple[object, list[Told]]:
    """Runs to be counted: a key that changes when they do, and type, servers and expected logarithm of speed of each.

    `seconds` (n,) is how long each running job was expected to take, `elapsed` (n,) how long it has run.
    """
    late = np.flatnonzero((elapsed > seconds) & _tells(table, learned, running))
    if len(late) * EVERY < learned.runs:
        return (), []
    key, told = list[tuple[str, int, int]](), list[Told]()
    for i, record in zip(late.tolist(), table.records(running.rows[late]), strict=True):
        places = tuple(dict.fromkeys(place.server for place in record.places))
        step = int(math.log(elapsed[i] / seconds[i], STEP))
        passed = max(STEP**step * seconds[i], seconds[i])
        known = min((learned.speed(record.job.type, server) for server in places), key=lambda speed: speed.mean)
        mean = math.log(learned.work(record.job) / seconds[i])
        below = math.log(seconds[i] / passed) / known.spread
        less = known.spread * math.exp(-0.5 * below**2 - float(log_ndtr(below))) / math.sqrt(2.0 * math.pi)
        if less * (1.0 - known.deviation**2 / known.spread**2) >= TELLING:
            key.append((record.job.id, record.attempt, step))
            told.append((record.job.type, places, mean - less))
    return tuple(key), told


def _tells(table: JobTable, learned: Learned, running: Running) -> NDArray[np.bool_]:
    """Which jobs (n,) run, so that it is known how much work they are."""
    types, kind = table.types(running.rows)
    typed = np.array([type_ != UNTYPED for type_ in types], dtype=bool)
    knows = np.array([learned.knows(type_) for type_ in types], dtype=bool)
    work, *_ = table.said(running.rows)
    tells: NDArray[np.bool_] = running.started & typed[kind] & ((work > 0) | knows[kind])
    return tells
