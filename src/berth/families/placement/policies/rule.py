"""A rule of three numbers: the weight of length in the order, the weight of launches, and a price."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.policies.ordered import OrderedPolicy
from berth.families.placement.problem import PlacementProblem, PlacementSlot
from berth.model import Floats

__all__ = ["Rule"]


class Rule(OrderedPolicy):
    """Greedy with a queue, most value / (demand · work ** `length`) first.

    Settings:

    * `length`: 1 for value density, 0 to ignore the length of tasks, above 1 to prefer short ones;
    * `beta`: share of the launch cost that counts: a server launched for one task serves others after it;
    * `price`: least gain per weighted unit of resource and time; the scarcer servers are, the higher;
    * `waiting`, `forced`: as in `greedy`.

    `berth train SCENARIO --method rule` finds the three numbers for a scenario.

    >>> from berth.testing import example_placement
    >>> Rule(example_placement(), price=0.1).price
    0.1
    """

    reference = "what remains of DRL-Greedy without the network"

    def __init__(
        self,
        problem: PlacementProblem,
        rng: Any = None,
        *,
        length: float = 1.0,
        beta: float = 0.3,
        price: float = 0.0,
        waiting: str = "queue",
        forced: bool = False,
    ) -> None:
        super().__init__(problem, waiting=waiting, beta=beta, price=price, forced=forced)
        if not np.isfinite(length):
            raise InvalidInput("a finite number", value=length, key="length")
        self.length = float(length)

    def rank(self, slot: PlacementSlot) -> Floats:
        return self.ranks(slot.tasks, self.problem.weight, self.length)

    @staticmethod
    def ranks(tasks: Any, weight: Floats, length: float) -> Floats:
        """Rank of every task (N,), constant while it waits."""
        heavy = np.maximum(tasks.pieces * (tasks.demand @ weight), 1e-300)
        ranks: Floats = np.log(np.maximum(tasks.value, 1e-300)) - np.log(heavy) - length * np.log(tasks.work)
        return ranks
