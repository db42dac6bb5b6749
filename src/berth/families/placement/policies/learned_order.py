"""Queue in an order that was learned from windows of a log."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.errors import UnsupportedProblem
from berth.families.placement.kernels.gathering import Free, Pieces, Rows
from berth.families.placement.kernels.order_network import score_jobs
from berth.families.placement.policies.order import order_named
from berth.families.placement.policies.priority import Priority
from berth.families.placement.policies.queued import PoolForm
from berth.families.placement.problem import PlacementProblem, PlacementSlot, Tasks
from berth.model import Floats, Ints

__all__ = ["LearnedOrder"]


class LearnedOrder(Priority):
    """Tasks start in the order of a small network; none passes the first in the queue.

    The network scores a task by its wait, its estimate in seconds and its size as a share of the cluster, by what is
    free, by whether the task fits there, by the number of waiting tasks, and by a prediction of the run time: the mean
    run time of the owner's last two tasks that ended, at most the estimate. The least score is first, and scores are
    computed again after every start. On several servers a task counts as fitting if the free amounts of all servers
    add up to its size.

    The policy sees that a task has ended when it decides next. If no task waits when one ends, its run time counts up
    to the next arrival.

    Settings: `file`, an order made by `berth train-order` (`default` comes with berth); `backfill`, `pick` and `fit` as
    in `priority`, where `pick` is `committed` by default, as in training.

    >>> from berth.testing import example_placement
    >>> LearnedOrder(example_placement()).pick
    'committed'
    """

    reference = "after Zhang et al., RLScheduler, SC 2020; Salimans et al., Evolution Strategies, 2017"

    def __init__(
        self,
        problem: PlacementProblem,
        rng: Any = None,
        *,
        file: str = "default",
        backfill: str = "none",
        pick: str = "committed",
        fit: str = "first",
    ) -> None:
        super().__init__(problem, rng, backfill=backfill, pick=pick, fit=fit)
        self.order = order_named(file)
        main = problem.devices if problem.devices is not None else 0
        self._main, self._capacity = main, float(problem.instance.capacity[:, main].sum())
        self._free = self._capacity
        self._past = np.full((1, 2), np.nan)  # last two run times of each owner
        self._running: dict[int, tuple[int, float]] = {}  # owner and start of tasks that run, by id

    def pool(self, tasks: Tasks) -> PoolForm | None:
        owner = tasks.owner if self.order.history else None
        return PoolForm(self.backfill, committed=self.pick == "committed", weights=self.order.weights, owner=owner)

    def _scores(self, tasks: Tasks, time: float) -> Floats:
        scores = np.zeros(len(tasks))
        owner = np.array(tasks.owner) if self.order.history else np.full(len(tasks), -1)
        arguments = owner, np.array(time - tasks.arrival), np.array(tasks.work), self.sizes(tasks)
        score_jobs(self.order.weights.copy(), self._past, *arguments, self._free, self._capacity, scores)
        return np.where(np.isnan(scores), 0.0, scores)

    def start(self, slot: PlacementSlot, pieces: Pieces, free: Free, rows: Rows) -> None:
        if self.backfill == "shadow":
            raise UnsupportedProblem("backfill=shadow is a rule for one pool of processors (--processors)")
        self._look_back(slot)
        ends, alone = self.ends(slot, rows), "easy" if self.backfill == "easy" else "none"
        left = np.arange(len(slot.ids))
        while len(left):
            self._free = float(free.amount[:, self._main].clip(0.0).sum())
            order = left[self._sorted(slot, left)]
            before = int(rows.size[0])
            self.start_some(order[:1], slot, pieces, free, rows, ends, alone)
            if int(rows.size[0]) == before:
                break
            left = left[left != order[0]]
        self._head = int(slot.ids[order[0]]) if len(left) and self.pick == "committed" else -1
        if len(left) and self.backfill != "none":
            self.start_some(order, slot, pieces, free, rows, ends, self.backfill)
        for i in np.unique(rows.task[: rows.size[0]]).tolist():
            self._running[int(slot.ids[i])] = int(slot.tasks.owner[i]), slot.time

    def _sorted(self, slot: PlacementSlot, left: Ints) -> Ints:
        """Positions in `left` (n,) by score; the committed task is first."""
        order = np.argsort(self._scores(slot.tasks.take(left), slot.time), kind="stable")
        picked = slot.ids[left[order]] == self._head
        return np.concatenate([order[picked], order[~picked]])

    def _look_back(self, slot: PlacementSlot) -> None:
        """Note the run times of tasks that have ended since the last decision."""
        here = set(slot.berths.task.tolist())
        most = int(slot.tasks.owner.max(initial=0)) + 1
        if most > len(self._past):
            self._past = np.concatenate([self._past, np.full((most - len(self._past), 2), np.nan)])
        for task in sorted(task for task in self._running if task not in here):
            owner, began = self._running.pop(task)
            self._past[owner] = slot.time - began, self._past[owner, 0]
