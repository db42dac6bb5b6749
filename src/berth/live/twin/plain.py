"""Stand-ins for plain schedulers: Slurm, Kubernetes and Ray without berth.

All of them take jobs in the order of arrival and start whatever fits (backfill without reservations: the jobs state no
time limits). They differ in where tasks go: Slurm takes the first node that holds the job, else fills nodes in order;
Kubernetes spreads tasks over the emptiest nodes; Ray packs them onto few nodes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.drivers import Driver
from berth.live.core.drivers.deferral import Waits
from berth.live.core.kernels import Placed
from berth.live.core.records import Outcome
from berth.live.core.view import Placing, View
from berth.live.twin.kernels import ORDER, PACK, SPREAD, start_plainly
from berth.live.twin.streams import CLASS
from berth.model import Ints

__all__ = ["PLAIN", "OneClassDispatcher", "PlainDispatcher"]

PLAIN = {"slurm": ORDER, "kubernetes": SPREAD, "ray": PACK}
"""Plain schedulers and their rules of placement."""


class PlainDriver:
    """Places jobs as a plain scheduler does; learns nothing and never waits for faster servers."""

    gathers, decides = False, True

    def __init__(self, rule: int, one_class: str | None = None) -> None:
        self._rule, self._one_class, self.waits = rule, one_class, Waits()

    def propose(self, view: View, /) -> Placing:
        gangs, rows = view.gangs, int(view.gangs.most.sum())

        def whole(size: int) -> Ints:
            return np.zeros(size, dtype=np.int64)

        shapes = np.zeros(int(gangs.shape.max()) + 1, dtype=bool)
        placed = Placed(whole(rows), whole(rows), whole(rows), whole(rows), whole(1), shapes)
        servers = [record.server.labels.get(self._one_class or "", "") for record in view.state.servers.values()]
        group = np.unique(servers, return_inverse=True)[1].reshape(-1)
        notes = np.zeros(len(servers), dtype=bool)
        start_plainly(gangs, view.reach, group, view.weight, view.free.copy(), self._rule, notes, placed)
        size = int(placed.size[0])
        return Placing(placed.job[:size], placed.role[:size], placed.server[:size], placed.count[:size])

    def learn(self, outcome: Outcome, /) -> None:
        return None

    def warm(self) -> None:
        return None


class PlainDispatcher(Dispatcher):
    """A dispatcher that decides as a plain scheduler, or as a policy whose jobs start wherever the policy places them.

    The service itself has jobs wait for faster servers and keeps gangs together, whatever the policy; here it does not.
    """

    one_class: ClassVar[str | None] = None

    def _make_driver(self, policy: str) -> Driver | None:
        if policy in PLAIN:
            return PlainDriver(PLAIN[policy], self.one_class)
        driver = super()._make_driver(policy)
        if driver is not None:
            driver.decides = True
        return driver


class OneClassDispatcher(PlainDispatcher):
    """The same, where users ask for servers of one class, as on clusters with several models of GPUs."""

    one_class = CLASS
