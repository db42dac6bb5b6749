"""State of a placement run: its tables, the ends of running tasks, and the heaps of waiting ones.

A task that pays ends by its deadline, so all ends lie in a known span: they are kept in equal intervals of it, and only
those of the current interval in a heap. Waiting tasks are in one pairing heap for each kind of server and each whole
number of units they need.

Axes: N tasks, R servers, Q kinds, K resources, D numbers of units that tasks need, B intervals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from berth.kernels.compiled import inlined, inner

# columns of `task`, read when it is placed
ARRIVAL, WORK, VALUE, DECAY, DEADLINE, HEAVY, START, TURN = range(8)
# columns of `held`, read when it ends; then its demand
END, SERVER, NEXT, NUMBER, DEMAND = range(5)
WAITING, DROPPED = -1, -2
# columns of `kind`; then the capacity of each resource, then the tolerance of a sum above it
SPEED, RATE, DEAR, LAUNCH, DISCOUNTED, CAPACITY = range(6)
# entries of `counts`
ENDS, NEAR, INTERVAL, QUEUE, EVENTS, LAUNCHES, LAUNCHED = range(7)


class Run(NamedTuple):
    """All other changing state of a run. Node q·N + turn stands for a task in the heaps of kind q."""

    task: Any  # (N, 8)
    held: Any  # (N, 4 + K) end, server or `WAITING` or `DROPPED`, next task of the same interval, number as given
    kind: Any  # (Q, 5 + 2 K)
    free: Any  # (R, K + 1) of each resource; last, until when the server is on
    of_turn: Any  # (N,) tasks by turn
    root: Any  # (Q, D) of heaps, -1: empty
    link: Any  # (Q·N, 2) first child and next sibling
    aside: Any  # (N,) tasks taken out while others are tried
    asked: Any  # (N,) tasks to place now
    queue: Any  # (N,) waiting tasks, in the order in which they began to wait
    interval: Any  # (B,) the first task that ends in it, -1: none
    near_time: Any  # (N,) heap of the ends of the current interval
    near_task: Any  # (N,)
    sums: Any  # (3,) value, execution, launch
    counts: Any  # (7,) ends to come, those in the heap, the current interval, length of the queue, events so far,
    #              launches at this moment, the server launched last
    span: Any  # (2,) start of the intervals, their number per unit of time


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
def pop_near(run: Run) -> Any:
    """Remove the first end, and return its task."""
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
def interval_of(run: Run, time: float) -> Any:
    at = (time - run.span[0]) * run.span[1]
    return int(min(at, run.interval.shape[0] - 1.0))


@inlined
def push_end(run: Run, time: float, i: int) -> None:
    run.counts[ENDS] += 1
    at = interval_of(run, time)
    if at <= run.counts[INTERVAL]:
        _push_near(run, time, i)
    else:
        run.held[i, NEXT] = run.interval[at]
        run.interval[at] = i


@inner
def approach(run: Run, until: int) -> None:
    """Go to the next interval with an end in it, or to interval `until`."""
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
def push_waiting(run: Run, kind: int, i: int) -> None:
    node, need = kind * run.task.shape[0] + int(run.task[i, TURN]), int(run.held[i, DEMAND])
    run.link[node, 0] = -1
    run.link[node, 1] = -1
    run.root[kind, need] = _meld(run.link, run.root[kind, need], node)


@inner
def rest_of(link: Any, root: int) -> int:
    """The heap without its first element."""
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
