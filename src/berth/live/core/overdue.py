"""What running jobs tell before they end: one that takes longer than expected is slower there than was known.

Fast runs end first. Learned from ended runs alone, a type that was only just met looks fast everywhere, until its slow
runs end too. So a run that has outlasted its expected time counts, for the decision at hand, as a run with the speed
that is expected of it given that it is below what was possible so far (a truncated lognormal). Nothing of this is kept:
when the run ends it is learned as it was.

Axes: n running jobs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from berth.live.core.cells import Runs
from berth.live.core.jobs import UNTYPED
from berth.live.core.runtimes import works
from berth.live.core.speeds import EVERY, Learned
from berth.live.core.table import JobTable, Running
from berth.model import Floats

__all__ = ["overdue_runs"]

TELLING = 0.1
"""A run is counted where the logarithm of the expected speed changes at least by this."""
STEP = 1.2
"""A run that is counted is looked at again when it has run this times as long."""


def overdue_runs(
    table: JobTable, learned: Learned, running: Running, seconds: Floats, elapsed: Floats
) -> tuple[bytes, Runs | None]:
    """Runs to be counted, with the speeds that are expected of them, and a key that changes when they do.

    `seconds` (n,) is how long each running job was expected to take, `elapsed` (n,) how long it has run.
    """
    late = np.flatnonzero((elapsed > seconds) & _tells(table, learned, running))
    if not len(late) or len(late) * EVERY < learned.runs:
        return b"", None
    seconds, elapsed, runs = seconds[late], elapsed[late], running.only(late)
    types, kind = table.types(runs.rows)
    outlook = np.array([learned.outlook(type_) for type_ in types])
    spread, deviation = _of_slowest(runs, *np.moveaxis(outlook, 1, 0)[:, kind[runs.job], runs.server])
    step = np.floor(np.log(elapsed / seconds) / np.log(STEP))
    below = np.log(seconds / np.maximum(STEP**step * seconds, seconds)) / spread
    less = spread * np.exp(-0.5 * below**2 - log_ndtr(below)) / np.sqrt(2.0 * np.pi)
    told = np.flatnonzero(less * (1.0 - deviation**2 / spread**2) >= TELLING)
    if not len(told):
        return b"", None
    counted, mean = runs.only(told), np.log(works(table, runs.rows, learned) / seconds)
    key = np.stack([table.number(counted.rows), counted.began, step[told]]).tobytes()
    return key, Runs(types, kind[told], counted.start, counted.server, (mean - less)[told])


def _of_slowest(runs: Running, mean: Floats, *others: Floats) -> list[Floats]:
    """Of each run what is known (p,) of its slowest server, the first of those with the least mean."""
    begin = runs.start[:-1]
    least = np.flatnonzero(mean == np.repeat(np.minimum.reduceat(mean, begin), runs.places))
    slowest = least[np.searchsorted(least, begin)]
    return [other[slowest] for other in others]


def _tells(table: JobTable, learned: Learned, running: Running) -> NDArray[np.bool_]:
    """Which jobs (n,) run, so that it is known how much work they are."""
    types, kind = table.types(running.rows)
    typed = np.array([type_ != UNTYPED for type_ in types], dtype=bool)
    knows = np.array([learned.knows(type_) for type_ in types], dtype=bool)
    work, *_ = table.said(running.rows)
    tells: NDArray[np.bool_] = running.started & typed[kind] & ((work > 0) | knows[kind])
    return tells
