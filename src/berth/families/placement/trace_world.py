"""Build a placement world from a trace: its machines, its jobs, and their true run times.

All jobs have the same value and no deadline, and servers cost nothing: policies that use values see no difference
between jobs. Servers are on from the start.

Axes: N jobs, R servers, K resources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from berth.errors import InvalidInput
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.families.placement.world import Failure, PlacementWorld
from berth.model import Cluster, Floats, Instance, Ints, JobType
from berth.traces.load import offered, squeezed
from berth.traces.pools import merged, places_for, pooled
from berth.traces.trace import Trace

__all__ = ["AsPool", "BatchJobs", "as_pool", "batch_jobs", "batch_world", "merged", "offered", "pooled", "squeezed"]

FOREVER = 1e15
"""A deadline that no job misses."""
INSTANT = 1.0
"""Estimate, in seconds, of a job of zero run time whose estimate would be zero: policies divide by estimates."""


@dataclass(frozen=True, eq=False)
class BatchJobs:
    """Jobs of a usable trace, ready to be placed: the problem, the known data of jobs, and run times (N,)."""

    problem: PlacementProblem
    tasks: Tasks
    runs: Floats


def batch_jobs(trace: Trace, *, exact: bool = False, stopped: bool = False) -> BatchJobs:
    """Convert a usable trace (`berth.traces.lint.usable`) to a placement problem and its jobs.

    With `exact` policies know true run times instead of users' estimates; with `stopped` jobs end when their estimate
    is over. A job of zero run time whose estimate would be zero has an estimate of one second.
    """
    if not len(trace.machines):
        raise InvalidInput(
            "a table of machines (--machines), or a number of --processors", found="none", key="machines"
        )
    if not len(trace.jobs):
        raise InvalidInput("at least one usable job", found="none", key="jobs")
    names = [resource.name for resource in trace.resources]
    if not names:
        raise InvalidInput(
            "jobs that ask for something that machines have, or a number of --processors", found="none", key="jobs"
        )
    graph, port = _graph(trace, names)
    jobs = trace.jobs
    run, estimate = jobs["run_s"].to_numpy(), jobs["estimate_s"].to_numpy()
    run = np.minimum(run, estimate) if stopped else run
    known = run if exact else estimate
    known = np.where(known > 0, known, INSTANT)
    count = len(jobs)
    owner = jobs["user"].fill_null("").rank("dense").cast(pl.Int64).to_numpy() - 1
    tasks = Tasks(
        jobs["submit_s"].to_numpy(),
        jobs.select(names).to_numpy(),
        known,
        np.ones(count),
        np.zeros(count),
        np.full(count, FOREVER),
        jobs["pieces"].to_numpy(),
        port,
        owner,
    )
    servers = len(graph.cluster.servers)
    speed = np.repeat(trace.machines["speed"].fill_null(1.0).to_numpy(), trace.machines["count"].to_numpy())
    problem = PlacementProblem(
        graph,
        speed,
        np.zeros(servers),
        np.zeros(servers),
        np.ones(len(names)),
        np.inf,
        gangs=bool((tasks.pieces > 1).any()),
        exact=bool((known == run).all()),
        devices=_shared(tasks, names, graph.capacity),
    )
    return BatchJobs(problem, tasks, run)


def _graph(trace: Trace, names: list[str]) -> tuple[Instance, Ints]:
    """Machines, a port for each set of labels that jobs name, and the port of each job (N,)."""
    table = trace.machines
    count = table["count"].fill_null(1).to_numpy()
    capacity = np.repeat(table.select(names).to_numpy(), count, axis=0)
    label = np.repeat(np.array([text or "" for text in table["label"].to_list()]), count)
    servers = tuple(
        f"{name}-{i}" if many > 1 else f"{name}"
        for name, many in zip(table["machine"].to_list(), count.tolist(), strict=True)
        for i in range(many)
    )
    wanted = trace.jobs["needs"].fill_null("")
    kinds = sorted(wanted.unique().to_list())
    pairs = [
        (p, r)
        for p, kind in enumerate(kinds)
        for r in np.flatnonzero(np.isin(label, kind.split("|")) if kind else np.ones(len(label), dtype=bool)).tolist()
    ]
    demand = capacity.max(axis=0)
    ports = tuple(JobType(kind or "any", demand) for kind in kinds)
    graph = Instance(Cluster(trace.resources, servers, capacity), ports, np.array(pairs, dtype=np.int64).reshape(-1, 2))
    port = wanted.replace_strict(kinds, list(range(len(kinds))), return_dtype=pl.Int64).to_numpy()
    return graph, port


class AsPool(NamedTuple):
    """Jobs on one pool: sizes, run times and estimates (N,), and the pool's capacity."""

    size: Floats
    run: Floats
    estimate: Floats
    capacity: float


def as_pool(batch: BatchJobs) -> AsPool | None:
    """The jobs as kernels for pools take them; None unless they are on one server, with one resource or equal pieces.

    Equal pieces are counted, so that amounts of them are exact.
    """
    problem, tasks = batch.problem, batch.tasks
    capacity, speed = problem.instance.capacity, problem.speed[0]
    if len(capacity) > 1 or problem.devices is not None:
        return None
    run, estimate, piece = batch.runs / speed, tasks.work / speed, tasks.demand[0]
    if (tasks.demand == piece).all() and piece.any():
        return AsPool(tasks.pieces.astype(np.float64), run, estimate, float(places_for(piece, capacity)[0]))
    if capacity.shape[1] == 1:
        return AsPool(tasks.demand[:, 0] * tasks.pieces, run, estimate, float(capacity[0, 0]))
    return None


def _shared(tasks: Tasks, names: list[str], capacity: Floats) -> int | None:
    """Resource of which jobs take shares of a device: GPUs, if any job requests less than one.

    Amounts that cannot be devices, such as one and a half GPUs for a piece, make it an ordinary resource.
    """
    if "gpu" not in names:
        return None
    k = names.index("gpu")
    amount, there = tasks.demand[:, k], capacity[:, k]
    whole = ((amount < 1) | (amount == np.floor(amount))).all() and (there == np.floor(there)).all()
    return k if whole and ((amount > 0) & (amount < 1)).any() else None


def batch_world(batch: BatchJobs, trace: Trace, *, outages: bool = False) -> PlacementWorld:
    """Build the world of these jobs; with `outages` machines fail as in the trace, and their jobs start again."""
    failures: list[Failure] = []
    if outages:
        place = {name: r for r, name in enumerate(batch.problem.instance.cluster.servers)}
        for name, down, up in trace.outages.iter_rows():
            if name in place and (up is None or up > max(down, 0.0)):
                failures.append(Failure(max(float(down), 0.0), place[name], np.inf if up is None else float(up)))
    moments = len(np.unique(batch.tasks.arrival))
    runs = None if batch.problem.exact else batch.runs
    return PlacementWorld(batch.problem, batch.tasks, moments, None, failures, runs)
