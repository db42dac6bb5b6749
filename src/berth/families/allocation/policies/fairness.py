"""FAIRNESS: every job gets its proportional share of every server it reaches."""

from __future__ import annotations

import numpy as np

from berth.families.allocation.kernels.baselines import proportional
from berth.families.allocation.policies.requests import Baseline, requested
from berth.families.allocation.problem import AllocationSlot
from berth.model import Floats

__all__ = ["Fairness"]


class Fairness(Baseline):
    """Proportional shares: c·a_l / Σ a over the jobs present, never more than a job requests.

    If arrivals are hidden, every port counts as present.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> Fairness(problem).decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    reference = "OGASched, section 4, baseline FAIRNESS"

    def decide(self, slot: AllocationSlot, /) -> Floats:
        decision = np.empty(self.problem.cap.shape)
        proportional(self.problem.instance.server_start, requested(self.problem, slot), slot.free, decision)
        return decision
