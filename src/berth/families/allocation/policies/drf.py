"""DRF: jobs with the smallest dominant share are served first, in full."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.families.allocation.kernels.baselines import one_after_another
from berth.families.allocation.policies.requests import Baseline, dominant_share_order, requested
from berth.families.allocation.problem import AllocationProblem, AllocationSlot
from berth.model import Floats

__all__ = ["DRF"]


class DRF(Baseline):
    """Ports in ascending order of their dominant share take their full requests while capacity lasts.

    If arrivals are hidden, every port counts as present.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> DRF(problem).decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    reference = "OGASched, section 4, baseline DRF; Ghodsi et al., NSDI 2011"

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        super().__init__(problem)
        self._order = dominant_share_order(problem)

    def decide(self, slot: AllocationSlot, /) -> Floats:
        graph = self.problem.instance
        decision = np.zeros(self.problem.cap.shape)
        left = slot.free.copy()
        wanted = requested(self.problem, slot)
        one_after_another(self._order, *graph.port_channels, graph.channel_server, wanted, left, decision)
        return decision
