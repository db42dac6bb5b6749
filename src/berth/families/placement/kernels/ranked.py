"""One pool of processors with a queue whose order changes as jobs wait.

Ended jobs leave first, then jobs arrive, and then jobs start; or, with `singly`, each end and each arrival is a moment
of its own: of the same time arrivals come first, as in RLScheduler, and then ends in the order of arrival.

The order is by a score of each job, the least first, and ties by `jobs.rank`; the score may depend on the wait, so it
is computed at every moment at which a job is picked. A job that was picked and does not fit either stays picked until
it fits (`committed`), or is picked again at the next moment. Meanwhile the mode decides which others may start:

* `STRICT`: none. `ANY`: all that fit, in the order of scores.
* `EASY`: those that do not delay the picked one, as in `berth.families.placement.kernels.pool`.
* `SHADOW`: the shadow time is computed once, when a job is picked and does not fit. While it waits, others start in the
  order of arrival if they fit and end, by their estimate, before that time. So RLScheduler (SC'20) backfills.

Axes: N jobs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.families.placement.kernels.pool import (
    ANY,
    CAPACITY,
    EASY,
    EXTRA,
    FREE,
    RUNNING,
    STRICT,
    WAITING,
    Jobs,
    Pool,
    expect,
    forget,
    pop,
    push,
    reserve,
    room,
)
from berth.families.placement.kernels.pool import SHADOW as SHADOW_TIME
from berth.kernels.compiled import inner, lean

__all__ = ["SHADOW", "play_ranked"]

SHADOW = 3


@inner
def _begin(jobs: Jobs, pool: Pool, job: int, now: float) -> None:
    pool.start[job] = now
    pool.number[FREE] -= jobs.size[job]
    push(pool, now + jobs.run[job], job)
    expect(pool, now + jobs.estimate[job], job)


@inner
def _score(jobs: Jobs, pool: Pool, waiting: Any, scores: Any, score: Any, now: float) -> None:
    """The score of each waiting job; one that is no number counts as 0."""
    for place in range(pool.count[WAITING]):
        job = waiting[place]
        if not np.isnan(pool.start[job]):
            continue
        found = score(now - jobs.submit[job], jobs.estimate[job], jobs.size[job], jobs.submit[job])
        scores[place] = 0.0 if np.isnan(found) else found


@inner
def _least(jobs: Jobs, pool: Pool, waiting: Any, scores: Any) -> Any:
    """The waiting job with the least score, the one of least rank among them; -1: none."""
    best, least = -1, np.inf
    for place in range(pool.count[WAITING]):
        job = waiting[place]
        if not np.isnan(pool.start[job]):
            continue
        if best < 0 or scores[place] < least or (scores[place] == least and jobs.rank[job] < jobs.rank[best]):
            best, least = job, scores[place]
    return best


@inner
def _passes(jobs: Jobs, pool: Pool, job: int, now: float, mode: int) -> Any:
    """Whether a job may pass the picked one."""
    if jobs.size[job] > room(pool, pool.number[FREE]):
        return False
    if mode == ANY:
        return True
    end = now + jobs.estimate[job]
    if mode == SHADOW:
        return end < pool.number[SHADOW_TIME]
    return end <= pool.number[SHADOW_TIME] or jobs.size[job] <= room(pool, pool.number[EXTRA])


@inner
def _pass(jobs: Jobs, pool: Pool, waiting: Any, scores: Any, head: int, now: float, mode: int) -> None:
    """Start the jobs that may pass the picked one, each tried once."""
    last, after = -np.inf, -1
    while True:
        place, least, first = -1, np.inf, -1
        for other in range(pool.count[WAITING]):
            job = waiting[other]
            if job == head or not np.isnan(pool.start[job]):
                continue
            at = 0.0 if mode == SHADOW else scores[other]
            rank = job if mode == SHADOW else jobs.rank[job]
            tried = at < last or (at == last and rank <= after)
            earlier = place < 0 or at < least or (at == least and rank < first)
            if not tried and earlier and _passes(jobs, pool, job, now, mode):
                place, least, first = other, at, rank
        if place < 0:
            return
        job = waiting[place]
        if mode == EASY and now + jobs.estimate[job] > pool.number[SHADOW_TIME]:
            pool.number[EXTRA] -= jobs.size[job]
        _begin(jobs, pool, job, now)
        last, after = least, first


@inner
def _decide(
    jobs: Jobs,
    pool: Pool,
    waiting: Any,
    scores: Any,
    score: Any,
    head: int,
    committed: bool,
    mode: int,
    now: float,
) -> Any:
    """Start jobs; return the picked one that does not fit, -1 for none."""
    before, stale = head, True
    while True:
        if head < 0 or not committed:
            if stale:
                _score(jobs, pool, waiting, scores, score, now)
                stale = False
            head = _least(jobs, pool, waiting, scores)
        if head < 0:
            break
        if jobs.size[head] <= room(pool, pool.number[FREE]):
            _begin(jobs, pool, head, now)
            head = -1
            continue
        if mode == EASY or (mode == SHADOW and head != before):
            reserve(jobs, pool, jobs.size[head], now)
        if stale and mode in (EASY, ANY):
            _score(jobs, pool, waiting, scores, score, now)
        if mode != STRICT:
            _pass(jobs, pool, waiting, scores, head, now, mode)
        break
    left = 0
    for place in range(pool.count[WAITING]):
        if np.isnan(pool.start[waiting[place]]):
            waiting[left] = waiting[place]
            left += 1
    pool.count[WAITING] = left
    return head


@lean
def play_ranked(
    jobs: Jobs,
    pool: Pool,
    waiting: Any,
    scores: Any,
    score: Any,
    committed: bool,
    singly: bool,
    mode: int,
) -> int:
    """Play all jobs; `pool.start` (N,) gets the start of each. Return the number of moments with an event.

    `score` is a function of wait, estimate, size and submission. `waiting` and `scores` (N,) are scratch. Every job
    must fit into the empty pool.
    """
    total, arrived, moments, head = jobs.submit.shape[0], 0, 0, -1
    while arrived < total or pool.count[RUNNING]:
        now = jobs.submit[arrived] if arrived < total else np.inf
        if pool.count[RUNNING] > 0:
            now = min(now, pool.heap_time[0])
        arrives = arrived < total and jobs.submit[arrived] == now
        while pool.count[RUNNING] and pool.heap_time[0] == now and not (singly and arrives):
            job = pop(pool)
            pool.number[FREE] += jobs.size[job]
            forget(pool, pool.start[job] + jobs.estimate[job], job)
            if singly:
                break
        if pool.count[RUNNING] == 0:
            pool.number[FREE] = pool.number[CAPACITY]  # exactly, without rounding errors
        while arrived < total and jobs.submit[arrived] == now:
            waiting[pool.count[WAITING]] = arrived
            pool.count[WAITING] += 1
            arrived += 1
            if singly:
                break
        moments += 1
        head = _decide(jobs, pool, waiting, scores, score, head, committed, mode, now)
    return moments
