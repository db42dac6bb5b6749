"""Train the order of a queue on windows of a log, by evolution strategies.

Every step plays windows under perturbed orders, each window on an empty pool, for each way to backfill. The mean
bounded slowdown of a window counts relative to that of the shortest job first, so that no window dominates. Validation
windows are drawn once; the order that is best there is kept. No window overlaps a part of the log that is held out.

Axes: N jobs.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from berth import BerthError, Floats, InvalidInput, Trace, __version__, load_trace, stream
from berth_learned_order import Order
from berth_learned_order.pool import MODES, play

__all__ = ["OrderPlan", "QueuedJobs", "TrainedOrder", "jobs_of", "main", "order_cost", "train_order", "window_starts"]

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
    owner: Any

    def part(self, first: int, count: int) -> QueuedJobs:
        """A window of this many jobs."""
        return QueuedJobs(*(field[first : first + count] for field in self))


@dataclass(frozen=True)
class OrderPlan:
    """How an order is trained: on a pool of `capacity` processors, for each of these ways to backfill.

    A step plays `windows` windows of `window_jobs` jobs under `pairs` pairs of perturbed orders. Every `every` steps
    the order is validated on `validation` windows of `validation_jobs` jobs. `committed`: the first job stays first
    until it starts; `singly`: each arrival and each end is a moment of its own, as in RLScheduler; `bound` is the
    threshold of bounded slowdowns in seconds.
    """

    capacity: float
    backfills: tuple[str, ...] = ("none",)
    committed: bool = True
    singly: bool = False
    steps: int = 40
    windows: int = 24
    window_jobs: int = 512
    pairs: int = 8
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
        if not self.backfills or not set(self.backfills) <= MODES.keys():
            raise InvalidInput(f"one or more of {', '.join(MODES)}", value=self.backfills, key="backfill")


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
    plain: float
    """Mean bounded slowdown of the shortest job first."""


def order_cost(jobs: QueuedJobs, plan: OrderPlan, backfill: str, order: Order) -> float:
    """Mean bounded slowdown of a window under an order."""
    began = play(*jobs, plan.capacity, order.weights, MODES[backfill], plan.committed, plan.singly)
    slow = (began - jobs.submit + jobs.run) / np.maximum(jobs.run, plan.bound)
    return float(np.maximum(slow, 1.0).mean())


def window_starts(count: int, length: int, held_out: Sequence[slice] = ()) -> Any:
    """First jobs of all windows of this length in `count` jobs that overlap nothing that is held out.

    >>> window_starts(10, 3, [slice(4, 6)]).tolist()
    [0, 1, 6, 7]
    """
    right = np.arange(count) + length <= count
    for part in held_out:
        right[max(part.start - length + 1, 0) : part.stop] = False
    return np.flatnonzero(right)


class _Strategies:
    """Evolution strategies: antithetic perturbations, ranked by their ratios, and Adam on the resulting direction."""

    def __init__(self, order: Order, plan: OrderPlan) -> None:
        self.order, self._plan, self._steps = order, plan, 0
        self._first, self._second = np.zeros(order.weights.shape), np.zeros(order.weights.shape)

    def step(self, worlds: Sequence[Sequence[_Window]], rng: np.random.Generator, rate: float) -> None:
        """Take one step, scaled by `rate`; the windows of each way to backfill are ranked by themselves."""
        plan, weights = self._plan, self.order.weights
        change = rng.standard_normal((plan.pairs, weights.size))
        tried = [self.order.replace(weights + side * plan.width * way) for side in (1.0, -1.0) for way in change]
        credit = np.zeros(len(tried))
        for windows in worlds:
            earned = -np.array([_ratios(order, plan, windows).mean() for order in tried])
            credit += earned.argsort(kind="stable").argsort(kind="stable") / (len(tried) - 1.0) - 0.5
        slope = ((credit[: plan.pairs] - credit[plan.pairs :]) @ change) / (plan.pairs * plan.width * len(worlds))
        self._steps += 1
        self._first = 0.9 * self._first + 0.1 * slope
        self._second = 0.99 * self._second + 0.01 * slope**2
        ahead = self._first / (1.0 - 0.9**self._steps)
        size = np.sqrt(self._second / (1.0 - 0.99**self._steps)) + 1e-8
        self.order = self.order.replace(weights + rate * plan.rate * ahead / size)


def _ratios(order: Order, plan: OrderPlan, windows: Sequence[_Window]) -> Floats:
    """Slowdown of each window under an order, relative to the shortest job first."""
    return np.array([order_cost(one.jobs, plan, one.backfill, order) / one.plain for one in windows])


def _windows(jobs: QueuedJobs, starts: Any, length: int, plan: OrderPlan) -> list[list[_Window]]:
    """Windows that start at these jobs, for each way to backfill."""
    parts = [jobs.part(int(start), length) for start in starts]
    return [
        [_Window(part, how, order_cost(part, plan, how, Order.shortest())) for part in parts] for how in plan.backfills
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
    learner = _Strategies(Order.fresh(), plan)
    best, least, history = learner.order, np.inf, list[tuple[int, float]]()
    for step in range(plan.steps + 1):
        if step % plan.every == 0 or step == plan.steps:
            relative = float(np.mean([_ratios(learner.order, plan, windows) for windows in validation]))
            history.append((step, relative))
            if relative < least:
                best, least = learner.order, relative
        if progress is not None:
            progress(step, least)
        if step < plan.steps:
            places = rng.choice(len(candidates), min(plan.windows, len(candidates)), replace=False)
            learner.step(
                [[windows[place] for place in places] for windows in training],
                rng,
                1.0 if step < COOLING * plan.steps else 0.4,
            )
    shortest = tuple(float(np.mean([one.plain for one in windows])) for windows in validation)
    found = tuple(
        float(np.mean([order_cost(one.jobs, plan, one.backfill, best) for one in windows])) for windows in validation
    )
    made = {
        "berth": __version__,
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


def jobs_of(trace: Trace, capacity: float) -> QueuedJobs:
    """The jobs of a trace that fit into a pool of `capacity` and run for some time; a job's size is its processors."""
    jobs = trace.jobs.drop_nulls(["submit_s", "run_s"]).sort("submit_s", maintain_order=True)
    amount = jobs[trace.resources[0].name].fill_null(1.0) if trace.resources else 1.0
    size = np.array(jobs["pieces"].fill_null(1) * amount, dtype=np.float64)
    run = jobs["run_s"].to_numpy()
    estimate = jobs["estimate_s"].fill_null(jobs["run_s"]).to_numpy()
    user = jobs["user"].to_numpy()
    known = jobs["user"].is_not_null().to_numpy()
    owner = np.full(len(jobs), -1)
    owner[known] = np.unique(user[known].astype(str), return_inverse=True)[1]
    kept = (size > 0) & (size <= capacity) & (run > 0)
    return QueuedJobs(*(np.array(part[kept]) for part in (jobs["submit_s"].to_numpy(), size, run, estimate, owner)))


