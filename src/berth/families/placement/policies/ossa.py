"""OSSA, a baseline of the DRL-Greedy paper."""

from __future__ import annotations

import numpy as np

from berth.families.placement.policies.ordered import OrderedPolicy
from berth.families.placement.problem import PlacementProblem, PlacementSlot
from berth.model import Floats

__all__ = ["OSSA"]


class OSSA(OrderedPolicy):
    """Greedy in order of arrival on value less launch cost; ignores the cost of running a task.

    The paper names OSSA, which knows the price of servers alone, without details; this is one reading of it. `waiting`
    is `commit-immediate`, as in the paper's own greedy.

    >>> from berth.testing import example_placement
    >>> OSSA(example_placement(), np.random.default_rng(0)).waiting
    'commit-immediate'
    """

    reference = "Yang & Shen, DRL Enhanced Greedy Optimization for Online Scheduling of Batched Tasks, section 7.2"

    def __init__(
        self, problem: PlacementProblem, rng: np.random.Generator, *, waiting: str = "commit-immediate"
    ) -> None:
        super().__init__(problem, waiting=waiting)
        free_to_run = np.zeros(len(problem.speed))
        free_to_run.setflags(write=False)  # like the other arrays: kernels are compiled for one kind
        self._servers = self._servers._replace(rate=free_to_run)

    def rank(self, slot: PlacementSlot) -> Floats:
        return np.zeros(len(slot.ids))
