"""Oracles of placement: an upper bound for any run, and the exact optimum of small ones.

Both know all tasks in advance. Failures only make runs worse, so the bound holds with them too.

Axes: N tasks, R servers, Q kinds, K resources, H instants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from berth.errors import UnsupportedProblem
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.families.placement.world import PlacementWorld
from berth.model import Floats, Ints

__all__ = ["PlacementBound", "PlacementOptimum", "placement_bound", "placement_optimum"]

CONTACT = 1e-9  # moments closer than this are equal


@dataclass(frozen=True, eq=False)
class PlacementBound:
    """Upper bound `gain` on any run. It follows from the dual of `solved`, the optimum of a linear programme."""

    gain: float
    solved: float
    variables: int


@dataclass(frozen=True, eq=False)
class PlacementOptimum:
    """The best schedule: `server` (N,), -1 for none, and `start` (N,)."""

    gain: float
    server: Ints
    start: Floats


def gain_at(problem: PlacementProblem, tasks: Tasks, server: int, start: Floats) -> Floats:
    """Gain of each task (N,) on a server if it starts at `start` (N,), without the launch cost."""
    time = tasks.work / problem.speed[server]
    gain: Floats = tasks.worth(start + time) - problem.rate[server] * (tasks.demand @ problem.weight) * time
    return gain


class _Rows:
    """Rows of a sparse matrix that grows by blocks."""

    def __init__(self) -> None:
        self.row: list[Ints] = []
        self.column: list[Ints] = []
        self.entry: list[Floats] = []
        self.limit: list[Floats] = []
        self.count = 0

    def block(self, size: int, limit: float) -> int:
        """Add this many rows ≤ limit; return the first."""
        self.limit.append(np.full(size, limit))
        self.count += size
        return self.count - size

    def put(self, row: Ints, column: Ints, entry: Floats) -> None:
        self.row.append(row)
        self.column.append(column)
        self.entry.append(entry)

    def matrix(self, columns: int) -> sparse.csc_matrix:
        where = (np.concatenate(self.row), np.concatenate(self.column))
        return sparse.csc_matrix((np.concatenate(self.entry), where), shape=(self.count, columns))


def _turning_points(
    problem: PlacementProblem, tasks: Tasks, server: int, width: float
) -> tuple[Ints, Floats, Floats, Floats]:
    """Starts between which gain and use of every interval are linear: task, start, end, gain."""
    capacity = problem.instance.capacity[server]
    time = tasks.work / problem.speed[server]
    best = gain_at(problem, tasks, server, tasks.arrival)
    fits = (tasks.demand <= capacity + 1e-9 * (1.0 + capacity)).all(axis=1)
    some = np.flatnonzero(fits & (best > 0.0))
    arrival, time, best, decay = tasks.arrival[some], time[some], best[some], tasks.decay[some]
    # has value until the deadline or until it has decayed to 0
    last = tasks.deadline[some] - time
    falls = decay > 0.0
    last[falls] = np.minimum(last[falls], arrival[falls] + best[falls] / decay[falls])
    last = np.maximum(last, arrival)
    ends = np.ceil((arrival + time) / width) * width - time  # first start whose end is an instant
    places, starts = [np.arange(len(some))] * 2, [arrival, last]
    for late in range(int(np.ceil(((last - arrival) / width).max(initial=0.0))) + 1):
        for start in (arrival + late * width, ends + late * width):
            inside = np.flatnonzero((start > arrival) & (start < last))
            places.append(inside)
            starts.append(start[inside])
    place, start = np.concatenate(places), np.concatenate(starts)
    return some[place], start, start + time[place], best[place] - decay[place] * (start - arrival[place])


def placement_bound(world: PlacementWorld, step: float = 0.5) -> PlacementBound:
    """Compute an upper bound on the gain of any run, by a linear programme with intervals of `step` of the period.

    Servers of a kind are merged. In every interval the mean use of tasks is at most that of the launched servers, and
    launches are paid whenever their mean rises. Between starts at which the task begins or ends at the border of an
    interval, its gain and use are linear in the start, so a mixture of these starts represents any other. So every run
    is a solution, and a smaller `step` mostly gives a lower bound.

    >>> from berth.testing import example_placement
    >>> tasks = Tasks(arrival=[0, 0], demand=[[2], [4]], work=[4, 2], value=[9, 5], decay=[1, 0.5], deadline=[6, 3])
    >>> round(placement_bound(PlacementWorld(example_placement(), tasks, 1)).gain, 3)
    9.45
    """
    problem, tasks = world.problem, world.tasks
    problem.require_single("this bound", exact=True)
    width = world.period / max(round(1.0 / step), 1)
    kinds = int(problem.kind.max()) + 1
    sample = np.array([np.flatnonzero(problem.kind == q)[0] for q in range(kinds)])
    number = np.bincount(problem.kind, minlength=kinds).astype(np.float64)
    capacity = problem.instance.capacity[sample]
    columns = [_turning_points(problem, tasks, int(r), width) for r in sample]
    kind = np.repeat(np.arange(kinds), [len(part[0]) for part in columns])
    task, start, end, gain = (np.concatenate(part) for part in zip(*columns, strict=True))
    if not len(task):
        return PlacementBound(0.0, 0.0, 0)
    starts, intervals = len(task), int(np.ceil(end.max() / width)) + 1
    on = starts + np.arange(kinds * intervals).reshape(kinds, intervals)
    launch = on + kinds * intervals
    size = starts + 2 * kinds * intervals

    rows = _Rows()
    rows.put(rows.block(len(tasks), 1.0) + task, np.arange(starts), np.ones(starts))  # each task once
    first = np.floor(start / width).astype(np.int64)
    held = np.ceil(end / width).astype(np.int64) - first
    which = np.repeat(np.arange(starts), held)
    interval = np.arange(len(which)) - np.repeat(np.cumsum(held) - held, held) + first[which]
    part = np.minimum(end[which] / width, interval + 1.0) - np.maximum(start[which] / width, interval)
    everywhere = np.arange(kinds * intervals)
    for k in range(capacity.shape[1]):  # use by tasks ≤ capacity of launched servers
        block = rows.block(kinds * intervals, 0.0)
        rows.put(block + kind[which] * intervals + interval, which, tasks.demand[task[which], k] * part)
        rows.put(block + everywhere, on.ravel(), -np.repeat(capacity[:, k], intervals))
    rise = rows.block(kinds * intervals, 0.0) + everywhere  # on now - on before ≤ launched now
    rows.put(rise, on.ravel(), np.ones(kinds * intervals))
    rows.put(rise, launch.ravel(), -np.ones(kinds * intervals))
    rows.put(rise.reshape(kinds, intervals)[:, 1:].ravel(), on[:, :-1].ravel(), -np.ones(kinds * (intervals - 1)))

    cost = np.zeros(size)
    cost[:starts] = gain
    cost[launch.ravel()] = -np.repeat(problem.launch[sample], intervals)
    most = np.concatenate([np.ones(starts), np.tile(np.repeat(number, intervals), 2)])
    matrix, limit = rows.matrix(size), np.concatenate(rows.limit)
    solve: Any = linprog  # its stubs lack sparse matrices
    found = solve(-cost, matrix, limit, bounds=np.stack([np.zeros(size), most], axis=1), method="highs")
    # any dual vector ≥ 0 proves a bound, so the accuracy of the solver does not matter
    dual = np.maximum(-found.ineqlin.marginals, 0.0)
    proven = float(limit @ dual + np.maximum(cost - matrix.T @ dual, 0.0) @ most)
    return PlacementBound(proven, float(-found.fun), size)


def placement_optimum(world: PlacementWorld) -> PlacementOptimum:
    """Compute the best schedule, exactly (to the tolerances of HiGHS), for a few tasks.

    Requires that shifting tasks to the left never hurts: all arrive at one moment and servers go off at once, or
    launches are free or for good. Then some best schedule starts every task at an arrival or at the end of another task
    on its server, that is, at an arrival plus durations of other tasks: a finite set, which is tried completely.

    >>> from berth.testing import example_placement
    >>> tasks = Tasks(arrival=[0, 0], demand=[[2], [4]], work=[4, 2], value=[9, 5], decay=[1, 0.5], deadline=[6, 3])
    >>> placement_optimum(PlacementWorld(example_placement(), tasks, 1)).server
    array([0, 0])
    """
    problem, tasks = world.problem, world.tasks
    problem.require_single("this optimum", exact=True)
    if world.failures:
        raise UnsupportedProblem("the optimum is known without failures only")
    one_moment = len(np.unique(tasks.arrival)) <= 1 and problem.idle == 0.0
    if not (one_moment or problem.idle == np.inf or not problem.launch.any()):
        raise UnsupportedProblem("waiting may pay: tasks at one moment with idle 0, or idle inf, or no launch costs")
    task, server, start, gain = _starts(problem, tasks)
    if not len(task):
        return PlacementOptimum(0.0, np.full(len(tasks), -1), np.zeros(len(tasks)))
    end = start + tasks.work[task] / problem.speed[server]
    moments = [np.unique(start[server == r].round(9)) for r in range(len(problem.speed))]
    offset = len(task) + np.concatenate([[0], np.cumsum([len(m) for m in moments])])
    size = int(offset[-1])
    rows = _Rows()
    rows.put(rows.block(len(tasks), 1.0) + task, np.arange(len(task)), np.ones(len(task)))
    cost = np.zeros(size)
    cost[: len(task)] = -gain
    for r, capacity in enumerate(problem.instance.capacity):
        mine = np.flatnonzero(server == r)
        for m, moment in enumerate(moments[r]):
            runs = mine[(start[mine] <= moment + CONTACT) & (end[mine] > moment + CONTACT)]
            for k in range(len(capacity)):
                at = np.full(len(runs), rows.block(1, float(capacity[k])))
                rows.put(at, runs, tasks.demand[task[runs], k])
            # a start here needs a launch here, or a server that is on: busy before, or launched earlier
            launch = int(offset[r]) + m
            cost[launch] = problem.launch[r]
            before = mine[(start[mine] < moment - CONTACT) & (end[mine] >= moment - CONTACT)]
            on = np.array([launch]) if problem.idle == 0.0 else int(offset[r]) + np.arange(m + 1)
            for x in mine[np.abs(start[mine] - moment) <= CONTACT]:
                row = rows.block(1, 0.0)
                rows.put(np.array([row]), np.array([x]), np.ones(1))
                rows.put(np.full(len(on), row), on, -np.ones(len(on)))
                if problem.idle == 0.0:
                    rows.put(np.full(len(before), row), before, -np.ones(len(before)))
    found = milp(
        cost,
        constraints=LinearConstraint(rows.matrix(size), -np.inf, np.concatenate(rows.limit)),
        integrality=np.ones(size, dtype=np.int64),
        bounds=Bounds(0.0, 1.0),
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None or found.fun is None:
        raise UnsupportedProblem(f"HiGHS gave up: {found.message}")
    chosen = np.flatnonzero(found.x[: len(task)] > 0.5)
    servers, begun = np.full(len(tasks), -1), np.zeros(len(tasks))
    ends: list[list[float]] = [[] for _ in problem.speed]
    for x in chosen[np.argsort(start[chosen], kind="stable")]:
        i, r = int(task[x]), int(server[x])
        # moments are sums in some order: begin exactly at the arrival or the end of the task before
        begun[i] = min([float(tasks.arrival[i]), *ends[r]], key=lambda moment: abs(moment - start[x]))
        servers[i] = r
        ends[r].append(float(begun[i] + tasks.work[i] / problem.speed[r]))
    return PlacementOptimum(float(-found.fun), servers, begun)


def _starts(problem: PlacementProblem, tasks: Tasks) -> tuple[Ints, Ints, Floats, Floats]:
    """Every start that may be in a best schedule and gains something: task, server, moment, gain."""
    found: list[tuple[int, int, float, float]] = []
    for r, capacity in enumerate(problem.instance.capacity):
        time = tasks.work / problem.speed[r]
        fits = (tasks.demand <= capacity * (1.0 + 1e-9) + 1e-9).all(axis=1)
        for i in np.flatnonzero(fits):
            # chains of other tasks before it; a chain that begins before its arrival may still end after
            moments = np.unique(tasks.arrival)
            for j in np.flatnonzero(fits):
                if j != i:
                    moments = np.unique(np.concatenate([moments, moments + time[j]]).round(12))
                    moments = moments[moments <= tasks.deadline[i]]
            moments = moments[moments >= tasks.arrival[i]]
            gain = tasks.take(np.full(len(moments), i)).worth(moments + time[i])
            gain = gain - problem.rate[r] * float(tasks.demand[i] @ problem.weight) * time[i]
            found += [(int(i), r, float(s), float(g)) for s, g in zip(moments, gain, strict=True) if g > 0.0]
    task, server, start, gain = (np.array(part) for part in zip(*found, strict=True)) if found else (np.zeros(0),) * 4
    return task.astype(np.int64), server.astype(np.int64), start, gain
