"""Play whole placement runs: under a fixed rule by the event engine; and audit any run.

`berth.simulate` asks a policy at every moment; this engine follows a rule inside a kernel, hundreds of times as fast
and with the same result. Servers do not fail here.

Axes: N tasks, R servers, Q kinds, K resources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from berth.capacity import TOLERANCE
from berth.errors import InvalidInput
from berth.families.placement.kernels.berth_index import (
    DEPTH,
    FIRST_MEMBER,
    FIRST_SHELF,
    FIRST_WORD,
    KIND,
    MASKS,
    RANK,
    SUMMARIES,
    WORDS,
    Shelves,
)
from berth.families.placement.kernels.greedy import ROOM, Batch, Servers
from berth.families.placement.kernels.run import play, prepare, tell
from berth.families.placement.kernels.run_state import CAPACITY, DEMAND, EVENTS, Run
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.model import Floats, Ints

__all__ = ["Audit", "Schedule", "audit", "batch_of", "run_rule", "servers_of"]


@dataclass(frozen=True, eq=False)
class Schedule:
    """Server and start of each task: `server` (N,), -1 for none, and `start` (N,); and the gains."""

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
    """Tasks in the kernels' form."""
    return Batch(tasks.arrival, tasks.demand, tasks.work, tasks.value, tasks.decay, tasks.deadline)


def servers_of(problem: PlacementProblem) -> Servers:
    """Servers in the kernels' form."""
    return Servers(problem.instance.capacity, problem.speed, problem.launch, problem.rate, problem.weight)


def shelves_of(problem: PlacementProblem) -> Shelves:
    """Empty shelves for these servers."""
    number, servers = int(problem.kind.max()) + 1, len(problem.kind)
    speed = np.empty(number)
    speed[problem.kind] = problem.speed
    kind = np.argsort(np.argsort(-speed, kind="stable"))[problem.kind]  # fastest first: others are then rarely tried
    member = np.argsort(kind, kind="stable")
    size = np.bincount(kind, minlength=number)
    first = np.cumsum(size) - size
    most = problem.instance.capacity[member[first], 0]
    kinds = np.zeros((number, 7), dtype=np.int64)
    kinds[:, DEPTH] = np.floor(most + ROOM * (1.0 + most))
    kinds[:, FIRST_MEMBER] = first
    shelves = kinds[:, DEPTH] + 2
    kinds[:, FIRST_SHELF] = np.cumsum(shelves) - shelves
    kinds[:, WORDS] = (size + 63) // 64
    kinds[:, SUMMARIES] = (kinds[:, WORDS] + 63) // 64
    kinds[:, MASKS] = (shelves + 63) // 64
    words = kinds[:, MASKS] + shelves * (kinds[:, WORDS] + kinds[:, SUMMARIES])
    kinds[:, FIRST_WORD] = np.cumsum(words) - words
    place = np.zeros((servers, 4), dtype=np.int32)
    place[:, KIND] = kind
    place[member, RANK] = np.arange(servers) - np.repeat(first, size)
    bits = np.zeros(words.sum(), dtype=np.uint64)
    return Shelves(kinds, place, member, bits, np.zeros(shelves.sum(), dtype=np.int64))


def run_of(problem: PlacementProblem, tasks: Tasks) -> Run:
    """Tables for a run, not filled yet."""
    (servers, resources), size = problem.instance.capacity.shape, len(tasks)
    kinds = int(problem.kind.max()) + 1
    needs = int(tasks.demand[:, 0].max(initial=0.0)) + 1
    intervals = size + 1  # about one end in each
    begin = end = 0.0
    if size:
        # later ends are rare and share the last interval
        longest = float(tasks.work.max() / problem.speed.min())
        begin, end = float(tasks.arrival[0]), min(float(tasks.deadline.max()), float(tasks.arrival[-1]) + 4.0 * longest)
    span = np.array([begin, intervals / (end - begin) if end > begin else 0.0])

    def ints(*shape: int) -> Ints:
        return np.empty(shape, dtype=np.int64)

    return Run(
        task=np.empty((size, 8)),
        held=np.empty((size, DEMAND + resources)),
        kind=np.empty((kinds, CAPACITY + 2 * resources)),
        free=np.empty((servers, resources + 1)),
        of_turn=ints(size),
        root=np.full((kinds, needs), -1),
        link=ints(kinds * size, 2),
        aside=ints(size),
        asked=ints(size),
        queue=ints(size),
        interval=np.full(intervals, -1),
        near_time=np.empty(size),
        near_task=ints(size),
        sums=np.zeros(3),
        counts=np.zeros(7, dtype=np.int64),
        span=span,
    )


def run_rule(
    problem: PlacementProblem, tasks: Tasks, rank: ArrayLike, beta: float = 1.0, price: float = 0.0
) -> Schedule:
    """Play greedy with a queue, larger `rank` (N,) first, from the first arrival to the last end.

    The score of a task on a server counts `beta` of the launch cost, and `price` per weighted unit and time.

    >>> from berth.testing import example_placement
    >>> tasks = Tasks(arrival=[0, 0], demand=[[2], [4]], work=[4, 2], value=[9, 5], decay=[1, 0.5], deadline=[6, 3])
    >>> run_rule(example_placement(), tasks, rank=[0, 1]).server
    array([1, 0])
    """
    ranks = np.array(rank, dtype=np.float64)
    if ranks.shape != (len(tasks),) or np.isnan(ranks).any():
        raise InvalidInput(f"a number for each of {len(tasks)} tasks", value=ranks.shape, key="rank")
    run, shelves = run_of(problem, tasks), shelves_of(problem)
    order = np.argsort(-ranks, kind="stable")
    prepare(batch_of(tasks), servers_of(problem), shelves, run, order, beta, price)
    play(shelves, run, problem.idle)
    return schedule_of(run)


def schedule_of(run: Run) -> Schedule:
    """Schedule of a finished run."""
    server, start = np.empty(len(run.task), dtype=np.int64), np.empty(len(run.task))
    tell(run, server, start)
    value, execution, launch = (float(part) for part in run.sums)
    return Schedule(server, start, value, execution, launch, int(run.counts[EVENTS]))


@dataclass(frozen=True)
class Audit:
    """Recomputed gain of a schedule, and its errors."""

    value: float
    execution: float
    launch: float
    launches: int
    broken: tuple[str, ...]

    @property
    def gain(self) -> float:
        return self.value - self.execution - self.launch


def audit(problem: PlacementProblem, tasks: Tasks, server: Any, start: Any) -> Audit:
    """Recompute capacity, launches and gain of a run without failures, by independent code.

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
