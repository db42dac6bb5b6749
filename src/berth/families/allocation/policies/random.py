"""Random feasible allocation: the floor that every learner must beat."""

from __future__ import annotations

import numpy as np

from berth.families.allocation.kernels.baselines import proportional
from berth.families.allocation.policies.requests import Baseline, requested
from berth.families.allocation.problem import AllocationProblem, AllocationSlot
from berth.model import Floats

__all__ = ["RandomAllocation"]


class RandomAllocation(Baseline):
    """Every channel takes a uniform random part of its request; overfull servers are shared in proportion.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> policy = RandomAllocation(problem, np.random.default_rng(0))
    >>> policy.decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    reference = "none: a floor for comparisons"
    scatters = True

    def __init__(self, problem: AllocationProblem, rng: np.random.Generator) -> None:
        super().__init__(problem)
        self.rng = rng

    def decide(self, slot: AllocationSlot, /) -> Floats:
        wanted = requested(self.problem, slot) * self.rng.random(self.problem.cap.shape)
        decision = np.empty(self.problem.cap.shape)
        proportional(self.problem.instance.server_start, wanted, slot.free, decision)
        return decision