def main(words: Sequence[str] | None = None) -> int:
    """`berth-train-order`: train the order of a batch queue on windows of a log."""
    parser = argparse.ArgumentParser(
        "berth-train-order",
        description="Train the order of a batch queue on windows of a log, for the policy learned-order. "
        "It learns a low mean bounded slowdown.",
    )
    add, plan = parser.add_argument, OrderPlan(1.0)
    add("file", type=Path, help="a trace: its main table, plain or gzip")
    add("--processors", type=float, required=True, help="train on one pool of this many processors")
    add("--backfill", action="append", choices=list(MODES), help="train for this backfilling (repeat)")
    add("--again", action="store_true", help="pick the first job again at every moment; default: it stays first")
    add("--held-out", type=int, action="append", default=[], help="keep the window at this job (from 0) out (repeat)")
    add("--held-out-jobs", type=int, default=plan.validation_jobs, help="length in jobs of windows held out")
    add("--steps", type=int, default=plan.steps, help="train this many steps")
    add("--windows", type=int, default=plan.windows, help="play this many windows in a step")
    add("--window-jobs", type=int, default=plan.window_jobs, help="length of a window in jobs")
    add("--pairs", type=int, default=plan.pairs, help="try this many pairs of perturbed orders a step")
    add("--slowdown-bound", type=float, default=plan.bound, help="threshold of bounded slowdowns in seconds")
    add("--size", help="size of a job in an SWF log: requested (default), allocated, or larger")
    add("--seed", type=int, default=0, help="seed for windows and noise")
    add("--out", type=Path, default=Path("berth-order"), help="directory for the order")
    told = parser.parse_args(words)
    modes = tuple(dict.fromkeys(told.backfill or ("none",)))

    def show(step: int, best: float) -> None:
        if step % max(told.steps // 10, 1) == 0:
            print(f"step {step} of {told.steps}: best {best:.3f} of the shortest job first", file=sys.stderr)

    try:
        plan = OrderPlan(
            told.processors,
            modes,
            committed=not told.again,
            steps=told.steps,
            windows=told.windows,
            window_jobs=told.window_jobs,
            pairs=told.pairs,
            validation_jobs=told.held_out_jobs,
            bound=told.slowdown_bound,
            seed=told.seed,
        )
        trace = load_trace(told.file, **({"size": told.size} if told.size else {}))
        held_out = [slice(first, first + told.held_out_jobs) for first in told.held_out]
        found = train_order(jobs_of(trace, told.processors), plan, held_out, show)
    except BerthError as error:
        parser.error(str(error))
    told.out.mkdir(parents=True, exist_ok=True)
    file = told.out / "order.json"
    file.write_text(found.order.text(), encoding="utf-8")
    for mode, ours, theirs in zip(modes, found.validation, found.shortest, strict=True):
        print(
            f"backfill={mode}: mean bounded slowdown {ours:.2f} in validation, {theirs:.2f} for the shortest job first"
        )
    # a replay has EASY where training had RLScheduler's backfilling
    policy = f"learned-order:file={file},backfill={'none' if modes[0] == 'none' else 'easy'}"
    policy += ",pick=again" if told.again else ""
    more = ["--size", told.size] if told.size else []
    use = ["berth", "replay", str(told.file), "--processors", f"{told.processors:g}", *more, "-p", policy, "-p", "sjf"]
    print(f"Use it: {shlex.join(use)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
