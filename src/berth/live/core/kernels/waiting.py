"""What the page of the queue needs at once: the first waiting jobs, by level, then by number, and what is free.

These kernels are quick and hold the interpreter lock. Calls of NumPy on large arrays release it, and a caller on the
event loop then waits to get it back.

Axes: n jobs, q queues, t teams, m jobs that are wanted, R servers, K resources.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from berth.kernels.compiled import inner, lean

__all__ = ["First", "Standings", "Waiting", "first_waiting", "free_of"]


class Waiting(NamedTuple):
    """Jobs (n,), of which those with `waits` wait."""

    waits: Any
    queue: Any
    team: Any
    priority: Any
    submitted: Any
    number: Any


class Standings(NamedTuple):
    """The priority of each queue and whether it starts jobs (q,), the penalty of each team (t,), and hourly aging."""

    queues: Any
    starts: Any
    teams: Any
    aging: Any


class First(NamedTuple):
    """A heap of jobs (m,), with the last of them in queue order at the top; rows are -1 where there is no job."""

    row: Any
    level: Any
    number: Any


@inner
def later(level: Any, number: Any, other_level: Any, other_number: Any) -> Any:
    """Whether a job comes later in queue order than another."""
    return level < other_level or (level == other_level and number > other_number)


@inner
def sink(first: First, size: int, row: Any, level: Any, number: Any) -> None:
    """Replace the top of a heap with a job, and lower that to its place."""
    place, below = 0, 1
    while below < size:
        beside = below + 1
        if beside < size and later(first.level[beside], first.number[beside], first.level[below], first.number[below]):
            below = beside
        if not later(first.level[below], first.number[below], level, number):
            break
        first.row[place], first.level[place], first.number[place] = (
            first.row[below],
            first.level[below],
            first.number[below],
        )
        place, below = below, 2 * below + 1
    first.row[place], first.level[place], first.number[place] = row, level, number


@lean
def first_waiting(jobs: Waiting, standings: Standings, time: float, first: First) -> Any:
    """Fill `first` with the first jobs that may start, in queue order, and return their number."""
    size = first.row.shape[0]
    for i in range(size):  # places without a job come later than any job
        first.row[i], first.level[i], first.number[i] = -1, -(2**63), 2**63 - 1
    count = 0
    for row in range(jobs.waits.shape[0] if size > 0 else 0):
        if not jobs.waits[row] or standings.starts[jobs.queue[row]] == 0:
            continue
        count += 1
        waited = standings.aging * (time - jobs.submitted[row]) / 3600.0
        standing = standings.queues[jobs.queue[row]] + jobs.priority[row] + waited - standings.teams[jobs.team[row]]
        level = math.floor(standing)
        if later(first.level[0], first.number[0], level, jobs.number[row]):
            sink(first, size, row, level, jobs.number[row])
    for last in range(size - 1, 0, -1):  # the last job of a heap goes behind it
        row, level, number = first.row[0], first.level[0], first.number[0]
        sink(first, last, first.row[last], first.level[last], first.number[last])
        first.row[last], first.level[last], first.number[last] = row, level, number
    return min(count, size)


@lean
def free_of(capacity: Any, used: Any, usable: Any, free: Any) -> None:
    """Fill `free` (R, K) with what is left of each usable server, and 0 elsewhere."""
    for r in range(capacity.shape[0]):
        for k in range(capacity.shape[1]):
            left = capacity[r, k] - used[r, k]
            free[r, k] = left if usable[r] and left > 0 else 0
