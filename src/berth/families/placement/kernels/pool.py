"""One pool of processors with a queue: plays whole batch logs, event by event.

Jobs wait in a fixed order (by arrival, by length, …). At every moment at which jobs end or arrive, ended jobs leave
first; then jobs start from the head of the queue while they fit. If the head does not fit, the `mode` decides: nothing
starts (`STRICT`), any job behind it that fits (`ANY`), or only jobs that do not delay it (`EASY`).

EASY, in full: the head gets a reservation at the *shadow time*, the first moment at which enough processors will be
free if running jobs end at their estimates; jobs that run longer are assumed to end now. `extra` processors are free at
that moment besides those of the head. The others are tried in queue order, once, and start if they fit now and either
end, by their estimate, at the shadow time or before, or need no more than what is left of `extra`. There is one
reservation, that of the head, and it is recomputed at every moment.

Waiting jobs are leaves of a tree that knows the smallest size and the shortest estimate below each node, so that the
next job which can start is found without looking at those that cannot.

Axes: N jobs, M leaves (a power of two), m running jobs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.compiled import inlined, inner, lean

__all__ = ["ANY", "EASY", "STRICT", "Jobs", "Pool", "expect", "forget", "play_pool", "pop", "push", "reserve", "room"]

STRICT, EASY, ANY = 0, 1, 2
ROOM = 1e-9  # tolerance of a sum of floats, relative to 1 + the limit
ANY_SIZE = 1e300

# indices in `Pool.count`
WAITING, RUNNING, KNOWN = 0, 1, 2
# indices in `Pool.number`
FREE, CAPACITY, SHADOW, EXTRA = 0, 1, 2, 3


class Jobs(NamedTuple):
    """Jobs by arrival, every field (N,); `rank` is the position of each in the queue, `at` the job there."""

    submit: Any
    size: Any
    run: Any
    estimate: Any
    rank: Any
    at: Any


class Pool(NamedTuple):
    """State: waiting jobs as a tree (2M,), running jobs as a heap and by estimated end (N,), counts and amounts."""

    smallest: Any
    shortest: Any
    heap_time: Any
    heap_job: Any
    known_end: Any
    known_job: Any
    count: Any
    number: Any
    start: Any


# ---------------------------------------------------------------------------- waiting jobs


@inner
def _put(pool: Pool, place: int, size: float, length: float) -> None:
    """Set a leaf; inf for none."""
    node = pool.smallest.shape[0] // 2 + place
    pool.smallest[node] = size
    pool.shortest[node] = length
    node >>= 1
    while node:
        left, right = 2 * node, 2 * node + 1
        small = min(pool.smallest[left], pool.smallest[right])
        short = min(pool.shortest[left], pool.shortest[right])
        if small == pool.smallest[node] and short == pool.shortest[node]:
            break
        pool.smallest[node] = small
        pool.shortest[node] = short
        node >>= 1


@inner
def _next(pool: Pool, first: int, size: float, now: float, limit: float) -> Any:
    """First position from `first` on with a job of at most this size that, started now, ends by `limit`; -1: none."""
    leaves = pool.smallest.shape[0] // 2
    if first >= leaves:
        return -1
    node = leaves + first
    while node:
        if pool.smallest[node] <= size and now + pool.shortest[node] <= limit:
            if node >= leaves:
                return node - leaves
            node *= 2
            continue
        while node & 1:
            node >>= 1
        if node:
            node += 1
    return -1


# ---------------------------------------------------------------------------- running jobs


@inlined
def _before(time: float, job: int, other_time: float, other: int) -> Any:
    """Whether a job ends before another; of those that end together, the one that arrived first."""
    return time < other_time or (time == other_time and job < other)


@inner
def push(pool: Pool, time: float, job: int) -> None:
    """Add a job that runs until `time`."""
    place = pool.count[RUNNING]
    pool.count[RUNNING] = place + 1
    while place:
        above = (place - 1) // 2
        if not _before(time, job, pool.heap_time[above], pool.heap_job[above]):
            break
        pool.heap_time[place] = pool.heap_time[above]
        pool.heap_job[place] = pool.heap_job[above]
        place = above
    pool.heap_time[place] = time
    pool.heap_job[place] = job


@inner
def pop(pool: Pool) -> Any:
    """Remove and return the job that ends first."""
    job = pool.heap_job[0]
    size = pool.count[RUNNING] - 1
    pool.count[RUNNING] = size
    time, moved = pool.heap_time[size], pool.heap_job[size]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        right = below + 1
        if right < size and _before(
            pool.heap_time[right], pool.heap_job[right], pool.heap_time[below], pool.heap_job[below]
        ):
            below = right
        if not _before(pool.heap_time[below], pool.heap_job[below], time, moved):
            break
        pool.heap_time[place] = pool.heap_time[below]
        pool.heap_job[place] = pool.heap_job[below]
        place = below
    pool.heap_time[place] = time
    pool.heap_job[place] = moved
    return job


@inner
def _first_known(pool: Pool, end: float) -> Any:
    """First position among the estimated ends that is not before `end`."""
    low, high = 0, pool.count[KNOWN]
    while low < high:
        middle = (low + high) // 2
        if pool.known_end[middle] < end:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def expect(pool: Pool, end: float, job: int) -> None:
    """Insert the estimated end of a job."""
    place = _first_known(pool, end)
    for i in range(pool.count[KNOWN], place, -1):
        pool.known_end[i] = pool.known_end[i - 1]
        pool.known_job[i] = pool.known_job[i - 1]
    pool.known_end[place] = end
    pool.known_job[place] = job
    pool.count[KNOWN] += 1


@inner
def forget(pool: Pool, end: float, job: int) -> None:
    """Remove the estimated end of a job."""
    place = _first_known(pool, end)
    while pool.known_job[place] != job:
        place += 1
    pool.count[KNOWN] -= 1
    for i in range(place, pool.count[KNOWN]):
        pool.known_end[i] = pool.known_end[i + 1]
        pool.known_job[i] = pool.known_job[i + 1]


# ---------------------------------------------------------------------------- decisions


@inlined
def room(pool: Pool, amount: float) -> Any:
    """Largest size that fits into this amount, with a tolerance for sums of floats."""
    return amount + ROOM * (1.0 + pool.number[CAPACITY])


@inner
def _start(jobs: Jobs, pool: Pool, job: int, now: float, mode: int) -> None:
    _put(pool, jobs.rank[job], np.inf, np.inf)
    pool.count[WAITING] -= 1
    pool.start[job] = now
    pool.number[FREE] -= jobs.size[job]
    push(pool, now + jobs.run[job], job)
    if mode == EASY:
        expect(pool, now + jobs.estimate[job], job)


@inner
def reserve(jobs: Jobs, pool: Pool, need: float, now: float) -> None:
    """Compute when `need` processors will be free by the estimates, and how many more there will be then."""
    free, place, size, time = pool.number[FREE], 0, pool.count[KNOWN], now
    while place < size and need > room(pool, free):
        time = max(pool.known_end[place], now)
        free += jobs.size[pool.known_job[place]]
        place += 1
    while place < size and pool.known_end[place] <= time:
        free += jobs.size[pool.known_job[place]]
        place += 1
    pool.number[SHADOW] = time
    pool.number[EXTRA] = free - need


@inner
def _backfill(jobs: Jobs, pool: Pool, place: int, now: float) -> None:
    """Start jobs from this position on that do not delay the head."""
    while place >= 0:
        free, extra = room(pool, pool.number[FREE]), room(pool, pool.number[EXTRA])
        small = _next(pool, place, min(free, extra), now, np.inf)
        short = _next(pool, place, free, now, pool.number[SHADOW])
        place = short if small < 0 or 0 <= short < small else small
        if place < 0:
            return
        job = jobs.at[place]
        if now + jobs.estimate[job] > pool.number[SHADOW]:
            pool.number[EXTRA] -= jobs.size[job]
        _start(jobs, pool, job, now, EASY)
        place += 1


@inner
def _decide(jobs: Jobs, pool: Pool, now: float, mode: int) -> Any:
    """Start jobs by the mode; return the position of the head that does not fit, -1 for none."""
    place = 0
    while pool.count[WAITING]:
        place = _next(pool, place, ANY_SIZE, now, np.inf)
        if place < 0:
            return -1
        head = jobs.at[place]
        if jobs.size[head] > room(pool, pool.number[FREE]):
            if mode == EASY:
                reserve(jobs, pool, jobs.size[head], now)
                _backfill(jobs, pool, place + 1, now)
                return place
            if mode == STRICT:
                return place
            place = _next(pool, place + 1, room(pool, pool.number[FREE]), now, np.inf)
            if place < 0:
                return -1
            head = jobs.at[place]
        _start(jobs, pool, head, now, mode)
        place += 1
    return -1


@lean
def play_pool(jobs: Jobs, pool: Pool, mode: int) -> int:
    """Play all jobs; `pool.start` (N,) gets the start of each. Return the number of moments with an event.

    Every job must fit into the empty pool.
    """
    total = jobs.submit.shape[0]
    arrived, moments, blocked = 0, 0, -1
    while arrived < total or pool.count[RUNNING]:
        now = np.inf
        if arrived < total:
            now = jobs.submit[arrived]
        ended = pool.count[RUNNING] > 0 and pool.heap_time[0] <= now
        if ended:
            now = pool.heap_time[0]
            while pool.count[RUNNING] and pool.heap_time[0] == now:
                job = pop(pool)
                pool.number[FREE] += jobs.size[job]
                if mode == EASY:
                    forget(pool, pool.start[job] + jobs.estimate[job], job)
            if pool.count[RUNNING] == 0:
                pool.number[FREE] = pool.number[CAPACITY]  # exactly, without rounding errors
        first = arrived
        while arrived < total and jobs.submit[arrived] == now:
            _put(pool, jobs.rank[arrived], jobs.size[arrived], jobs.estimate[arrived])
            arrived += 1
        pool.count[WAITING] += arrived - first
        moments += 1
        if not ended and blocked >= 0 and jobs.rank[first] > blocked and arrived == first + 1:
            # the head still does not fit, and jobs that could not start before cannot now: only the new one may
            if mode == STRICT:
                continue
            if mode == EASY and pool.number[SHADOW] >= now:
                small = jobs.size[first] <= room(pool, pool.number[FREE])
                late = now + jobs.estimate[first] > pool.number[SHADOW]
                if small and (not late or jobs.size[first] <= room(pool, pool.number[EXTRA])):
                    if late:
                        pool.number[EXTRA] -= jobs.size[first]
                    _start(jobs, pool, first, now, mode)
                continue
        blocked = _decide(jobs, pool, now, mode)
    return moments
