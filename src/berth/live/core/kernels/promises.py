"""Reservations for all waiting jobs: conservative backfilling.

What is free from now on is a step function: `amount[b]` (R, K) from `time[b]` until `time[b + 1]`.

Axes: n jobs, q rows of promised places, B steps, R servers, K resources.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.compiled import compiled, inner
from berth.live.core.kernels.berthing import Placed, find, room
from berth.live.core.kernels.queueing import Asked, Ends

__all__ = ["Promises", "plan_all"]


class Promises(NamedTuple):
    """Planned start of each job (n,), nan where there is no plan and infinity for never, and its places.

    Those of a job are `size` rows from `first` on (n,): role, server and number of tasks (q,).
    """

    at: Any
    first: Any
    size: Any
    role: Any
    server: Any
    count: Any


class Stairs(NamedTuple):
    """Times (B,) and free amounts (B, R, K), the first `size[0]` steps in use."""

    time: Any
    amount: Any
    size: Any


@inner
def step(stairs: Stairs, time: float) -> Any:
    """The step that begins at `time`, inserted if missing."""
    place = stairs.size[0]
    while place > 0 and stairs.time[place - 1] >= time:
        place -= 1
    if place < stairs.size[0] and stairs.time[place] == time:
        return place
    for b in range(stairs.size[0], place, -1):
        stairs.time[b] = stairs.time[b - 1]
        for r in range(stairs.amount.shape[1]):
            for k in range(stairs.amount.shape[2]):
                stairs.amount[b, r, k] = stairs.amount[b - 1, r, k]
    stairs.time[place] = time
    for r in range(stairs.amount.shape[1]):
        for k in range(stairs.amount.shape[2]):
            stairs.amount[place, r, k] = stairs.amount[place - 1, r, k]
    stairs.size[0] += 1
    return place


@inner
def hold(asked: Asked, stairs: Stairs, promises: Promises, job: int, length: float, sign: int) -> None:
    """Subtract what a job takes from its planned start on, for `length`; with a sign of -1 give it back."""
    start = promises.at[job]
    begin = step(stairs, start)
    until = step(stairs, start + length)
    for row in range(promises.first[job], promises.first[job] + promises.size[job]):
        role, r, tasks = promises.role[row], promises.server[row], sign * promises.count[row]
        for b in range(begin, until):
            for k in range(stairs.amount.shape[2]):
                stairs.amount[b, r, k] -= tasks * asked.gangs.demand[role, k]


@inner
def may_fit(asked: Asked, allowed: Any, free: Any, job: int) -> Any:
    """Whether each role of a job by itself has room for what it needs."""
    gangs = asked.gangs
    for role in range(gangs.start[job], gangs.start[job + 1]):
        wanted = gangs.minimum[role]
        for r in range(free.shape[0]):
            if wanted <= 0:
                break
            if allowed[r]:
                wanted -= room(gangs.demand, free, role, r, min(gangs.each[role], wanted))
        if wanted > 0:
            return False
    return True


@inner
def earliest(
    asked: Asked, stairs: Stairs, promises: Promises, job: int, length: float, lowest: Any, placed: Placed, done: Any
) -> Any:
    """The first moment from which a job fits for `length`, with its places; infinity for never."""
    allowed, b = asked.reach[asked.gangs.reach[job]], 0
    while b < stairs.size[0]:
        start, last, fits = stairs.time[b], b, True
        while fits and last < stairs.size[0] and stairs.time[last] < start + length:
            fits = may_fit(asked, allowed, stairs.amount[last], job)
            last += 1
        if not fits:  # the job cannot start before that step is over
            b = last
            continue
        for c in range(b, max(last, b + 1)):
            for r in range(lowest.shape[0]):
                for k in range(lowest.shape[1]):
                    amount = stairs.amount[c, r, k]
                    lowest[r, k] = amount if c == b else min(lowest[r, k], amount)
        placed.size[0] = 0
        if find(asked.gangs, asked.fit, allowed, lowest, placed, job, done):
            promises.size[job] = placed.size[0]
            for row in range(placed.size[0]):
                at = promises.first[job] + row
                promises.role[at] = placed.role[row]
                promises.server[at] = placed.server[row]
                promises.count[at] = placed.count[row]
            return start
        b += 1
    return np.inf


@inner
def build(
    asked: Asked, stairs: Stairs, promises: Promises, order: Any, length: Any, free: Any, ends: Ends, now: float,
    anew: bool,
) -> None:  # fmt: skip
    """Build the step function of running jobs and, unless `anew`, of planned ones."""
    stairs.size[0] = 1
    stairs.time[0] = now
    for r in range(free.shape[0]):
        for k in range(free.shape[1]):
            stairs.amount[0, r, k] = free[r, k] - asked.excess[r, k]
    for i in range(ends.size[0]):
        if ends.end[i] > now:
            for b in range(step(stairs, ends.end[i]), stairs.size[0]):
                for k in range(free.shape[1]):
                    stairs.amount[b, ends.server[i], k] += ends.amount[i, k]
    for job in order:
        if not anew and promises.at[job] < np.inf:
            hold(asked, stairs, promises, job, length[job], 1)


@compiled
def plan_all(
    asked: Asked, order: Any, length: Any, free: Any, ends: Ends, now: float, anew: bool, forward: bool,
    promises: Promises, placed: Placed,
) -> None:  # fmt: skip
    """Plan jobs in `order` (n,): all of them (`anew`), or only those without a plan; `forward` also moves planned ones.

    `length` (n,) is the longest run time of each. What running jobs hold beyond their estimated end stays held.
    `placed` has room for the places of a job.
    """
    steps = 1 + ends.size[0] + 4 * order.shape[0]
    amount = np.zeros((steps, free.shape[0], free.shape[1]), dtype=np.int64)
    stairs = Stairs(np.zeros(steps), amount, np.zeros(1, dtype=np.int64))
    done, lowest = np.zeros(asked.gangs.minimum.shape[0], dtype=np.bool_), np.zeros_like(free)
    moved = True
    while moved:
        moved = False
        build(asked, stairs, promises, order, length, free, ends, now, anew)
        for job in order:
            planned = not anew and not np.isnan(promises.at[job])
            if planned and not forward:
                continue
            if planned and promises.at[job] < np.inf:
                hold(asked, stairs, promises, job, length[job], -1)
            found = earliest(asked, stairs, promises, job, length[job], lowest, placed, done)
            moved = moved or found != promises.at[job]
            promises.at[job] = found
            if found < np.inf:
                hold(asked, stairs, promises, job, length[job], 1)
        anew = False
        moved = moved and forward
