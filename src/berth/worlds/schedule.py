"""Whole placement runs at once: under a fixed rule through the event engine, and an audit of any run.

`berth.simulate` asks a policy at every moment; here a rule that a kernel can follow is run without asking, hundreds of
times as fast and with the same result. Servers do not fail here.

Axes: N tasks, R servers, Q kinds, K resources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from berth.capacity import TOLERANCE
from berth.errors import InvalidInput
from berth.kernels.berth_index import Shelves
from berth.kernels.placement import ROOM, Batch, Servers
from berth.kernels.placement_run import Run, play
from berth.model import Floats, Ints
from berth.problems.placement import PlacementProblem, Tasks

__all__ = ["Audit", "Schedule", "audit", "batch_of", "run_rule", "servers_of"]


@dataclass(frozen=True, eq=False)
class Schedule:
    """Where and when each task ran: `server` (N,), -1 for none, and `start` (N,); and what that brought."""

    server: Ints
    start: Floats
    value: float
    execution: float
    launch: float
    events: int

    @property
    def gain(self) -> float:
        return self.value - self.execution - self.launch


def batch_of(tasks: Tasks) -> Batch:
    """Tasks as kernels want them."""
    return Batch(tasks.arrival, tasks.demand, tasks.work, tasks.value, tasks.decay, tasks.deadline)


def servers_of(problem: PlacementProblem) -> Servers:
    """Servers as kernels want them."""
    return Servers(problem.instance.capacity, problem.speed, problem.launch, problem.rate, problem.weight)


def shelves_of(problem: PlacementProblem) -> Shelves:
    """Empty shelves for these servers."""
    kind = np.array(problem.kind)
    kinds, servers = int(kind.max()) + 1, len(kind)
    member = np.argsort(kind, kind="stable")
    first = np.searchsorted(kind[member], np.arange(kinds + 1))
    rank = np.empty(servers, dtype=np.int64)
    rank[member] = np.arange(servers) - first[kind[member]]
    most = problem.instance.capacity[member[first[:-1]], 0]
    depth = np.floor(most + ROOM * (1.0 + most)).astype(np.int64)
    words = (np.diff(first) + 63) // 64
    summaries = (words + 63) // 64
    each = depth + 2
    word, summary = (np.concatenate([[0], np.cumsum(np.repeat(size, each))]) for size in (words, summaries))
    first_shelf = np.concatenate([[0], np.cumsum(each)])
    return Shelves(
        kind=kind,
        rank=rank,
        member=member,
        first_member=first,
        depth=depth,
        first_shelf=first_shelf,
        word=word,
        words=np.zeros(word[-1], dtype=np.uint64),
        summary=summary,
        summaries=np.zeros(summary[-1], dtype=np.uint64),
        size=np.zeros(first_shelf[-1], dtype=np.int64),
        shelf=np.zeros(servers, dtype=np.int64),
    )


def run_of(problem: PlacementProblem, tasks: Tasks) -> Run:
    """A run before its first event."""
    capacity, size = problem.instance.capacity, len(tasks)
    kinds = int(problem.kind.max()) + 1
    needs = int(tasks.demand[:, 0].max(initial=0.0)) + 1

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    return Run(
        free=np.array(capacity),
        running=ints(len(capacity)),
        on_until=np.full(len(capacity), -np.inf),
        state=ints(size),
        server=ints(size) - 1,
        start=np.zeros(size),
        heavy=np.zeros(size),
        need=ints(size),
        root=ints(kinds, needs) - 1,
        child=ints(kinds * size),
        sibling=ints(kinds * size),
        aside=ints(size),
        asked=ints(size),
        queue=ints(size),
        event_time=np.zeros(size),
        event_task=ints(size),
        sums=np.zeros(3),
        counts=ints(5),
    )


def run_rule(
    problem: PlacementProblem, tasks: Tasks, rank: ArrayLike, beta: float = 1.0, price: float = 0.0
) -> Schedule:
    """Greedy with a queue, larger `rank` (N,) first, from the first arrival to the last end.

    The score of a task on a server counts `beta` of the launch cost, and `price` for each weighted unit and time.

    >>> problem = PlacementProblem.of_servers([[4.0], [2.0]], speed=[2.0, 1.0], launch=[1.0, 0.5], rate=[0.1, 0.1])
    >>> tasks = Tasks(arrival=[0, 0], demand=[[2], [4]], work=[4, 2], value=[9, 5], decay=[1, 0.5], deadline=[6, 3])
    >>> run_rule(problem, tasks, rank=[0, 1]).server
    array([1, 0])
    """
    ranks = np.array(rank, dtype=np.float64)
    if ranks.shape != (len(tasks),) or np.isnan(ranks).any():
        raise InvalidInput(f"a number for each of {len(tasks)} tasks", value=ranks.shape, key="rank")
    run = run_of(problem, tasks)
    play(batch_of(tasks), servers_of(problem), shelves_of(problem), run, ranks, beta, price, problem.idle)
    value, execution, launch = (float(part) for part in run.sums)
    return Schedule(run.server, run.start, value, execution, launch, int(run.counts[2]))


@dataclass(frozen=True)
class Audit:
    """What a schedule really brings, computed from nothing but the schedule, and what is wrong with it."""

    value: float
    execution: float
    launch: float
    launches: int
    broken: tuple[str, ...]

    @property
    def gain(self) -> float:
        return self.value - self.execution - self.launch


def audit(problem: PlacementProblem, tasks: Tasks, server: Any, start: Any) -> Audit:
    """Recompute capacity, launches and gain of a run without failures, the plain way.

    >>> problem = PlacementProblem.of_servers([[4.0]], speed=[2.0], launch=[1.0], rate=[0.1])
    >>> tasks = Tasks(arrival=[0, 0], demand=[[2], [4]], work=[4, 2], value=[9, 5], decay=[1, 0.5], deadline=[6, 3])
    >>> audit(problem, tasks, [0, 0], [0.0, 0.0]).broken
    ('server-0/resource-0 at 0: 6 used, 4 allowed',)
    """
    server, start = np.asarray(server, dtype=np.int64), np.asarray(start, dtype=np.float64)
    cluster, capacity = problem.instance.cluster, problem.instance.capacity
    broken: list[str] = []
    value = execution = launch = 0.0
    launches = 0
    for r in np.unique(server[server >= 0]):
        mine = np.flatnonzero(server == r)
        mine = mine[np.argsort(start[mine], kind="stable")]
        begin, end = start[mine], start[mine] + tasks.work[mine] / problem.speed[r]
        broken += [
            f"task {i} starts at {start[i]:g}, before it arrives at {tasks.arrival[i]:g}"
            for i in mine[begin < tasks.arrival[mine]]
        ]
        for moment in np.unique(begin):
            used = tasks.demand[mine[(begin <= moment) & (end > moment)]].sum(axis=0)
            for k in np.flatnonzero(used > capacity[r] + TOLERANCE * (1.0 + capacity[r])):
                where = f"{cluster.servers[r]}/{cluster.resources[k].name}"
                broken.append(f"{where} at {moment:g}: {used[k]:g} used, {capacity[r, k]:g} allowed")
        value += float(tasks.take(np.sort(mine)).worth(end[np.argsort(mine)]).sum())
        execution += float(problem.rate[r] * ((tasks.demand[mine] @ problem.weight) @ (end - begin)))
        busy_until = np.maximum.accumulate(end)[:-1]
        mine_launches = 1 + int((begin[1:] > busy_until + problem.idle).sum())
        launches += mine_launches
        launch += mine_launches * float(problem.launch[r])
    return Audit(value, execution, launch, launches, tuple(broken))
