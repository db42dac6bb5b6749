"""What running jobs tell before they end: one that takes longer than expected is slower there than was known.

Fast runs end first. Learned from ended runs alone, a type that was only just met looks fast everywhere, until its slow
runs end too. So a run that has outlasted its expected time counts, for the decision at hand, as a run with the speed
that is expected of it given that it is below what was possible so far (a truncated lognormal). Nothing of this is kept:
when the run ends it is learned as it was.

Axes: n running jobs.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from berth.live.core.attempts import Attempts
from berth.live.core.cells import Runs
from berth.live.core.runtimes import elapsed, works
from berth.live.core.speeds import EVERY, Learned
from berth.live.core.table import JobTable, Running
from berth.model import Floats, Ints

__all__ = ["overdue_runs"]

TELLING = 0.1
"""A run is counted where the logarithm of the expected speed changes at least by this."""
STEP = 1.2
"""A run that is counted is looked at again when it has run this times as long."""
EARLY = 1.0 - 1e-9
"""It is looked at from a little before then: the quotient is rounded."""


def overdue_runs(
    table: JobTable, learned: Learned, running: Running, time: float, attempts: Attempts
) -> tuple[bytes, Runs | None]:
    """Runs to be counted, with the speeds that are expected of them, and a key that changes when they do.

    `attempts` has what is known of these runs. A run is judged again when it reaches its next step, or when what is
    known of its slowest server changes; `attempts` forgets all judgements when estimates change.
    """
    past = elapsed(running, time)
    late = np.flatnonzero((past > attempts.seconds[running.rows]) & attempts.tells[running.rows] & running.started)
    if not len(late) or len(late) * EVERY < learned.runs:
        return b"", None
    rows, past = running.rows[late], past[late]
    types, kind = table.types(rows)
    outlook = np.array([learned.outlook(type_) for type_ in types]).swapaxes(0, 1)
    spread, deviation = outlook[1:, kind, attempts.slowest[rows]]
    changed = (spread != attempts.spread[rows]) | (deviation != attempts.deviation[rows])
    moved = (past >= attempts.due[rows]) | (past < attempts.past[rows])
    if len(again := np.flatnonzero(changed | moved)):
        _judge(attempts, running.only(late[again]), past[again], outlook, kind[again])
    told = np.flatnonzero(attempts.told[rows])
    if not len(told):
        return b"", None
    counted, rows = running.only(late[told]), rows[told]
    mean = np.log(works(table, rows, learned) / attempts.seconds[rows])
    key = np.stack([table.number(rows), counted.began, attempts.step[rows]]).tobytes()
    return key, Runs(types, kind[told], counted.start, counted.server, mean - attempts.less[rows])


def _judge(attempts: Attempts, runs: Running, past: Floats, outlook: Floats, kind: Ints) -> None:
    """Note which of these runs (n,) must be counted: `outlook` (3, T, R) is what is known of the types that occur."""
    rows, slowest = runs.rows, _slowest(runs, outlook[0, kind[runs.job], runs.server])
    seconds, (spread, deviation) = attempts.seconds[rows], outlook[1:, kind, slowest]
    step = np.floor(np.log(past / seconds) / np.log(STEP))
    below = np.log(seconds / np.maximum(STEP**step * seconds, seconds)) / spread
    less = spread * np.exp(-0.5 * below**2 - log_ndtr(below)) / np.sqrt(2.0 * np.pi)
    attempts.slowest[rows], attempts.spread[rows], attempts.deviation[rows] = slowest, spread, deviation
    attempts.past[rows], attempts.step[rows], attempts.less[rows] = past, step, less
    attempts.due[rows] = STEP ** (step + 1.0) * seconds * EARLY
    attempts.told[rows] = less * (1.0 - deviation**2 / spread**2) >= TELLING


def _slowest(runs: Running, mean: Floats) -> Ints:
    """The slowest server of each run (n,), the first of those with the least mean (p,)."""
    begin = runs.start[:-1]
    least = np.flatnonzero(mean == np.repeat(np.minimum.reduceat(mean, begin), runs.places))
    slowest: Ints = runs.server[least[np.searchsorted(least, begin)]]
    return slowest
