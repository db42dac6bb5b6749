"""Replay a trace under one policy: start and end of each job, and the metrics.

Queue policies are played by kernels over the whole log, on a pool or on machines. All other policies, and logs with
outages, are asked at every event; so are all policies if a log on machines is short, because compiling the kernel would
take longer. All give the same starts. Where machines make no difference, samples have them merged into one pool.

The dispatcher of the live scheduler plays policies of other families, and every policy where run times or waiting
depend on more than the log: on speeds by type and class, or on the queues of a service.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from berth.errors import UnsupportedProblem
from berth.families.placement.cluster_runs import common_classes, run_cluster
from berth.families.placement.kernels.gathering import Fleet, Free
from berth.families.placement.kernels.queueing import mean_fragments
from berth.families.placement.policies.queued import log_form
from berth.families.placement.pool_runs import MODES, run_pool
from berth.families.placement.problem import PlacementSlot
from berth.families.placement.trace_world import BatchJobs, as_pool, batch_world
from berth.lab.replay.results import THRESHOLD_SECONDS, bounded_slowdown, is_live
from berth.lab.replay.setting import ReplaySetting
from berth.lab.replay.unstarted import fair_metrics
from berth.model import Floats
from berth.random import stream
from berth.registry import PolicySpec
from berth.simulation import simulate
from berth.traces.trace import Trace

if TYPE_CHECKING:
    from berth.lab.replay.known import Known
    from berth.lab.replay.live_runs import LiveRun

__all__ = ["SHORT", "is_live", "played"]

SHORT = 500
"""Logs with fewer jobs are played without the kernel for machines."""
CLASSES = 60
"""Number of most common job classes used to measure fragmentation."""


def played(
    spec: PolicySpec,
    batch: BatchJobs,
    trace: Trace,
    setting: ReplaySetting,
    progress: Callable[[str, int, int], None] | None,
    span: tuple[float, float] | None = None,
    bound: float | None = None,
    known: Known | None = None,
) -> tuple[dict[str, Any], pl.DataFrame]:
    """Numbers of one policy, and its jobs; those submitted in `span` count (None: all).

    `batch` is what is played: the jobs of `trace`, or of that trace merged into one pool. Amounts are those of `trace`.
    `bound` is the threshold of bounded slowdowns in seconds. `known` has types, speeds and queues.
    """
    threshold = THRESHOLD_SECONDS if bound is None else bound
    problem, tasks = batch.problem, batch.tasks
    began = time.perf_counter()
    wrapped = ""
    if is_live(spec) or (known is not None and known.live):
        start, end, broken, wrapped = _live(spec, batch, setting, known)
        fragmentation = None
    else:
        policy = spec.build(problem, stream(setting.seed, "policy", str(spec)))
        found = None if setting.outages else _at_once(policy, batch)
        start, end, fragmentation, broken = (
            (*found, 0) if found is not None else _one_by_one(policy, batch, trace, setting, spec, progress)
        )
    seconds = time.perf_counter() - began
    amount, capacity = _amounts(trace)
    main = problem.devices if problem.devices is not None else _main(amount, capacity)
    owner = None if trace.jobs["user"].null_count() == len(trace.jobs) else tasks.owner
    weights = problem.instance.capacity[:, main if len(problem.speed) > 1 else 0] + 1e-12
    speed = float(np.average(problem.speed, weights=weights))
    numbers = fair_metrics(
        tasks.arrival, start, end, batch.runs / speed, amount, capacity, owner, main, span=span, threshold=threshold
    )
    numbers["broken_decisions"] = broken
    if wrapped:
        numbers["wrapped"] = wrapped
    names = [resource.name for resource in trace.resources]
    shares = numbers.pop("utilisation_by_resource", None)
    if shares is not None:
        numbers["resource"], numbers["capacity"] = names[main], float(capacity[main])
        numbers["utilisation_by_resource"] = dict(zip(names, shares, strict=True))
    if fragmentation is not None:
        numbers["fragmentation"] = fragmentation
    numbers["simulation_seconds"] = seconds
    wait = start - tasks.arrival
    jobs = trace.jobs.select("job", "user", "submit_s").with_columns(
        pl.Series("start_s", start).fill_nan(None),
        pl.Series("end_s", end).fill_nan(None),
        pl.Series("wait_s", wait).fill_nan(None),
        pl.Series("bounded_slowdown", bounded_slowdown(wait, end - start, threshold)).fill_nan(None),
        pl.Series("held", amount[:, main]),
        (pl.lit(True) if span is None else pl.col("submit_s").is_between(*span)).alias("counted"),
    )
    return numbers, jobs


def _amounts(trace: Trace) -> tuple[Floats, Floats]:
    """What each job holds of each resource (N, K), and what all machines have (K,)."""
    names = [resource.name for resource in trace.resources]
    count = trace.machines["count"].fill_null(1).to_numpy()
    amount = trace.jobs.select(names).to_numpy() * trace.jobs["pieces"].to_numpy()[:, None]
    return amount, np.repeat(trace.machines.select(names).to_numpy(), count, axis=0).sum(axis=0)


def _main(amount: Floats, capacity: Floats) -> int:
    """Resource with the highest demand relative to capacity."""
    return int(np.argmax(np.where(capacity > 0, amount.sum(axis=0) / np.where(capacity > 0, capacity, 1.0), -1.0)))


def _live(spec: PolicySpec, batch: BatchJobs, setting: ReplaySetting, known: Known | None) -> LiveRun:
    """The same by the dispatcher of the live scheduler."""
    from berth.lab.replay.live_runs import play_live  # here: replays of other policies do not load the live scheduler

    if setting.outages:
        why = "" if is_live(spec) else " and speeds or a cluster file"
        raise UnsupportedProblem(f"{spec} cannot be replayed with outages{why}")
    typed, service = (None, None) if known is None else known
    return play_live(batch, str(spec), setting.seed, typed=typed, service=service)


def _at_once(policy: Any, batch: BatchJobs) -> tuple[Floats, Floats, float | None] | None:
    """Start and end times, (N,), and the fragmentation by a kernel for whole logs; None if there is none."""
    problem, tasks, pool = batch.problem, batch.tasks, as_pool(batch)
    form = None if pool is None else log_form(policy, tasks)
    if pool is not None and form is not None and form.backfill in MODES:
        start = run_pool(tasks.arrival, pool.size, pool.run, pool.estimate, pool.capacity, **form._asdict())
        return start, start + batch.runs / problem.speed[0], None
    if len(tasks) < SHORT:
        return None
    typical = None if problem.devices is None else common_classes(tasks, CLASSES)
    played = run_cluster(policy, tasks, batch.runs, typical=typical)
    return None if played is None else (played.start, played.end, played.fragmentation)


def _one_by_one(
    policy: Any,
    batch: BatchJobs,
    trace: Trace,
    setting: ReplaySetting,
    spec: PolicySpec,
    progress: Callable[[str, int, int], None] | None,
) -> tuple[Floats, Floats, float | None, int]:
    """Start and end times, (N,), asking the policy at every event; the fragmentation that arriving jobs saw; and the
    number of moments at which the policy broke constraints."""
    problem, world = batch.problem, batch_world(batch, trace, outages=setting.outages)
    start, end = np.full(len(batch.tasks), np.nan), np.full(len(batch.tasks), np.nan)
    seen = None if problem.devices is None else _Fragments(batch)

    begun = np.zeros(len(start), dtype=bool)

    def watch(slot: PlacementSlot, decision: Any, outcome: Any) -> None:
        new = problem.placed(slot, decision)
        slowest = np.full(len(start), np.inf)
        np.minimum.at(slowest, new.task, problem.speed[new.server])
        begun[outcome.started] = True
        begun[outcome.lost] = False
        begun[new.task] = new.start <= slot.time  # tasks reserved for later are reported when they start
        start[new.task] = new.start
        end[new.task] = new.start + batch.runs[new.task] / slowest[new.task]
        if seen is not None:
            seen.look(slot)

    told = None if progress is None else (lambda done: progress(str(spec), done, len(world)))
    result = simulate(world, policy, observers=[watch], progress=told)
    start[~begun] = end[~begun] = np.nan
    return start, end, None if seen is None else seen.mean, int((result.violations > 0).sum())


class _Fragments:
    """Share of devices that are free but useless to a job drawn from the trace, measured at arrivals."""

    def __init__(self, batch: BatchJobs) -> None:
        problem, tasks = batch.problem, batch.tasks
        capacity = problem.instance.capacity
        device = -1 if problem.devices is None else problem.devices
        self.fleet = Fleet(capacity, problem.speed, problem.reach, capacity.max(axis=0), np.array([device]))
        self.classes = common_classes(tasks, CLASSES)
        self.total, self.sum, self.count, self.index = float(capacity[:, device].sum()), 0.0, 0, -1

    def look(self, slot: PlacementSlot) -> None:
        if slot.index == self.index or slot.devices is None:
            return
        self.index, self.count = slot.index, self.count + 1
        free = Free(slot.free, slot.devices, np.zeros(len(slot.free)))
        self.sum += mean_fragments(self.fleet, free, self.classes) / self.total

    @property
    def mean(self) -> float:
        return self.sum / max(self.count, 1)
