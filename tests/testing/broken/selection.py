"""Selection policies that each break one promise; see `tests.testing.broken.allocation` for the allocation family.

All but `BreaksGangs` are HAUF, which skips what does not fit, with one fault. `BROKEN` maps each check to the policies
it must catch.

>>> from berth.testing import check_policy
>>> check_policy(OpensNothing)
Traceback (most recent call last):
berth.errors.PolicyCheckFailed: OpensNothing broke 1 of 10 promises:
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.errors import UnsupportedProblem
from berth.families.selection.policies.hauf import HAUF
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.model import Ints
from tests.testing.broken import Sound, faults

__all__ = ["BROKEN"]


class _Sound(HAUF, Sound):
    of_problem, of_slot, of_outcome = "cost", "arrivals", "gains"

    def __init__(self, problem: SelectionProblem, rng: Any = None) -> None:
        super().__init__(problem, rng, misfit="skip")

    @staticmethod
    def unwelcome(problem: SelectionProblem) -> bool:
        return problem.roles is not None


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
    """Checks against the free capacity of the whole cluster, and so gives single servers away twice."""

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
        """Learns nothing."""


class ForgetsLostServers(_Sound):
    """Uses the initial capacity instead of what is free now."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        return super().decide(SelectionSlot(slot.index, self.problem.limits, slot.arrivals))


class DecidesFloats(_Sound):
    """Returns floats."""

    def decide(self, slot: SelectionSlot, /) -> Any:
        return super().decide(slot).astype(np.float64)


class DecidesIndices(_Sound):
    """Returns the indices of the open channels instead of an entry for each channel."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        return np.flatnonzero(super().decide(slot)).astype(np.int64)


class OpensNothing(_Sound):
    """Is always feasible and never earns anything."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        return np.zeros(len(self.problem.cost), dtype=np.int64)


class DearestFirst(_Sound):
    """Opens the channels that cost most."""

    def order(self) -> Ints:
        return np.argsort(-self.problem.cost, kind="stable").astype(np.int64)


BROKEN = faults(
    _Sound,
    {
        "feasible-on-random-instances": (OpensAbsentPorts, Overcommits, AddsUpServers, OpensTwice, BreaksGangs),
        "feasible-on-edge-instances": (ForgetsLostServers,),
        "decisions-are-fresh": (DecidesFloats, DecidesIndices),
        "beats-random": (OpensNothing, DearestFirst),
    },
)
"""Policies that each check must catch."""
