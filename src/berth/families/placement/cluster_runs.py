"""Play batch jobs on any cluster: a whole log at once, by a kernel.

`berth.simulate` gives the same starts for the same policy, a hundred times slower.

Axes: N tasks, R servers, K resources, G devices of a server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.kernels.cluster import Play, Tally, play_queue, play_scored
from berth.families.placement.kernels.cluster_packing import play_packed
from berth.families.placement.kernels.cluster_reservations import Gains, Plans, play_reserved
from berth.families.placement.kernels.fitting import Fitting
from berth.families.placement.kernels.fragmenting import Counted, States
from berth.families.placement.kernels.gathering import WHOLE, Classes, Fleet, Free, Pieces, Rows
from berth.families.placement.kernels.pool import Pool
from berth.families.placement.kernels.timeline import Search, Timeline
from berth.families.placement.policies.queued import BACKFILL, CLASSES, FITS, class_keys, log_form, sizes_of
from berth.families.placement.pool_runs import compiled_score
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.model import Floats, Ints

__all__ = ["ClusterRun", "common_classes", "run_cluster"]

KEPT = 1 << 23
"""Number of pairs of task class and server whose places are kept."""
GAINS = 1 << 12
"""Number of gains of room that are kept; tasks that were planned before are planned again."""
STATES = 1 << 13
"""Least number of states of servers whose fragments are kept: a power of two."""


@dataclass(frozen=True, eq=False)
class ClusterRun:
    """Start and end of each task (N,), nan if it never starts; and the mean fragmentation that arriving tasks saw."""

    start: Floats
    end: Floats
    fragmentation: float | None


def run_cluster(policy: Any, tasks: Tasks, runs: Floats, *, typical: Classes | None = None) -> ClusterRun | None:
    """Play all tasks under a queue policy of the placement family; None if there is no kernel for it.

    `runs` (N,) is the true work of tasks. Values and deadlines do not count. With `typical` classes of tasks the
    fragmentation is measured.

    >>> from berth.families.placement.policies.rules import FCFS
    >>> from berth.testing import example_placement
    >>> tasks = Tasks([0, 0], [[2], [4]], work=[4, 2], value=[9, 5], decay=[0, 0], deadline=[99, 99])
    >>> run_cluster(FCFS(example_placement().replace(launch=[0, 0])), tasks, tasks.work).start
    array([0., 2.])
    """
    problem: PlacementProblem = policy.problem
    form = log_form(policy, tasks)
    reserving = form is not None and form.backfill == "conservative" and policy.fit == "first"
    if form is None or problem.launch.any() or not (reserving or form.backfill in ("packed", *BACKFILL)):
        return None
    try:
        score = None if form.score is None else compiled_score(form.score)
    except InvalidInput:  # a function that only Python can run
        return None
    key = np.zeros(len(tasks)) if form.key is None else form.key
    rule, backfill = FITS[policy.fit], BACKFILL.get(form.backfill, -1)
    play = _play(problem, tasks, runs, np.argsort(key, kind="stable"), typical, rule == WHOLE)
    if reserving:
        play_reserved(play, _plans(problem, tasks))
    elif form.backfill == "packed":
        kept = len(play.fitting.owner)
        play_packed(play, policy.hurry, np.zeros(kept), np.full((kept, 2), -1))
    elif score is None:
        play_queue(play, rule, backfill)
    else:
        play_scored(play, sizes_of(problem, tasks), score, form.committed, rule, backfill)
    total, samples, _ = play.tally.sums.tolist()
    fragmentation = None if typical is None else total / max(samples, 1.0)
    return ClusterRun(play.pool.start, play.pool.start + runs / play.slowest, fragmentation)


def common_classes(tasks: Tasks, most: int) -> Classes:
    """The most common classes of port and demand, at most `most`."""
    rows, count = np.unique(np.column_stack([tasks.port, tasks.demand]), axis=0, return_counts=True)
    commonest = np.sort(np.argsort(-count, kind="stable")[:most])
    demand = np.ascontiguousarray(rows[commonest, 1:])
    return Classes(demand, rows[commonest, 0].astype(np.int64), count[commonest] / count[commonest].sum())


def _play(
    problem: PlacementProblem, tasks: Tasks, runs: Floats, order: Ints, typical: Classes | None, counting: bool
) -> Play:
    """A run that has not begun."""
    count, (servers, resources) = len(tasks), problem.instance.capacity.shape
    device = -1 if problem.devices is None else problem.devices
    devices = problem.all_devices.shape[1]

    def whole(*shape: int) -> Any:
        return np.zeros(shape, dtype=np.int64)

    def amounts() -> Free:
        capacity = np.array(problem.instance.capacity)
        return Free(capacity, np.array(problem.all_devices), np.zeros(servers))

    fleet = Fleet(
        np.array(problem.instance.capacity),
        np.array(problem.speed),
        np.array(problem.reach),
        problem.instance.capacity.max(axis=0),
        np.array([device]),
    )
    pieces = Pieces(*(np.array(part) for part in (tasks.demand, tasks.pieces, tasks.port, tasks.work, tasks.owner)))
    size = np.minimum(tasks.pieces, servers)
    place = np.cumsum(size) - size
    most = int(size.sum())
    rows = Rows(
        whole(most),
        whole(most),
        whole(most),
        whole(2),
        whole(servers),
        np.zeros((1, devices)),
        np.zeros((2, max(resources, devices))),
    )
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    pool = Pool(
        np.zeros(0),
        np.zeros(0),
        np.empty(count),
        whole(count),
        np.empty(count),
        whole(count),
        whole(3),
        np.zeros(4),
        np.full(count, np.nan),
    )
    none = Classes(np.zeros((0, resources)), whole(0), np.zeros(0))
    given = none if typical is None else typical
    sums = np.array([0.0, 0.0, float(problem.all_devices.sum()) or 1.0])
    kind = _numbered(np.column_stack([tasks.port, tasks.demand]))
    kinds = int(kind.max(initial=0)) + 1
    free, kept = amounts(), min(kinds, max(KEPT // (16 * servers if counting else servers), 1))
    return Play(
        fleet,
        free,
        none,
        pieces,
        rows,
        _fitting(kind, kept, servers),
        _counted(problem, tasks, counting),
        _states(problem, free, kept, counting),
        Tally(given, np.zeros(servers), np.array([-servers]), sums),
        pool,
        np.array(tasks.arrival),
        np.array(runs),
        tasks.work / problem.speed.max(),
        rank,
        place,
        whole(count),
        np.array(problem.all_devices),
        np.zeros((most if devices else 0, devices)),
        whole(servers),
        np.ones(count),
        whole(count),
        amounts(),
        amounts(),
        whole(servers),
        np.full((kinds, 2), -1),
        whole(count),
        whole(count),
        np.empty(count),
    )


def _numbered(rows: Any) -> Ints:
    """Number of each row among the distinct rows in lexicographic order, as `np.unique` with `axis=0`, but faster.

    >>> _numbered(np.array([[1.0, 2.0], [0.0, 3.0], [1.0, 0.5], [0.0, 3.0]]))
    array([2, 0, 1, 0])
    """
    number = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        place = np.unique(column, return_inverse=True)[1]
        number = np.unique(number * (len(rows) + 1) + place, return_inverse=True)[1]
    return number


def _fitting(kind: Ints, kept: int, servers: int) -> Fitting:
    """Places of classes, none of them known."""
    changes = 1 << (2 * servers).bit_length()
    return Fitting(
        kind,
        np.zeros((kept, servers), dtype=np.int64),
        np.zeros((kept, servers)),
        np.zeros(kept, dtype=np.int64),
        np.full(kept, -1),
        np.zeros(kept, dtype=np.int64),
        np.zeros(changes, dtype=np.int64),
        np.full(servers, -1),
        np.zeros(1, dtype=np.int64),
    )


def _plans(problem: PlacementProblem, tasks: Tasks) -> Plans:
    """Reservations, none of them made; a reservation lasts as long as on the slowest server that the task may use."""
    servers, count, capacity = len(problem.speed), len(tasks), problem.instance.capacity
    slowest = np.where(problem.reach, problem.speed, np.inf).min(axis=1)
    slowest = np.where(np.isfinite(slowest), slowest, 1.0)
    nodes = servers + 2 * int(np.minimum(tasks.pieces, servers).sum()) + 2
    after = np.where(np.arange(nodes) < servers, -1, np.arange(1, nodes + 1))
    amount = np.zeros((nodes, capacity.shape[1]))
    amount[:servers] = capacity
    line = Timeline(
        np.arange(servers), np.full(nodes, -np.inf), after, np.zeros(nodes, np.int64), amount, np.array([servers])
    )
    search = Search(
        np.zeros(servers, np.int64),
        np.zeros(servers),
        np.zeros(servers, np.int64),
        np.zeros(servers, np.int64),
        np.zeros(2),
    )
    memo = (GAINS, 64)
    gains = Gains(
        np.zeros(GAINS, np.int64),
        np.zeros(GAINS),
        np.zeros(GAINS),
        np.zeros(2, np.int64),
        np.zeros(memo),
        np.full(memo, -1),
    )
    return Plans(
        line,
        search,
        gains,
        np.full(count, np.nan),
        tasks.work / slowest[tasks.port],
        np.zeros(count, np.int64),
        np.zeros(count, dtype=bool),
        np.array([-1]),
        np.zeros((servers, 2), np.int64),
        bool((problem.reach & (problem.speed != slowest[:, None])).any()),
    )


def _counted(problem: PlacementProblem, tasks: Tasks, counting: bool) -> Counted:
    """Classes of tasks, none of them seen yet; of no tasks unless `counting`."""
    keys = class_keys(problem, tasks)[: len(tasks) if counting else 0]
    kind = _numbered(keys)
    resources = tasks.demand.shape[1]
    count, port, owner, listed, changed = (np.zeros(CLASSES, dtype=np.int64) for _ in range(5))
    place = np.full(int(kind.max(initial=0)) + 1, -1)
    demand = np.zeros((CLASSES, resources))
    number = np.zeros(3, dtype=np.int64)
    return Counted(kind, owner, count, port, np.zeros(CLASSES), demand, listed, place, changed, number)


def _states(problem: PlacementProblem, free: Free, kept: int, counting: bool) -> States:
    """States of servers, none of them known; of no servers unless `counting`."""
    servers = len(problem.speed) if counting else 0
    size = max(STATES, 1 << (8 * servers).bit_length()) if counting else 1
    columns = np.column_stack([problem.instance.capacity, problem.reach.T])

    def whole(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    return States(
        whole(2 * size),
        np.zeros(size, dtype=np.uint64),
        np.zeros((size, CLASSES)),
        whole(size),
        np.zeros(size),
        whole(size),
        whole(size),
        np.zeros(size),
        _numbered(columns),
        free.amount.view(np.int64),
        free.devices.view(np.int64),
        whole(servers),
        whole(kept, size),
        whole(kept, size),
        np.zeros((kept, size)),
        np.full((kept, 2), -1),
        np.array([0, 0, 0, -servers]),
        whole(servers),
        whole(2 * servers + 4),
        np.zeros(servers),
    )
