"""Policies that each break one promise on purpose: proof that the checks catch what they say they catch.

All are FAIRNESS with one fault. `BROKEN` says which check must catch which.

>>> from berth.testing import check_policy
>>> check_policy(GivesNothing)
Traceback (most recent call last):
berth.errors.PolicyCheckFailed: GivesNothing broke 1 of 10 promises:
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from berth.errors import UnsupportedProblem
from berth.families.allocation.policies.fairness import Fairness
from berth.families.allocation.policies.requests import requested
from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.model import Floats

__all__ = ["BROKEN"]


class Overfills(Fairness):
    """Gives every job all that it requests, whether or not the server has it."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return requested(self.problem, slot).copy()


class IgnoresRequests(Fairness):
    """Shares a server equally among its channels, even if that is more than they request."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        server = self.problem.instance.channel_server
        decision: Floats = slot.free[server] / np.bincount(server)[server][:, None]
        return decision


class GoesNegative(Fairness):
    """Takes from one channel to give to another."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        decision = super().decide(slot)
        decision[decision == 0.0] = -0.1
        return decision


class BreaksGangs(Fairness):
    """Serves problems with gangs, but gives a gang less than it needs to run."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        self.problem = problem

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return 0.1 * super().decide(slot)


class ForgetsLostServers(Fairness):
    """Goes by the capacity that servers had at first, not by what is free now."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return super().decide(AllocationSlot(slot.index, self.problem.instance.capacity, slot.arrivals))


class DividesByNothing(Fairness):
    """Works in shares of the capacity, and so decides 0/0 where there is none at all."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        with np.errstate(invalid="ignore"):
            return super().decide(slot) * (slot.free.sum() / slot.free.sum())  # type: ignore[no-any-return]


class DecidesNaN(Fairness):
    """Returns something that is not a number."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return np.full(self.problem.cap.shape, np.nan)


class DecidesIntegers(Fairness):
    """Returns whole numbers."""

    def decide(self, slot: AllocationSlot, /) -> Any:
        return super().decide(slot).astype(np.int64)


class DecidesTransposed(Fairness):
    """Returns (K, E) instead of (E, K)."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return np.ascontiguousarray(super().decide(slot).T)


class ReusesItsBuffer(Fairness):
    """Returns the same array every slot, and so changes its earlier decisions."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._buffer = np.zeros(problem.cap.shape)

    def decide(self, slot: AllocationSlot, /) -> Floats:
        self._buffer[...] = super().decide(slot)
        return self._buffer


class LendsItsState(Fairness):
    """Returns the array that it goes on from: whoever writes into a decision changes the next one."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._y = np.zeros(problem.cap.shape)

    def decide(self, slot: AllocationSlot, /) -> Floats:
        self._y = self.problem.repaired(slot, 0.5 * (self._y + super().decide(slot)))
        return self._y


class UsesGlobalRandom(Fairness):
    """Draws from NumPy's shared random state instead of the generator that it was given."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return super().decide(slot) * np.random.uniform(0.9, 1.0)  # noqa: NPY002


class CannotBePickled(Fairness):
    """Keeps a lambda."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._scale: Callable[[int], float] = lambda index: 1.0 - 0.1 * (index % 2)

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return super().decide(slot) * self._scale(slot.index)


class ForgetsWhenPickled(Fairness):
    """Leaves what it has learned out of its pickle."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._seen = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": 0}

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return super().decide(slot) * (1.0 - 0.1 / (1 + self._seen))

    def observe(self, outcome: AllocationOutcome, /) -> None:
        self._seen += 1


class WritesArrivals(Fairness):
    """Changes the slot that it was lent."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        decision = super().decide(slot)
        if slot.arrivals is not None and slot.arrivals.flags.writeable:
            slot.arrivals[:] = 0.0
        return decision


class WritesOutcomes(Fairness):
    """Changes the outcome that it was lent."""

    def observe(self, outcome: AllocationOutcome, /) -> None:
        if outcome.arrivals.flags.writeable:
            outcome.arrivals[:] += 1.0


class WritesTheProblem(Fairness):
    """Unlocks the requests of the problem and wears them down."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        self.problem.cap.setflags(write=True)
        self.problem.cap[...] *= 0.999
        self.problem.cap.setflags(write=False)
        return super().decide(slot)


class ExpectsOutcomesInOrder(Fairness):
    """Insists that every outcome is that of the last decision."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._pending: set[int] = set()

    def decide(self, slot: AllocationSlot, /) -> Floats:
        self._pending = {slot.index}
        return super().decide(slot)

    def observe(self, outcome: AllocationOutcome, /) -> None:
        self._pending.remove(outcome.slot)


class CountsOnEveryOutcome(Fairness):
    """Allots without looking at what servers have, unless an outcome has come since."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._told = True

    def decide(self, slot: AllocationSlot, /) -> Floats:
        told, self._told = self._told, False
        return super().decide(slot) if told else requested(self.problem, slot).copy()

    def observe(self, outcome: AllocationOutcome, /) -> None:
        self._told = True


class RemembersEverything(Fairness):
    """Keeps the arrivals of every slot."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._past: list[Floats] = []

    def observe(self, outcome: AllocationOutcome, /) -> None:
        self._past.append(outcome.arrivals.copy())


class RemembersRewards(Fairness):
    """Keeps one number a slot."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._past: list[float] = []

    def observe(self, outcome: AllocationOutcome, /) -> None:
        self._past.append(outcome.reward)


class RefusesWithValueError(Fairness):
    """Refuses problems that it cannot serve with an error of another kind."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        if problem.gang is not None:
            raise ValueError("no gangs please")
        super().__init__(problem, rng)


class RefusesWithoutReason(Fairness):
    """Refuses problems that it cannot serve without saying why."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        if problem.gang is not None:
            raise UnsupportedProblem
        super().__init__(problem, rng)


class RefusesEverything(Fairness):
    """Serves no problem at all."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        raise UnsupportedProblem("not today")


class GivesNothing(Fairness):
    """Is always feasible, and never earns anything."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return np.zeros(self.problem.cap.shape)


class FavoursWaste(Fairness):
    """Serves the job with the greatest overhead and nobody else."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        dearest = self.problem.overhead.sum(axis=1).argmax()
        decision: Floats = super().decide(slot) * (self.problem.channel_job == dearest)[:, None]
        return decision


BROKEN: dict[str, tuple[type[Any], ...]] = {
    "feasible-on-random-instances": (Overfills, IgnoresRequests, GoesNegative, BreaksGangs),
    "feasible-on-edge-instances": (ForgetsLostServers, DividesByNothing),
    "decisions-are-fresh": (DecidesNaN, DecidesIntegers, DecidesTransposed, ReusesItsBuffer, LendsItsState),
    "same-seed-same-decisions": (UsesGlobalRandom,),
    "pickling-resumes": (CannotBePickled, ForgetsWhenPickled),
    "inputs-untouched": (WritesArrivals, WritesOutcomes, WritesTheProblem),
    "outcomes-in-any-order": (ExpectsOutcomesInOrder, CountsOnEveryOutcome),
    "bounded-memory": (RemembersEverything, RemembersRewards),
    "refuses-clearly": (RefusesWithValueError, RefusesWithoutReason, RefusesEverything),
    "beats-random": (GivesNothing, FavoursWaste),
}
"""For each check, the policies that it must catch."""
