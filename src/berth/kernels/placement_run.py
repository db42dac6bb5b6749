"""A whole placement run in one call: events, waiting tasks, greedy placement through an index.

The same as asking `kernels.placement.place_now` at every event about every task that waits, but

* the best server of a kind is the first on its lowest shelf that fits (`kernels.berth_index`);
* scores only fall with time, so that when a batch arrives only its own tasks can find a place, and when a task ends or
  launches a server only that server can newly take one. Only when several things happen at once is everything asked
  again;
* tasks that wait stand in one heap for each kind of server and each whole number of units they need; one that no
  longer pays on a kind never will again, and leaves that heap for good.

Axes: N tasks, R servers, Q kinds, K resources, D numbers of units that tasks need.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.berth_index import Shelves, fill_shelves, move, next_rank
from berth.kernels.compiled import inlined, lean
from berth.kernels.placement import Batch, Servers, fits, load, score_at, units

WAITING, RUNNING, ENDED, DROPPED = 0, 1, 2, 3


class Run(NamedTuple):
    """Everything that changes in a run. Node q·N + i stands for task i in the heaps of kind q."""

    free: Any  # (R, K)
    running: Any  # (R,)
    on_until: Any  # (R,)
    state: Any  # (N,)
    server: Any  # (N,)
    start: Any  # (N,)
    heavy: Any  # (N,) weighted demand
    need: Any  # (N,) whole units of the first resource
    root: Any  # (Q, D) of heaps, -1: empty
    child: Any  # (Q·N,)
    sibling: Any  # (Q·N,)
    aside: Any  # (N,) tasks taken out while others are looked at
    asked: Any  # (N,) tasks to place now
    spare: Any  # (N,)
    asked_rank: Any  # (N,) their ranks, where a network gives them
    queue: Any  # (N,) tasks that had to wait, in the order in which they began to
    event_time: Any  # (N,) heap of ends
    event_task: Any  # (N,)
    sums: Any  # (3,) value, execution, launch
    counts: Any  # (5,) ends to come, length of the queue, events so far, launches in this pass, server of the last


# ---------------------------------------------------------------------------- ends, a heap of fours


@inlined
def _before(run: Run, time: float, task: int, b: int) -> Any:
    return time < run.event_time[b] or (time == run.event_time[b] and task < run.event_task[b])


@inlined
def _push_end(run: Run, size: int, time: float, task: int) -> None:
    at = size
    while at > 0:
        up = (at - 1) >> 2
        if not _before(run, time, task, up):
            break
        run.event_time[at] = run.event_time[up]
        run.event_task[at] = run.event_task[up]
        at = up
    run.event_time[at] = time
    run.event_task[at] = task


@inlined
def _pop_end(run: Run, size: int) -> None:
    """Remove the first of `size` ends."""
    last = size - 1
    time, task = run.event_time[last], run.event_task[last]
    at = 0
    while True:
        down = 4 * at + 1
        if down >= last:
            break
        least = down
        for other in range(down + 1, min(down + 4, last)):
            if _before(run, run.event_time[other], run.event_task[other], least):
                least = other
        if _before(run, time, task, least):
            break
        run.event_time[at] = run.event_time[least]
        run.event_task[at] = run.event_task[least]
        at = least
    run.event_time[at] = time
    run.event_task[at] = task


# ---------------------------------------------------------------------------- waiting tasks, pairing heaps


@inlined
def _earlier(rank: Any, i: int, j: int) -> Any:
    """Whether task i is placed before task j."""
    return rank[i] > rank[j] or (rank[i] == rank[j] and i < j)


@inlined
def _first(rank: Any, tasks: int, a: int, b: int) -> Any:
    """Whether node a comes before node b of the same kind."""
    return _earlier(rank, a % tasks, b % tasks)


@inlined
def _meld(run: Run, rank: Any, tasks: int, a: int, b: int) -> Any:
    if a < 0:
        return b
    if b < 0:
        return a
    if not _first(rank, tasks, a, b):
        a, b = b, a
    run.sibling[b] = run.child[a]
    run.child[a] = b
    return a


@inlined
def _push_waiting(run: Run, rank: Any, tasks: int, kind: int, i: int) -> None:
    node = kind * tasks + i
    run.child[node] = -1
    run.sibling[node] = -1
    run.root[kind, run.need[i]] = _meld(run, rank, tasks, run.root[kind, run.need[i]], node)


@lean
def _pop_waiting(run: Run, rank: Any, tasks: int, kind: int, need: int) -> None:
    """Remove the first of a heap."""
    node = run.child[run.root[kind, need]]
    pairs = -1  # melded pairs, the latest first
    while node >= 0:
        a = node
        b = run.sibling[a]
        node = -1 if b < 0 else run.sibling[b]
        run.sibling[a] = -1
        if b >= 0:
            run.sibling[b] = -1
        a = _meld(run, rank, tasks, a, b)
        run.sibling[a] = pairs
        pairs = a
    whole = -1
    while pairs >= 0:
        after = run.sibling[pairs]
        run.sibling[pairs] = -1
        whole = _meld(run, rank, tasks, whole, pairs)
        pairs = after
    run.root[kind, need] = whole


# ---------------------------------------------------------------------------- placing


@inlined
def _begin(batch: Batch, servers: Servers, shelves: Shelves, run: Run, i: int, r: int, now: float) -> None:
    """Start task i on server r."""
    kind = shelves.kind[r]
    if run.running[r] == 0 and not now <= run.on_until[r]:
        run.sums[2] += servers.launch[r]
        run.counts[3] += 1
        run.counts[4] = r
    for k in range(run.free.shape[1]):
        run.free[r, k] -= batch.demand[i, k]
    run.running[r] += 1
    run.on_until[r] = np.inf
    move(shelves, r, shelves.first_shelf[kind] + units(run.free, servers.capacity, r))
    end = now + batch.work[i] / servers.speed[r]
    run.sums[0] += score_at(batch, i, 0.0, servers.speed[r], 0.0, 0.0, now)
    run.sums[1] += servers.rate[r] * run.heavy[i] * (end - now)
    run.state[i] = RUNNING
    run.server[i] = r
    run.start[i] = now
    _push_end(run, run.counts[0], end, i)
    run.counts[0] += 1


@inlined
def _end(batch: Batch, servers: Servers, shelves: Shelves, run: Run, i: int, now: float, idle: float) -> None:
    r = run.server[i]
    run.state[i] = ENDED
    run.running[r] -= 1
    if run.running[r] == 0:
        for k in range(run.free.shape[1]):
            run.free[r, k] = servers.capacity[r, k]
        run.on_until[r] = now + idle
    else:
        for k in range(run.free.shape[1]):
            run.free[r, k] += batch.demand[i, k]
    move(shelves, r, shelves.first_shelf[shelves.kind[r]] + units(run.free, servers.capacity, r))


@lean
def _first_on(batch: Batch, servers: Servers, shelves: Shelves, run: Run, i: int, kind: int, now: float) -> int:
    """The launched server of a kind that task i goes to, -1 when none has room.

    A server that has been idle for too long is off: it is moved when it is met.
    """
    base, off = shelves.first_shelf[kind], shelves.first_shelf[kind + 1] - 1
    for shelf in range(base + run.need[i], off):
        if shelves.size[shelf] == 0:
            continue
        rank = next_rank(shelves, shelf, 0)
        while rank >= 0:
            r = shelves.member[shelves.first_member[kind] + rank]
            if run.running[r] == 0 and not now <= run.on_until[r]:
                move(shelves, r, off)
            elif fits(batch.demand, i, run.free, servers.capacity, r):
                return int(r)
            rank = next_rank(shelves, shelf, rank + 1)
    return -1


@lean
def _place(
    batch: Batch, servers: Servers, shelves: Shelves, run: Run, i: int, now: float, beta: float, toll: float
) -> bool:
    """Start task i where its score is largest, if that is above 0 anywhere."""
    best, best_score, best_units = -1, 0.0, 0
    for kind in range(shelves.depth.shape[0]):
        sample = shelves.member[shelves.first_member[kind]]
        score = score_at(batch, i, run.heavy[i], servers.speed[sample], servers.rate[sample], toll, now)
        if score <= 0.0 or score < best_score:
            continue
        r = _first_on(batch, servers, shelves, run, i, kind, now)
        if r >= 0:
            left = shelves.shelf[r] - shelves.first_shelf[kind]
            if score > best_score or left < best_units or (left == best_units and r < best):
                best, best_score, best_units = r, score, left
        score -= beta * servers.launch[sample]
        off = shelves.first_shelf[kind + 1] - 1
        if score <= 0.0 or score < best_score or shelves.size[off] == 0:
            continue
        if fits(batch.demand, i, servers.capacity, servers.capacity, sample):
            r = shelves.member[shelves.first_member[kind] + next_rank(shelves, off, 0)]
            left = shelves.depth[kind]
            if score > best_score or left < best_units or (left == best_units and r < best):
                best, best_score, best_units = r, score, left
    if best >= 0:
        _begin(batch, servers, shelves, run, i, best, now)
    return best >= 0


@lean
def _wait(
    batch: Batch, servers: Servers, shelves: Shelves, run: Run, rank: Any, i: int, now: float, toll: float, keep: bool
) -> None:
    """Let task i stand in line for every kind of server that it fits and pays on; drop it if none, unless `keep`."""
    some = keep
    for kind in range(shelves.depth.shape[0]):
        sample = shelves.member[shelves.first_member[kind]]
        score = score_at(batch, i, run.heavy[i], servers.speed[sample], servers.rate[sample], toll, now)
        if score > 0.0 and fits(batch.demand, i, servers.capacity, servers.capacity, sample):
            _push_waiting(run, rank, batch.work.shape[0], kind, i)
            some = True
    if some:
        run.queue[run.counts[1]] = i
        run.counts[1] += 1
    else:
        run.state[i] = DROPPED


@lean
def _refill(
    batch: Batch, servers: Servers, shelves: Shelves, run: Run, rank: Any, r: int, now: float, toll: float
) -> None:
    """Give what server r has free to tasks that wait."""
    tasks, kind = batch.work.shape[0], shelves.kind[r]
    aside = 0
    while True:
        best, best_need = -1, -1
        most = min(units(run.free, servers.capacity, r), run.root.shape[1] - 1)
        for need in range(most + 1):
            node = run.root[kind, need]
            if node >= 0 and (best < 0 or _first(rank, tasks, node, best)):
                best, best_need = node, need
        if best < 0:
            break
        i = best - kind * tasks
        _pop_waiting(run, rank, tasks, kind, best_need)
        if run.state[i] != WAITING:
            continue
        if score_at(batch, i, run.heavy[i], servers.speed[r], servers.rate[r], toll, now) <= 0.0:
            continue
        if fits(batch.demand, i, run.free, servers.capacity, r):
            _begin(batch, servers, shelves, run, i, r, now)
        else:
            run.aside[aside] = i
            aside += 1
    for a in range(aside):
        _push_waiting(run, rank, tasks, kind, run.aside[a])


@lean
def _sort(rank: Any, items: Any, spare: Any, size: int) -> None:
    """Sort the first `size` tasks of `items`: larger rank first, of equal ones the smaller number."""
    width = 1
    while width < size:
        for begin in range(0, size, 2 * width):
            middle, end = min(begin + width, size), min(begin + 2 * width, size)
            a, b = begin, middle
            for at in range(begin, end):
                if a < middle and (b >= end or _earlier(rank, items[a], items[b])):
                    spare[at] = items[a]
                    a += 1
                else:
                    spare[at] = items[b]
                    b += 1
        for at in range(size):
            items[at] = spare[at]
        width *= 2


@lean
def _join(batch: Batch, run: Run, rank: Any, now: float, size: int, after: int) -> int:
    """Add to `size` tasks that are asked those that wait and come later than `after` (-1: all that wait)."""
    left = 0
    for a in range(run.counts[1]):
        i = run.queue[a]
        if run.state[i] == WAITING and batch.deadline[i] > now:
            run.queue[left] = i
            left += 1
            if after < 0 or _earlier(rank, after, i):
                run.asked[size] = i
                size += 1
    run.counts[1] = left
    return size


@lean
def play(
    batch: Batch,
    servers: Servers,
    shelves: Shelves,
    run: Run,
    rank: Any,
    beta: float,
    toll: float,
    idle: float,
) -> None:
    """Run all tasks to their end; those of larger `rank` (N,) come first."""
    tasks, next_task = batch.work.shape[0], 0
    for i in range(tasks):
        run.heavy[i] = load(servers.weight, batch.demand, i)
        run.need[i] = int(batch.demand[i, 0])
    fill_shelves(shelves)
    while next_task < tasks or run.counts[0] > 0:
        now = np.inf
        if next_task < tasks:
            now = batch.arrival[next_task]
        if run.counts[0] > 0:
            now = min(now, run.event_time[0])
        ended, freed = 0, -1
        while run.counts[0] > 0 and run.event_time[0] == now:
            i = run.event_task[0]
            _pop_end(run, run.counts[0])
            run.counts[0] -= 1
            freed = run.server[i]
            _end(batch, servers, shelves, run, i, now, idle)
            ended += 1
        first = next_task
        while next_task < tasks and batch.arrival[next_task] == now:
            next_task += 1
        run.counts[2] += ended + next_task - first
        run.counts[3] = 0
        # who may find a place: the new ones; where more than one server was freed or any was launched, all that wait
        everybody = ended > 1 or (ended == 1 and next_task > first)
        size = 0
        for i in range(first, next_task):
            run.asked[size] = i
            size += 1
        if everybody:
            size = _join(batch, run, rank, now, size, -1)
        _sort(rank, run.asked, run.aside, size)
        done = 0
        while done < size:
            i = run.asked[done]
            done += 1
            before = run.counts[3]
            placed = _place(batch, servers, shelves, run, i, now, beta, toll)
            if not placed and i >= first:
                _wait(batch, servers, shelves, run, rank, i, now, toll, False)
            if run.counts[3] > before and not everybody and run.counts[1] > 0:
                everybody = True
                for a in range(done, size):
                    run.asked[a - done] = run.asked[a]
                size = _join(batch, run, rank, now, size - done, i)
                done = 0
                _sort(rank, run.asked, run.aside, size)
        # those that were asked before the launch are asked again
        if run.counts[3] > 1 and run.counts[1] > 0:
            size = _join(batch, run, rank, now, 0, -1)
            _sort(rank, run.asked, run.aside, size)
            for a in range(size):
                _place(batch, servers, shelves, run, run.asked[a], now, beta, toll)
        if run.counts[3] == 1:
            freed = run.counts[4]
        elif ended != 1 or next_task > first:
            freed = -1
        if freed >= 0:
            _refill(batch, servers, shelves, run, rank, freed, now, toll)
