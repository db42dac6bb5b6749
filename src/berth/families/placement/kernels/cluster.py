"""Any cluster with a queue: plays whole batch logs, event by event.

Equals asking `berth.families.placement.kernels.queueing` about all waiting tasks at every moment at which tasks end or
arrive, but the places of each class of tasks are kept from one moment to the next
(`berth.families.placement.kernels.fitting`), and the reservation of EASY backfilling is made only when another task
could start.

The rows of task i are from `place[i]` on, one for each of its servers. No server fails or costs anything to launch.

Axes: N tasks, R servers, K resources, G devices of a server, m rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.fitting import MANY, Fitting, change, find, refresh
from berth.families.placement.kernels.fragmenting import Counted, States, count_task, share_out, visit
from berth.families.placement.kernels.gathering import (
    WHOLE,
    Classes,
    Fleet,
    Free,
    Pieces,
    Rows,
    fragments,
    gather,
    hold,
    pieces_on,
    take,
)
from berth.families.placement.kernels.pool import KNOWN, RUNNING, WAITING, Pool, forget, pop, push
from berth.families.placement.kernels.queueing import EASY, STRICT
from berth.kernels.compiled import inlined, inner, lean
from berth.kernels.small import sort_by

__all__ = ["Play", "Tally", "advance", "begin", "expect", "play_queue", "play_scored", "settle", "speed_of"]


class Tally(NamedTuple):
    """Fragmentation: classes of tasks, that of each server (R,), changes included, sum and number of samples."""

    classes: Classes
    lost: Any
    seen: Any
    sums: Any


class Play(NamedTuple):
    """A whole run: servers, tasks by arrival with their true work `run` (N,) and least estimated time
    `quickest` (N,), and the state.

    `whole` (R, G) are the free devices between moments, `held` (m, G) those of each row, `users` (R,) the number of
    rows on a server, `slowest` (N,) the speed of started tasks, `queue` (N,) the waiting tasks in order.
    `future`, `both`, `left` (R,), `tight` (C, 2), `order`, `spare` and `scores` (N,) are scratch.
    """

    fleet: Fleet
    free: Free
    classes: Classes
    pieces: Pieces
    rows: Rows
    fitting: Fitting
    counted: Counted
    states: States
    tally: Tally
    pool: Pool
    arrival: Any
    run: Any
    quickest: Any
    rank: Any
    place: Any
    size: Any
    whole: Any
    held: Any
    users: Any
    slowest: Any
    queue: Any
    future: Free
    both: Free
    left: Any
    tight: Any
    order: Any
    spare: Any
    scores: Any


# ---------------------------------------------------------------------------- starts and ends


@inner
def speed_of(play: Play, first: int, size: int) -> Any:
    speed = np.inf
    for row in range(first, first + size):
        speed = min(speed, play.fleet.speed[play.rows.server[row]])
    return speed


@inner
def begin(play: Play, i: int, size: int, now: float) -> None:
    """Start task i on its rows."""
    fleet, free, first, k = play.fleet, play.free, play.place[i], play.fleet.device[0]
    for row in range(first, first + size):
        r = play.rows.server[row]
        for j in range(fleet.capacity.shape[1]):
            free.amount[r, j] -= play.pieces.demand[i, j] * play.rows.count[row]
        if k >= 0:
            for g in range(play.held.shape[1]):
                play.held[row, g] = 0.0
            for _ in range(play.rows.count[row]):
                hold(free.devices, r, play.pieces.demand[i, k], play.held, row)
        play.users[r] += 1
        change(play.fitting, r)
    play.size[i] = size
    play.slowest[i] = speed_of(play, first, size)
    play.pool.start[i] = now
    push(play.pool, now + play.run[i] / play.slowest[i], i)


@inner
def settle(play: Play, i: int) -> None:
    """Subtract the devices of a started task in one step, as the engine does."""
    for row in range(play.place[i], play.place[i] + play.size[i]):
        r = play.rows.server[row]
        differs = False
        for g in range(play.held.shape[1]):
            play.whole[r, g] -= play.held[row, g]
            differs = differs or play.free.devices[r, g] != play.whole[r, g]
            play.free.devices[r, g] = play.whole[r, g]
        if differs:
            change(play.fitting, r)


@inner
def finish(play: Play, i: int) -> None:
    """Give back what task i holds."""
    for row in range(play.place[i], play.place[i] + play.size[i]):
        r = play.rows.server[row]
        play.users[r] -= 1
        alone = play.users[r] == 0  # then exactly, without rounding errors
        for j in range(play.fleet.capacity.shape[1]):
            if alone:
                play.free.amount[r, j] = play.fleet.capacity[r, j]
            else:
                play.free.amount[r, j] += play.pieces.demand[i, j] * play.rows.count[row]
        if play.fleet.device[0] >= 0:
            for g in range(play.held.shape[1]):
                play.whole[r, g] += play.held[row, g]
                if alone:
                    play.whole[r, g] = 1.0 if g < play.fleet.capacity[r, play.fleet.device[0]] else 0.0
                play.free.devices[r, g] = play.whole[r, g]
        change(play.fitting, r)


# ---------------------------------------------------------------------------- backfilling


@inner
def expect(play: Play, i: int, now: float) -> None:
    """Insert the estimated end of a task after those that end with it."""
    pool, end = play.pool, now + play.pieces.work[i] / play.slowest[i]
    place = pool.count[KNOWN]
    while place > 0 and pool.known_end[place - 1] > end:
        pool.known_end[place] = pool.known_end[place - 1]
        pool.known_job[place] = pool.known_job[place - 1]
        place -= 1
    pool.known_end[place] = end
    pool.known_job[place] = i
    pool.count[KNOWN] += 1


@inner
def _narrow(play: Play, r: int) -> None:
    for k in range(play.fleet.capacity.shape[1]):
        play.both.amount[r, k] = min(play.free.amount[r, k], play.future.amount[r, k])


@inner
def _reserve(play: Play, i: int, rule: int, now: float) -> Any:
    """First moment at which task i fits by the estimates; `future` is what is free then beside it. inf: never."""
    fleet, future, pool, pieces, shadow = play.fleet, play.future, play.pool, play.pieces, np.inf
    at = refresh(fleet, play.free, play.classes, pieces, i, rule, play.fitting, play.rows)
    for r in range(fleet.speed.shape[0]):
        play.left[r] = play.fitting.room[at, r]
        for k in range(fleet.capacity.shape[1]):
            future.amount[r, k] = play.free.amount[r, k]
    total, place, count = play.fitting.total[at], 0, pool.count[KNOWN]
    while place < count and shadow == np.inf:
        time = max(pool.known_end[place], now)
        while place < count and pool.known_end[place] <= time:
            ending = pool.known_job[place]
            for row in range(play.place[ending], play.place[ending] + play.size[ending]):
                r = play.rows.server[row]
                for k in range(fleet.capacity.shape[1]):
                    future.amount[r, k] += pieces.demand[ending, k] * play.rows.count[row]
                fitting = pieces_on(fleet, future, pieces, i, r, MANY)
                total += fitting - play.left[r]
                play.left[r] = fitting
            place += 1
        if total >= pieces.count[i]:
            size = gather(fleet, future, play.classes, pieces, i, rule, play.place[i], play.rows)
            if size > 0:
                take(fleet, future, pieces, play.place[i], size, play.rows)
                shadow = time
    for r in range(fleet.speed.shape[0]):
        _narrow(play, r)
    return shadow


@inner
def _beside(play: Play, i: int, rule: int, moment: int) -> Any:
    """Find places for task i that leave the reservation alone; what failed before at this moment fails again."""
    kind, wanted = play.fitting.kind[i], play.pieces.count[i]
    if play.tight[kind, 0] == moment and play.tight[kind, 1] <= wanted:
        return 0
    size = gather(play.fleet, play.both, play.classes, play.pieces, i, rule, play.place[i], play.rows)
    if size == 0:
        play.tight[kind, 0] = moment
        play.tight[kind, 1] = wanted
    return size


# ---------------------------------------------------------------------------- decisions


@inner
def _try(play: Play, i: int, rule: int) -> Any:
    """Find servers for task i now; return their number, 0 if it does not fit."""
    fleet, free, fitting, rows, first = play.fleet, play.free, play.fitting, play.rows, play.place[i]
    if rule == WHOLE and fleet.device[0] >= 0:
        at = visit(fleet, free, play.counted, play.classes, play.pieces, i, fitting, play.states, rows)
        return find(play.pieces, i, at, play.states.cost, rule, first, fitting, rows)
    at = refresh(fleet, free, play.classes, play.pieces, i, rule, fitting, rows)
    return find(play.pieces, i, at, fitting.cost[at], rule, first, fitting, rows)


@inlined
def _hopeless(kind: int, wanted: int, fitting: Fitting, tight: Any, moment: int, late: bool) -> Any:
    """Whether it is known already that a task does not fit, or that it would delay the head."""
    at = kind % fitting.total.shape[0]
    if late and tight[kind, 0] == moment and tight[kind, 1] <= wanted:
        return True
    return fitting.owner[at] == kind and fitting.seen[at] == fitting.changes[0] and fitting.total[at] < wanted


@inner
def _start_all(play: Play, order: Any, rule: int, backfill: int, now: float, moment: int) -> Any:
    """Start tasks in `order`; return the number of those that still wait, which are moved to its beginning."""
    shadow, reserved, kept, waiting, begun = np.inf, False, 0, play.pool.count[WAITING], 0
    fitting, quickest = play.fitting, play.quickest
    for place in range(waiting):
        i = order[place]
        if kept > 0 and backfill == STRICT:
            if begun == 0:
                return waiting
            order[kept] = i
            kept += 1
            continue
        if _hopeless(fitting.kind[i], play.pieces.count[i], fitting, play.tight, moment, now + quickest[i] > shadow):
            order[kept] = i
            kept += 1
            continue
        size = _try(play, i, rule)
        late = False
        if size > 0 and kept > 0 and backfill == EASY:
            if not reserved:
                shadow, reserved = _reserve(play, order[0], rule, now), True
            late = now + play.pieces.work[i] / speed_of(play, play.place[i], size) > shadow
            if late:  # must not use the head's place
                size = _beside(play, i, rule, moment)
                late = size > 0 and now + play.pieces.work[i] / speed_of(play, play.place[i], size) > shadow
        if size == 0:
            order[kept] = i
            kept += 1
            continue
        begin(play, i, size, now)
        play.spare[begun] = i
        begun += 1
        if backfill != EASY:
            continue
        expect(play, i, now)
        if late:
            take(play.fleet, play.future, play.pieces, play.place[i], size, play.rows)
        if reserved:
            for row in range(play.place[i], play.place[i] + size):
                _narrow(play, play.rows.server[row])
    if play.fleet.device[0] >= 0:
        for place in range(begun):
            settle(play, play.spare[place])
    return kept


@inner
def _sample(play: Play) -> None:
    """Measure the share of devices that are free but useless to a task of the classes."""
    tally, changes, servers = play.tally, play.fitting.changes[0], play.fleet.speed.shape[0]
    if changes - tally.seen[0] >= servers:
        for r in range(servers):
            tally.lost[r] = fragments(play.fleet, play.free, tally.classes, r)
    else:
        for place in range(tally.seen[0], changes):
            r = play.fitting.log[place & (play.fitting.log.shape[0] - 1)]
            if play.fitting.last[r] == place:
                tally.lost[r] = fragments(play.fleet, play.free, tally.classes, r)
    tally.seen[0] = changes
    total = 0.0
    for r in range(servers):
        total += tally.lost[r]
    tally.sums[0] += total / tally.sums[2]
    tally.sums[1] += 1.0


@inner
def _enter(play: Play, i: int) -> None:
    """Insert task i into the queue by its rank."""
    place = play.pool.count[WAITING]
    while place > 0 and play.rank[play.queue[place - 1]] > play.rank[i]:
        play.queue[place] = play.queue[place - 1]
        place -= 1
    play.queue[place] = i
    play.pool.count[WAITING] += 1


@inner
def advance(play: Play, arrived: int, backfill: int) -> Any:
    """Handle all events of the next moment; return it, the number of tasks that have arrived, and whether to decide."""
    pool, tasks = play.pool, play.arrival.shape[0]
    now = play.arrival[arrived] if arrived < tasks else np.inf
    if pool.count[RUNNING] > 0:
        now = min(now, pool.heap_time[0])
    decide = False
    while pool.count[RUNNING] > 0 and pool.heap_time[0] == now:
        i = pop(pool)
        finish(play, i)
        if backfill == EASY:
            forget(pool, pool.start[i] + play.pieces.work[i] / play.slowest[i], i)
        decide = pool.count[WAITING] > 0
    before = arrived
    while arrived < tasks and play.arrival[arrived] == now:
        _enter(play, arrived)
        if play.counted.kind.shape[0] > 0:
            count_task(play.counted, play.pieces, arrived)
        arrived += 1
    if arrived > before and play.counted.kind.shape[0] > 0:
        share_out(play.counted)
    if arrived > before and play.tally.classes.share.shape[0] > 0:
        _sample(play)
    return now, arrived, decide or arrived > before


@lean
def play_queue(play: Play, rule: int, backfill: int) -> None:
    """Play all tasks in the order of their rank; `pool.start` (N,) gets the start of each."""
    arrived, moment = 0, 0
    while arrived < play.arrival.shape[0] or play.pool.count[RUNNING] > 0:
        now, arrived, decide = advance(play, arrived, backfill)
        moment += 1
        if decide:
            play.pool.count[WAITING] = _start_all(play, play.queue, rule, backfill, now, moment)


@lean
def play_scored(play: Play, sizes: Any, score: Any, committed: bool, rule: int, backfill: int) -> None:
    """Play all tasks in the order of a score of wait, work, size and arrival, found anew at every moment.

    With `committed` a task that was first and did not fit stays first. Ties are by `play.rank`.
    """
    arrived, moment, head = 0, 0, -1
    while arrived < play.arrival.shape[0] or play.pool.count[RUNNING] > 0:
        now, arrived, decide = advance(play, arrived, backfill)
        moment += 1
        if not decide:
            continue
        waiting = play.pool.count[WAITING]
        for place in range(waiting):
            i = play.queue[place]
            found = score(now - play.arrival[i], play.pieces.work[i], sizes[i], play.arrival[i])
            play.scores[i] = 0.0 if np.isnan(found) else found
            if i == head:
                play.scores[i] = -np.inf
            play.order[place] = i
        sort_by(play.scores, play.order, play.spare, waiting)
        if head >= 0:  # before others whose score is −inf, too
            place = 0
            while play.order[place] != head:
                place += 1
            for other in range(place, 0, -1):
                play.order[other] = play.order[other - 1]
            play.order[0] = head
        left = _start_all(play, play.order, rule, backfill, now, moment)
        head = play.order[0] if committed and left > 0 else -1
        kept = 0
        for place in range(waiting):
            if np.isnan(play.pool.start[play.queue[place]]):
                play.queue[kept] = play.queue[place]
                kept += 1
        play.pool.count[WAITING] = left
