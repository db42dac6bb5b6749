"""Conservative backfilling on one pool of processors: every job has a reservation, which only moves forward.

An arriving job gets the earliest place that delays no other. When a job ends before its estimate, the others in queue
order take, one after the other, their earliest possible place: their own is one, so none gets a later one. This repeats
until none moves. A job that runs longer than its estimate counts as holding its processors for ever, until it ends; at
every moment with such a job, or just after its end, all reservations are made anew in queue order.

Free capacity in the future is a step function: `free[b]` from `time[b]` until `time[b + 1]`.

Axes: N jobs, B steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.pool import (
    CAPACITY,
    FREE,
    KNOWN,
    ROOM,
    RUNNING,
    Jobs,
    Pool,
    expect,
    forget,
    pop,
    push,
)
from berth.kernels.compiled import inner, lean

__all__ = ["Profile", "play_conservative"]


class Profile(NamedTuple):
    """Free capacity by time (B,), `size[0]` steps in use, and waiting jobs: `queue` (N,), `size[1]` jobs, planned `at`.

    There must be room for four steps a job and a few: two that it holds, two that it held before it moved.
    """

    time: Any
    free: Any
    size: Any
    queue: Any
    at: Any


@inner
def _step(plan: Profile, time: float) -> Any:
    """Step that begins at `time`, inserted if missing; -1 if it lies in the past."""
    low, high = 0, plan.size[0]
    while low < high:
        middle = (low + high) // 2
        if plan.time[middle] < time:
            low = middle + 1
        else:
            high = middle
    if low < plan.size[0] and plan.time[low] == time:
        return low
    for b in range(plan.size[0], low, -1):
        plan.time[b] = plan.time[b - 1]
        plan.free[b] = plan.free[b - 1]
    plan.time[low] = time
    plan.free[low] = plan.free[low - 1]
    plan.size[0] += 1
    return low


@inner
def _hold(plan: Profile, start: float, end: float, size: float) -> None:
    """Subtract `size` from `start` to `end`; a negative size gives it back."""
    first = _step(plan, start)
    last = _step(plan, end) if end < np.inf else plan.size[0]
    for b in range(first, last):
        plan.free[b] -= size


@inner
def _tidy(plan: Profile, now: float) -> None:
    """Make the step function begin now, without steps of height 0."""
    first = 0
    while first + 1 < plan.size[0] and plan.time[first + 1] <= now:
        first += 1
    kept = 0
    for b in range(first, plan.size[0]):
        if kept == 0 or plan.free[b] != plan.free[kept - 1]:
            plan.time[kept] = plan.time[b]
            plan.free[kept] = plan.free[b]
            kept += 1
    plan.time[0] = now
    plan.size[0] = kept


@inner
def _earliest(plan: Profile, size: float, length: float, tolerance: float) -> Any:
    """First moment from which `size` is free for `length`; inf for never."""
    b = 0
    while b < plan.size[0]:
        start, fits, c = plan.time[b], True, b
        while c < plan.size[0] and (c == b or plan.time[c] < start + length):
            if plan.free[c] + tolerance < size:
                fits = False
                break
            c += 1
        if fits:
            return start
        b = c + 1  # after that step
    return np.inf


@inner
def _rebuild(jobs: Jobs, pool: Pool, plan: Profile, now: float) -> None:
    """Rebuild the step function from running jobs alone."""
    plan.size[0] = 1
    plan.time[0], plan.free[0] = now, pool.number[CAPACITY]
    for place in range(pool.count[KNOWN]):
        job = pool.known_job[place]
        end = pool.known_end[place]
        _hold(plan, now, np.inf if end <= now else end, jobs.size[job])


@inner
def _make_plans(jobs: Jobs, plan: Profile, waiting: int, late: bool, early: bool, tolerance: float) -> Any:
    """Plan all waiting jobs (`late`), also move jobs forward (`early`), or only plan new ones; return if any moved."""
    moved = False
    for place in range(waiting):
        job = plan.queue[place]
        size, length, at = jobs.size[job], jobs.estimate[job], plan.at[job]
        if not (late or early or np.isnan(at)):
            continue
        if not late and not np.isnan(at) and at < np.inf:
            _hold(plan, at, at + length, -size)
        found = _earliest(plan, size, length, tolerance)
        moved = moved or found != at
        plan.at[job] = found
        if found < np.inf:
            _hold(plan, found, found + length, size)
    return moved


@lean
def play_conservative(jobs: Jobs, pool: Pool, plan: Profile) -> int:
    """Play all jobs; `pool.start` (N,) gets the start of each. Return the number of moments."""
    total, tolerance = jobs.submit.shape[0], ROOM * (1.0 + pool.number[CAPACITY])
    arrived, moments = 0, 0
    plan.size[0] = 1
    plan.time[0], plan.free[0] = -np.inf, pool.number[CAPACITY]
    while arrived < total or pool.count[RUNNING]:
        now = np.inf
        if arrived < total:
            now = jobs.submit[arrived]
        early, late = False, False
        if pool.count[RUNNING] and pool.heap_time[0] <= now:
            now = pool.heap_time[0]
        while pool.count[RUNNING] and pool.heap_time[0] == now:
            job = pop(pool)
            known = pool.start[job] + jobs.estimate[job]
            forget(pool, known, job)
            pool.number[FREE] += jobs.size[job]
            if known > now:
                early = True
                _hold(plan, max(now, plan.time[0]), known, -jobs.size[job])
            late = late or known < now
        if pool.count[RUNNING] == 0:
            pool.number[FREE] = pool.number[CAPACITY]
        moments += 1
        _tidy(plan, now)
        late = late or (pool.count[KNOWN] > 0 and pool.known_end[0] <= now)
        waiting = plan.size[1]
        while arrived < total and jobs.submit[arrived] == now:
            # to its position in the queue
            place = waiting
            while place > 0 and jobs.rank[plan.queue[place - 1]] > jobs.rank[arrived]:
                plan.queue[place] = plan.queue[place - 1]
                place -= 1
            plan.queue[place] = arrived
            plan.at[arrived] = np.nan
            waiting += 1
            arrived += 1
        if late:
            _rebuild(jobs, pool, plan, now)
        while _make_plans(jobs, plan, waiting, late, early, tolerance) and early:
            late = False  # a job that moved forward may have made room for others
            _tidy(plan, now)
        kept = 0
        for place in range(waiting):
            job = plan.queue[place]
            if plan.at[job] <= now:
                pool.start[job] = now
                pool.number[FREE] -= jobs.size[job]
                push(pool, now + jobs.run[job], job)
                expect(pool, now + jobs.estimate[job], job)
            else:
                plan.queue[kept] = job
                kept += 1
        plan.size[1] = kept
    return moments
