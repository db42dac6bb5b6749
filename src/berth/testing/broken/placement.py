"""Placement policies that each break one promise on purpose; see `berth.testing.broken.allocation` for the allocation
family.

All are greedy with a queue, and one fault. `BROKEN_PLACEMENT` says which check must catch which.

>>> from berth.testing import check_policy
>>> check_policy(PlacesNothing)
Traceback (most recent call last):
berth.errors.PolicyCheckFailed: PlacesNothing broke 1 of 10 promises:
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from berth.families.placement.policies.greedy import Greedy
from berth.families.placement.problem import (
    REJECT,
    WAIT,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
)
from berth.model import Ints

__all__ = ["BROKEN_PLACEMENT"]


class _Sound(Greedy):
    def __init__(self, problem: PlacementProblem, rng: Any = None) -> None:
        super().__init__(problem, rng, waiting="queue")


class Overcommits(_Sound):
    """Puts every task on the first server."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        return PlacementDecision(np.zeros(len(slot.ids), dtype=np.int64))


class IgnoresItsOwnTasks(_Sound):
    """Asks for every task alone, as if the others of its batch were not there."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        server = np.full(len(slot.ids), WAIT, dtype=np.int64)
        for i in range(len(slot.ids)):
            alone = dataclasses.replace(slot, ids=slot.ids[i : i + 1], tasks=slot.tasks.take(np.array([i])))
            server[i] = super().decide(alone).server[0]
        return PlacementDecision(server)


class IgnoresWhatRuns(_Sound):
    """Takes every server for free, whatever runs there."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        free = np.where(slot.up[:, None], self.problem.instance.capacity, 0.0)
        return super().decide(dataclasses.replace(slot, free=free))


class IgnoresAllButOneResource(_Sound):
    """Looks at the first resource alone."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        free = slot.free.copy()
        free[slot.up, 1:] = 1e12
        return super().decide(dataclasses.replace(slot, free=free))


class StartsInThePast(_Sound):
    """Says that tasks have started already."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        return PlacementDecision(super().decide(slot).server, np.full(len(slot.ids), slot.time - 1.0))


class NamesNoServer(_Sound):
    """Counts servers from 1."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        server = super().decide(slot).server
        return PlacementDecision(np.where(server >= 0, server + 1, server))


class ForgetsLostServers(_Sound):
    """Takes servers that are down for servers where nothing runs."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        free = np.where(slot.up[:, None], slot.free, self.problem.instance.capacity)
        return super().decide(dataclasses.replace(slot, free=free, up=np.ones_like(slot.up)))


class DecidesArrays(_Sound):
    """Returns servers alone, not a decision."""

    def decide(self, slot: PlacementSlot, /) -> Any:
        return super().decide(slot).server


class DecidesFloats(_Sound):
    """Returns servers as floats."""

    def decide(self, slot: PlacementSlot, /) -> Any:
        return PlacementDecision(super().decide(slot).server.astype(np.float64))


class LeavesTasksOut(_Sound):
    """Has no entry for tasks that wait."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        server = super().decide(slot).server
        return PlacementDecision(server[server >= 0])


class ReusesItsBuffer(_Sound):
    """Returns a part of the same array every slot, and so changes its earlier decisions."""

    def __init__(self, problem: PlacementProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._buffer = np.zeros(10_000, dtype=np.int64)

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        part = self._buffer[: len(slot.ids)]
        part[...] = super().decide(slot).server
        return PlacementDecision(part)


class LendsItsState(_Sound):
    """Waits after decisions whose servers add up to an odd number, as said by an array that others may write to."""

    def __init__(self, problem: PlacementProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._last: Ints = np.zeros(0, dtype=np.int64)

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        server = super().decide(slot).server
        if self._last.sum() % 2:
            server[...] = WAIT
        self._last = server
        return PlacementDecision(server)


class UsesGlobalRandom(_Sound):
    """Draws from NumPy's shared random state instead of the generator that it was given."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        server = super().decide(slot).server
        return PlacementDecision(np.where(np.random.uniform(size=len(server)) < 0.8, server, WAIT))  # noqa: NPY002


