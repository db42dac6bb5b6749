"""`learned-order`: a batch queue in the order of eight features of each job, weighted by training on a log."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from berth import (
    WAIT,
    Floats,
    InvalidInput,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
    Tasks,
    UnsupportedProblem,
)
from berth_learned_order.pool import ESTIMATE, FEATURES, PREDICTED, SIZE, score_jobs

__all__ = ["SHIPPED", "LearnedOrder", "Order", "order_named"]

FORMAT = "berth queue order 1"
SHIPPED = {"default": "sdsc-sp2", "sdsc-sp2": "sdsc-sp2", "lublin-256": "lublin-256"}
"""Orders of this package, and the file of each; `python -m benchmarks.learned_order --train` writes them."""
FOLDER = Path(__file__).parent / "orders"


@dataclass(frozen=True, eq=False)
class Order:
    """Weights of the features (8,); `made` records how they were trained.

    >>> order = Order.fresh()
    >>> np.array_equal(Order.parse(order.text()).weights, order.weights)
    True
    """

    weights: Floats
    made: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if np.shape(self.weights) != (FEATURES,) or not np.isfinite(self.weights).all():
            raise InvalidInput(f"{FEATURES} finite weights", value=np.shape(self.weights), key="weights")

    @classmethod
    def fresh(cls) -> Order:
        """Initial order for training: the smallest area first, of the predicted run time and the size."""
        weights = np.zeros(FEATURES)
        weights[PREDICTED] = weights[SIZE] = 1.0
        return cls(weights)

    @classmethod
    def shortest(cls) -> Order:
        """The shortest estimate first."""
        weights = np.zeros(FEATURES)
        weights[ESTIMATE] = 1.0
        return cls(weights)

    @property
    def history(self) -> bool:
        """Whether run times are predicted from those of earlier jobs of the owner."""
        return bool(self.made.get("history", True))

    def replace(self, weights: Floats) -> Order:
        return Order(weights, self.made)

    def text(self) -> str:
        """The order as JSON: numbers and texts, nothing executable."""
        return json.dumps({"format": FORMAT, "made": self.made, "weights": self.weights.tolist()}, indent=1) + "\n"

    @classmethod
    def parse(cls, text: str, file: str | None = None) -> Order:
        """Parse the output of `text`; anything else is refused."""
        try:
            body = json.loads(text)
            if body["format"] != FORMAT:
                raise InvalidInput(f"format {FORMAT!r}", value=body["format"], key="format", file=file)
            return cls(np.array(body["weights"], dtype=np.float64), dict(body.get("made", {})))
        except InvalidInput as error:
            raise error.at(file=file) from None
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidInput("an order in JSON", found=repr(error), file=file) from error


def order_named(file: str) -> Order:
    """An order of this package, or that of a file."""
    path = FOLDER / f"{SHIPPED[file]}.json" if file in SHIPPED else Path(file)
    try:
        return Order.parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("a readable file", found=str(error), file=str(path)) from error


class LearnedOrder:
    """Tasks start in a learned order; none passes the first in the queue, or with EASY none delays it.

    The score of a task is a weighted sum of features of its wait, its estimate and its size, of what is free, of the
    number of waiting tasks, and of a prediction of the run time: the mean run time of the owner's last two tasks that
    ended, at most the estimate. The least score is first, and scores are computed again after every start. On several
    servers a task counts as fitting if the free amounts of all servers add up to its size; its pieces go to the first
    servers with room.

    The policy sees that a task has ended when it decides next. If no task waits when one ends, its run time counts up
    to the next arrival.

    Settings:

    * `file`: an order made by `berth-train-order` (`default` comes with this package);
    * `backfill`: `none`, or `easy` for tasks that do not delay the first by the estimates;
    * `pick`: `committed`, the first stays first until it starts, as in training; or `again`, it is found anew.

    >>> from berth.testing import example_placement
    >>> LearnedOrder(example_placement()).pick
    'committed'
    """

    family = "placement"
    reference = "after Zhang et al., RLScheduler, SC 2020; Salimans et al., Evolution Strategies, 2017"

    def __init__(
        self,
        problem: PlacementProblem,
        rng: Any = None,
        *,
        file: str = "default",
        backfill: str = "none",
        pick: str = "committed",
    ) -> None:
        for key, value, known in (
            ("backfill", backfill, ("none", "easy")),
            ("pick", pick, ("committed", "again")),
        ):
            if value not in known:
                raise InvalidInput(f"one of {', '.join(known)}", value=value, key=key)
        if problem.devices is not None:
            raise UnsupportedProblem("learned-order cannot place tasks that share devices")
        self.problem, self.order, self.backfill, self.pick = problem, order_named(file), backfill, pick
        self._capacity = float(problem.instance.capacity[:, 0].sum())
        self._slack = 1e-9 * (1.0 + problem.instance.capacity)
        self._past = np.full((1, 2), np.nan)  # last two run times of each owner
        self._running: dict[int, tuple[int, float]] = {}  # owner and start of tasks that run, by id
        self._head = -1  # id of the committed task

    def observe(self, outcome: PlacementOutcome, /) -> None:
        """Nothing to learn."""

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        self._look_back(slot)
        tasks, free, left = slot.tasks, slot.free.copy(), np.arange(len(slot.ids))
        held = slot.berths
        ends: list[Any] = [(held.end[row], [held.server[row]], held.demand[row]) for row in range(len(held.end))]
        server, gangs = np.full(len(left), WAIT), dict[int, Any]()

        def start(i: int, there: Any) -> None:
            """Start a task with its pieces on the servers `there`."""
            np.subtract.at(free, there, tasks.demand[i])
            ends.append((self._end(slot, i, there), there, tasks.demand[i]))
            server[i] = there[0]
            if len(there) > 1:
                gangs[i] = there
            self._running[int(slot.ids[i])] = int(tasks.owner[i]), slot.time

        order = left
        while len(left):
            order = left[self._sorted(slot, left, float(free[:, 0].clip(0.0).sum()))]
            there = self._room(slot, order[0], free)
            if there is None:
                break
            start(order[0], there)
            left = left[left != order[0]]
        self._head = int(slot.ids[order[0]]) if len(left) and self.pick == "committed" else -1
        if len(left) and self.backfill == "easy":
            shadow, future = self._reserved(slot, order[0], free, ends)
            for i in order[1:]:
                there = self._room(slot, i, free)
                if there is not None and self._end(slot, i, there) > shadow:  # must not use the place of the first
                    there = self._room(slot, i, np.minimum(free, future))
                    if there is not None and self._end(slot, i, there) > shadow:
                        np.subtract.at(future, there, tasks.demand[i])
                if there is not None:
                    start(i, there)
        return PlacementDecision(server, gangs=gangs)

    def _room(self, slot: PlacementSlot, i: int, free: Any) -> Any:
        """The server of each piece of a task, the first with room; None if it does not fit."""
        asked = slot.tasks.demand[i]
        with np.errstate(divide="ignore", invalid="ignore"):
            fit = np.where(asked > 0, np.floor((free + self._slack) / asked), np.inf).min(axis=1)
        fit = np.where(slot.up & self.problem.reach[slot.tasks.port[i]], fit.clip(0.0), 0.0)
        taken = np.minimum(np.cumsum(fit), slot.tasks.pieces[i])
        if taken[-1] < slot.tasks.pieces[i]:
            return None
        return np.repeat(np.arange(len(fit)), np.diff(taken, prepend=0.0).astype(np.int64))

    def _end(self, slot: PlacementSlot, i: int, there: Any) -> float:
        return float(slot.time + slot.tasks.work[i] / self.problem.speed[there].min())

    def _reserved(self, slot: PlacementSlot, head: int, free: Any, ends: Any) -> tuple[float, Any]:
        """When the first task fits by the estimates, and what is free beside it then."""
        future, ends = free.copy(), sorted(ends, key=lambda one: one[0])
        for number, (end, servers, held) in enumerate(ends):
            np.add.at(future, servers, held)
            last = number + 1 == len(ends) or ends[number + 1][0] > max(end, slot.time)
            there = self._room(slot, head, future) if last else None
            if there is not None:
                np.subtract.at(future, there, slot.tasks.demand[head])
                return max(end, slot.time), future
        return np.inf, future

    def _sorted(self, slot: PlacementSlot, left: Any, free: float) -> Any:
        """Positions in `left` (n,) by score; the committed task is first."""
        tasks: Tasks = slot.tasks.take(left)
        owner = np.array(tasks.owner) if self.order.history else np.full(len(tasks), -1)
        size = np.asarray(tasks.demand[:, 0] * tasks.pieces)
        arguments = owner, slot.time - tasks.arrival, np.array(tasks.work), size
        scores = score_jobs(np.array(self.order.weights), self._past, *arguments, free, self._capacity)
        order = np.argsort(scores, kind="stable")
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
