"""Find servers for the pieces of one task by a rule: the inner loop of queue policies.

A server is chosen and gets as many pieces as it has room for, then the next, until all pieces are placed. The rule
picks among the servers that the task may use and that have room for a piece:

* `FIRST`: the first;
* `BEST`, `WORST`: the one with the least, or the most, left beside the piece, as a sum over resources of shares of
  the largest server;
* `ALIGNED`: the one whose free amounts, as shares of the largest server, have the largest scalar product with the
  piece's (Tetris);
* `WHOLE`: the one where the piece adds least to fragmentation: the expected share of free devices that a task drawn
  from those seen so far cannot use; ties as in `BEST`.

Ties go to the first. Servers that would have to be launched, at a cost, come after all others.

Axes: n tasks, R servers, K resources, G devices of a server, L ports, C classes of tasks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.compiled import inlined, inner, lean

__all__ = [
    "ALIGNED",
    "BEST",
    "FIRST",
    "WHOLE",
    "WORST",
    "Classes",
    "Fleet",
    "Free",
    "Pieces",
    "Rows",
    "cost_of",
    "fragments",
    "gather",
    "hold",
    "pieces_on",
    "take",
]

FIRST, BEST, WORST, ALIGNED, WHOLE = range(5)
LAUNCH = 1e9  # more than any other cost
NEXT = 1e-6  # weight of the tie-breaker
ROOM = 1e-9  # tolerance of a sum of floats, relative to 1 + the limit


class Fleet(NamedTuple):
    """Servers: capacity (R, K), speed (R,), reach (L, R), largest amounts (K,), the resource in devices."""

    capacity: Any
    speed: Any
    reach: Any
    most: Any
    device: Any


class Free(NamedTuple):
    """Free amounts (R, K) and devices (R, G); and `off` (R,), 1 for servers with a launch cost."""

    amount: Any
    devices: Any
    off: Any


class Pieces(NamedTuple):
    """Pending tasks: demand of a piece (n, K), number of pieces, port, work and owner (n,)."""

    demand: Any
    count: Any
    port: Any
    work: Any
    owner: Any


class Classes(NamedTuple):
    """Tasks seen so far: demand of a piece (C, K), port and share of all (C,)."""

    demand: Any
    port: Any
    share: Any


class Rows(NamedTuple):
    """Places of pieces, a row for each server of a task: task, server and number of pieces; `size[0]` counts them.

    `held` (m, G) gets the shares of devices of each row, if it has as many rows; with one row it is scratch, as are
    `mark` (R,) and `spare` (2, max(K, G)).
    """

    task: Any
    server: Any
    count: Any
    size: Any
    mark: Any
    held: Any
    spare: Any


@inner
def pieces_on(fleet: Fleet, free: Free, pieces: Pieces, i: int, r: int, most: int) -> Any:
    """Number of pieces of task i that fit on server r, up to `most`."""
    if not fleet.reach[pieces.port[i], r]:
        return 0
    count = most
    for k in range(fleet.capacity.shape[1]):
        need = pieces.demand[i, k]
        left = free.amount[r, k] + ROOM * (1.0 + fleet.capacity[r, k])
        if need > left:
            return 0
        if need > 0.0 and need * count > left:
            count = int(left / need)
    k = fleet.device[0]
    if k >= 0:
        count = min(count, room(free.devices, r, pieces.demand[i, k]))
    return count


@inner
def fragments(fleet: Fleet, free: Free, classes: Classes, r: int) -> Any:
    """Expected free devices of server r that a task drawn from the classes cannot use."""
    k = fleet.device[0]
    total = 0.0
    whole = 0
    for g in range(free.devices.shape[1]):
        total += free.devices[r, g]
        if free.devices[r, g] >= 1.0 - ROOM:
            whole += 1
    if total <= ROOM:
        return 0.0
    lost = 0.0
    for c in range(classes.share.shape[0]):
        share = classes.demand[c, k]
        able = share > ROOM and fleet.reach[classes.port[c], r]
        for j in range(fleet.capacity.shape[1]):
            able = able and (j == k or classes.demand[c, j] <= free.amount[r, j] + ROOM * (1.0 + fleet.capacity[r, j]))
        if able and share >= 1.0 - ROOM:
            able = whole >= int(share + 0.5)
            wasted = total - whole
        else:
            wasted, largest = 0.0, 0.0
            for g in range(free.devices.shape[1]):
                largest = max(largest, free.devices[r, g])
                if free.devices[r, g] + ROOM < share:
                    wasted += free.devices[r, g]
            able = able and largest + ROOM >= share
        lost += classes.share[c] * (wasted if able else total)
    return lost


@inner
def _added(fleet: Fleet, free: Free, classes: Classes, pieces: Pieces, i: int, r: int, rows: Rows) -> Any:
    """Increase of the fragments of server r by a piece of task i."""
    k = fleet.device[0]
    if k < 0:
        return 0.0
    before = fragments(fleet, free, classes, r)
    for j in range(fleet.capacity.shape[1]):
        rows.spare[0, j] = free.amount[r, j]
        free.amount[r, j] -= pieces.demand[i, j]
    for g in range(free.devices.shape[1]):
        rows.spare[1, g] = free.devices[r, g]
    hold(free.devices, r, pieces.demand[i, k], rows.held, 0)
    after = fragments(fleet, free, classes, r)
    for j in range(fleet.capacity.shape[1]):
        free.amount[r, j] = rows.spare[0, j]
    for g in range(free.devices.shape[1]):
        free.devices[r, g] = rows.spare[1, g]
    return after - before


@inlined
def _left(fleet: Fleet, free: Free, pieces: Pieces, i: int, r: int) -> Any:
    """Sum of what is left beside a piece of task i, as shares of the largest server."""
    total = 0.0
    for k in range(fleet.capacity.shape[1]):
        if fleet.most[k] > 0.0:
            total += (free.amount[r, k] - pieces.demand[i, k]) / fleet.most[k]
    return total


@inner
def aligned(fleet: Fleet, free: Free, pieces: Pieces, i: int, r: int) -> Any:
    """Scalar product of a piece's demand and server r's free amounts, as shares; far lower if the server is off."""
    total = 0.0
    for k in range(fleet.capacity.shape[1]):
        if fleet.most[k] > 0.0:
            total += pieces.demand[i, k] * free.amount[r, k] / (fleet.most[k] * fleet.most[k])
    return total - LAUNCH * free.off[r]


@inner
def cost_of(fleet: Fleet, free: Free, classes: Classes, pieces: Pieces, i: int, r: int, rule: int, rows: Rows) -> Any:
    """Cost of a server; lower is better."""
    if rule == ALIGNED:
        return -aligned(fleet, free, pieces, i, r)
    cost = LAUNCH * free.off[r]
    if rule == BEST:
        cost += _left(fleet, free, pieces, i, r)
    elif rule == WORST:
        cost -= _left(fleet, free, pieces, i, r)
    elif rule == WHOLE:
        cost += _added(fleet, free, classes, pieces, i, r, rows) + NEXT * _left(fleet, free, pieces, i, r)
    return cost


@inner
def gather(
    fleet: Fleet, free: Free, classes: Classes, pieces: Pieces, i: int, rule: int, first: int, rows: Rows
) -> Any:
    """Find servers for all pieces of task i: rows from `first` on. Return their number, 0 if they do not fit."""
    servers, wanted = fleet.speed.shape[0], pieces.count[i]
    fitting = 0
    for r in range(servers):
        fitting += pieces_on(fleet, free, pieces, i, r, wanted)
        if fitting >= wanted:
            break
    if fitting < wanted:
        return 0
    rows.size[1] += 1  # a unique mark for every call
    mark, size = rows.size[1], 0
    while wanted > 0:
        best, best_cost, best_count = -1, np.inf, 0
        for r in range(servers):
            if rows.mark[r] == mark:
                continue
            count = pieces_on(fleet, free, pieces, i, r, wanted)
            if count == 0:
                continue
            cost = cost_of(fleet, free, classes, pieces, i, r, rule, rows)
            if cost < best_cost or best < 0:
                best, best_cost, best_count = r, cost, count
            if rule == FIRST and free.off[r] == 0.0:
                break
        rows.mark[best] = mark
        rows.task[first + size] = i
        rows.server[first + size] = best
        rows.count[first + size] = best_count
        size += 1
        wanted -= best_count
    return size


@inner
def take(fleet: Fleet, free: Free, pieces: Pieces, first: int, size: int, rows: Rows) -> None:
    """Subtract these rows from what is free."""
    k = fleet.device[0]
    for row in range(first, first + size):
        r, i = rows.server[row], rows.task[row]
        free.off[r] = 0.0
        for j in range(fleet.capacity.shape[1]):
            free.amount[r, j] -= pieces.demand[i, j] * rows.count[row]
        if k >= 0:
            into = min(row, rows.held.shape[0] - 1)
            for _ in range(rows.count[row]):
                hold(free.devices, r, pieces.demand[i, k], rows.held, into)


@inner
def room(free: Any, r: int, share: float) -> Any:
    """Number of pieces of this share that fit on the devices of server r; without a share, any number."""
    if share <= ROOM:
        return 1 << 40
    count = 0
    if share < 1.0 - ROOM:
        for g in range(free.shape[1]):
            count += int((free[r, g] + ROOM) / share)
        return count
    for g in range(free.shape[1]):
        if free[r, g] >= 1.0 - ROOM:
            count += 1
    return count // int(share + 0.5)


@inner
def hold(free: Any, r: int, share: float, held: Any, row: int) -> Any:
    """Take one piece's share from the devices of server r into `held` (m, G); return whether there was room."""
    if share <= ROOM:
        return True
    if share < 1.0 - ROOM:
        best = -1
        for g in range(free.shape[1]):
            if free[r, g] + ROOM >= share and (best < 0 or free[r, g] < free[r, best]):
                best = g
        if best < 0:
            return False
        free[r, best] -= share
        held[row, best] += share
        return True
    left = int(share + 0.5)
    if room(free, r, share) < 1:
        return False
    for g in range(free.shape[1]):
        if left > 0 and free[r, g] >= 1.0 - ROOM:
            free[r, g] = 0.0
            held[row, g] += 1.0
            left -= 1
    return True


@lean
def hold_all(server: Any, share: Any, count: Any, free: Any, held: Any) -> None:
    """Take the shares of each row's pieces in turn; `held` (m, G) gets them, less if there is no room."""
    for row in range(server.shape[0]):
        for _ in range(count[row]):
            hold(free, server[row], share[row], held, row)
