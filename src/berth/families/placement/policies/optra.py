"""OptRA, a baseline of the DRL-Greedy paper, as that paper modifies it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from berth.families.placement.policies.preferred import PreferredPolicy
from berth.families.placement.problem import PlacementProblem, PlacementSlot
from berth.model import Floats

__all__ = ["OptRA"]


class OptRA(PreferredPolicy):
    """The shortest task first, on the fastest server that is on and has room, else on a new one of the fastest.

    "Efficiency" is read as clock speed, and shortest-first within a batch: waiting tasks come before later batches,
    unless `across`, with which the shortest of all comes first. Gains are ignored (`paying` false), and a task that
    fits nowhere waits: the paper says none of this.

    >>> from berth.testing import example_placement
    >>> OptRA(example_placement(), np.random.default_rng(0)).waiting
    'queue'
    """

    reference = "Yang & Shen, DRL Enhanced Greedy Optimization for Online Scheduling of Batched Tasks, section 7.2"

    def __init__(
        self,
        problem: PlacementProblem,
        rng: np.random.Generator,
        *,
        across: bool = False,
        waiting: str = "queue",
        paying: bool = False,
    ) -> None:
        super().__init__(problem, waiting=waiting, paying=paying)
        self.across = bool(across)
        self._slow = -np.array(problem.speed)

    def rank(self, slot: PlacementSlot) -> Floats:
        tasks = slot.tasks
        if self.across:
            return -tasks.work
        rank = np.empty(len(tasks))
        rank[np.lexsort((tasks.work, tasks.arrival))] = -np.arange(len(tasks))
        return rank

    def keys(self, slot: PlacementSlot, on: NDArray[np.bool_]) -> tuple[Floats, Floats, float]:
        return self._slow, self._slow, -1.0
