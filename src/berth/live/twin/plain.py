"""Stand-ins for plain schedulers: Slurm, Kubernetes and Ray without berth.

Slurm, Kubernetes and `pack` take jobs in the order of arrival and start whatever fits (backfill without reservations:
the jobs state no time limits). They differ in where tasks go: Slurm takes the first node that holds the job, else fills
nodes in order; Kubernetes spreads tasks over the emptiest nodes; `pack` is best fit, the fullest node with room.

Ray has no order. It looks at its placement groups once a second and whenever a new one comes. One that does not fit is
tried again after 0.1 s, and then after half as long again each time, up to 1 s. So a wide gang waits until by chance
enough is free at one of its tries. A group fills the emptiest node, then the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from berth.live.core.dispatcher import FALLBACK, Dispatcher
from berth.live.core.drivers import Driver, make_driver
from berth.live.core.drivers.deferral import Waits
from berth.live.core.kernels import Placed
from berth.live.core.records import Outcome
from berth.live.core.view import Placing, View
from berth.live.twin.kernels import FILL, ORDER, PACK, SPREAD, start_plainly
from berth.live.twin.streams import CLASS
from berth.model import Ints

__all__ = ["PLAIN", "OneClassDispatcher", "PlainDispatcher"]

PLAIN = {"slurm": ORDER, "kubernetes": SPREAD, "pack": PACK, "ray": FILL}
"""Plain schedulers and their rules of placement."""
LOOK, FIRST_RETRY, LONGEST_RETRY, GROWTH = 1.0, 0.1, 1.0, 1.5
"""Seconds between two looks of Ray, the first and the longest pause between two tries of a group, and its growth."""


class PlainDriver:
    """Places jobs as a plain scheduler does; learns nothing and never waits for faster servers."""

    interrupts = False
    next_look = math.inf

    def __init__(self, rule: int, one_class: str | None = None) -> None:
        self._rule, self._one_class, self.waits = rule, one_class, Waits()

    def propose(self, view: View, /) -> Placing:
        gangs, rows = view.gangs, int(view.gangs.most.sum())

        def whole(size: int) -> Ints:
            return np.zeros(size, dtype=np.int64)

        shapes = np.zeros(int(gangs.shape.max()) + 1, dtype=bool)
        placed = Placed(whole(rows), whole(rows), whole(rows), whole(rows), whole(1), shapes)
        _, value = view.state.label(self._one_class or "")
        notes = np.zeros(len(value), dtype=bool)
        start_plainly(gangs, view.reach, value + 1, view.weight, view.free.copy(), self._rule, notes, placed)
        size = int(placed.size[0])
        return Placing(placed.job[:size], placed.role[:size], placed.server[:size], placed.count[:size])

    def learn(self, outcome: Outcome, /) -> None:
        return None

    def warm(self) -> None:
        return None


@dataclass
class Retry:
    """When a gang is tried next, and the seconds until the try after that."""

    due: float
    pause: float = FIRST_RETRY


class RetryingDriver(PlainDriver):
    """Tries every waiting gang by itself, again and again, as Ray does."""

    def __init__(self, rule: int, one_class: str | None = None) -> None:
        super().__init__(rule, one_class)
        self._retries: dict[str, Retry] = {}
        self._never: set[str] = set()
        """Gangs that did not fit while nothing ran."""
        self.next_look = math.inf

    def propose(self, view: View, /) -> Placing:
        names, now = [record.job.id for record in view.records], view.time
        if self.next_look == math.inf:
            self.next_look = now
        new = [name for name in names if name not in self._retries]
        if not new and now < self.next_look:
            return Placing.nothing()
        while self.next_look <= now:
            self.next_look += LOOK
        self._retries = {name: self._retries.get(name) or Retry(now) for name in names}
        chosen = [i for i, name in enumerate(names) if self._retries[name].due <= now]
        if not chosen:
            return Placing.nothing()
        chosen.sort(key=lambda i: self._retries[names[i]].due)
        placing = view.whole(chosen, super().propose(view.only(chosen)))
        started = set(placing.job.tolist())
        failed = [names[i] for i in chosen if i not in started]
        for retry in (self._retries[name] for name in failed):
            retry.due, retry.pause = now + retry.pause, min(retry.pause * GROWTH, LONGEST_RETRY)
        if not started and not len(view.state.table.running.rows):
            self._never.update(failed)
        return placing

    @property
    def is_stuck(self) -> bool:
        """Whether no waiting gang can ever start."""
        return self._never.issuperset(self._retries)


class PlainDispatcher(Dispatcher):
    """A dispatcher that decides as a plain scheduler, or as a policy whose jobs start wherever the policy places them.

    The service itself has jobs wait for faster servers and keeps gangs together, whatever the policy; here it does not.
    """

    one_class: ClassVar[str | None] = None

    def _make_driver(self, policy: str) -> Driver | None:
        if policy in PLAIN:
            kind = RetryingDriver if policy == "ray" else PlainDriver
            return kind(PLAIN[policy], self.one_class)
        return None if policy == FALLBACK else make_driver(policy, self.seed, self.memory, bare=True)

    @property
    def wrapped(self) -> str:
        return self.state.policy if self.state.policy in PLAIN else super().wrapped

    @property
    def next_look(self) -> float:
        driver = self._driver
        if not isinstance(driver, RetryingDriver) or driver.is_stuck:
            return math.inf
        return driver.next_look if self.state.table.waiting else math.inf


class OneClassDispatcher(PlainDispatcher):
    """The same, where users ask for servers of one class, as on clusters with several models of GPUs."""

    one_class = CLASS
