"""Train the order of a queue on windows of a log, by evolution strategies.

Every step plays windows under perturbed orders, each window on an empty pool, for each way to backfill. The mean
bounded slowdown of a window counts relative to that of the shortest job first, so that no window dominates. Validation
windows are drawn once; the order that is best there is kept. No window overlaps a part of the log that is held out.

Axes: N jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from berth.about import VERSION
from berth.errors import InvalidInput
from berth.families.placement.policies.order import Order
from berth.families.placement.pool_runs import MODES, run_pool
from berth.families.placement.training.strategies import Strategies
from berth.model import Floats, Ints
from berth.random import stream

__all__ = ["OrderPlan", "QueuedJobs", "TrainedOrder", "order_cost", "train_order", "window_starts"]

CANDIDATES = 64
"""Number of windows from which those of the steps are drawn."""
COOLING = 0.6
"""Share of the steps after which steps become shorter."""


class QueuedJobs(NamedTuple):
    """Jobs by arrival, every field (N,): submission, processors, run time, estimate, and owner (-1: unknown)."""

    submit: Floats
    size: Floats
    run: Floats
    estimate: Floats
    owner: Ints

    def part(self, first: int, count: int) -> QueuedJobs:
        """A window of this many jobs."""
        return QueuedJobs(*(field[first : first + count] for field in self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class OrderPlan:
    """How an order is trained: on a pool of `capacity` processors, for each of these ways to backfill.

    A step plays `windows` windows of `window_jobs` jobs under `pairs` pairs of perturbed orders. Every `every` steps
    the order is validated on `validation` windows of `validation_jobs` jobs. `committed` and `singly` are as in
    `berth.families.placement.pool_runs.run_pool`; `bound` is the threshold of bounded slowdowns in seconds.
    """

    capacity: float
    backfills: tuple[str, ...] = ("none",)
    committed: bool = True
    singly: bool = False
    steps: int = 40
    windows: int = 24
    window_jobs: int = 512
    pairs: int = 8
    hidden: int = 0
    width: float = 0.1
    rate: float = 0.1
    validation: int = 40
    validation_jobs: int = 1024
    every: int = 5
    bound: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        for key in ("steps", "windows", "window_jobs", "pairs", "validation", "validation_jobs", "every"):
            if getattr(self, key) < 1:
                raise InvalidInput("a whole number ≥ 1", value=getattr(self, key), key=key)
        for backfill in self.backfills:
            if backfill not in MODES or backfill == "conservative":
                raise InvalidInput("none, easy, any or shadow", value=backfill, key="backfill")
        if not self.backfills:
            raise InvalidInput("at least one way to backfill", key="backfill")


class TrainedOrder(NamedTuple):
    """The order, and mean bounded slowdowns in validation, one for each way to backfill.

    They are those of the order and of the shortest job first. `relative` is the mean over windows of the ratio of both.
    """

    order: Order
    validation: tuple[float, ...]
    shortest: tuple[float, ...]
    relative: float
    history: tuple[tuple[int, float], ...]
    """Step, and the mean ratio in validation."""


class _Window(NamedTuple):
    jobs: QueuedJobs
    backfill: str
    world: int
    plain: float
    """Mean bounded slowdown of the shortest job first."""


def order_cost(jobs: QueuedJobs, plan: OrderPlan, backfill: str, order: Order | None) -> float:
    """Mean bounded slowdown of a window under an order; None: the shortest job first."""
    how: dict[str, Any] = {"score": _shortest}
    if order is not None:
        how = {"weights": order.weights, "owner": jobs.owner}
    began = run_pool(*jobs[:4], plan.capacity, backfill=backfill, committed=plan.committed, singly=plan.singly, **how)
    slow = (began - jobs.submit + jobs.run) / np.maximum(jobs.run, plan.bound)
    return float(np.maximum(slow, 1.0).mean())


def _shortest(wait: float, estimate: float, size: float, submit: float) -> float:
    return estimate


def window_starts(count: int, length: int, held_out: Sequence[slice] = ()) -> Ints:
    """First jobs of all windows of this length in `count` jobs that overlap nothing that is held out.

    >>> window_starts(10, 3, [slice(4, 6)]).tolist()
    [0, 1, 6, 7]
    """
    right = np.arange(count) + length <= count
    for part in held_out:
        right[max(part.start - length + 1, 0) : part.stop] = False
    return np.flatnonzero(right)


class _OrderStrategies(Strategies[Order, _Window]):
    """Evolution strategies for orders; a gain is minus the mean slowdown relative to the shortest job first."""

    def __init__(self, order: Order, plan: OrderPlan) -> None:
        super().__init__(order, plan.pairs, plan.width, plan.rate)
        self._plan = plan

    def _earned(self, networks: Sequence[Order], runs: Sequence[_Window]) -> Floats:
        return -np.array([_ratios(order, self._plan, runs).mean() for order in networks])


def _ratios(order: Order, plan: OrderPlan, windows: Sequence[_Window]) -> Floats:
    """Slowdown of each window under an order, relative to the shortest job first."""
    return np.array([order_cost(one.jobs, plan, one.backfill, order) / one.plain for one in windows])


def _windows(jobs: QueuedJobs, starts: Ints, length: int, plan: OrderPlan) -> list[list[_Window]]:
    """Windows that start at these jobs, for each way to backfill."""
    parts = [jobs.part(int(start), length) for start in starts]
    return [
        [_Window(part, how, world, order_cost(part, plan, how, None)) for part in parts]
        for world, how in enumerate(plan.backfills)
    ]


def train_order(
    jobs: QueuedJobs,
    plan: OrderPlan,
    held_out: Sequence[slice] = (),
    progress: Callable[[int, float], None] | None = None,
) -> TrainedOrder:
    """Train an order; `progress` is called with the step and the best mean ratio to the shortest job first so far."""
    rng = stream(plan.seed, "train", "order")
    starts = window_starts(len(jobs.submit), plan.window_jobs, held_out)
    judged = window_starts(len(jobs.submit), plan.validation_jobs, held_out)
    if not len(starts) or not len(judged):
        raise InvalidInput("windows that fit between the parts held out", value=plan.window_jobs, key="window_jobs")
    chosen = np.sort(rng.choice(judged, min(plan.validation, len(judged)), replace=False))
    candidates = np.sort(rng.choice(starts, min(CANDIDATES, len(starts)), replace=False))
    validation = _windows(jobs, chosen, plan.validation_jobs, plan)
    training = _windows(jobs, candidates, plan.window_jobs, plan)
    learner = _OrderStrategies(Order.fresh(rng, plan.hidden), plan)
    best, least, history = learner.network, np.inf, list[tuple[int, float]]()
    for step in range(plan.steps + 1):
        if step % plan.every == 0 or step == plan.steps:
            relative = float(np.mean([_ratios(learner.network, plan, windows) for windows in validation]))
            history.append((step, relative))
            if relative < least:
                best, least = learner.network, relative
        if progress is not None:
            progress(step, least)
        if step < plan.steps:
            places = rng.choice(len(candidates), min(plan.windows, len(candidates)), replace=False)
            runs = [windows[place] for windows in training for place in places]
            learner.step(runs, rng, 1.0 if step < COOLING * plan.steps else 0.4)
    shortest = tuple(float(np.mean([one.plain for one in windows])) for windows in validation)
    found = tuple(
        float(np.mean([order_cost(one.jobs, plan, one.backfill, best) for one in windows])) for windows in validation
    )
    made = {
        "berth": VERSION,
        "plan": {**asdict(plan), "backfills": list(plan.backfills)},
        "jobs": len(jobs.submit),
        "history": bool((jobs.owner >= 0).any()),
        "held_out": [[part.start, part.stop] for part in held_out],
        "training_windows": candidates.tolist(),
        "validation_windows": chosen.tolist(),
        "validation_relative": least,
        "validation_slowdown": dict(zip(plan.backfills, found, strict=True)),
        "shortest_first": dict(zip(plan.backfills, shortest, strict=True)),
    }
    return TrainedOrder(Order(best.weights, made), found, shortest, least, tuple(history))
