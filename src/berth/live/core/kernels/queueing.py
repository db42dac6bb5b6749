"""Start jobs in the order of a queue, where a rule finds servers for their tasks: see `berthing`.

Axes: n jobs, m roles of all jobs, p places, R servers, K resources, C sets of servers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.compiled import compiled, inner
from berth.live.core.kernels.berthing import Fit, Gangs, Placed, change, find, most_free, too_large

__all__ = ["EASY", "STRICT", "Asked", "Ends", "start_in_order"]

STRICT, EASY = range(2)


class Asked(NamedTuple):
    """Jobs, their work at speed 1 (n,), the sets of servers (C, R), and how servers are found.

    Of servers the speed (R,), and how much more is held there than they have (R, K).
    """

    gangs: Gangs
    work: Any
    reach: Any
    fit: Fit
    speed: Any
    excess: Any


class Ends(NamedTuple):
    """Estimated end and server of places (p,), and what they hold (p, K); the first `size[0]` count."""

    end: Any
    server: Any
    amount: Any
    size: Any


@inner
def end_of(asked: Asked, placed: Placed, job: int, first: int, now: float) -> Any:
    """The estimated end of a job that starts now on the servers of the rows from `first` on."""
    slowest = np.inf
    for row in range(first, placed.size[0]):
        slowest = min(slowest, asked.speed[placed.server[row]])
    return now + asked.work[job] / slowest


@inner
def expect(asked: Asked, ends: Ends, placed: Placed, first: int, end: float) -> None:
    """Note when the rows from `first` on end."""
    for row in range(first, placed.size[0]):
        at = ends.size[0]
        ends.end[at] = end
        ends.server[at] = placed.server[row]
        for k in range(ends.amount.shape[1]):
            ends.amount[at, k] = placed.count[row] * asked.gangs.demand[placed.role[row], k]
        ends.size[0] = at + 1


@inner
def free_after(asked: Asked, free: Any, ends: Ends, by_end: Any, count: int, future: Any) -> None:
    """What is free once the first places have ended."""
    for r in range(free.shape[0]):
        for k in range(free.shape[1]):
            future[r, k] = free[r, k] - asked.excess[r, k]
    for i in range(count):
        at = by_end[i]
        for k in range(free.shape[1]):
            future[ends.server[at], k] += ends.amount[at, k]


@inner
def reserve(
    asked: Asked, allowed: Any, free: Any, future: Any, ends: Ends, by_end: Any, now: float, placed: Placed, job: int,
    done: Any,
) -> Any:  # fmt: skip
    """When a job first has room by the estimates, infinity for never; `future` becomes what is free then beside it.

    `by_end` (p,) are the places by their ends. Those that should have ended are expected to end now.
    """
    first, size, few, many = placed.size[0], by_end.shape[0], 0, by_end.shape[0] + 1
    while many - few > 1:
        after = (few + many) // 2
        free_after(asked, free, ends, by_end, after, future)
        if find(asked.gangs, asked.fit, allowed, future, placed, job, done):
            many = after
        else:
            few = after
        placed.size[0] = first
    if many > size:
        return np.inf
    time = max(ends.end[by_end[many - 1]], now)
    while many < size and ends.end[by_end[many]] <= time:
        many += 1
    free_after(asked, free, ends, by_end, many, future)
    find(asked.gangs, asked.fit, allowed, future, placed, job, done)
    placed.size[0] = first
    return time


@inner
def close(windows: Any, window: int, reach: Any, first: bool, there: Any) -> Any:
    """Close the servers where a job that waits may start now; whether others are left.

    If it is not the `first` that waits, and may use none of the servers that are left, it closes none.
    """
    reaches = first
    for r in range(there.shape[0]):
        reaches = reaches or (reach[r] and there[r])
    left = False
    for r in range(there.shape[0]):
        there[r] = there[r] and not (reaches and windows[window, r])
        left = left or there[r]
    return left


@compiled
def start_in_order(
    asked: Asked, order: Any, window: Any, windows: Any, backfill: int, free: Any, ends: Ends, now: float,
    placed: Placed,
) -> None:  # fmt: skip
    """Start jobs in `order` (n,) while they fit; then those that may pass the first that does not fit.

    `STRICT`: none, except on servers where that one may not start now: `windows` (A, R) are sets of servers, `window`
    (n,) that of each job. `EASY`: all that fit and do not delay it; it gets a reservation at the first moment at which
    it fits if jobs end as estimated. Others may pass it that end by then, or use only what it leaves.

    `free` (R, K) becomes what is left; `ends` needs room for the rows of jobs that start.
    """
    gangs, servers = asked.gangs, free.shape[0]
    done = np.zeros(gangs.minimum.shape[0], dtype=np.bool_)
    allowed, there = np.zeros(servers, dtype=np.bool_), np.ones(servers, dtype=np.bool_)
    tight = np.zeros(placed.failed.shape[0], dtype=np.bool_)  # shapes that have no room beside the reservation
    future, both = np.zeros_like(free), np.zeros_like(free)
    peak = np.zeros(free.shape[1], dtype=np.int64)
    most_free(free, peak)
    shadow = np.inf
    waiting = False
    for place in range(order.shape[0]):
        job = order[place]
        shape, reach, first = gangs.shape[job], asked.reach[gangs.reach[job]], placed.size[0]
        if not placed.failed[shape]:
            for r in range(servers):
                allowed[r] = reach[r] and there[r]
            fits = not too_large(gangs, job, peak) and find(asked.gangs, asked.fit, allowed, free, placed, job, done)
            placed.failed[shape] = not fits
        if placed.failed[shape]:
            if backfill == STRICT:
                if not close(windows, window[job], reach, not waiting, there):
                    return
                waiting = True
            elif not waiting:
                waiting = True
                by_end = np.argsort(ends.end[: ends.size[0]], kind="mergesort")
                shadow = reserve(asked, reach, free, future, ends, by_end, now, placed, job, done)
                for r in range(servers):
                    for k in range(free.shape[1]):
                        both[r, k] = min(free[r, k], future[r, k])
            continue
        end = end_of(asked, placed, job, first, now)
        if waiting and end > shadow:  # must not use the first one's place
            change(gangs, free, placed, first, 1)
            placed.size[0] = first
            tight[shape] = tight[shape] or not find(asked.gangs, asked.fit, allowed, both, placed, job, done)
            if tight[shape]:
                continue
            change(gangs, free, placed, first, -1)
            end = end_of(asked, placed, job, first, now)
            if end > shadow:
                change(gangs, future, placed, first, -1)
        if waiting:
            for row in range(first, placed.size[0]):
                r = placed.server[row]
                for k in range(free.shape[1]):
                    both[r, k] = min(free[r, k], future[r, k])
        elif backfill == EASY:
            expect(asked, ends, placed, first, end)
        most_free(free, peak)
