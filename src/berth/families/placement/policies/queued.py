"""Base classes of queue policies: batch jobs wait in some order, and a rule finds their servers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.placement.kernels.gathering import Classes, Fleet, Free, Pieces, Rows
from berth.families.placement.kernels.queueing import Ends, start_in_order
from berth.families.placement.policies.queue_rule import BACKFILL, FITS, SHADOW, QueueRule
from berth.families.placement.problem import (
    WAIT,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
    Tasks,
)
from berth.model import Floats, Ints

__all__ = [
    "BACKFILL",
    "CLASSES",
    "FITS",
    "InOrder",
    "LogForm",
    "QueuedPolicy",
    "class_keys",
    "decision_of",
    "fleet_of",
    "free_of",
    "log_form",
    "pieces_of",
    "rows_for",
    "sizes_of",
]

CLASSES = 64
"""Number of task classes that are counted; the most common are exact."""


class LogForm(NamedTuple):
    """How a policy decides, for kernels that play whole logs.

    The queue is in the order of `key` (N,), or of a `score` of wait, estimate, size and submission. Ties are by `key`,
    if there is one, and then by arrival.
    """

    backfill: str
    key: Floats | None = None
    score: Callable[..., Any] | None = None
    committed: bool = False


def log_form(policy: Any, tasks: Tasks) -> LogForm | None:
    """The form of a policy that is a rule of a queue; None if it is more, or no kernel plays it."""
    rule: QueueRule | None = getattr(policy, "queue_rule", None)
    if rule is None or rule.turns == "fair":
        return None
    if rule.turns == "packed":
        return LogForm(rule.turns)
    sizes = sizes_of(policy.problem, tasks)
    if not rule.fixed:
        return LogForm(rule.backfill, rule.tied(tasks.work, sizes), rule.function, rule.committed)
    if rule.by_arrival:
        return LogForm(rule.backfill)
    place = np.empty(len(tasks))
    place[rule.order(0.0, tasks.work, sizes, tasks.arrival)] = np.arange(len(tasks))
    return LogForm(rule.backfill, place)


def sizes_of(problem: PlacementProblem, tasks: Tasks) -> Floats:
    """The processors that each task takes, (n,), or GPUs where tasks share devices."""
    main = 0 if problem.devices is None else problem.devices
    return np.asarray(tasks.demand[:, main] * tasks.pieces)


def fleet_of(problem: PlacementProblem) -> Fleet:
    """Servers in the form of the kernels that place gangs."""
    capacity, device = problem.instance.capacity, -1 if problem.devices is None else problem.devices
    return Fleet(capacity, problem.speed, problem.reach, capacity.max(axis=0), np.array([device]))


def pieces_of(tasks: Tasks) -> Pieces:
    """Tasks in the form of the kernels that place gangs."""
    return Pieces(tasks.demand, tasks.pieces, tasks.port, tasks.work, tasks.owner)


def free_of(slot: PlacementSlot, off: Floats) -> Free:
    """What is free in a slot, which kernels may change; servers that are down take not even a task without demand."""
    devices = np.zeros((len(slot.up), 0)) if slot.devices is None else slot.devices.copy()
    return Free(np.where(slot.up[:, None], slot.free, -1.0), devices, off)


def rows_for(tasks: Tasks, free: Free) -> Rows:
    """Empty rows, enough for all pieces of these tasks."""
    (servers, resources), devices = free.amount.shape, free.devices.shape[1]
    most = int(np.minimum(tasks.pieces, servers).sum())

    def whole(size: int) -> Ints:
        return np.zeros(size, dtype=np.int64)

    scratch = np.zeros((1, devices)), np.zeros((2, max(resources, devices)))
    return Rows(whole(most), whole(most), whole(most), whole(2), whole(servers), *scratch)


def decision_of(slot: PlacementSlot, rows: Rows) -> PlacementDecision:
    """The decision to start the tasks in these rows, which take devices in this order; all others wait."""
    size, gangs = int(rows.size[0]), dict[int, Ints]()
    task, there, count = rows.task[:size], rows.server[:size], rows.count[:size]
    server = np.full(len(slot.tasks), WAIT, dtype=np.int64)
    server[task] = there
    for i in np.unique(task[slot.tasks.pieces[task] > 1]).tolist():
        gangs[i] = np.repeat(there[task == i], count[task == i])
    return PlacementDecision(server, None, gangs, np.asarray(list(dict.fromkeys(task.tolist())), dtype=np.int64))


def class_keys(problem: PlacementProblem, tasks: Tasks) -> Ints:
    """Class of each task, (n, 1 + K): its port, and its demand in hundredths of the largest server or of a device."""
    most = np.maximum(problem.instance.capacity.max(axis=0), 1e-9)
    if problem.devices is not None:
        most[problem.devices] = 1.0
    rounded = np.minimum(np.round(100 * tasks.demand / most), 1e6)
    return np.column_stack([tasks.port, rounded]).astype(np.int64)


class QueuedPolicy(ABC):
    """Starts waiting tasks in turn when their pieces fit; ignores values, deadlines and costs.

    It serves every problem of the family: gangs, ports, devices, and estimated run times.
    """

    family = "placement"
    reference = "none: a base class"

    def __init__(self, problem: PlacementProblem, *, fit: str = "first") -> None:
        if fit not in FITS:
            raise InvalidInput(f"one of {', '.join(FITS)}", value=fit, key="fit")
        self.problem, self.fit = problem, fit
        self._fleet = fleet_of(problem)
        self._seen: dict[tuple[int, ...], tuple[int, Floats]] = {}  # class, rounded to .01: count and example
        self._last = -1  # latest counted task
        self._classes = Classes(np.zeros((0, len(problem.weight))), np.zeros(0, dtype=np.int64), np.zeros(0))

    def __init_subclass__(cls) -> None:
        """Drop the rule of a subclass that decides in its own way, unless it declares one."""
        if {"start", "decide", "queue"} & vars(cls).keys() and "queue_rule" not in vars(cls):
            cls.queue_rule = QueuedPolicy.queue_rule  # type: ignore[method-assign]

    @property
    def queue_rule(self) -> QueueRule | None:
        """The policy as data, if that is all of it."""
        return None

    @abstractmethod
    def start(self, slot: PlacementSlot, pieces: Pieces, free: Free, rows: Rows) -> None:
        """Write the places of all tasks that start now to `rows`."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        if not len(slot.ids):
            return PlacementDecision(np.zeros(0, dtype=np.int64))
        pieces = pieces_of(slot.tasks)
        off = ((self.problem.launch > 0) & ~(slot.time <= slot.on_until)).astype(np.float64)
        free = free_of(slot, off)
        rows = rows_for(slot.tasks, free)
        if self.fit == "whole":
            self._count(slot)
        self.start(slot, pieces, free, rows)
        return decision_of(slot, rows)

    def _count(self, slot: PlacementSlot) -> None:
        """Count new tasks by demand and port: the classes that measure fragmentation."""
        new = slot.ids > self._last
        if not new.any():
            return
        self._last = int(slot.ids.max())
        keys = class_keys(self.problem, slot.tasks)
        for i in np.flatnonzero(new):
            demand, key = slot.tasks.demand[i], tuple(keys[i].tolist())
            count, like = self._seen.pop(key, (0, demand))
            if not count and len(self._seen) >= CLASSES:  # the rarest class is replaced and passes on its count
                count = self._seen.pop(min(self._seen, key=lambda other: (self._seen[other][0], other)))[0]
            self._seen[key] = count + 1, like
        listed = sorted(self._seen)
        share = np.array([self._seen[key][0] for key in listed], dtype=np.float64)
        demands = np.array([self._seen[key][1] for key in listed])
        self._classes = Classes(demands, np.array([key[0] for key in listed]), share / share.sum())

    def observe(self, outcome: PlacementOutcome, /) -> None:
        return None  # tasks are counted when they arrive


