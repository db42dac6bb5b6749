"""Greedy allocation of the DRL-Greedy paper, in any fixed order."""

from __future__ import annotations

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.policies.ordered import AUTO, OrderedPolicy
from berth.families.placement.problem import PlacementProblem, PlacementSlot
from berth.model import Floats

__all__ = ["ORDERS", "Greedy"]

ORDERS = ("arrival", "shortest", "densest", "deadline", "random")


class Greedy(OrderedPolicy):
    """Each task in turn goes to the server where it gains most; as printed, when it arrives and in that order.

    Settings:

    * `order`: `arrival`, `shortest` (least work first), `densest` (most value for demand and work), `deadline` (the
      earliest first) or `random`;
    * `waiting`: `commit-immediate` as in the paper, `commit-any` or `queue`; `auto` is the paper's for its problem,
      single tasks of known length, and `queue` for gangs, ports, devices and estimated run times;
    * `beta`, `price`, `forced`: as in every greedy policy; the paper has 1, 0 and false.

    >>> from berth.testing import example_placement
    >>> Greedy(example_placement(), np.random.default_rng(0), order="shortest").waiting
    'commit-immediate'
    """

    reference = "Yang & Shen, DRL Enhanced Greedy Optimization for Online Scheduling of Batched Tasks, Alg. 3"

    def __init__(
        self,
        problem: PlacementProblem,
        rng: np.random.Generator,
        *,
        order: str = "arrival",
        waiting: str = AUTO,
        beta: float = 1.0,
        price: float = 0.0,
        forced: bool = False,
    ) -> None:
        super().__init__(problem, waiting=waiting, beta=beta, price=price, forced=forced)
        if order not in ORDERS:
            raise InvalidInput(f"one of {', '.join(ORDERS)}", value=order, key="order")
        self.order, self.rng = order, rng

    def rank(self, slot: PlacementSlot) -> Floats:
        tasks = slot.tasks
        if self.order == "shortest":
            return -tasks.work
        if self.order == "deadline":
            return -tasks.deadline
        if self.order == "densest":
            heavy = tasks.pieces * (tasks.demand @ self.problem.weight)
            return tasks.value / np.maximum(heavy * tasks.work, 1e-300)
        if self.order == "random":
            return self.rng.random(len(tasks))
        return np.zeros(len(tasks))
