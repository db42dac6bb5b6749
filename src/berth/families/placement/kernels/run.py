"""A whole placement run in one call: events, waiting tasks, greedy placement through an index.

The same as asking `families.placement.kernels.greedy.place_now` at every event about every task that waits, but

* the best server of a kind is the first on its lowest shelf that fits (`families.placement.kernels.berth_index`);
* scores only fall with time, so that when a batch arrives only its own tasks can find a place, and when a task ends or
  launches a server only that server can newly take one. Only when several things happen at once is everything asked
  again;
* tasks that wait stand in one heap for each kind of server and each whole number of units they need; one that no
  longer pays on a kind never will again, and leaves that heap for good;
* a task that pays ends by its deadline, so that all ends lie in a known span: they are kept in equal intervals of it,
  and only those of the present interval in a heap.

Tasks are numbered in the order in which they come to be asked: by arrival, then by turn. The **turn** of a task is its
place among all when they are sorted by rank.

Axes: N tasks, R servers, Q kinds, K resources, D numbers of units that tasks need, B intervals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.berth_index import (
    DEPTH,
    FIRST_MEMBER,
    KIND,
    RUNNING,
    SHELF,
    Shelves,
    fill_shelves,
    move,
    next_rank,
    next_shelf,
)
from berth.families.placement.kernels.greedy import ROOM, Batch, Servers, worth
from berth.kernels.compiled import inlined, inner, lean

# columns of `task`, what is read when it is placed
ARRIVAL, WORK, VALUE, DECAY, DEADLINE, HEAVY, START, TURN = range(8)
# columns of `held`, what is read when it ends; then its demand
END, SERVER, NEXT, NUMBER, DEMAND = range(5)
WAITING, DROPPED = -1, -2
# columns of `kind`; then the capacity of each resource, then how far a sum may exceed it
SPEED, RATE, DEAR, LAUNCH, DISCOUNTED, CAPACITY = range(6)
# entries of `counts`
ENDS, NEAR, INTERVAL, QUEUE, EVENTS, LAUNCHES, LAUNCHED = range(7)


class Run(NamedTuple):
    """Everything else that changes in a run. Node q·N + turn stands for a task in the heaps of kind q."""

    task: Any  # (N, 8)
    held: Any  # (N, 4 + K) end, server or `WAITING` or `DROPPED`, next task of the same interval, number as given
    kind: Any  # (Q, 5 + 2 K)
    free: Any  # (R, K + 1) of each resource; last, until when the server is on
    of_turn: Any  # (N,) tasks by turn
    root: Any  # (Q, D) of heaps, -1: empty
    link: Any  # (Q·N, 2) first child and next sibling
    aside: Any  # (N,) tasks taken out while others are looked at
    asked: Any  # (N,) tasks to place now
    queue: Any  # (N,) tasks that had to wait, in the order in which they began to
    interval: Any  # (B,) the first task that ends in it, -1: none
    near_time: Any  # (N,) heap of the ends of the present interval
    near_task: Any  # (N,)
    sums: Any  # (3,) value, execution, launch
    counts: Any  # (7,) ends to come, those in the heap, the present interval, length of the queue, events so far,
    #              launches at this moment, the server launched last
    span: Any  # (2,) where intervals begin, how many there are in a unit of time


# ---------------------------------------------------------------------------- ends


@inlined
def _before(run: Run, time: float, i: int, b: int) -> Any:
    return time < run.near_time[b] or (
        time == run.near_time[b] and run.held[i, NUMBER] < run.held[run.near_task[b], NUMBER]
    )


@inlined
def _push_near(run: Run, time: float, i: int) -> None:
    at = run.counts[NEAR]
    run.counts[NEAR] = at + 1
    while at > 0:
        up = (at - 1) >> 2
        if not _before(run, time, i, up):
            break
        run.near_time[at] = run.near_time[up]
        run.near_task[at] = run.near_task[up]
        at = up
    run.near_time[at] = time
    run.near_task[at] = i


@inlined
def _pop_near(run: Run) -> Any:
    """Remove the first end, and say whose it is."""
    found = run.near_task[0]
    last = run.counts[NEAR] - 1
    run.counts[NEAR] = last
    time, i = run.near_time[last], run.near_task[last]
    at = 0
    while True:
        down = 4 * at + 1
        if down >= last:
            break
        least = down
        for other in range(down + 1, min(down + 4, last)):
            if _before(run, run.near_time[other], run.near_task[other], least):
                least = other
        if _before(run, time, i, least):
            break
        run.near_time[at] = run.near_time[least]
        run.near_task[at] = run.near_task[least]
        at = least
    run.near_time[at] = time
    run.near_task[at] = i
    return found


@inlined
def _interval(run: Run, time: float) -> Any:
    at = (time - run.span[0]) * run.span[1]
    return int(min(at, run.interval.shape[0] - 1.0))


@inlined
def _push_end(run: Run, time: float, i: int) -> None:
    run.counts[ENDS] += 1
    at = _interval(run, time)
    if at <= run.counts[INTERVAL]:
        _push_near(run, time, i)
    else:
        run.held[i, NEXT] = run.interval[at]
        run.interval[at] = i


@inner
def _approach(run: Run, until: int) -> None:
    """Go on to the next interval with an end in it, or to interval `until`."""
    at = run.counts[INTERVAL]
    while at < until and run.counts[NEAR] == 0:
        at += 1
        i = run.interval[at]
        while i >= 0:
            _push_near(run, run.held[i, END], i)
            i = int(run.held[i, NEXT])
    run.counts[INTERVAL] = at


# ---------------------------------------------------------------------------- waiting tasks, pairing heaps


@inlined
def _meld(link: Any, a: int, b: int) -> Any:
    if a < 0:
        return b
    if b < 0:
        return a
    if b < a:
        a, b = b, a
    link[b, 1] = link[a, 0]
    link[a, 0] = b
    return a


@inlined
def _push_waiting(run: Run, kind: int, i: int) -> None:
    node, need = kind * run.task.shape[0] + int(run.task[i, TURN]), int(run.held[i, DEMAND])
    run.link[node, 0] = -1
    run.link[node, 1] = -1
    run.root[kind, need] = _meld(run.link, run.root[kind, need], node)


@inner
def _rest(link: Any, root: int) -> int:
    """The heap without its first."""
    node = link[root, 0]
    pairs = -1  # melded pairs, the latest first
    while node >= 0:
        a = node
        b = link[a, 1]
        node = -1 if b < 0 else link[b, 1]
        link[a, 1] = -1
        if b >= 0:
            link[b, 1] = -1
        a = _meld(link, a, b)
        link[a, 1] = pairs
        pairs = a
    whole = -1
    while pairs >= 0:
        after = link[pairs, 1]
        link[pairs, 1] = -1
        whole = _meld(link, whole, pairs)
        pairs = after
    return whole


# ---------------------------------------------------------------------------- placing


@inlined
def _score(run: Run, i: int, kind: int, now: float) -> Any:
    """The score of task i on a kind of server, launch apart, as `families.placement.kernels.greedy.score_at` has it."""
    task = run.task
    time = task[i, WORK] / run.kind[kind, SPEED]
    gain = worth(task[i, VALUE], task[i, DECAY], task[i, ARRIVAL], task[i, DEADLINE], now + time)
    return gain - run.kind[kind, DEAR] * task[i, HEAVY] * time


@inlined
def _fits(run: Run, i: int, r: int, kind: int) -> Any:
    resources = run.held.shape[1] - DEMAND
    inside = True
    for k in range(resources):
        slack = run.kind[kind, CAPACITY + resources + k]
        inside = inside and run.held[i, DEMAND + k] <= run.free[r, k] + slack
    return inside


@inlined
def _fits_empty(run: Run, i: int, kind: int) -> Any:
    resources = run.held.shape[1] - DEMAND
    inside = True
    for k in range(resources):
        slack = run.kind[kind, CAPACITY + resources + k]
        inside = inside and run.held[i, DEMAND + k] <= run.kind[kind, CAPACITY + k] + slack
    return inside


@inlined
def _units(run: Run, r: int, kind: int) -> Any:
    return int(run.free[r, 0] + run.kind[kind, CAPACITY + (run.held.shape[1] - DEMAND)])


@inlined
def _begin(shelves: Shelves, run: Run, i: int, r: int, now: float) -> None:
    """Start task i on server r."""
    kind, resources = shelves.place[r, KIND], (run.held.shape[1] - DEMAND)
    if shelves.place[r, RUNNING] == 0 and not now <= run.free[r, resources]:
        run.sums[2] += run.kind[kind, LAUNCH]
        run.counts[LAUNCHES] += 1
        run.counts[LAUNCHED] = r
    for k in range(resources):
        run.free[r, k] -= run.held[i, DEMAND + k]
    shelves.place[r, RUNNING] += 1
    run.free[r, resources] = np.inf
    move(shelves, r, _units(run, r, kind))
    task = run.task
    end = now + task[i, WORK] / run.kind[kind, SPEED]
    run.sums[0] += worth(task[i, VALUE], task[i, DECAY], task[i, ARRIVAL], task[i, DEADLINE], end)
    run.sums[1] += run.kind[kind, RATE] * task[i, HEAVY] * (end - now)
    run.held[i, SERVER] = r
    task[i, START] = now
    run.held[i, END] = end
    _push_end(run, end, i)


@inlined
def _end(shelves: Shelves, run: Run, i: int, now: float, idle: float) -> Any:
    """Free what task i had, and say of which server."""
    r, resources = int(run.held[i, SERVER]), run.held.shape[1] - DEMAND
    kind = shelves.place[r, KIND]
    running = shelves.place[r, RUNNING] - 1
    shelves.place[r, RUNNING] = running
    if running == 0:
        for k in range(resources):
            run.free[r, k] = run.kind[kind, CAPACITY + k]
        run.free[r, resources] = now + idle
    else:
        for k in range(resources):
            run.free[r, k] += run.held[i, DEMAND + k]
    move(shelves, r, _units(run, r, kind))
    return r


@inlined
def _first_on(shelves: Shelves, run: Run, i: int, kind: int, now: float) -> Any:
    """The launched server of a kind that task i goes to, -1 when none has room.

    A server that has been idle for too long is off: it is moved when it is met.
    """
    off = shelves.kinds[kind, DEPTH] + 1
    shelf = next_shelf(shelves, kind, int(run.held[i, DEMAND]))
    while 0 <= shelf < off:
        rank = next_rank(shelves, kind, shelf, 0)
        while rank >= 0:
            r = shelves.member[shelves.kinds[kind, FIRST_MEMBER] + rank]
            if not now <= run.free[r, (run.held.shape[1] - DEMAND)]:
                move(shelves, r, off)
            elif _fits(run, i, r, kind):
                return r
            rank = next_rank(shelves, kind, shelf, rank + 1)
        shelf = next_shelf(shelves, kind, shelf + 1)
    return -1


@inlined
def _place(shelves: Shelves, run: Run, i: int, now: float) -> bool:
    """Start task i where its score is largest, if that is above 0 anywhere."""
    best, best_score, best_units = -1, 0.0, 0
    for kind in range(shelves.kinds.shape[0]):
        score = _score(run, i, kind, now)
        if score <= 0.0 or score < best_score:
            continue
        r = _first_on(shelves, run, i, kind, now)
        if r >= 0:
            left = shelves.place[r, SHELF]
            if score > best_score or left < best_units or (left == best_units and r < best):
                best, best_score, best_units = r, score, left
        score -= run.kind[kind, DISCOUNTED]
        if score <= 0.0 or score < best_score:
            continue
        depth = shelves.kinds[kind, DEPTH]
        rank = next_rank(shelves, kind, depth + 1, 0)
        if rank >= 0 and _fits_empty(run, i, kind):
            r = shelves.member[shelves.kinds[kind, FIRST_MEMBER] + rank]
            if score > best_score or depth < best_units or (depth == best_units and r < best):
                best, best_score, best_units = r, score, depth
    if best >= 0:
        _begin(shelves, run, i, best, now)
    return best >= 0


@inner
def _wait(run: Run, i: int, now: float) -> None:
    """Let task i stand in line for every kind of server that it fits and pays on."""
    some = False
    for kind in range(run.kind.shape[0]):
        if _score(run, i, kind, now) > 0.0 and _fits_empty(run, i, kind):
            _push_waiting(run, kind, i)
            some = True
    if some:
        run.queue[run.counts[QUEUE]] = i
        run.counts[QUEUE] += 1
    else:
        run.held[i, SERVER] = DROPPED


@inner
def _refill(shelves: Shelves, run: Run, r: int, now: float) -> None:
    """Give what server r has free to tasks that wait."""
    kind, tasks = shelves.place[r, KIND], run.task.shape[0]
    aside = 0
    while True:
        best, best_need = -1, -1
        for need in range(min(_units(run, r, kind), run.root.shape[1] - 1) + 1):
            node = run.root[kind, need]
            if node >= 0 and (best < 0 or node < best):
                best, best_need = node, need
        if best < 0:
            break
        run.root[kind, best_need] = _rest(run.link, best)
        i = run.of_turn[best - kind * tasks]
        if run.held[i, SERVER] != WAITING or _score(run, i, kind, now) <= 0.0:
            continue
        if _fits(run, i, r, kind):
            _begin(shelves, run, i, r, now)
        else:
            run.aside[aside] = i
            aside += 1
    for a in range(aside):
        _push_waiting(run, kind, run.aside[a])


@inner
def _sort(run: Run, size: int) -> None:
    """Sort the first `size` tasks that are asked by turn."""
    items, spare = run.asked, run.aside
    width = 1
    while width < size:
        for begin in range(0, size, 2 * width):
            middle, end = min(begin + width, size), min(begin + 2 * width, size)
            a, b = begin, middle
            for at in range(begin, end):
                if a < middle and (b >= end or run.task[items[a], TURN] < run.task[items[b], TURN]):
                    spare[at] = items[a]
                    a += 1
                else:
                    spare[at] = items[b]
                    b += 1
        for at in range(size):
            items[at] = spare[at]
        width *= 2


@inner
def _join(run: Run, now: float, size: int, after: int) -> int:
    """Add to `size` tasks that are asked those that wait and whose turn comes later than `after`; sort them."""
    left = 0
    for a in range(run.counts[QUEUE]):
        i = run.queue[a]
        if run.held[i, SERVER] == WAITING and run.task[i, DEADLINE] > now:
            run.queue[left] = i
            left += 1
            if run.task[i, TURN] > after:
                run.asked[size] = i
                size += 1
    run.counts[QUEUE] = left
    _sort(run, size)
    return size


# ---------------------------------------------------------------------------- the run


@inlined
def set_price(run: Run, beta: float, toll: float) -> None:
    """From now on scores count `beta` of the launch cost and `toll` for each weighted unit and time."""
    for kind in range(run.kind.shape[0]):
        run.kind[kind, DEAR] = run.kind[kind, RATE] + toll
        run.kind[kind, DISCOUNTED] = beta * run.kind[kind, LAUNCH]


@lean
def prepare(batch: Batch, servers: Servers, shelves: Shelves, run: Run, order: Any, beta: float, toll: float) -> None:
    """Fill the tables; `order` (N,) has the tasks by rank."""
    tasks, resources = batch.demand.shape
    batches = 0
    for i in range(tasks):  # how many tasks come before the batch of each
        if i > 0 and batch.arrival[i] != batch.arrival[i - 1]:
            batches = i
        run.queue[i] = batches
        run.aside[i] = 0
    for turn in range(tasks):
        number = order[turn]
        first = run.queue[number]
        i = first + run.aside[first]
        run.aside[first] += 1
        run.of_turn[turn] = i
        run.held[i, NUMBER] = number
        run.held[i, SERVER] = WAITING
        run.task[i, TURN] = turn
    for i in range(tasks):
        number = int(run.held[i, NUMBER])
        heavy = 0.0
        for k in range(resources):
            run.held[i, DEMAND + k] = batch.demand[number, k]
            heavy += servers.weight[k] * batch.demand[number, k]
        run.task[i, ARRIVAL] = batch.arrival[number]
        run.task[i, WORK] = batch.work[number]
        run.task[i, VALUE] = batch.value[number]
        run.task[i, DECAY] = batch.decay[number]
        run.task[i, DEADLINE] = batch.deadline[number]
        run.task[i, HEAVY] = heavy
    for kind in range(run.kind.shape[0]):
        r = shelves.member[shelves.kinds[kind, FIRST_MEMBER]]
        run.kind[kind, SPEED] = servers.speed[r]
        run.kind[kind, RATE] = servers.rate[r]
        run.kind[kind, LAUNCH] = servers.launch[r]
        for k in range(resources):
            run.kind[kind, CAPACITY + k] = servers.capacity[r, k]
            run.kind[kind, CAPACITY + resources + k] = ROOM * (1.0 + servers.capacity[r, k])
    set_price(run, beta, toll)
    for r in range(run.free.shape[0]):
        for k in range(resources):
            run.free[r, k] = servers.capacity[r, k]
        run.free[r, resources] = -np.inf
    fill_shelves(shelves)


@inner
def _place_all(shelves: Shelves, run: Run, size: int, now: float) -> None:
    for a in range(size):
        _place(shelves, run, run.asked[a], now)


@inlined
def advance(shelves: Shelves, run: Run, first: int, idle: float) -> Any:
    """Go on to the next moment at which a task ends or arrives, when those before `first` have arrived.

    Gives the moment, how many ended, on which server the last, and the first task that has still not arrived.
    """
    tasks, now, until = run.task.shape[0], np.inf, run.interval.shape[0] - 1
    if first < tasks:
        now = run.task[first, ARRIVAL]
        until = _interval(run, now)
    if run.counts[NEAR] == 0:
        _approach(run, until)
    if run.counts[NEAR] > 0:
        now = min(now, run.near_time[0])
    ended, freed = 0, -1
    while run.counts[NEAR] > 0 and run.near_time[0] == now:
        freed = _end(shelves, run, _pop_near(run), now, idle)
        ended += 1
    run.counts[ENDS] -= ended
    later = first
    while later < tasks and run.task[later, ARRIVAL] == now:
        later += 1
    run.counts[EVENTS] += ended + later - first
    run.counts[LAUNCHES] = 0
    return now, ended, freed, later


@lean
def play(shelves: Shelves, run: Run, idle: float) -> None:
    """Run all tasks to their end."""
    tasks, next_task = run.task.shape[0], 0
    while next_task < tasks or run.counts[ENDS] > 0:
        first = next_task
        now, ended, freed, next_task = advance(shelves, run, first, idle)
        for i in range(first, next_task):
            run.asked[i - first] = i
        # who may find a place: the new ones; where more than one server was freed or any was launched, all that wait
        everybody = ended > 1 or (ended == 1 and next_task > first)
        size = next_task - first
        if everybody:
            size = _join(run, now, size, -1)
        done = 0
        while done < size:
            i = run.asked[done]
            done += 1
            before = run.counts[LAUNCHES]
            if not _place(shelves, run, i, now) and i >= first:
                _wait(run, i, now)
            if run.counts[LAUNCHES] > before and not everybody and run.counts[QUEUE] > 0:
                everybody = True
                for a in range(done, size):
                    run.asked[a - done] = run.asked[a]
                size = _join(run, now, size - done, int(run.task[i, TURN]))
                done = 0
        # those that were asked before the launch are asked again
        if run.counts[LAUNCHES] > 1 and run.counts[QUEUE] > 0:
            _place_all(shelves, run, _join(run, now, 0, -1), now)
        if run.counts[LAUNCHES] == 1:
            freed = run.counts[LAUNCHED]
        elif ended != 1 or next_task > first:
            freed = -1
        if freed >= 0:
            _refill(shelves, run, freed, now)


@lean
def tell(run: Run, server: Any, start: Any) -> None:
    """Where and when each task ran, by the numbers that were given: `server` (N,), -1 for none, and `start` (N,)."""
    for i in range(run.task.shape[0]):
        number, chosen = int(run.held[i, NUMBER]), int(run.held[i, SERVER])
        server[number] = max(chosen, -1)
        start[number] = run.task[i, START] if chosen >= 0 else 0.0