class CannotBePickled(_Sound):
    """Keeps a lambda."""

    def __init__(self, problem: PlacementProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._pause: Callable[[int], bool] = lambda index: index % 10 == 9

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        server = super().decide(slot).server
        return PlacementDecision(np.full_like(server, WAIT) if self._pause(slot.index) else server)


class ForgetsWhenPickled(_Sound):
    """Leaves what it has learned out of its pickle."""

    def __init__(self, problem: PlacementProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._seen = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": 0}

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        server = super().decide(slot).server
        return PlacementDecision(np.full_like(server, WAIT) if self._seen % 7 == 6 else server)

    def observe(self, outcome: PlacementOutcome, /) -> None:
        self._seen += 1


class WritesWhatIsFree(_Sound):
    """Changes the slot that it was lent."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        decision = super().decide(slot)
        if slot.free.flags.writeable:
            slot.free[...] *= 0.5
        return decision


class WritesBerths(_Sound):
    """Changes the berths of the slot that it was lent."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        decision = super().decide(slot)
        if slot.berths.end.flags.writeable:
            slot.berths.end[...] += 1.0
        return decision


class WritesOutcomes(_Sound):
    """Changes the outcome that it was lent."""

    def observe(self, outcome: PlacementOutcome, /) -> None:
        if outcome.started.flags.writeable:
            outcome.started[...] += 1


class WritesTheProblem(_Sound):
    """Unlocks the launch costs of the problem and wears them down."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        self.problem.launch.setflags(write=True)
        self.problem.launch[...] *= 0.999
        self.problem.launch.setflags(write=False)
        return super().decide(slot)


class ExpectsOutcomesInOrder(_Sound):
    """Insists that every outcome is that of the last decision."""

    def __init__(self, problem: PlacementProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._pending: set[float] = set()

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        self._pending = {slot.time}
        return super().decide(slot)

    def observe(self, outcome: PlacementOutcome, /) -> None:
        self._pending.remove(outcome.time)


class RemembersOutcomes(_Sound):
    """Keeps every outcome."""

    def __init__(self, problem: PlacementProblem, rng: Any = None) -> None:
        super().__init__(problem, rng)
        self._past: list[PlacementOutcome] = []

    def observe(self, outcome: PlacementOutcome, /) -> None:
        self._past.append(outcome)


class RefusesWithValueError(_Sound):
    """Refuses problems that it cannot serve with an error of another kind."""

    def __init__(self, problem: PlacementProblem, rng: Any = None) -> None:
        if np.isinf(problem.idle):
            raise ValueError("servers must go off some day")
        super().__init__(problem, rng)


class PlacesNothing(_Sound):
    """Is always feasible, and never earns anything."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        return PlacementDecision(np.full(len(slot.ids), REJECT, dtype=np.int64))


class LaunchesForEachTask(_Sound):
    """Keeps to servers that are off."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        server = np.full(len(slot.ids), WAIT, dtype=np.int64)
        off = np.flatnonzero(slot.up & ~(slot.time <= slot.on_until))
        for i, r in zip(range(len(server)), off, strict=False):
            if (slot.tasks.demand[i] <= slot.free[r]).all():
                server[i] = r
        return PlacementDecision(server)


BROKEN_PLACEMENT: dict[str, tuple[type[Any], ...]] = {
    "feasible-on-random-instances": (
        Overcommits,
        IgnoresItsOwnTasks,
        IgnoresWhatRuns,
        IgnoresAllButOneResource,
        StartsInThePast,
        NamesNoServer,
    ),
    "feasible-on-edge-instances": (ForgetsLostServers,),
    "decisions-are-fresh": (DecidesArrays, DecidesFloats, LeavesTasksOut, ReusesItsBuffer, LendsItsState),
    "same-seed-same-decisions": (UsesGlobalRandom,),
    "pickling-resumes": (CannotBePickled, ForgetsWhenPickled),
    "inputs-untouched": (WritesWhatIsFree, WritesBerths, WritesOutcomes, WritesTheProblem),
    "outcomes-in-any-order": (ExpectsOutcomesInOrder,),
    "bounded-memory": (RemembersOutcomes,),
    "refuses-clearly": (RefusesWithValueError,),
    "beats-random": (PlacesNothing, LaunchesForEachTask),
}
"""For each check, the policies that it must catch."""
