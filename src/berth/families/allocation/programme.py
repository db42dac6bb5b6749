"""Concave programme of the allocation family, with warm start and certificate.

The reward is linear in the arrivals, so one programme with weights w (J,) has several uses: with a slot's arrivals it
gives that slot's optimum, with arrival rates the best reservation, with the counts of a whole run the best stationary
decision y*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from berth.families.allocation.kernels import ascent
from berth.families.allocation.kernels.lanes import limits, pack, unpack
from berth.families.allocation.problem import AllocationProblem
from berth.model import Floats

__all__ = ["Programme", "Solution"]


@dataclass(frozen=True, eq=False)
class Solution:
    """A feasible decision (E, K), its value, and a certified upper bound on the optimum."""

    decision: Floats
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """Largest distance of the value from the optimum, relative to the bound."""
        return (self.bound - self.value) / abs(self.bound) if self.bound != self.value else 0.0


class Programme:
    """Maximise Σ_j w_j (gain_j − overhead_j) over the feasible decisions of a problem, repeatedly.

    Each call starts from what every job had when it last had a weight. `floor` (E, K), if given, are feasible lower
    bounds.

    >>> from berth.testing import example_problem
    >>> problem = example_problem()
    >>> solution = Programme(problem).solve(np.ones(problem.jobs), gap=1e-6)
    >>> 0 <= solution.gap <= 1e-6
    True
    """

    def __init__(self, problem: AllocationProblem) -> None:
        self.problem = problem
        lanes = problem.lanes()
        resources = problem.overhead.shape[1]
        self._beta = np.array(problem.overhead)
        self._work = ascent.workspace(lanes, problem.jobs, resources)
        # a cold start at half of each request; the first iteration makes it feasible
        self._work.memory[:] = 0.5 * lanes.cap
        self._dual = ascent.even_dual(problem.jobs, resources)
        self._y = np.zeros_like(lanes.cap)
        # the threshold of zero: this share of the gain if all jobs got their full requests
        self._nothing = 1e-9 * problem.reward(np.ones(problem.jobs), problem.cap)[0]
        self._no_floor = np.zeros_like(lanes.cap)
        self._free = problem.instance.capacity.copy()
        self._limit = limits(lanes, self._free)

    def _prepare(self, weights: Floats, free: Floats | None, floor: Floats | None) -> tuple[Any, Any, Any, Any, Any]:
        lanes = self.problem.lanes()
        free = self.problem.instance.capacity if free is None else free
        if not np.array_equal(free, self._free):  # by value: the caller may have changed the array in place
            self._free, self._limit = free.copy(), limits(lanes, free)
        bottom = self._no_floor
        if floor is not None:
            bottom = np.empty_like(bottom)
            pack(lanes.element, floor, bottom)
        weight = np.array(weights, dtype=np.float64)  # a copy: compiled code is specialised on writeable arrays
        ascent.recall(lanes, weight, self._beta.shape[1], self._work, self._y)
        return lanes, self._limit, weight, self._beta, bottom

    def _decision(self) -> Floats:
        decision = np.zeros(self.problem.cap.shape)
        unpack(self.problem.lanes().element, self._y, decision)
        return decision

    def improve(
        self, weights: Floats, iterations: int, free: Floats | None = None, floor: Floats | None = None
    ) -> Floats:
        """Feasible decision (E, K) after this many iterations from the warm start."""
        given = self._prepare(weights, free, floor)
        ascent.maximise(*given, iterations, self._y, self._dual, self._work)
        return self._decision()

    def solve(
        self,
        weights: Floats,
        gap: float,
        free: Floats | None = None,
        floor: Floats | None = None,
        max_iterations: int = 20_000,
    ) -> Solution:
        """Iterate until value and bound are within `gap` of each other, relative, or the iterations are used up.

        `bound` holds in either case.
        """
        given = self._prepare(weights, free, floor)
        value, bound, _ = ascent.solve(*given, gap, max_iterations, self._y, self._dual, self._work, self._nothing)
        return Solution(self._decision(), float(value), float(bound))

    def bound(self, weights: Floats, free: Floats | None = None) -> float:
        """Certified upper bound on the programme's optimum, from the current multipliers."""
        lanes, limit, weight, beta, bottom = self._prepare(weights, free, None)
        return float(ascent.upper_bound(lanes, limit, weight, beta, bottom, self._dual))
