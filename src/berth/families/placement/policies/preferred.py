"""Base class of policies that place each task on the first server of a list that has room."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from berth.errors import InvalidInput
from berth.families.placement.kernels.baselines import place_preferred
from berth.families.placement.kernels.greedy import Batch, Servers
from berth.families.placement.problem import (
    REJECT,
    WAIT,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
)
from berth.model import Floats

__all__ = ["PreferredPolicy"]


class PreferredPolicy(ABC):
    """Servers that are on come first, then those that are off, each by a key; a task goes to the first with room.

    `waiting` decides about a task that fits nowhere now: with `"queue"` it waits and is tried again at every arrival,
    end and failure; with `"drop"` it is rejected. With `paying` a task goes only to servers where its value exceeds the
    cost of running it.
    """

    family = "placement"
    reference = "none: a base class"

    def __init__(self, problem: PlacementProblem, *, waiting: str = "queue", paying: bool = False) -> None:
        if waiting not in ("queue", "drop"):
            raise InvalidInput("one of queue, drop", value=waiting, key="waiting")
        problem.require_single(type(self).__name__)
        self.problem, self.waiting, self.paying = problem, waiting, bool(paying)
        self._servers = Servers(problem.instance.capacity, problem.speed, problem.launch, problem.rate, problem.weight)

    @abstractmethod
    def rank(self, slot: PlacementSlot) -> Floats:
        """A number for each pending task (n,): larger ones are placed first, ties by arrival."""

    @abstractmethod
    def keys(self, slot: PlacementSlot, on: NDArray[np.bool_]) -> tuple[Floats, Floats, float]:
        """Keys (R,) of servers while on and while off, and the key of the next to be launched; < 0: unchanged."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        chosen = np.full(len(slot.ids), WAIT, dtype=np.int64)
        tasks = slot.tasks
        batch = Batch(tasks.arrival, tasks.demand, tasks.work, tasks.value, tasks.decay, tasks.deadline)
        on = slot.up & (slot.time <= slot.on_until)
        free = np.where(slot.up[:, None], slot.free, -1.0)  # servers that are down take no task at all
        on_key, off_key, opened = self.keys(slot, on)
        order = np.argsort(-self.rank(slot), kind="stable")
        place_preferred(
            batch,
            order,
            self._servers,
            slot.time,
            self.paying,
            on_key,
            off_key,
            np.array([opened]),
            free,
            on,
            chosen,
        )
        if self.waiting == "drop":
            chosen[chosen == WAIT] = REJECT
        return PlacementDecision(chosen)

    def observe(self, outcome: PlacementOutcome, /) -> None:
        return None  # learns nothing
