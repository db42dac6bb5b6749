"""Policies that each break one promise: proof that the checks catch them.

All are FAIRNESS with one fault. `BROKEN` maps each check to the policies it must catch.

>>> from berth.testing import check_policy
>>> check_policy(GivesNothing)
Traceback (most recent call last):
berth.errors.PolicyCheckFailed: GivesNothing broke 1 of 10 promises:
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.errors import UnsupportedProblem
from berth.families.allocation.policies.fairness import Fairness
from berth.families.allocation.policies.requests import requested
from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.model import Floats
from tests.testing.broken import Sound, faults

__all__ = ["BROKEN"]


class _Sound(Fairness, Sound):
    of_problem, of_slot, of_outcome = "cap", "arrivals", "arrivals"

    @staticmethod
    def unwelcome(problem: AllocationProblem) -> bool:
        return problem.gang is not None


class Overfills(Fairness):
    """Gives every job its full request, whether or not the server has it."""

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
    """Uses the initial capacity of servers instead of what is free now."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return super().decide(AllocationSlot(slot.index, self.problem.instance.capacity, slot.arrivals))


class DividesByNothing(Fairness):
    """Works in shares of the capacity, and so decides 0/0 if there is none."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        with np.errstate(invalid="ignore"):
            return super().decide(slot) * (slot.free.sum() / slot.free.sum())  # type: ignore[no-any-return]


class DecidesNaN(Fairness):
    """Returns NaN."""

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


class CountsOnEveryOutcome(Fairness):
    """Ignores capacities, unless an outcome has arrived since the last slot."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._told = True

    def decide(self, slot: AllocationSlot, /) -> Floats:
        told, self._told = self._told, False
        return super().decide(slot) if told else requested(self.problem, slot).copy()

    def observe(self, outcome: AllocationOutcome, /) -> None:
        self._told = True


class RemembersRewards(Fairness):
    """Keeps one number per slot."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._past: list[float] = []

    def observe(self, outcome: AllocationOutcome, /) -> None:
        self._past.append(outcome.reward)


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
    """Is always feasible and never earns anything."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return np.zeros(self.problem.cap.shape)


class FavoursWaste(Fairness):
    """Serves only the job with the greatest overhead."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        dearest = self.problem.overhead.sum(axis=1).argmax()
        decision: Floats = super().decide(slot) * (self.problem.channel_job == dearest)[:, None]
        return decision


BROKEN = faults(
    _Sound,
    {
        "feasible-on-random-instances": (Overfills, IgnoresRequests, GoesNegative, BreaksGangs),
        "feasible-on-edge-instances": (ForgetsLostServers, DividesByNothing),
        "decisions-are-fresh": (DecidesNaN, DecidesIntegers, DecidesTransposed),
        "outcomes-in-any-order": (CountsOnEveryOutcome,),
        "bounded-memory": (RemembersRewards,),
        "refuses-clearly": (RefusesWithoutReason, RefusesEverything),
        "beats-random": (GivesNothing, FavoursWaste),
    },
)
"""Policies that each check must catch."""
