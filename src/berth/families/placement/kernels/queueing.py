"""Start waiting jobs on any cluster: a queue with or without backfilling, fair shares, packing.

Each kernel starts tasks until no more may start: it writes their places to `rows` and subtracts them from `free`.

Axes: n tasks, m berths, R servers, K resources, O owners.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.gathering import (
    ALIGNED,
    Classes,
    Fleet,
    Free,
    Pieces,
    Rows,
    aligned,
    fragments,
    gather,
    pieces_on,
    take,
)
from berth.kernels.compiled import inner, lean

__all__ = ["ANY", "EASY", "STRICT", "Ends", "mean_fragments", "start_fairly", "start_in_order", "start_packed"]

STRICT, EASY, ANY = 0, 1, 2


class Ends(NamedTuple):
    """Berths by ascending estimated end: end and server (m,), demand (m, K); the first `size[0]` are in use."""

    end: Any
    server: Any
    demand: Any
    size: Any


@inner
def _slowest(fleet: Fleet, first: int, size: int, rows: Rows) -> Any:
    speed = np.inf
    for row in range(first, first + size):
        speed = min(speed, fleet.speed[rows.server[row]])
    return speed


@inner
def _expect(fleet: Fleet, pieces: Pieces, ends: Ends, now: float, first: int, size: int, rows: Rows) -> None:
    """Insert the rows of a task that starts now into the estimated ends."""
    end = now + pieces.work[rows.task[first]] / _slowest(fleet, first, size, rows)
    for row in range(first, first + size):
        place = ends.size[0]
        while place > 0 and ends.end[place - 1] > end:
            ends.end[place] = ends.end[place - 1]
            ends.server[place] = ends.server[place - 1]
            for k in range(ends.demand.shape[1]):
                ends.demand[place, k] = ends.demand[place - 1, k]
            place -= 1
        ends.end[place] = end
        ends.server[place] = rows.server[row]
        for k in range(ends.demand.shape[1]):
            ends.demand[place, k] = pieces.demand[rows.task[row], k] * rows.count[row]
        ends.size[0] += 1


@inner
def _reserve(
    fleet: Fleet,
    free: Free,
    future: Free,
    classes: Classes,
    pieces: Pieces,
    i: int,
    rule: int,
    ends: Ends,
    now: float,
    rows: Rows,
) -> Any:
    """First moment at which task i fits by the estimates; `future` is what is free then beside it. inf: never."""
    for r in range(free.amount.shape[0]):
        for k in range(free.amount.shape[1]):
            future.amount[r, k] = free.amount[r, k]
    place, count, first = 0, ends.size[0], rows.size[0]
    while place < count:
        time = max(ends.end[place], now)
        while place < count and ends.end[place] <= time:
            r = ends.server[place]
            for k in range(free.amount.shape[1]):
                future.amount[r, k] += ends.demand[place, k]
            place += 1
        size = gather(fleet, future, classes, pieces, i, rule, first, rows)
        if size:
            take(fleet, future, pieces, first, size, rows)
            return time
    return np.inf


@inner
def _narrow(free: Free, future: Free, both: Free, r: int) -> None:
    for k in range(free.amount.shape[1]):
        both.amount[r, k] = min(free.amount[r, k], future.amount[r, k])


@lean
def start_in_order(
    order: Any,
    fleet: Fleet,
    free: Free,
    future: Free,
    both: Free,
    classes: Classes,
    pieces: Pieces,
    rule: int,
    backfill: int,
    ends: Ends,
    now: float,
    rows: Rows,
) -> None:
    """Start tasks in `order` (n,) while they fit; then none (`STRICT`), every task that fits (`ANY`), or every task
    that does not delay the first that did not fit (`EASY`, as in `berth.families.placement.kernels.pool`, with the
    head's reservation on servers).

    `future` and `both` are scratch; `ends` needs room for the new rows.
    """
    shadow, waiting = np.inf, False
    for place in range(order.shape[0]):
        i, first = order[place], rows.size[0]
        size = gather(fleet, free, classes, pieces, i, rule, first, rows)
        if size == 0:
            if backfill == STRICT:
                return
            if backfill == EASY and not waiting:
                shadow, waiting = _reserve(fleet, free, future, classes, pieces, i, rule, ends, now, rows), True
                for r in range(free.amount.shape[0]):
                    _narrow(free, future, both, r)
            continue
        late = waiting and now + pieces.work[i] / _slowest(fleet, first, size, rows) > shadow
        if late:  # must not use the head's place
            size = gather(fleet, both, classes, pieces, i, rule, first, rows)
            if size == 0:
                continue
            late = now + pieces.work[i] / _slowest(fleet, first, size, rows) > shadow
        take(fleet, free, pieces, first, size, rows)
        if late:
            take(fleet, future, pieces, first, size, rows)
        if waiting:
            for row in range(first, first + size):
                _narrow(free, future, both, rows.server[row])
        elif backfill == EASY:
            _expect(fleet, pieces, ends, now, first, size, rows)
        rows.size[0] += size


@lean
def start_fairly(
    fleet: Fleet,
    free: Free,
    classes: Classes,
    pieces: Pieces,
    rule: int,
    used: Any,
    total: Any,
    next_of: Any,
    head_of: Any,
    rows: Rows,
) -> None:
    """Dominant Resource Fairness: repeatedly, the owner with the smallest dominant share starts its next task.

    `used` (O, K) is what owners hold, of `total` (K,). Tasks of an owner are a linked list from `head_of` (O,) by
    `next_of` (n,), -1 at its end. An owner whose next task does not fit is not tried again.
    """
    while True:
        poorest, least = -1, np.inf
        for owner in range(head_of.shape[0]):
            if head_of[owner] < 0:
                continue
            share = 0.0
            for k in range(total.shape[0]):
                if total[k] > 0.0:
                    share = max(share, used[owner, k] / total[k])
            if share < least:
                poorest, least = owner, share
        if poorest < 0:
            return
        i, first = head_of[poorest], rows.size[0]
        size = gather(fleet, free, classes, pieces, i, rule, first, rows)
        if size == 0:
            head_of[poorest] = -1
            continue
        take(fleet, free, pieces, first, size, rows)
        for k in range(total.shape[0]):
            used[poorest, k] += pieces.demand[i, k] * pieces.count[i]
        rows.size[0] += size
        head_of[poorest] = next_of[i]


@inner
def _best_alignment(fleet: Fleet, free: Free, pieces: Pieces, i: int, best: Any, where: Any) -> None:
    best[i], where[i] = -np.inf, -1
    for r in range(fleet.speed.shape[0]):
        if pieces_on(fleet, free, pieces, i, r, 1) > 0:
            product = aligned(fleet, free, pieces, i, r)
            if product > best[i]:
                best[i], where[i] = product, r


@lean
def start_packed(
    fleet: Fleet, free: Free, classes: Classes, pieces: Pieces, hurry: float, best: Any, where: Any, rows: Rows
) -> None:
    """Tetris: repeatedly start the task with the largest best alignment less `hurry` times its work.

    Alignment and work are relative to their means over the tasks that fit at the beginning. `best` and `where` (n,) are
    scratch.
    """
    size_of = pieces.work.shape[0]
    mean, length, count = 0.0, 0.0, 0
    for i in range(size_of):
        _best_alignment(fleet, free, pieces, i, best, where)
        if where[i] >= 0:
            mean += best[i]
            length += pieces.work[i]
            count += 1
    if count == 0:
        return
    mean, length = mean / count, length / count
    while True:
        chosen, score = -1, -np.inf
        for i in range(size_of):
            if where[i] < 0:
                continue
            gain = (best[i] / mean if mean > 0.0 else 0.0) - hurry * pieces.work[i] / length
            if gain > score:
                chosen, score = i, gain
        if chosen < 0:
            return
        first = rows.size[0]
        size = gather(fleet, free, classes, pieces, chosen, ALIGNED, first, rows)
        where[chosen] = -1
        if size == 0:
            continue
        take(fleet, free, pieces, first, size, rows)
        rows.size[0] += size
        for i in range(size_of):
            stale = False
            for row in range(first, first + size):
                stale = stale or where[i] == rows.server[row]
            if stale:
                _best_alignment(fleet, free, pieces, i, best, where)


@lean
def mean_fragments(fleet: Fleet, free: Free, classes: Classes) -> float:
    """Expected free devices of all servers that a task drawn from the classes cannot use."""
    total = 0.0
    for r in range(fleet.speed.shape[0]):
        total += fragments(fleet, free, classes, r)
    return total
