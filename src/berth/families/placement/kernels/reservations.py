"""Reservations for all waiting tasks on any cluster: conservative backfilling, as in
`berth.families.placement.kernels.pool_reservations`.

Free capacity in the future is a step function: `amount[b]` (R, K) from `time[b]` until `time[b + 1]`.

Axes: n tasks, m berths, B steps, R servers, K resources.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.gathering import Classes, Fleet, Free, Pieces, Rows, gather
from berth.families.placement.kernels.queueing import Ends
from berth.kernels.compiled import inner, lean

__all__ = ["Staircase", "plan_all"]


class Staircase(NamedTuple):
    """Times (B,) and free amounts (B, R, K), the first `size[0]` steps in use; `lowest` (R, K) is scratch."""

    time: Any
    amount: Any
    size: Any
    lowest: Free


@inner
def _step(stairs: Staircase, time: float) -> Any:
    """Step that begins at `time`, inserted if missing."""
    place = stairs.size[0]
    while place > 0 and stairs.time[place - 1] >= time:
        place -= 1
    if place < stairs.size[0] and stairs.time[place] == time:
        return place
    servers, resources = stairs.amount.shape[1], stairs.amount.shape[2]
    for b in range(stairs.size[0], place, -1):
        stairs.time[b] = stairs.time[b - 1]
        for r in range(servers):
            for k in range(resources):
                stairs.amount[b, r, k] = stairs.amount[b - 1, r, k]
    stairs.time[place] = time
    for r in range(servers):
        for k in range(resources):
            stairs.amount[place, r, k] = stairs.amount[place - 1, r, k]
    stairs.size[0] += 1
    return place


@inner
def _hold(stairs: Staircase, start: float, end: float, pieces: Pieces, first: int, rows: Rows, sign: float) -> None:
    """Subtract the rows of one task, from `first` on, between `start` and `end`; sign -1 gives them back."""
    begin = _step(stairs, start)
    until = _step(stairs, end)
    i, row = rows.task[first], first
    while row < rows.task.shape[0] and rows.task[row] == i:
        r = rows.server[row]
        for b in range(begin, until):
            for k in range(stairs.amount.shape[2]):
                stairs.amount[b, r, k] -= sign * pieces.demand[i, k] * rows.count[row]
        row += 1


@inner
def _earliest(
    fleet: Fleet,
    stairs: Staircase,
    classes: Classes,
    pieces: Pieces,
    i: int,
    length: float,
    rule: int,
    first: int,
    rows: Rows,
) -> Any:
    """First moment from which all pieces of task i fit for its length, with its rows; inf for never."""
    servers, resources = stairs.amount.shape[1], stairs.amount.shape[2]
    for b in range(stairs.size[0]):
        start = stairs.time[b]
        for r in range(servers):
            for k in range(resources):
                stairs.lowest.amount[r, k] = stairs.amount[b, r, k]
        for c in range(b + 1, stairs.size[0]):
            if stairs.time[c] >= start + length:
                break
            for r in range(servers):
                for k in range(resources):
                    stairs.lowest.amount[r, k] = min(stairs.lowest.amount[r, k], stairs.amount[c, r, k])
        size = gather(fleet, stairs.lowest, classes, pieces, i, rule, first, rows)
        if size:
            for row in range(first + size, first + min(pieces.count[i], servers)):
                rows.task[row] = -1
            return start
    return np.inf


@inner
def _build(
    free: Free,
    pieces: Pieces,
    order: Any,
    length: Any,
    ends: Ends,
    now: float,
    anew: bool,
    at: Any,
    place: Any,
    stairs: Staircase,
    rows: Rows,
) -> None:
    """Build the step function of running tasks and, unless `anew`, of planned ones."""
    stairs.size[0] = 1
    stairs.time[0] = now
    for r in range(free.amount.shape[0]):
        for k in range(free.amount.shape[1]):
            stairs.amount[0, r, k] = free.amount[r, k]
    for row in range(ends.size[0]):
        if ends.end[row] > now:
            b = _step(stairs, ends.end[row])
            for c in range(b, stairs.size[0]):
                for k in range(free.amount.shape[1]):
                    stairs.amount[c, ends.server[row], k] += ends.demand[row, k]
    for i in order:
        if not anew and at[i] < np.inf:
            _hold(stairs, at[i], at[i] + length[i], pieces, place[i], rows, 1.0)


@lean
def plan_all(
    order: Any,
    fleet: Fleet,
    free: Free,
    classes: Classes,
    pieces: Pieces,
    length: Any,
    rule: int,
    ends: Ends,
    now: float,
    anew: bool,
    forward: bool,
    at: Any,
    place: Any,
    stairs: Staircase,
    rows: Rows,
) -> None:
    """Plan tasks in `order` (n,): all of them (`anew`), or only those without a plan; `forward` also moves planned
    ones.

    `at` (n,) is the planned start of each, nan if unplanned, inf for never. The rows of task i are from `place[i]` on,
    as many as it has pieces or the cluster has servers, -1 as task after the last in use. `length` (n,) is its longest
    run time. `free` is what is free now; what berths hold beyond their estimated end stays held.
    """
    moved = True
    while moved:
        moved = False
        _build(free, pieces, order, length, ends, now, anew, at, place, stairs, rows)
        for i in order:
            planned = not anew and not np.isnan(at[i])
            if planned and not forward:
                continue
            if planned and at[i] < np.inf:
                _hold(stairs, at[i], at[i] + length[i], pieces, place[i], rows, -1.0)
            found = _earliest(fleet, stairs, classes, pieces, i, length[i], rule, place[i], rows)
            moved = moved or found != at[i]
            at[i] = found
            if found < np.inf:
                _hold(stairs, found, found + length[i], pieces, place[i], rows, 1.0)
        anew = False
        moved = moved and forward