class InOrder(QueuedPolicy):
    """Tasks wait in an order; if the first does not fit, `backfill` decides which tasks may pass it.

    `none`: none. `any`: every task that fits. `easy`: every task that by the estimates does not delay the first one
    that did not fit, which gets a reservation at the first moment at which it will fit, recomputed at every moment; the
    others are tried once each in queue order, and may also use what the reservation leaves.
    """

    rule = "submit"
    """The order, as the score of a `QueueRule`."""

    def __init_subclass__(cls) -> None:
        """Refuse the method `key`, which was the order in earlier versions and would be ignored."""
        super().__init_subclass__()
        if "key" in vars(cls):
            instead = "define `rule`, the order as a score such as 'estimate * size', or the method `queue`"
            raise TypeError(f"{cls.__name__}.key: a policy in order has no key any more; {instead}")

    def __init__(
        self, problem: PlacementProblem, rng: Any = None, *, backfill: str = "none", fit: str = "first"
    ) -> None:
        self._follow(problem, QueueRule(self.rule, backfill, fit))

    def _follow(self, problem: PlacementProblem, rule: QueueRule, backfill: Iterable[str] = BACKFILL) -> None:
        """Begin to decide by a rule, with a `backfill` among these."""
        super().__init__(problem, fit=rule.fit)
        if rule.backfill not in backfill:
            raise InvalidInput(f"one of {', '.join(BACKFILL)}", value=rule.backfill, key="backfill")
        if rule.backfill in ("easy", SHADOW) and problem.devices is not None:
            raise UnsupportedProblem("EASY backfilling cannot keep a reservation on devices that tasks share")
        self._rule, self.backfill = rule, rule.backfill
        self._head = -1  # id of the task that was picked and does not fit

    @property
    def queue_rule(self) -> QueueRule | None:
        return self._rule

    def queue(self, slot: PlacementSlot) -> Ints:
        """Waiting tasks, (n,), the first in the queue first."""
        tasks = slot.tasks
        order = self._rule.order(slot.time - tasks.arrival, tasks.work, sizes_of(self.problem, tasks), tasks.arrival)
        picked = slot.ids[order] == self._head
        return np.concatenate([order[picked], order[~picked]])

    def start(self, slot: PlacementSlot, pieces: Pieces, free: Free, rows: Rows) -> None:
        if self._rule.backfill == SHADOW:
            raise UnsupportedProblem("backfill=shadow is a rule for one pool of processors (--processors)")
        self.start_some(self.queue(slot), slot, pieces, free, rows, self.ends(slot, rows), self.backfill)
        if self._rule.committed:
            left = [i for i in self.queue(slot) if i not in set(rows.task[: rows.size[0]].tolist())]
            self._head = int(slot.ids[left[0]]) if left else -1

    def ends(self, slot: PlacementSlot, rows: Rows) -> Ends:
        """Estimated ends of running tasks, with room for those that start now."""
        held = slot.berths
        by_end = np.argsort(held.end, kind="stable")
        size, resources = len(by_end), held.demand.shape[1]
        more = len(rows.task) if self.backfill == "easy" else 0
        return Ends(
            np.concatenate([held.end[by_end], np.zeros(more)]),
            np.concatenate([held.server[by_end], np.zeros(more, dtype=np.int64)]),
            np.concatenate([held.demand[by_end], np.zeros((more, resources))]),
            np.array([size]),
        )

    def start_some(
        self, order: Ints, slot: PlacementSlot, pieces: Pieces, free: Free, rows: Rows, ends: Ends, backfill: str
    ) -> None:
        """Write the places of tasks of `order` (n,) that start now to `rows`; `free` and `ends` change with them."""
        start_in_order(
            order,
            self._fleet,
            free,
            Free(free.amount.copy(), free.devices, free.off.copy()),
            Free(free.amount.copy(), free.devices, free.off.copy()),
            self._classes,
            pieces,
            FITS[self.fit],
            BACKFILL[backfill],
            ends,
            slot.time,
            rows,
        )
