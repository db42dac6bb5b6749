"""Selection policies that each break one promise on purpose; see `berth.testing.broken.allocation` for the allocation
family.

All but `BreaksGangs` are HAUF, which skips what does not fit, with one fault. `BROKEN_SELECTION` says which check must
catch which.

>>> from berth.testing import check_policy
>>> check_policy(OpensNothing)
Traceback (most recent call last):
berth.errors.PolicyCheckFailed: OpensNothing broke 1 of 10 promises:
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from berth.errors import UnsupportedProblem
from berth.families.selection.policies.hauf import HAUF
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.model import Floats, Ints

__all__ = ["BROKEN_SELECTION"]


class _Sound(HAUF):
    def __init__(self, problem: SelectionProblem, rng: Any = None) -> None:
        super().__init__(problem, rng, misfit="skip")


class OpensAbsentPorts(_Sound):
    """Opens channels of ports that have no job."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        return super().decide(SelectionSlot(slot.index, slot.free, np.ones_like(slot.arrivals)))


class Overcommits(_Sound):
    """Opens every channel of every port that has a job, whether or not they fit together."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        opened: Ints = self.problem.available(slot).astype(np.int64)
        return opened


class AddsUpServers(_Sound):
    """Goes by what the whole cluster has free, and so gives single servers away twice."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        total = np.broadcast_to(slot.free.sum(axis=0), slot.free.shape)
        return super().decide(SelectionSlot(slot.index, total, slot.arrivals))


class OpensTwice(_Sound):
    """Places two tasks through a channel where one is allowed."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        return 2 * super().decide(slot)


class BreaksGangs:
    """Serves problems with gangs, but places single tasks of them, as many as fit."""

    family = "selection"
    reference = "none: broken on purpose"

    def __init__(self, problem: SelectionProblem, rng: Any = None) -> None:
        if problem.roles is None:
            raise UnsupportedProblem("BreaksGangs wants gangs to break")
        self.problem = problem

    def decide(self, slot: SelectionSlot, /) -> Ints:
        return self.problem.replace(roles=None).repaired(
            # without roles every port is a job of its own
            SelectionSlot(slot.index, slot.free, np.ones(len(self.problem.instance.ports))),
            self.problem.available(slot).astype(np.int64),
        )

    def observe(self, outcome: SelectionOutcome, /) -> None:
        """Nothing to learn."""


class ForgetsLostServers(_Sound):
    """Goes by the capacity that there was at first, not by what is free now."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        return super().decide(SelectionSlot(slot.index, self.problem.limits, slot.arrivals))


class DecidesFloats(_Sound):
    """Returns floats."""

    def decide(self, slot: SelectionSlot, /) -> Any:
        return super().decide(slot).astype(np.float64)


class DecidesIndices(_Sound):
    """Returns the numbers of the open channels instead of an entry for each channel."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        return np.flatnonzero(super().decide(slot)).astype(np.int64)


class ReusesItsBuffer(_Sound):
    """Returns the same array every slot, and so changes its earlier decisions."""

    def __init__(self, problem: SelectionProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._buffer = np.zeros(len(problem.cost), dtype=np.int64)

    def decide(self, slot: SelectionSlot, /) -> Ints:
        self._buffer[...] = super().decide(slot)
        return self._buffer


class LendsItsState(_Sound):
    """Closes what was open in the slot before, as said by the array that it returned, which others may write to."""

    def __init__(self, problem: SelectionProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._last = np.zeros(len(problem.cost), dtype=np.int64)

    def decide(self, slot: SelectionSlot, /) -> Ints:
        decision = super().decide(slot)
        if slot.index % 2:
            decision[self._last > 0] = 0
        self._last = decision
        return decision


class UsesGlobalRandom(_Sound):
    """Draws from NumPy's shared random state instead of the generator that it was given."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        decision = super().decide(slot)
        return decision if np.random.uniform() < 0.9 else 0 * decision  # noqa: NPY002


class CannotBePickled(_Sound):
    """Keeps a lambda."""

    def __init__(self, problem: SelectionProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._pause: Callable[[int], bool] = lambda index: index % 10 == 9

    def decide(self, slot: SelectionSlot, /) -> Ints:
        return super().decide(slot) * int(not self._pause(slot.index))


class ForgetsWhenPickled(_Sound):
    """Leaves what it has learned out of its pickle."""

    def __init__(self, problem: SelectionProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._seen = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": 0}

    def decide(self, slot: SelectionSlot, /) -> Ints:
        return super().decide(slot) * int(self._seen % 7 != 0 or self._seen < 3)

    def observe(self, outcome: SelectionOutcome, /) -> None:
        super().observe(outcome)
        self._seen += 1


class WritesArrivals(_Sound):
    """Changes the slot that it was lent."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        decision = super().decide(slot)
        if slot.arrivals.flags.writeable:
            slot.arrivals[:] = 0.0
        return decision


class WritesOutcomes(_Sound):
    """Changes the outcome that it was lent."""

    def observe(self, outcome: SelectionOutcome, /) -> None:
        super().observe(outcome)
        if outcome.gains.flags.writeable:
            outcome.gains[:] += 1.0


class WritesTheProblem(_Sound):
    """Unlocks the costs of the problem and wears them down."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        self.problem.cost.setflags(write=True)
        self.problem.cost[...] *= 0.999
        self.problem.cost.setflags(write=False)
        return super().decide(slot)


class ExpectsOutcomesInOrder(_Sound):
    """Insists that every outcome is that of the last decision."""

    def __init__(self, problem: SelectionProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._pending: set[int] = set()

    def decide(self, slot: SelectionSlot, /) -> Ints:
        self._pending = {slot.index}
        return super().decide(slot)

    def observe(self, outcome: SelectionOutcome, /) -> None:
        self._pending.remove(outcome.slot)
        super().observe(outcome)


class RemembersGains(_Sound):
    """Keeps the gains of every slot."""

    def __init__(self, problem: SelectionProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._past: list[Floats] = []

    def observe(self, outcome: SelectionOutcome, /) -> None:
        super().observe(outcome)
        self._past.append(outcome.gains.copy())


class RefusesWithValueError(_Sound):
    """Refuses problems that it cannot serve with an error of another kind."""

    def __init__(self, problem: SelectionProblem, rng: Any = None) -> None:
        if problem.roles is not None:
            raise ValueError("no gangs please")
        super().__init__(problem, rng)


class OpensNothing(_Sound):
    """Is always feasible, and never earns anything."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        return np.zeros(len(self.problem.cost), dtype=np.int64)


class DearestFirst(_Sound):
    """Opens the channels that cost most."""

    def order(self) -> Ints:
        return np.argsort(-self.problem.cost, kind="stable").astype(np.int64)


BROKEN_SELECTION: dict[str, tuple[type[Any], ...]] = {
    "feasible-on-random-instances": (OpensAbsentPorts, Overcommits, AddsUpServers, OpensTwice, BreaksGangs),
    "feasible-on-edge-instances": (ForgetsLostServers,),
    "decisions-are-fresh": (DecidesFloats, DecidesIndices, ReusesItsBuffer, LendsItsState),
    "same-seed-same-decisions": (UsesGlobalRandom,),
    "pickling-resumes": (CannotBePickled, ForgetsWhenPickled),
    "inputs-untouched": (WritesArrivals, WritesOutcomes, WritesTheProblem),
    "outcomes-in-any-order": (ExpectsOutcomesInOrder,),
    "bounded-memory": (RemembersGains,),
    "refuses-clearly": (RefusesWithValueError,),
    "beats-random": (OpensNothing, DearestFirst),
}
"""For each check, the policies that it must catch."""
