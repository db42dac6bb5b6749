"""Random placement: the floor that every other placement policy must beat."""

from __future__ import annotations

import numpy as np

from berth.capacity import TOLERANCE
from berth.families.placement.problem import (
    WAIT,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
)

__all__ = ["RandomPlacement"]


class RandomPlacement:
    """Places tasks in a random order, each on a random server that has room for it; the others wait.

    >>> from berth.testing import example_placement
    >>> RandomPlacement(example_placement(), np.random.default_rng(0)).family
    'placement'
    """

    family = "placement"
    reference = "none: a floor for comparisons"

    def __init__(self, problem: PlacementProblem, rng: np.random.Generator) -> None:
        problem.require_single("random-placement")
        self.problem, self.rng = problem, rng

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        capacity, free = self.problem.instance.capacity, slot.free.copy()
        chosen = np.full(len(slot.ids), WAIT, dtype=np.int64)
        for i in self.rng.permutation(len(slot.ids)):
            demand = slot.tasks.demand[i]
            room = np.flatnonzero(slot.up & (demand <= free + TOLERANCE * (1.0 + capacity)).all(axis=1))
            if len(room):
                chosen[i] = self.rng.choice(room)
                free[chosen[i]] -= demand
        return PlacementDecision(chosen)

    def observe(self, outcome: PlacementOutcome, /) -> None:
        return None  # learns nothing
