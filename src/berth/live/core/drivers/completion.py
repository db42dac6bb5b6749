"""The policy `completion`: start each job where it completes first, or defer it while waiting completes it earlier.

Jobs are taken in order of their levels, and inside a level in order of arrival. Each gets the servers on which its
slowest task is expected to end first: one server if one is enough, else the fewest, over several speed tiers only if
that completes earlier. Jobs behind a waiting one may start in what it leaves (backfill). The policy has no settings.

Axes: n jobs, R servers, K resources.
"""

from __future__ import annotations

import numpy as np

from berth.live.core import COMPLETION
from berth.live.core.drivers.base import Driver
from berth.live.core.drivers.deferral import Waits, paces_of
from berth.live.core.kernels import Placed, complete_in_order
from berth.live.core.records import Outcome
from berth.live.core.runtimes import works
from berth.live.core.speeds import EQUAL
from berth.live.core.view import ROWS, Placing, View

__all__ = ["CompletionDriver"]

COUNTED = 10
"""How many of the jobs that do not fit now are counted as waiting for a release."""


class CompletionDriver(Driver):
    """Decides by expected completion alone. Without `mixes`, a gang takes servers of one speed tier."""

    def __init__(self, waits: Waits, *, mixes: bool = True) -> None:
        self.waits, self.mixes = waits, mixes

    def __str__(self) -> str:
        return COMPLETION

    def warm(self) -> None:
        """Do nothing: made-up decisions reach all kernels."""

    def learn(self, outcome: Outcome, /) -> None:
        """Learn nothing: the state learns speeds."""

    def propose(self, view: View, /) -> Placing:
        """Which jobs start now, and where."""
        gangs, rows = view.gangs, view.rows
        if not len(rows):
            return Placing.nothing()
        paces, kind = paces_of(view, rows)
        paces = paces._replace(mixes=self.mixes)
        seconds = works(view.state.table, rows, view.learned)
        free = np.where(view.usable[:, None], view.free, 0)
        most = int(min(np.minimum(gangs.most, len(free) + 1).sum() + len(gangs.minimum), ROWS))
        job, role, server, count = (np.zeros(most, dtype=np.int64) for _ in range(4))
        failed = np.zeros(int(gangs.shape.max()) + 1, dtype=bool)
        placed = Placed(job, role, server, count, np.zeros(1, dtype=np.int64), failed)
        releases = self.waits.releases(view)
        complete_in_order(gangs, kind, seconds, view.fit, view.reach, free, paces, releases, placed, EQUAL, COUNTED)
        size = int(placed.size[0])
        return Placing(job[:size], role[:size], server[:size], count[:size])
