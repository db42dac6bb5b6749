"""Whole placement run in one call: events, waiting tasks, greedy placement by an index.

Equals asking `families.placement.kernels.greedy.place_now` at every event about every waiting task, but

* the best server of a kind is the first on its lowest shelf that fits (`families.placement.kernels.berth_index`);
* scores only fall with time, so when a batch arrives only its own tasks can find a place, and when a task ends or
  launches a server only that server can newly take one. Only if several things happen at once is everything tried
  again;
* waiting tasks are kept in heaps (`families.placement.kernels.run_state`); one that no longer pays on a kind of server
  never will again, and leaves the heap of that kind for good.

Tasks are numbered in the order in which they are first tried: by arrival, then by turn. The **turn** of a task is its
position among all tasks sorted by rank.

Axes: N tasks, R servers, Q kinds, K resources, D numbers of units that tasks need, B intervals.
"""

from __future__ import annotations

from typing import Any

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
from berth.families.placement.kernels.run_state import (
    ARRIVAL,
    CAPACITY,
    DEADLINE,
    DEAR,
    DECAY,
    DEMAND,
    DISCOUNTED,
    DROPPED,
    END,
    ENDS,
    EVENTS,
    HEAVY,
    LAUNCH,
    LAUNCHED,
    LAUNCHES,
    NEAR,
    NUMBER,
    QUEUE,
    RATE,
    SERVER,
    SPEED,
    START,
    TURN,
    VALUE,
    WAITING,
    WORK,
    Run,
    approach,
    interval_of,
    pop_near,
    push_end,
    push_waiting,
    rest_of,
)
from berth.kernels.compiled import inlined, inner, lean
from berth.kernels.small import sort_by

# ---------------------------------------------------------------------------- placing


@inlined
def _score(run: Run, i: int, kind: int, now: float) -> Any:
    """Score of task i on a server kind without launch cost, as in `families.placement.kernels.greedy.score_at`."""
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
    push_end(run, end, i)


@inlined
def _end(shelves: Shelves, run: Run, i: int, now: float, idle: float) -> Any:
    """Free the resources of task i, and return its server."""
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
    """Launched server of a kind that task i goes to, -1 if none has room.

    A server that has been idle for too long is off: it is moved when the search meets it.
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
    """Queue task i for every kind of server that it fits and pays on."""
    some = False
    for kind in range(run.kind.shape[0]):
        if _score(run, i, kind, now) > 0.0 and _fits_empty(run, i, kind):
            push_waiting(run, kind, i)
            some = True
    if some:
        run.queue[run.counts[QUEUE]] = i
        run.counts[QUEUE] += 1
    else:
        run.held[i, SERVER] = DROPPED


@inner
def _refill(shelves: Shelves, run: Run, r: int, now: float) -> None:
    """Give the free capacity of server r to waiting tasks."""
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
        run.root[kind, best_need] = rest_of(run.link, best)
        i = run.of_turn[best - kind * tasks]
        if run.held[i, SERVER] != WAITING or _score(run, i, kind, now) <= 0.0:
            continue
        if _fits(run, i, r, kind):
            _begin(shelves, run, i, r, now)
        else:
            run.aside[aside] = i
            aside += 1
    for a in range(aside):
        push_waiting(run, kind, run.aside[a])


@inner
def _join(run: Run, now: float, size: int, after: int) -> int:
    """Add waiting tasks whose turn is later than `after` to the `size` tasks to try; sort them."""
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
    sort_by(run.task[:, TURN], run.asked, run.aside, size)
    return size


# ---------------------------------------------------------------------------- the run


@inlined
def set_price(run: Run, beta: float, toll: float) -> None:
    """Set the weights of scores: `beta` of the launch cost and `toll` per weighted unit and time."""
    for kind in range(run.kind.shape[0]):
        run.kind[kind, DEAR] = run.kind[kind, RATE] + toll
        run.kind[kind, DISCOUNTED] = beta * run.kind[kind, LAUNCH]


@lean
def prepare(batch: Batch, servers: Servers, shelves: Shelves, run: Run, order: Any, beta: float, toll: float) -> None:
    """Fill the tables; `order` (N,) has the tasks by rank."""
    tasks, resources = batch.demand.shape
    batches = 0
    for i in range(tasks):  # number of tasks before the batch of each
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
    """Go to the next moment at which a task ends or arrives, if those before `first` have arrived.

    Returns the moment, the number of ends, the server of the last, and the first task that has still not arrived.
    """
    tasks, now, until = run.task.shape[0], np.inf, run.interval.shape[0] - 1
    if first < tasks:
        now = run.task[first, ARRIVAL]
        until = interval_of(run, now)
    if run.counts[NEAR] == 0:
        approach(run, until)
    if run.counts[NEAR] > 0:
        now = min(now, run.near_time[0])
    ended, freed = 0, -1
    while run.counts[NEAR] > 0 and run.near_time[0] == now:
        freed = _end(shelves, run, pop_near(run), now, idle)
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
        # candidates: the new tasks; if more than one server was freed or any was launched, all waiting tasks
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
        # tasks tried before the launch are tried again
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
    """Server and start of each task, by the given numbers: `server` (N,), -1 for none, and `start` (N,)."""
    for i in range(run.task.shape[0]):
        number, chosen = int(run.held[i, NUMBER]), int(run.held[i, SERVER])
        server[number] = max(chosen, -1)
        start[number] = run.task[i, START] if chosen >= 0 else 0.0
