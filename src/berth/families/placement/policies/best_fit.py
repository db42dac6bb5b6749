"""Best fit: start every task that fits, on the servers that are left with least."""

from __future__ import annotations

import numpy as np

from berth.families.placement.policies.queued import InOrder
from berth.families.placement.problem import PlacementProblem

__all__ = ["BestFit"]


class BestFit(InOrder):
    """Every waiting task that fits starts, in order of arrival, on the servers that are left with least.

    The remainder is a sum over resources of shares of the largest server.

    >>> from berth.testing import example_placement
    >>> BestFit(example_placement(), np.random.default_rng(0)).backfill
    'any'
    """

    reference = "Panigrahy et al., Heuristics for Vector Bin Packing, 2011"

    def __init__(self, problem: PlacementProblem, rng: np.random.Generator) -> None:
        super().__init__(problem, rng, backfill="any", fit="best")
