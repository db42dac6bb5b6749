"""Placement policies that each break one promise; see `tests.testing.broken.allocation` for the allocation family.

All are the greedy policy with a queue, and one fault. `BROKEN` maps each check to the policies it must catch.

>>> from berth.testing import check_policy
>>> check_policy(PlacesNothing)
Traceback (most recent call last):
berth.errors.PolicyCheckFailed: PlacesNothing broke 1 of 10 promises:
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from berth.families.placement.policies.greedy import Greedy
from berth.families.placement.problem import (
    REJECT,
    WAIT,
    PlacementDecision,
    PlacementProblem,
    PlacementSlot,
)
from berth.model import Ints
from tests.testing.broken import Sound, faults

__all__ = ["BROKEN"]


class _Sound(Greedy, Sound):
    nothing = WAIT
    of_problem, of_slot, of_outcome = "launch", "free", "started"

    def __init__(self, problem: PlacementProblem, rng: Any = None) -> None:
        super().__init__(problem, rng, waiting="queue")

    def entries(self, decision: PlacementDecision) -> Ints:
        return decision.server

    def made(self, entries: Ints, like: PlacementDecision) -> PlacementDecision:
        return PlacementDecision(entries, gangs={i: gang for i, gang in like.gangs.items() if entries[i] >= 0})

    @staticmethod
    def unwelcome(problem: PlacementProblem) -> bool:
        return bool(np.isinf(problem.idle))


class Overcommits(_Sound):
    """Puts every task on the first server."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        return PlacementDecision(np.zeros(len(slot.ids), dtype=np.int64))


class IgnoresItsOwnTasks(_Sound):
    """Places every task alone, ignoring the others of its batch."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        server = np.full(len(slot.ids), WAIT, dtype=np.int64)
        for i in range(len(slot.ids)):
            alone = dataclasses.replace(slot, ids=slot.ids[i : i + 1], tasks=slot.tasks.take(np.array([i])))
            server[i] = super().decide(alone).server[0]
        return PlacementDecision(server)


class IgnoresWhatRuns(_Sound):
    """Treats every server as free."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        free = np.where(slot.up[:, None], self.problem.instance.capacity, 0.0)
        return super().decide(dataclasses.replace(slot, free=free))


class IgnoresAllButOneResource(_Sound):
    """Checks the first resource alone."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        free = slot.free.copy()
        free[slot.up, 1:] = 1e12
        return super().decide(dataclasses.replace(slot, free=free))


class _SoundWithGangs(_Sound):
    """Serves gangs as if their pieces were one task; those who derive from it say how."""

    def __init__(self, problem: PlacementProblem, rng: Any = None) -> None:
        super().__init__(problem.replace(gangs=False), rng)


class ForgetsPieces(_SoundWithGangs):
    """Starts one piece of each gang."""


class BreaksGangs(_SoundWithGangs):
    """Starts as many pieces of a gang as the server of the first holds."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        decision = super().decide(slot)
        gangs = {
            int(i): np.full(min(2, slot.tasks.pieces[i]), decision.server[i])
            for i in np.flatnonzero(decision.server >= 0)
            if slot.tasks.pieces[i] > 1
        }
        return PlacementDecision(decision.server, None, gangs)


class StartsInThePast(_Sound):
    """Sets start times in the past."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        return PlacementDecision(super().decide(slot).server, np.full(len(slot.ids), slot.time - 1.0))


class NamesNoServer(_Sound):
    """Counts servers from 1."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        server = super().decide(slot).server
        return PlacementDecision(np.where(server >= 0, server + 1, server))


class ForgetsLostServers(_Sound):
    """Treats servers that are down as empty."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        free = np.where(slot.up[:, None], slot.free, self.problem.instance.capacity)
        return super().decide(dataclasses.replace(slot, free=free, up=np.ones_like(slot.up)))


class DecidesArrays(_Sound):
    """Returns servers alone instead of a decision."""

    def decide(self, slot: PlacementSlot, /) -> Any:
        return super().decide(slot).server


class DecidesFloats(_Sound):
    """Returns servers as floats."""

    def decide(self, slot: PlacementSlot, /) -> Any:
        return PlacementDecision(super().decide(slot).server.astype(np.float64))


class LeavesTasksOut(_Sound):
    """Has no entry for waiting tasks."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        server = super().decide(slot).server
        return PlacementDecision(server[server >= 0])


class WritesBerths(_Sound):
    """Changes the berths of the slot that it was given."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        decision = super().decide(slot)
        if slot.berths.end.flags.writeable:
            slot.berths.end[...] += 1.0
        return decision


class PlacesNothing(_Sound):
    """Is always feasible and never earns anything."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        return PlacementDecision(np.full(len(slot.ids), REJECT, dtype=np.int64))


class LaunchesForEachTask(_Sound):
    """Places each task on a server that is off."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        server = np.full(len(slot.ids), WAIT, dtype=np.int64)
        off = np.flatnonzero(slot.up & ~(slot.time <= slot.on_until))
        for i, r in zip(range(len(server)), off, strict=False):
            if slot.tasks.pieces[i] == 1 and (slot.tasks.demand[i] <= slot.free[r]).all():
                server[i] = r
        return PlacementDecision(server)


BROKEN = faults(
    _Sound,
    {
        "feasible-on-random-instances": (
            Overcommits,
            IgnoresItsOwnTasks,
            IgnoresWhatRuns,
            IgnoresAllButOneResource,
            StartsInThePast,
            NamesNoServer,
            ForgetsPieces,
            BreaksGangs,
        ),
        "feasible-on-edge-instances": (ForgetsLostServers,),
        "decisions-are-fresh": (DecidesArrays, DecidesFloats, LeavesTasksOut),
        "inputs-untouched": (WritesBerths,),
        "beats-random": (PlacesNothing, LaunchesForEachTask),
    },
)
"""Policies that each check must catch."""
