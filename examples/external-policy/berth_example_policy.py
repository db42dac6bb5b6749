"""A policy that lives outside berth and is found by its entry point."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth import AllocationOutcome, AllocationProblem, AllocationSlot, Floats, UnsupportedProblem

__all__ = ["GreedyGain"]


class GreedyGain:
    """The channels whose first unit earns most, net of overhead, take what they request while it lasts.

    A channel's worth in a resource is f'(0) − β. A job really pays β for its dominant resource alone;
    counting it for all of them errs on the safe side. `threshold` is the least worth that is served.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> GreedyGain(problem).decide(example_slot(problem)).sum(axis=0)
    array([12., 3.])
    """

    family = "allocation"
    reference = "none: an example"

    def __init__(self, problem: AllocationProblem, rng: Any = None, *, threshold: float = 0.0) -> None:
        if problem.gang is not None:
            raise UnsupportedProblem("GreedyGain cannot keep gangs whole; use ogasched-gang")
        self.problem = problem
        # without overhead, the gradient at nothing is the slope of the utility alone
        free_of_charge = problem.replace(overhead=np.zeros(problem.overhead.shape))
        slopes = free_of_charge.gradient(np.ones(problem.jobs), np.zeros(problem.cap.shape))
        worth = slopes - problem.overhead[problem.channel_job]
        self._served = worth > threshold
        self._order = np.argsort(-worth, axis=0, kind="stable")

    def decide(self, slot: AllocationSlot, /) -> Floats:
        wanted = self.problem.cap * self._served
        if slot.arrivals is not None:  # hidden arrivals: every port counts as present
            wanted = wanted * slot.arrivals[self.problem.channel_job][:, None]
        left = slot.free.copy()
        decision = np.zeros(wanted.shape)
        for k in range(wanted.shape[1]):
            for e in self._order[:, k]:
                server = self.problem.instance.channel_server[e]
                decision[e, k] = min(wanted[e, k], left[server, k])
                left[server, k] -= decision[e, k]
        return decision

    def observe(self, outcome: AllocationOutcome, /) -> None:
        """Nothing to learn."""
