"""World of an allocation run: arrivals, and servers that are up.

Arrivals are drawn for every port and slot before the run, so all policies under one seed meet the same arrivals.

Axes: T slots, L ports, J jobs, R servers, K resources.
"""

from __future__ import annotations

from collections.abc import Iterator

from numpy.typing import ArrayLike

from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.families.arrivals import given_arrivals, given_up, what_is_up
from berth.model import Floats

__all__ = ["AllocationWorld"]


class AllocationWorld:
    """Yields slots and answers decisions.

    `arrivals` (T, J) holds 0 or 1; `up` (T, R), if given, says which servers are up in each slot: the others have
    capacity 0.

    >>> import numpy as np
    >>> from berth.model import Instance
    >>> from berth.families.allocation.utility import Utilities
    >>> graph = Instance.from_arrays([[5.0]], [[4.0]], [(0, 0)])
    >>> world = AllocationWorld(AllocationProblem(graph, Utilities(("linear",), [[0]], [[1.0]]), [0.5]), [[1], [0]])
    >>> [world.step(np.array([[2.0]])).reward for slot in world]
    [1.0, 0.0]
    """

    measures = ("gain", "overhead")
    """Numbers of an outcome that a run records besides its reward."""
    gpu = "berth.families.allocation.cuda.runs:runs_on_device"
    """The function that plays runs of such worlds on a GPU."""

    def __init__(self, problem: AllocationProblem, arrivals: ArrayLike, up: ArrayLike | None = None) -> None:
        self.problem = problem
        self.arrivals = given_arrivals(arrivals, problem.jobs)
        self.up = given_up(up, len(self.arrivals), len(problem.instance.cluster.servers))
        self._now = -1

    def __len__(self) -> int:
        return len(self.arrivals)

    def free(self, index: int) -> Floats:
        """Capacity of the servers in this slot, (R, K)."""
        return what_is_up(self.problem.instance.capacity, self.up, index)

    def __iter__(self) -> Iterator[AllocationSlot]:
        known = self.problem.arrivals_known
        for index in range(len(self)):
            self._now = index
            yield AllocationSlot(index, self.free(index), self.arrivals[index] if known else None)

    def score(self, decision: Floats) -> float:
        """Reward of this decision in the current slot, feasible or not; has no side effect."""
        gain, overhead = self.problem.reward(self.arrivals[self._now], decision)
        return gain - overhead

    def step(self, decision: Floats) -> AllocationOutcome:
        """Play a feasible decision in the current slot."""
        arrivals = self.arrivals[self._now]
        gain, overhead = self.problem.reward(arrivals, decision)
        return AllocationOutcome(self._now, arrivals, gain - overhead, gain, overhead)

    def measured(self, outcome: AllocationOutcome) -> tuple[float, float]:
        """Gain and overhead of the slot just played."""
        return outcome.gain, outcome.overhead

    def feedback(self, outcome: AllocationOutcome) -> tuple[AllocationOutcome]:
        """Outcomes are known at once, without delay."""
        return (outcome,)
