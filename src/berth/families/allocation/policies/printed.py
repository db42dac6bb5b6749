"""OGASched exactly as its papers print it: a reference, not a recommendation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.families.allocation.kernels.printed import project_printed
from berth.families.allocation.policies.requests import no_gangs
from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.model import Floats

__all__ = ["OGASchedPrinted"]


class OGASchedPrinted:
    """Online gradient ascent with the projection of Algorithm 1 as printed, η₀ = 25 and decay .9999.

    The printed projection is not the Euclidean one: it checks only one port's cap, forces every server to be full, and
    leaves negative amounts behind, so decisions break their constraints. Simulations count the violations and play the
    repaired decision; `claimed` rewards are those of the infeasible one (amounts below 0 gain nothing). Only repairs
    that the algorithm needs to run at all are made; `berth.families.allocation.kernels.printed` names them.
    `zero_dropped` adds one that the text lacks: ports that the projection drops get 0.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> OGASchedPrinted(problem).decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    family = "allocation"
    reference = "Zhao et al., Scheduling Multi-Server Jobs with Sublinear Regrets via Online Learning, Algorithm 1"

    def __init__(
        self,
        problem: AllocationProblem,
        rng: Any = None,
        *,
        step: float = 25.0,
        decay: float = 0.9999,
        zero_dropped: bool = False,
    ) -> None:
        for key, value in (("step", step), ("decay", decay)):
            if not (math.isfinite(value) and value > 0):
                raise InvalidInput("a number > 0", value=value, key=key)
        self.problem = no_gangs(problem, self)
        self.step, self.decay, self.zero_dropped = step, decay, zero_dropped
        self._y = np.zeros(problem.cap.shape)

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return self._y.copy()

    def observe(self, outcome: AllocationOutcome, /) -> None:
        target = self._y + self.step * self.problem.gradient(outcome.arrivals, self._y)
        graph = self.problem.instance
        project_printed(graph.server_start, target, self.problem.cap, graph.capacity, self.zero_dropped, self._y)
        self.step *= self.decay
