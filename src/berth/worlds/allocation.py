"""The truth of an allocation run: who arrives when, and which servers are up.

Arrivals are drawn for every port and slot before the run, whatever the policies do, so that all
policies under one seed meet the same luck.

Axes: T slots, L ports, J jobs, R servers, K resources.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from berth.errors import InvalidInput
from berth.model import Floats
from berth.problems.allocation import AllocationOutcome, AllocationProblem, AllocationSlot

__all__ = ["AllocationWorld", "bernoulli_arrivals", "counted_arrivals"]


class AllocationWorld:
    """Yields slots and answers decisions.

    `arrivals` (T, J) holds 0 or 1; `up` (T, R), where given, says which servers are there in each
    slot: the capacity of the others is 0.

    >>> from berth.model import Instance
    >>> from berth.utility import Utilities
    >>> graph = Instance.from_arrays([[5.0]], [[4.0]], [(0, 0)])
    >>> world = AllocationWorld(AllocationProblem(graph, Utilities(("linear",), [[0]], [[1.0]]), [0.5]), [[1], [0]])
    >>> [world.step(np.array([[2.0]])).reward for slot in world]
    [1.0, 0.0]
    """

    measures = ("gain", "overhead")
    """Numbers of an outcome, beside its reward, that a run records."""

    def __init__(self, problem: AllocationProblem, arrivals: ArrayLike, up: ArrayLike | None = None) -> None:
        self.problem = problem
        self.arrivals = np.array(arrivals, dtype=np.float64)
        if self.arrivals.ndim != 2 or self.arrivals.shape[1] != problem.jobs:
            raise InvalidInput(f"arrivals (T, {problem.jobs})", value=self.arrivals.shape, key="arrivals")
        if not np.isin(self.arrivals, (0.0, 1.0)).all():
            raise InvalidInput("0 or 1 for each slot and job", key="arrivals")
        self.arrivals.setflags(write=False)
        self.up = None if up is None else np.array(up, dtype=bool)
        if self.up is not None and self.up.shape != (len(self.arrivals), len(problem.instance.cluster.servers)):
            raise InvalidInput("up (T, R), one flag per slot and server", value=self.up.shape, key="up")
        if self.up is not None:
            self.up.setflags(write=False)
        self._now = -1

    def __len__(self) -> int:
        return len(self.arrivals)

    def free(self, index: int) -> Floats:
        """What the servers have in this slot, (R, K)."""
        capacity = self.problem.instance.capacity
        if self.up is None or self.up[index].all():
            return capacity
        free: Floats = capacity * self.up[index][:, None]
        free.setflags(write=False)
        return free

    def __iter__(self) -> Iterator[AllocationSlot]:
        known = self.problem.arrivals_known
        for index in range(len(self)):
            self._now = index
            yield AllocationSlot(index, self.free(index), self.arrivals[index] if known else None)

    def score(self, decision: Floats) -> float:
        """The reward that this decision would have in the present slot, feasible or not; changes nothing."""
        gain, overhead = self.problem.reward(self.arrivals[self._now], decision)
        return gain - overhead

    def step(self, decision: Floats) -> AllocationOutcome:
        """Play a feasible decision in the present slot."""
        arrivals = self.arrivals[self._now]
        gain, overhead = self.problem.reward(arrivals, decision)
        return AllocationOutcome(self._now, arrivals, gain - overhead, gain, overhead)

    def measured(self, outcome: AllocationOutcome) -> tuple[float, float]:
        """Gain and overhead of the slot just played."""
        return outcome.gain, outcome.overhead

    def feedback(self, outcome: AllocationOutcome) -> tuple[AllocationOutcome]:
        """Outcomes are known at once."""
        return (outcome,)


def bernoulli_arrivals(rng: np.random.Generator, slots: int, probability: ArrayLike) -> Floats:
    """A job at each port with its probability (L,), independently each slot; (T, L)."""
    rates = np.asarray(probability, dtype=np.float64)
    return (rng.random((slots, len(rates))) < rates).astype(np.float64)


def counted_arrivals(counts: NDArray[np.int64], most: ArrayLike) -> Floats:
    """Numbers of jobs (T, L) → one 0/1 column for each job of `replicate_ports(instance, most)`, (T, J).

    >>> counted_arrivals(np.array([[2, 0], [1, 1]]), [2, 1])
    array([[1., 1., 0.],
           [1., 0., 1.]])
    """
    limits = np.asarray(most, dtype=np.int64)
    port = np.repeat(np.arange(len(limits)), limits)
    copy = np.concatenate([np.arange(1, n + 1) for n in limits])
    return (counts[:, port] >= copy).astype(np.float64)
