"""`learned-order`: a batch queue in the order of eight features of each job, weighted by training on a log."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from berth import Floats, InvalidInput, UnsupportedProblem
from berth.families.placement.policies.priority import Priority
from berth_learned_order.pool import FEATURES, PREDICTED, SIZE, score_jobs

__all__ = ["SHIPPED", "LearnedOrder", "Order", "order_named"]

FORMAT = "berth queue order 1"
SHIPPED = {"default": "sdsc-sp2", "sdsc-sp2": "sdsc-sp2", "lublin-256": "lublin-256"}
"""Orders of this package, and the file of each; `python -m berth_learned_order.evaluate --train` writes them."""
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


class LearnedOrder(Priority):
    """Tasks start in a learned order; none passes the first in the queue.

    The score of a task is a weighted sum of features of its wait, its estimate and its size, of what is free, of the
    number of waiting tasks, and of a prediction of the run time: the mean run time of the owner's last two tasks that
    ended, at most the estimate. The least score is first, and scores are computed again after every start. On several
    servers a task counts as fitting if the free amounts of all servers add up to its size.

    The policy sees that a task has ended when it decides next. If no task waits when one ends, its run time counts up
    to the next arrival.

    Settings: `file`, an order made by `berth-train-order` (`default` comes with this package); `backfill`, `pick` and
    `fit` as in `priority`, where `pick` is `committed` by default, as in training.

    >>> from berth.testing import example_placement
    >>> LearnedOrder(example_placement()).pick
    'committed'
    """

    reference = "after Zhang et al., RLScheduler, SC 2020; Salimans et al., Evolution Strategies, 2017"

    def __init__(
        self,
        problem: Any,
        rng: Any = None,
        *,
        file: str = "default",
        backfill: str = "none",
        pick: str = "committed",
        fit: str = "first",
    ) -> None:
        if backfill == "shadow":
            raise UnsupportedProblem("backfill=shadow is for training, in the protocol of RLScheduler; use easy")
        super().__init__(problem, rng, backfill=backfill, pick=pick, fit=fit)
        self.order = order_named(file)
        main = problem.devices if problem.devices is not None else 0
        self._main, self._capacity = main, float(problem.instance.capacity[:, main].sum())
        self._past = np.full((1, 2), np.nan)  # last two run times of each owner
        self._running: dict[int, tuple[int, float]] = {}  # owner and start of tasks that run, by id

    def pool(self, tasks: Any) -> None:
        """No kernel plays whole logs in this order."""

    def start(self, slot: Any, pieces: Any, free: Any, rows: Any) -> None:
        self._look_back(slot)
        ends, alone = self.ends(slot, rows), "easy" if self.backfill == "easy" else "none"
        left = np.arange(len(slot.ids))
        while len(left):
            order = left[self._sorted(slot, left, float(free.amount[:, self._main].clip(0.0).sum()))]
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

    def _sorted(self, slot: Any, left: Any, free: float) -> Any:
        """Positions in `left` (n,) by score; the committed task is first."""
        tasks = slot.tasks.take(left)
        owner = np.array(tasks.owner) if self.order.history else np.full(len(tasks), -1)
        arguments = owner, slot.time - tasks.arrival, np.array(tasks.work), self.sizes(tasks)
        scores = score_jobs(self.order.weights, self._past, *arguments, free, self._capacity)
        order = np.argsort(scores, kind="stable")
        picked = slot.ids[left[order]] == self._head
        return np.concatenate([order[picked], order[~picked]])

    def _look_back(self, slot: Any) -> None:
        """Note the run times of tasks that have ended since the last decision."""
        here = set(slot.berths.task.tolist())
        most = int(slot.tasks.owner.max(initial=0)) + 1
        if most > len(self._past):
            self._past = np.concatenate([self._past, np.full((most - len(self._past), 2), np.nan)])
        for task in sorted(task for task in self._running if task not in here):
            owner, began = self._running.pop(task)
            self._past[owner] = slot.time - began, self._past[owner, 0]
