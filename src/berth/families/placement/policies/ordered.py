"""Base class of greedy placement policies: an order of the tasks, then the best server for each in turn."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.kernels.gang_greedy import Trial, place_gangs
from berth.families.placement.kernels.greedy import Batch, Servers, place_ever, place_now
from berth.families.placement.policies.queued import decision_of, fleet_of, free_of, pieces_of, rows_for
from berth.families.placement.problem import (
    REJECT,
    WAIT,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
)
from berth.model import Floats, Ints

__all__ = ["WAITING", "OrderedPolicy"]

WAITING = ("queue", "commit-immediate", "commit-any")
AUTO = "auto"
"""Waiting mode: as printed for the paper's problem, single tasks of known length; otherwise a queue."""


class OrderedPolicy(ABC):
    """Places tasks one by one, those of the largest `rank` first, where the score is largest.

    A score is the value of the task when done there, less the cost of running it, `beta` of the launch cost if the
    server is off, and `price` per weighted unit of resource and time. Tasks without a score above 0 are not placed,
    unless `forced`.

    `waiting` decides about a task that finds no room: with `"queue"` it waits and is tried again at every arrival, end
    and failure; with `"commit-immediate"` it gets the best later place, but only if it fits nowhere now; with
    `"commit-any"` later places compete with those that are free now.

    Gangs, ports that do not reach every server, devices and estimated run times need `"queue"`. A gang starts whole or
    not at all; every speed of the cluster is tried as its least one.
    """

    family = "placement"
    reference = "none: a base class"

    def __init__(
        self,
        problem: PlacementProblem,
        *,
        waiting: str = "queue",
        beta: float = 1.0,
        price: float = 0.0,
        forced: bool = False,
    ) -> None:
        if waiting == AUTO:
            waiting = "queue" if problem.beyond_single or not problem.exact else "commit-immediate"
        if waiting not in WAITING:
            raise InvalidInput(f"one of {', '.join(WAITING)}", value=waiting, key="waiting")
        for key, value in (("beta", beta), ("price", price)):
            if not 0.0 <= value < np.inf:
                raise InvalidInput("a number ≥ 0", value=value, key=key)
        if waiting != "queue":
            problem.require_single(f"a greedy policy with waiting={waiting}", exact=True)
        self.problem, self.waiting = problem, waiting
        self.beta, self.price, self.forced = float(beta), float(price), bool(forced)
        self._fleet, self._beyond = fleet_of(problem), bool(problem.beyond_single)
        self._speeds = np.unique(problem.speed)[::-1].copy()
        self._servers = Servers(problem.instance.capacity, problem.speed, problem.launch, problem.rate, problem.weight)

    @abstractmethod
    def rank(self, slot: PlacementSlot) -> Floats:
        """A number for each pending task (n,): larger ones are placed first, ties by arrival."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        if not len(slot.ids):
            return PlacementDecision(np.zeros(0, dtype=np.int64))
        tasks = slot.tasks
        batch = Batch(tasks.arrival, tasks.demand, tasks.work, tasks.value, tasks.decay, tasks.deadline)
        order = np.argsort(-self.rank(slot), kind="stable")
        if self._beyond:
            return self._whole(slot, batch, order)
        chosen = np.full(len(tasks), WAIT, dtype=np.int64)
        if self.waiting == "queue":
            # servers that are down take no task at all, not even one without demand
            free, on_until = np.where(slot.up[:, None], slot.free, -1.0), slot.on_until.copy()
            place_now(
                batch, order, self._servers, slot.time, self.beta, self.price, self.forced, free, on_until, chosen
            )
            return PlacementDecision(chosen)
        return self._reserved(slot, batch, order, chosen)

    def _whole(self, slot: PlacementSlot, batch: Batch, order: Ints) -> PlacementDecision:
        """Start gangs whole, on servers and devices that they may use."""
        servers = len(self.problem.speed)
        free = free_of(slot, (~(slot.time <= slot.on_until)).astype(np.float64))
        rows, started = rows_for(slot.tasks, free), np.zeros(len(order), dtype=np.int64)
        place_gangs(
            batch,
            order,
            len(order),
            self._fleet,
            self._servers,
            pieces_of(slot.tasks),
            slot.time,
            self.beta,
            self.price,
            self.forced,
            free,
            Trial(self._speeds, np.zeros(servers, dtype=np.int64), np.zeros(servers)),
            rows,
            started,
        )
        return decision_of(slot, rows)

    def _reserved(self, slot: PlacementSlot, batch: Batch, order: Ints, chosen: Ints) -> PlacementDecision:
        """Place every task for good, now or later, or never."""
        held, servers = slot.berths, len(self.problem.speed)
        count = np.bincount(held.server, minlength=servers)
        by_server = np.argsort(held.server, kind="stable")
        column = np.arange(len(by_server)) - np.repeat(np.cumsum(count) - count, count)
        shape = (servers, int(count.max(initial=0)) + len(order))
        start, end = np.zeros(shape), np.zeros(shape)
        demand = np.zeros((*shape, held.demand.shape[1]))
        row = held.server[by_server]
        start[row, column], end[row, column] = held.start[by_server], held.end[by_server]
        demand[row, column] = held.demand[by_server]
        starts = np.full(len(order), slot.time)
        place_ever(
            batch,
            order,
            self._servers,
            slot.up,
            slot.time,
            self.problem.idle,
            self.beta,
            self.price,
            self.forced,
            self.waiting == "commit-any",
            slot.on_until,
            start,
            end,
            demand,
            count,
            chosen,
            starts,
        )
        return PlacementDecision(np.where(chosen < 0, REJECT, chosen), starts)

    def observe(self, outcome: PlacementOutcome, /) -> None:
        return None  # learns nothing while running
