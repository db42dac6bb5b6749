"""Stand-ins for plain schedulers: Slurm, Kubernetes and Ray without berth.

All of them take jobs in the order of arrival and start whatever fits (backfill without reservations: the jobs state no
time limits). They differ in where tasks go: Slurm takes the first node that holds the job, else fills nodes in order;
Kubernetes spreads tasks over the emptiest nodes; Ray packs them onto few nodes.
"""

from __future__ import annotations

import numpy as np

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.drivers import Driver
from berth.live.core.kernels import Placed
from berth.live.core.records import Outcome
from berth.live.core.view import Placing, View
from berth.live.twin.kernels import ORDER, PACK, SPREAD, start_plainly
from berth.model import Ints

__all__ = ["PLAIN", "PlainDispatcher"]

PLAIN = {"slurm": ORDER, "kubernetes": SPREAD, "ray": PACK}
"""Plain schedulers and their rules of placement."""


class PlainDriver(Driver):
    """Places jobs as a plain scheduler does; learns nothing."""

    def __init__(self, rule: int) -> None:
        self._rule = rule

    def propose(self, view: View, /) -> Placing:
        gangs, rows = view.gangs, int(view.gangs.most.sum())

        def whole(size: int) -> Ints:
            return np.zeros(size, dtype=np.int64)

        shapes = np.zeros(int(gangs.shape.max()) + 1, dtype=bool)
        placed = Placed(whole(rows), whole(rows), whole(rows), whole(rows), whole(1), shapes)
        start_plainly(gangs, view.reach, view.weight, view.free.copy(), self._rule, placed)
        size = int(placed.size[0])
        return Placing(placed.job[:size], placed.role[:size], placed.server[:size], placed.count[:size])

    def learn(self, outcome: Outcome, /) -> None:
        return None


class PlainDispatcher(Dispatcher):
    """A dispatcher that decides as the plain scheduler of this name."""

    def _make_driver(self, policy: str) -> Driver | None:
        return PlainDriver(PLAIN[policy])
