"""Start jobs one after another, the next found anew after each start: fair shares of owners, and packing.

Axes: n jobs, m roles of all jobs, O owners, R servers, K resources.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.kernels.compiled import compiled, inner
from berth.live.core.kernels.berthing import Placed, cost_of, find, room
from berth.live.core.kernels.queueing import Asked

__all__ = ["start_fairly", "start_packed"]


@compiled
def start_fairly(asked: Asked, order: Any, owner: Any, used: Any, whole: Any, free: Any, placed: Placed) -> None:
    """Repeatedly, the owner with the smallest dominant share starts the next of its jobs in `order` (n,).

    `used` (O, K) is what owners hold, of `whole` (K,); `owner` (n,) is that of each job. An owner whose next job does
    not fit is not tried again (Dominant Resource Fairness, Algorithm 1).
    """
    gangs, owners = asked.gangs, used.shape[0]
    done = np.zeros(gangs.minimum.shape[0], dtype=np.bool_)
    next_of, head_of = np.full(order.shape[0], -1), np.full(owners, -1)
    for place in range(order.shape[0] - 1, -1, -1):
        job = order[place]
        next_of[job], head_of[owner[job]] = head_of[owner[job]], job
    while True:
        poorest = -1
        least = np.inf
        for o in range(owners):
            if head_of[o] < 0:
                continue
            share = 0.0
            for k in range(whole.shape[0]):
                if whole[k] > 0:
                    share = max(share, used[o, k] / whole[k])
            if share < least:
                poorest = o
                least = share
        if poorest < 0:
            return
        job, first = head_of[poorest], placed.size[0]
        if not find(gangs, asked.fit, asked.reach[gangs.reach[job]], free, placed, job, done):
            head_of[poorest] = -1
            continue
        for row in range(first, placed.size[0]):
            for k in range(whole.shape[0]):
                used[poorest, k] += placed.count[row] * gangs.demand[placed.role[row], k]
        head_of[poorest] = next_of[job]


@inner
def best_alignment(asked: Asked, free: Any, job: int, best: Any, where: Any) -> None:
    """The best alignment of a task of a job's first needed role with a server, and the server; -1 where none fits."""
    gangs = asked.gangs
    role = gangs.start[job]
    while gangs.minimum[role] == 0:
        role += 1
    best[job], where[job] = -np.inf, -1
    for r in range(free.shape[0]):
        if asked.reach[gangs.reach[job], r] and room(gangs.demand, free, role, r, 1) > 0:
            alignment = -cost_of(gangs, asked.fit, free, role, r)
            if alignment > best[job]:
                best[job] = alignment
                where[job] = r


@compiled
def start_packed(asked: Asked, hurry: float, free: Any, placed: Placed) -> None:
    """Tetris: repeatedly start the job with the largest best alignment less `hurry` times its work.

    Alignment and work are relative to their means over the jobs that fit at the beginning. The rule is `ALIGNED`.
    """
    gangs, jobs = asked.gangs, asked.work.shape[0]
    done = np.zeros(gangs.minimum.shape[0], dtype=np.bool_)
    best, where = np.zeros(jobs), np.zeros(jobs, dtype=np.int64)
    mean, length, count = 0.0, 0.0, 0
    for job in range(jobs):
        best_alignment(asked, free, job, best, where)
        if where[job] >= 0:
            mean += best[job]
            length += asked.work[job]
            count += 1
    if count == 0:
        return
    mean, length = mean / count, length / count
    while True:
        chosen = -1
        score = -np.inf
        for job in range(jobs):
            if where[job] < 0:
                continue
            gain = (best[job] / mean if mean > 0.0 else 0.0) - hurry * asked.work[job] / length
            if gain > score:
                chosen = job
                score = gain
        if chosen < 0:
            return
        first = placed.size[0]
        where[chosen] = -1
        if not find(gangs, asked.fit, asked.reach[gangs.reach[chosen]], free, placed, chosen, done):
            continue
        for job in range(jobs):
            stale = False
            for row in range(first, placed.size[0]):
                stale = stale or where[job] == placed.server[row]
            if stale:
                best_alignment(asked, free, job, best, where)
