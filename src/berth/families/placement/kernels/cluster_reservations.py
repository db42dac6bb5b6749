"""Conservative backfilling on any cluster: plays whole batch logs, event by event.

Equals `berth.families.placement.kernels.reservations.plan_all` on all waiting tasks at every moment, with the rule
`FIRST`, but what will be free is kept from one moment to the next (`berth.families.placement.kernels.timeline`), and a
task is planned again only if room has been gained since its last plan where it could use it.

Axes: N tasks, R servers, H gains of room that are kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.cluster import Play, expect, speed_of
from berth.families.placement.kernels.pool import KNOWN, RUNNING, WAITING, forget, pop, push
from berth.families.placement.kernels.timeline import (
    Search,
    Timeline,
    earliest,
    fits_around,
    hold_row,
    longest_around,
    release_row,
)
from berth.kernels.compiled import inner, lean

__all__ = ["Gains", "Plans", "play_reserved"]


class Gains(NamedTuple):
    """Room gained: server, since and until (H,); `count[0]` numbers all gains, `count[1]` those no longer kept.

    `longest` (H, M) is the longest time for which a piece of a class fits there then, `kind` (H, M) the class, -1 for
    none.
    """

    server: Any
    since: Any
    until: Any
    count: Any
    longest: Any
    kind: Any


class Plans(NamedTuple):
    """Reservations: start, longest run time, gains included, and whether it runs beyond its estimate (N,).

    `settled[0]` is the number of gains when all reservations were made anew, -1 if one was made or moved in another
    way: until the next gain or loss of room, making them anew would change nothing. `old` (R, 2) is scratch. `unequal`
    tells whether a task may end before its reservation does.
    """

    line: Timeline
    search: Search
    gains: Gains
    at: Any
    length: Any
    seen: Any
    over: Any
    settled: Any
    old: Any
    unequal: bool


@inner
def _gain(plans: Plans, r: int, since: float, until: float) -> None:
    gains, keep = plans.gains, plans.gains.server.shape[0]
    place = gains.count[0] % keep
    gains.server[place] = r
    gains.since[place] = since
    gains.until[place] = until
    for at in range(gains.kind.shape[1]):
        gains.kind[place, at] = -1
    gains.count[0] += 1
    gains.count[1] = max(gains.count[1], gains.count[0] - keep)


@inner
def _hold(play: Play, plans: Plans, i: int, start: float, end: float, now: float) -> None:
    for row in range(play.place[i], play.place[i] + play.size[i]):
        hold_row(plans.line, play.pieces, i, play.rows.server[row], play.rows.count[row], start, end, now)


@inner
def _release(play: Play, plans: Plans, i: int, start: float, end: float, now: float) -> None:
    for row in range(play.place[i], play.place[i] + play.size[i]):
        release_row(plans.line, play.pieces, i, play.rows.server[row], play.rows.count[row], start, end, now)


@inner
def _too_short(play: Play, plans: Plans, i: int, place: int, now: float) -> Any:
    """Whether the room gained is too short for a piece of task i; later holds only make it shorter."""
    gains, kind = plans.gains, play.fitting.kind[i]
    at = kind % gains.kind.shape[1]
    if gains.kind[place, at] != kind:
        gains.kind[place, at] = kind
        gains.longest[place, at] = longest_around(
            plans.line, play.fleet, play.pieces, i, gains.server[place], gains.since[place], gains.until[place], now
        )
    return gains.longest[place, at] < plans.length[i] * (1.0 - 1e-9)


@inner
def _may_move(play: Play, plans: Plans, i: int, now: float) -> Any:
    """Whether room that was gained since the plan of task i may change it."""
    gains, at, length, rows = plans.gains, plans.at[i], plans.length[i], play.rows
    if plans.seen[i] < gains.count[1]:
        return True
    rows.size[1] += 1
    mark = rows.size[1]
    for row in range(play.place[i], play.place[i] + play.size[i]):
        rows.mark[rows.server[row]] = mark
    for number in range(plans.seen[i], gains.count[0]):
        place = number % gains.server.shape[0]
        r, since, until = gains.server[place], gains.since[place], gains.until[place]
        if until <= now or since >= at + length or not play.fleet.reach[play.pieces.port[i], r]:
            continue
        own = rows.mark[r] == mark
        if not own and _too_short(play, plans, i, place, now):
            continue
        if fits_around(plans.line, play.fleet, play.pieces, i, r, length, at, since, until, own, now):
            return True
    plans.seen[i] = gains.count[0]
    return False


@inner
def _plan(play: Play, plans: Plans, i: int, now: float) -> Any:
    """Plan task i anew; return whether its start changes."""
    at, first, old, rows = plans.at[i], play.place[i], plans.old, play.rows
    size, search, end = play.size[i] if at < np.inf else 0, plans.search, at + plans.length[i]
    for row in range(size):
        old[row, 0] = rows.server[first + row]
        old[row, 1] = rows.count[first + row]
        search.own[old[row, 0]] = old[row, 1]
    search.span[0] = at if at > now else -np.inf  # the first node begins in the past
    search.span[1] = end
    start, found = earliest(plans.line, play.fleet, play.pieces, i, plans.length[i], now, first, search, rows)
    same = start == at and found == size
    for row in range(size):
        search.own[old[row, 0]] = 0
        same = same and old[row, 0] == rows.server[first + row] and old[row, 1] == rows.count[first + row]
    if not same:
        for row in range(size):
            release_row(plans.line, play.pieces, i, old[row, 0], old[row, 1], at, end, now)
            _gain(plans, old[row, 0], at, end)
        plans.at[i] = start
        play.size[i] = found
        if start < np.inf:
            _hold(play, plans, i, start, start + plans.length[i], now)
    plans.seen[i] = plans.gains.count[0]
    return start != at


@inner
def _start(play: Play, plans: Plans, i: int, now: float) -> None:
    """Start task i, whose reservation is due."""
    play.slowest[i] = speed_of(play, play.place[i], play.size[i])
    end, planned = now + play.pieces.work[i] / play.slowest[i], plans.at[i] + plans.length[i]
    if end != planned:
        _release(play, plans, i, plans.at[i], planned, now)
        _hold(play, plans, i, now, end, now)
        for row in range(play.place[i], play.place[i] + play.size[i]):
            _gain(plans, play.rows.server[row], end, planned)
    play.pool.start[i] = now
    push(play.pool, now + play.run[i] / play.slowest[i], i)
    expect(play, i, now)


@inner
def _decide(play: Play, plans: Plans, now: float, late: bool, early: bool) -> None:
    """Plan waiting tasks, and start those that are due."""
    pool, waiting = play.pool, play.pool.count[WAITING]
    for place in range(pool.count[KNOWN]):
        i = pool.known_job[place]
        if pool.known_end[place] > now:
            break
        late = True
        if not plans.over[i]:
            plans.over[i] = True
            plans.settled[0] = -1
            _hold(play, plans, i, now, np.inf, now)
    for place in range(waiting):
        if plans.at[play.queue[place]] < now:
            late = True
            plans.settled[0] = -1
    late = late and plans.settled[0] != plans.gains.count[0]
    anew = late
    if late:
        for place in range(waiting):
            i = play.queue[place]
            if plans.at[i] < np.inf:
                _release(play, plans, i, plans.at[i], plans.at[i] + plans.length[i], now)
    moved = True
    while moved:
        moved = False
        for place in range(waiting):
            i = play.queue[place]
            if late:
                before, plans.at[i] = plans.at[i], np.nan
                _plan(play, plans, i, now)
                moved = moved or plans.at[i] != before
            elif np.isnan(plans.at[i]) or (early and _may_move(play, plans, i, now)):
                known = not np.isnan(plans.at[i])
                changes = _plan(play, plans, i, now)
                moved = moved or changes
                if known and changes:
                    plans.settled[0] = -1
        if anew:
            plans.settled[0] = plans.gains.count[0]
        late = anew = False
        moved = moved and early
    kept = 0
    for place in range(waiting):
        i = play.queue[place]
        if plans.at[i] <= now:
            _start(play, plans, i, now)
        else:
            play.queue[kept] = i
            kept += 1
    pool.count[WAITING] = kept


@inner
def _finish(play: Play, plans: Plans, i: int, now: float) -> Any:
    """Give back what task i holds; return its estimated end."""
    end = play.pool.start[i] + play.pieces.work[i] / play.slowest[i]
    forget(play.pool, end, i)
    if plans.over[i]:
        _release(play, plans, i, now, np.inf, now)
    else:
        _release(play, plans, i, play.pool.start[i], end, now)
    if plans.over[i] or end > now:
        for row in range(play.place[i], play.place[i] + play.size[i]):
            _gain(plans, play.rows.server[row], now, np.inf if plans.over[i] else end)
    return end


@lean
def play_reserved(play: Play, plans: Plans) -> None:
    """Play all tasks by arrival; `pool.start` (N,) gets the start of each."""
    arrived, tasks, pool = 0, play.arrival.shape[0], play.pool
    first, last = np.inf, -np.inf  # estimated ends of tasks that have ended since the latest decision
    while arrived < tasks or pool.count[RUNNING] > 0:
        now = play.arrival[arrived] if arrived < tasks else np.inf
        if pool.count[RUNNING] > 0:
            now = min(now, pool.heap_time[0])
        while pool.count[RUNNING] > 0 and pool.heap_time[0] == now:
            end = _finish(play, plans, pop(pool), now)
            first, last = min(first, end), max(last, end)
        while arrived < tasks and play.arrival[arrived] == now:
            play.queue[pool.count[WAITING]] = arrived
            pool.count[WAITING] += 1
            arrived += 1
        if pool.count[WAITING] > 0:
            _decide(play, plans, now, first < now, plans.unequal or last > now)
            first, last = np.inf, -np.inf
