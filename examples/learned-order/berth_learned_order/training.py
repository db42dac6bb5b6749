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
from typing import NamedTuple

import numpy as np

from berth import Floats, InvalidInput
from berth.about import VERSION
from berth.errors import BerthError
from berth.families.placement.pool_runs import run_pool
from berth.families.placement.trace_world import as_pool, batch_jobs
from berth.families.placement.training.strategies import Strategies
from berth.lab.replay import ReplaySetting
from berth.lab.replay.samples import Measurement, job_windows, samples_of
from berth.model import Ints
from berth.random import stream
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
    owner: Ints

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
    world: int
    plain: float
    """Mean bounded slowdown of the shortest job first."""


def order_cost(jobs: QueuedJobs, plan: OrderPlan, backfill: str, order: Order | None) -> float:
    """Mean bounded slowdown of a window under an order; None: the shortest job first."""
    if order is None:
        how = {"backfill": backfill, "committed": plan.committed, "singly": plan.singly, "score": _shortest}
        began = run_pool(*jobs[:4], plan.capacity, **how)
    else:
        began = play(*jobs, plan.capacity, order.weights, MODES[backfill], plan.committed, plan.singly)
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


class _OrderStrategies(Strategies):
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
    learner = _OrderStrategies(Order.fresh(), plan)
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


def jobs_of(trace: str | Path, setting: ReplaySetting) -> QueuedJobs:
    """The jobs of a trace on one pool, read as in a replay."""
    sample = samples_of(trace, setting, Measurement()).samples[0]
    batch = batch_jobs(sample.played, exact=setting.exact, stopped=setting.stopped)
    pool = as_pool(batch)
    if pool is None:
        raise InvalidInput("one pool of processors", key="processors")
    named = sample.trace.jobs["user"].is_not_null().to_numpy()
    return QueuedJobs(batch.tasks.arrival, pool.size, pool.run, pool.estimate, np.where(named, batch.tasks.owner, -1))


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
        jobs = jobs_of(told.file, ReplaySetting(processors=told.processors, size=told.size, seed=told.seed))
        found = train_order(jobs, plan, job_windows(told.held_out, told.held_out_jobs), show)
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
