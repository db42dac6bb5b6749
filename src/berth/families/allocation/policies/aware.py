"""berth's arrival-aware policy: ascend the concave programme of each slot."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.allocation.policies.requests import no_gangs
from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.families.allocation.programme import Programme
from berth.model import Floats

__all__ = ["OGASchedAware"]


class OGASchedAware:
    """A few preconditioned primal-dual steps per slot on the slot's own reward, from a warm start by job.

    Needs arrivals revealed before the decision. `iterations` trades time for the last part of a per cent; `certify()`
    bounds how much the last decision could still be improved.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem(arrivals_known=True)
    >>> policy = OGASchedAware(problem)
    >>> policy.decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    family = "allocation"
    reference = "this documentation, page OGASched"

    def __init__(self, problem: AllocationProblem, rng: Any = None, *, iterations: int = 20) -> None:
        if not problem.arrivals_known:
            raise UnsupportedProblem("ogasched-aware needs arrivals revealed before the decision")
        if iterations < 1:
            raise InvalidInput("at least 1", value=iterations, key="iterations")
        self.problem = no_gangs(problem, self)
        self.iterations = iterations
        self._last: AllocationSlot | None = None

    @cached_property
    def _programme(self) -> Programme:
        """Made at the first slot, because it takes time and memory."""
        return Programme(self.problem)

    def decide(self, slot: AllocationSlot, /) -> Floats:
        if slot.arrivals is None:
            raise UnsupportedProblem(f"slot {slot.index} hides its arrivals; ogasched-aware needs them")
        self._last = slot
        return self._programme.improve(slot.arrivals, self.iterations, slot.free)

    def certify(self) -> float:
        """Certified upper bound on the reward of any decision in the last slot."""
        if self._last is None or self._last.arrivals is None:
            raise InvalidInput("a slot decided before", key="certify")
        return self._programme.bound(self._last.arrivals, self._last.free)

    def observe(self, outcome: AllocationOutcome, /) -> None:
        """Learns nothing: everything was known."""
