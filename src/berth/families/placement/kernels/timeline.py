"""What is free on each server from now on: a step function for each server, as a linked list.

A node has a time and the amounts that are free from then until the time of the next node. Boundaries of holds are
counted, so that a node which bounds none any more is removed.

Axes: R servers, K resources, B nodes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.gathering import ROOM, Fleet, Pieces, Rows
from berth.kernels.compiled import inlined, inner

__all__ = ["Search", "Timeline", "earliest", "fits_around", "hold_row", "longest_around", "release_row", "trim"]


class Timeline(NamedTuple):
    """First node of each server (R,); time, next node, bounds (B,) and free amounts (B, K) of nodes; unused nodes."""

    head: Any
    time: Any
    next: Any
    bounds: Any
    amount: Any
    spare: Any


class Search(NamedTuple):
    """For each server (R,): pieces that fit for the whole window, when that may rise, and the next node to look at.

    `own` (R,) is the number of pieces that the task itself holds in its present reservation, `span` its start and end.
    """

    fitting: Any
    until: Any
    ahead: Any
    own: Any
    span: Any


@inner
def trim(line: Timeline, r: int, now: float) -> Any:
    """Drop what lies in the past; return the first node."""
    node = line.head[r]
    while line.next[node] >= 0 and line.time[line.next[node]] <= now:
        after = line.next[node]
        line.next[node] = line.spare[0]
        line.spare[0] = node
        node = after
    line.head[r] = node
    return node


@inner
def _bound(line: Timeline, before: int, time: float) -> Any:
    """Node that begins at `time`, after the node `before`; inserted if missing."""
    while line.next[before] >= 0 and line.time[line.next[before]] <= time:
        before = line.next[before]
    if line.time[before] == time:
        return before
    node = line.spare[0]
    line.spare[0] = line.next[node]
    line.time[node] = time
    line.bounds[node] = 0
    line.next[node] = line.next[before]
    line.next[before] = node
    for k in range(line.amount.shape[1]):
        line.amount[node, k] = line.amount[before, k]
    return node


@inner
def hold_row(line: Timeline, pieces: Pieces, i: int, r: int, count: int, start: float, end: float, now: float) -> None:
    """Subtract `count` pieces of task i on server r from `start` to `end`."""
    node = trim(line, r, now)
    if start > now:
        node = _bound(line, node, start)
        line.bounds[node] += 1
    last = -1
    if end < np.inf:
        last = _bound(line, node, end)
        line.bounds[last] += 1
    while node != last and node >= 0:
        for k in range(line.amount.shape[1]):
            line.amount[node, k] -= pieces.demand[i, k] * count
        node = line.next[node]


@inner
def release_row(
    line: Timeline, pieces: Pieces, i: int, r: int, count: int, start: float, end: float, now: float
) -> None:
    """Give back what `hold_row` has subtracted, from now on."""
    node = trim(line, r, now)
    if end <= now:
        return
    before, past = -1, start <= now
    while node >= 0:
        if line.time[node] == start and not past:
            line.bounds[node] -= 1
        if line.time[node] == end:
            line.bounds[node] -= 1
        inside = (past or line.time[node] >= start) and line.time[node] < end
        if inside:
            for k in range(line.amount.shape[1]):
                line.amount[node, k] += pieces.demand[i, k] * count
        done = line.time[node] >= end
        after = line.next[node]
        if before >= 0 and line.bounds[node] == 0:
            line.next[before] = after
            line.next[node] = line.spare[0]
            line.spare[0] = node
        else:
            before = node
        if done:
            return
        node = after


@inlined
def _room(line: Timeline, fleet: Fleet, pieces: Pieces, i: int, r: int, node: int, own: int) -> Any:
    """Number of pieces of task i that fit on server r at a node besides `own`, as in `gathering.pieces_on`."""
    count = pieces.count[i]
    for k in range(line.amount.shape[1]):
        need = pieces.demand[i, k]
        left = line.amount[node, k] + need * own + ROOM * (1.0 + fleet.capacity[r, k])
        if need > left:
            count = 0
        elif need > 0.0 and need * count > left:
            count = int(left / need)
    return count


@inner
def _extend(line: Timeline, fleet: Fleet, pieces: Pieces, i: int, r: int, end: float, search: Search) -> None:
    """Look at server r until `end`."""
    node, fitting, until = search.ahead[r], search.fitting[r], search.until[r]
    while node >= 0 and line.time[node] < end:
        own = search.own[r] if search.span[0] <= line.time[node] < search.span[1] else 0
        count = _room(line, fleet, pieces, i, r, node, own)
        if count <= fitting:
            fitting = count
            until = line.time[line.next[node]] if line.next[node] >= 0 else np.inf
        node = line.next[node]
    search.ahead[r], search.fitting[r], search.until[r] = node, fitting, until


@inner
def earliest(
    line: Timeline,
    fleet: Fleet,
    pieces: Pieces,
    i: int,
    length: float,
    now: float,
    first: int,
    search: Search,
    rows: Rows,
) -> Any:
    """First moment from which all pieces of task i fit for `length`, on the first servers; inf for never.

    What the task holds itself (`search.own`) counts as free. Rows are written from `first` on. Returns the moment and
    the number of rows.
    """
    servers, wanted, start = fleet.speed.shape[0], pieces.count[i], now
    for r in range(servers):
        search.fitting[r], search.until[r] = 0, np.inf
        if fleet.reach[pieces.port[i], r]:
            search.until[r] = now
            search.ahead[r] = trim(line, r, now)
    while start < np.inf:
        total, later = 0, np.inf
        for r in range(servers):
            if search.until[r] == np.inf and search.fitting[r] == 0:
                continue
            if search.until[r] <= start:  # what fits least is over: look again
                node = line.head[r]
                while line.next[node] >= 0 and line.time[line.next[node]] <= start:
                    node = line.next[node]
                search.ahead[r], search.fitting[r], search.until[r] = node, wanted, np.inf
            _extend(line, fleet, pieces, i, r, start + length, search)
            total += search.fitting[r]
            if total >= wanted:
                break
            later = min(later, search.until[r])
        if total >= wanted:
            size, left = 0, wanted
            for r in range(servers):
                if search.fitting[r] > 0 and left > 0:
                    count = min(left, search.fitting[r])
                    rows.task[first + size] = i
                    rows.server[first + size] = r
                    rows.count[first + size] = count
                    size += 1
                    left -= count
            return start, size
        start = later
    return np.inf, 0


@inner
def longest_around(
    line: Timeline, fleet: Fleet, pieces: Pieces, i: int, r: int, since: float, until: float, now: float
) -> Any:
    """Longest time for which a piece of task i fits on server r, among stretches that meet [since, until)."""
    node, longest, start, inside = trim(line, r, now), 0.0, now, True
    while node >= 0 and (inside or line.time[node] < until):
        fits = _room(line, fleet, pieces, i, r, node, 0) > 0
        if fits and not inside:
            start, inside = line.time[node], True
        end = line.time[line.next[node]] if line.next[node] >= 0 else np.inf
        if fits and start < until and end > since:
            longest = max(longest, end - start)
        inside = fits and start < until
        node = line.next[node]
    return longest


@inner
def fits_around(
    line: Timeline,
    fleet: Fleet,
    pieces: Pieces,
    i: int,
    r: int,
    length: float,
    latest: float,
    since: float,
    until: float,
    own: bool,
    now: float,
) -> Any:
    """Whether a piece of task i fits on server r for `length`, from `latest` or before, at some time in [since, until).

    If it does not, more room on server r from `since` to `until` is of no use to the task. If the task has its `own`
    reservation there, it counts as room, from `latest` on.
    """
    if own and until > latest:
        return True
    node = trim(line, r, now)
    start, inside = now, True  # begin of the stretch in which it fits
    while node >= 0:
        end = line.time[line.next[node]] if line.next[node] >= 0 else np.inf
        mine = own and latest <= line.time[node] < latest + length
        if not mine and _room(line, fleet, pieces, i, r, node, 0) == 0:
            inside = False
            if end >= until:
                return False
        else:
            if not inside:
                start, inside = max(line.time[node], now), True
            if start > latest or start >= until:
                return False
            if (end >= start + length or end - start >= length) and end > since:
                return True
        node = line.next[node]
    return False
