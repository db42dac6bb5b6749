"""A random feasible allocation: the floor that every learner must beat."""

from __future__ import annotations

import numpy as np

from berth.families.allocation.kernels.baselines import proportional
from berth.families.allocation.policies.requests import no_gangs, requested
from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.model import Floats

__all__ = ["RandomAllocation"]


class RandomAllocation:
    """Every channel asks a uniform random part of its request; overfull servers are shared in proportion.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> policy = RandomAllocation(problem, np.random.default_rng(0))
    >>> policy.decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    family = "allocation"
    reference = "none: a floor for comparisons"

    def __init__(self, problem: AllocationProblem, rng: np.random.Generator) -> None:
        self.problem = no_gangs(problem, self)
        self.rng = rng

    def decide(self, slot: AllocationSlot, /) -> Floats:
        wanted = requested(self.problem, slot) * self.rng.random(self.problem.cap.shape)
        decision = np.empty(self.problem.cap.shape)
        proportional(self.problem.instance.server_start, wanted, slot.free, decision)
        return decision

    def observe(self, outcome: AllocationOutcome, /) -> None:
        """Nothing to learn."""
