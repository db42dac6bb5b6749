"""Policies and engines that each break one promise: proof that the checks catch them.

This module holds faults that a policy of any family can have. Each subclasses the sound policy of a family and is
built by `faults`; faults in decisions are in the module of their family.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Sound", "faults"]


class Sound:
    """Interface of the faults to the sound policy that they modify."""

    nothing = 0
    """Entry of a decision that does nothing."""
    of_problem: str
    of_slot: str
    of_outcome: str
    """Array of the problem, of a slot and of an outcome that a fault writes to."""
    problem: Any

    def __init__(self, problem: Any, rng: Any = None) -> None: ...

    def decide(self, slot: Any, /) -> Any: ...

    def observe(self, outcome: Any, /) -> None: ...

    def entries(self, decision: Any) -> Any:
        """Array of a decision."""
        return decision

    def made(self, entries: Any, like: Any) -> Any:
        """The decision `like` with this array in place of its own."""
        return entries

    def paused(self, decision: Any) -> Any:
        """A decision of the same shape that does nothing."""
        return self.made(np.full_like(self.entries(decision), self.nothing), decision)

    @staticmethod
    @abstractmethod
    def unwelcome(problem: Any) -> bool:
        """Whether a policy may refuse this problem."""


class ReusesItsBuffer(Sound):
    """Returns a view of the same array every slot, and so changes its earlier decisions."""

    _buffer: Any = None

    def decide(self, slot: Any, /) -> Any:
        decision = super().decide(slot)
        entries = self.entries(decision)
        if self._buffer is None:
            self._buffer = np.zeros(10_000, dtype=entries.dtype)
        part = self._buffer[: entries.size].reshape(entries.shape)
        part[...] = entries
        return self.made(part, decision)


class LendsItsState(Sound):
    """Pauses early in the run, every third slot, if the array it returned before shows any placement."""

    _last: Any = None

    def decide(self, slot: Any, /) -> Any:
        decision = super().decide(slot)
        if slot.index in (2, 5, 8, 11) and self._last is not None and (self._last > self.nothing).any():
            decision = self.paused(decision)
        self._last = self.entries(decision)
        return decision


class UsesGlobalRandom(Sound):
    """Draws from NumPy's global random state instead of its own generator."""

    def decide(self, slot: Any, /) -> Any:
        decision = super().decide(slot)
        return decision if np.random.uniform() < 0.9 else self.paused(decision)  # noqa: NPY002


class CannotBePickled(Sound):
    """Keeps a lambda."""

    def __init__(self, problem: Any, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._pause: Callable[[int], bool] = lambda index: index % 10 == 9

    def decide(self, slot: Any, /) -> Any:
        decision = super().decide(slot)
        return self.paused(decision) if self._pause(slot.index) else decision


class ForgetsWhenPickled(Sound):
    """Leaves its learned state out of its pickle."""

    _seen = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": 0}

    def decide(self, slot: Any, /) -> Any:
        decision = super().decide(slot)
        return self.paused(decision) if self._seen % 7 == 6 else decision

    def observe(self, outcome: Any, /) -> None:
        super().observe(outcome)
        self._seen += 1


class WritesTheSlot(Sound):
    """Changes the slot that it was given."""

    def decide(self, slot: Any, /) -> Any:
        decision, lent = super().decide(slot), getattr(slot, self.of_slot)
        if lent is not None and lent.flags.writeable:
            lent[...] *= 0.5
        return decision


class WritesOutcomes(Sound):
    """Changes the outcome that it was given."""

    def observe(self, outcome: Any, /) -> None:
        super().observe(outcome)
        lent = getattr(outcome, self.of_outcome)
        if lent.flags.writeable:
            lent[...] += 1


class WritesTheProblem(Sound):
    """Makes an array of the problem writable and decreases it."""

    def decide(self, slot: Any, /) -> Any:
        lent = getattr(self.problem, self.of_problem)
        lent.setflags(write=True)
        lent[...] *= 0.999
        lent.setflags(write=False)
        return super().decide(slot)


class ExpectsOutcomesInOrder(Sound):
    """Requires every outcome to be that of the last decision."""

    def decide(self, slot: Any, /) -> Any:
        self._pending = {slot.index}
        return super().decide(slot)

    def observe(self, outcome: Any, /) -> None:
        self._pending.remove(outcome.slot)
        super().observe(outcome)


class RemembersOutcomes(Sound):
    """Keeps every outcome."""

    def __init__(self, problem: Any, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._past: list[Any] = []

    def observe(self, outcome: Any, /) -> None:
        super().observe(outcome)
        self._past.append(outcome)


class RefusesWithValueError(Sound):
    """Refuses problems that it cannot serve with another kind of error."""

    def __init__(self, problem: Any, rng: Any = None) -> None:
        if self.unwelcome(problem):
            raise ValueError("not such a problem please")
        super().__init__(problem, rng)


_FAULTS: dict[str, tuple[type[Sound], ...]] = {
    "feasible-on-random-instances": (),
    "feasible-on-edge-instances": (),
    "decisions-are-fresh": (ReusesItsBuffer, LendsItsState),
    "same-seed-same-decisions": (UsesGlobalRandom,),
    "pickling-resumes": (CannotBePickled, ForgetsWhenPickled),
    "inputs-untouched": (WritesTheSlot, WritesOutcomes, WritesTheProblem),
    "outcomes-in-any-order": (ExpectsOutcomesInOrder,),
    "bounded-memory": (RemembersOutcomes,),
    "refuses-clearly": (RefusesWithValueError,),
    "beats-random": (),
}


def faults(sound: type[Sound], own: dict[str, tuple[type[Any], ...]]) -> dict[str, tuple[type[Any], ...]]:
    """Policies of a family that each check must catch: the family's own faults, and the sound policy with each
    fault of this module.
    """
    broken = {}
    for check, common in _FAULTS.items():
        for fault in common:  # each becomes an attribute of `sound`, where pickle finds it
            names = {"__module__": sound.__module__, "__qualname__": f"{sound.__qualname__}.{fault.__name__}"}
            setattr(sound, fault.__name__, type(fault.__name__, (fault, sound), names))
        broken[check] = (*own.get(check, ()), *(getattr(sound, fault.__name__) for fault in common))
    return broken
