"""Where tasks of each class fit, kept from one decision to the next.

Tasks with the same demand and port are a class. The first task of a class that is tried visits every server; later ones
visit only servers that have changed since. `find` then gives the same servers as
`berth.families.placement.kernels.gathering.gather`.

Axes: N tasks, R servers, S classes that are kept at a time, L changes that are kept (a power of two).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.gathering import (
    FIRST,
    Classes,
    Fleet,
    Free,
    Pieces,
    Rows,
    cost_of,
    pieces_on,
)
from berth.kernels.compiled import inner

__all__ = ["MANY", "Fitting", "change", "find", "refresh"]

MANY = 1 << 40
"""Number of pieces to ask for when any number would do."""


class Fitting(NamedTuple):
    """Class of each task (N,); number of pieces that fit and cost of a server (S, R); sum of pieces (S,).

    `owner` (S,) is the class that is kept, and `seen` (S,) the number of changes that it includes. `log` (L,) has the
    latest changed servers, `changes[0]` is their number, and `last` (R,) the number of each server's latest change.
    """

    kind: Any
    room: Any
    cost: Any
    total: Any
    owner: Any
    seen: Any
    log: Any
    last: Any
    changes: Any


@inner
def change(fitting: Fitting, r: int) -> None:
    """Note that what is free on server r has changed."""
    fitting.log[fitting.changes[0] & (fitting.log.shape[0] - 1)] = r
    fitting.last[r] = fitting.changes[0]
    fitting.changes[0] += 1


@inner
def _look(
    fleet: Fleet, free: Free, classes: Classes, pieces: Pieces, i: int, r: int, rule: int, fitting: Fitting, rows: Rows
) -> None:
    at = fitting.kind[i] % fitting.room.shape[0]
    count = pieces_on(fleet, free, pieces, i, r, MANY)
    fitting.total[at] += count - fitting.room[at, r]
    fitting.room[at, r] = count
    if rule != FIRST and count > 0:
        fitting.cost[at, r] = cost_of(fleet, free, classes, pieces, i, r, rule, rows)


@inner
def refresh(
    fleet: Fleet, free: Free, classes: Classes, pieces: Pieces, i: int, rule: int, fitting: Fitting, rows: Rows
) -> Any:
    """Bring the class of task i up to date; return its place among those kept."""
    servers, at, changes = fleet.speed.shape[0], fitting.kind[i] % fitting.room.shape[0], fitting.changes[0]
    if fitting.owner[at] != fitting.kind[i]:
        fitting.owner[at] = fitting.kind[i]
        fitting.seen[at] = -2 * servers
    if changes - fitting.seen[at] >= servers:
        for r in range(servers):
            _look(fleet, free, classes, pieces, i, r, rule, fitting, rows)
    else:
        for place in range(fitting.seen[at], changes):
            r = fitting.log[place & (fitting.log.shape[0] - 1)]
            if fitting.last[r] == place:
                _look(fleet, free, classes, pieces, i, r, rule, fitting, rows)
    fitting.seen[at] = changes
    return at


@inner
def find(pieces: Pieces, i: int, at: int, cost: Any, rule: int, first: int, fitting: Fitting, rows: Rows) -> Any:
    """Servers for all pieces of task i, whose class is up to date: rows from `first` on. Return their number.

    `cost` (R,) is that of each server.
    """
    wanted, servers, size = pieces.count[i], fitting.room.shape[1], 0
    if fitting.total[at] < wanted:
        return 0
    rows.size[1] += 1  # a unique mark for every call
    mark, r = rows.size[1], 0
    while wanted > 0:
        best = -1
        if rule == FIRST:
            while fitting.room[at, r] == 0:
                r += 1
            best, r = r, r + 1
        else:
            least = np.inf
            for r in range(servers):
                if fitting.room[at, r] > 0 and rows.mark[r] != mark and (cost[r] < least or best < 0):
                    best, least = r, cost[r]
        count = min(wanted, fitting.room[at, best])
        rows.mark[best] = mark
        rows.task[first + size] = i
        rows.server[first + size] = best
        rows.count[first + size] = count
        size += 1
        wanted -= count
    return size
