"""What is computed once for each attempt that holds places: how long it should run, and whether that says something.

Axes: n attempts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from berth.live.core.jobs import UNTYPED
from berth.live.core.runtimes import run_times
from berth.live.core.shapes import longer
from berth.live.core.speeds import Learned
from berth.live.core.table import JobTable, Running
from berth.model import Floats, Ints

__all__ = ["Attempts"]


class Attempts:
    """Columns by the rows of jobs in their table; those of attempts that were looked at last are valid.

    Other estimates (`Learned.version`) and other references of types (`Learned.met`) change all of them. Other places
    in a row (`JobTable.terms`) change that row.
    """

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._term = np.zeros(0, dtype=np.int64)
        self.seconds: Floats = np.zeros(0)
        """How long an attempt is expected to run."""
        self.tells = np.zeros(0, dtype=bool)
        """Whether it says something about speeds if it takes longer: it has a type, and its work is known."""
        self.due, self.past, self.spread, self.deviation, self.step, self.less = (np.zeros(0) for _ in range(6))
        """When an overdue run must be judged next, and of its last judgement how long it had run, what was known of
        its slowest server, how many steps it had reached, and by how much its speed is below the mean."""
        self.slowest: Ints = np.zeros(0, dtype=np.int64)
        self.told = np.zeros(0, dtype=bool)

    def look(self, table: JobTable, learned: Learned, running: Running) -> Floats:
        """How long each of these attempts is expected to run (n,)."""
        of = table, learned, learned.version, learned.met
        if of != self._of:
            self._of = of
            self._term[:] = 0
        if len(running.rows):
            self._lengthen(int(running.rows.max()) + 1)
        terms = table.terms(running.rows)
        if len(new := np.flatnonzero(self._term[running.rows] != terms)):
            runs = running if len(new) == len(terms) else running.only(new)
            self._term[runs.rows] = terms[new]
            self.seconds[runs.rows], self.tells[runs.rows] = (
                run_times(table, runs, learned),
                _tell(table, learned, runs),
            )
            self.due[runs.rows], self.slowest[runs.rows] = -np.inf, 0
        seconds: Floats = self.seconds[running.rows]
        return seconds

    def _lengthen(self, rows: int) -> None:
        """Make room for this many rows; terms of new rows are 0, which is none."""
        if len(self._term) < rows:
            for name, column in vars(self).items():
                if isinstance(column, np.ndarray):
                    setattr(self, name, longer(column, rows))


def _tell(table: JobTable, learned: Learned, running: Running) -> NDArray[np.bool_]:
    """Of which attempts (n,) it is known how much work they are."""
    types, kind = table.types(running.rows)
    typed = np.array([type_ != UNTYPED for type_ in types], dtype=bool)
    knows = np.array([learned.knows(type_) for type_ in types], dtype=bool)
    work, *_ = table.said(running.rows)
    tells: NDArray[np.bool_] = typed[kind] & ((work > 0) | knows[kind])
    return tells
