"""Dominant Resource Fairness for tasks that run to completion."""

from __future__ import annotations

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.kernels.gathering import Free, Pieces, Rows
from berth.families.placement.kernels.queueing import start_fairly
from berth.families.placement.policies.queue_rule import QueueRule
from berth.families.placement.policies.queued import FITS, QueuedPolicy
from berth.families.placement.problem import PlacementOutcome, PlacementProblem, PlacementSlot
from berth.model import Ints

__all__ = ["FairQueue"]


class FairQueue(QueuedPolicy):
    """Repeatedly, the owner with the smallest dominant share starts its next task, by arrival.

    The dominant share of an owner is the largest of its shares of the cluster's resources. An owner whose next task
    does not fit waits; others go on.

    Setting: `fit`, as in fcfs.

    >>> from berth.testing import example_placement
    >>> FairQueue(example_placement(), np.random.default_rng(0)).fit
    'first'
    """

    reference = "Ghodsi et al., Dominant Resource Fairness, NSDI 2011, Algorithm 1"

    def __init__(self, problem: PlacementProblem, rng: np.random.Generator, *, fit: str = "first") -> None:
        if fit == "whole":
            raise InvalidInput("first, best, worst or aligned", value=fit, key="fit")
        super().__init__(problem, fit=fit)
        self._owner: dict[int, int] = {}  # of waiting and running tasks

    @property
    def queue_rule(self) -> QueueRule | None:
        return QueueRule(fit=self.fit, turns="fair")

    def start(self, slot: PlacementSlot, pieces: Pieces, free: Free, rows: Rows) -> None:
        self._owner.update(zip(slot.ids.tolist(), slot.tasks.owner.tolist(), strict=True))
        running = np.array([self._owner.get(task, -1) for task in slot.berths.task.tolist()], dtype=np.int64)
        owners, place = np.unique(np.concatenate([slot.tasks.owner, running]), return_inverse=True)
        used = np.zeros((len(owners), free.amount.shape[1]))
        np.add.at(used, place[len(slot.ids) :], slot.berths.demand)
        next_of, head_of = _lists(place[: len(slot.ids)], len(owners))
        total = self.problem.instance.capacity.sum(axis=0)
        start_fairly(self._fleet, free, self._classes, pieces, FITS[self.fit], used, total, next_of, head_of, rows)
        known = {*slot.ids.tolist(), *slot.berths.task.tolist()}
        self._owner = {task: owner for task, owner in self._owner.items() if task in known}

    def observe(self, outcome: PlacementOutcome, /) -> None:
        return None  # owners are recorded when their tasks arrive


def _lists(owner: Ints, owners: int) -> tuple[Ints, Ints]:
    """Next task of the same owner for each (n,), and the first of each owner (O,); -1 for none."""
    next_of, head_of = np.full(len(owner), -1, dtype=np.int64), np.full(owners, -1, dtype=np.int64)
    for i in range(len(owner) - 1, -1, -1):
        next_of[i], head_of[owner[i]] = head_of[owner[i]], i
    return next_of, head_of
