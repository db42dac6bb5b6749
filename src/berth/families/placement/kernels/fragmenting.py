"""Fragmentation-aware placement of whole logs: the rule `WHOLE` of `berth.families.placement.kernels.gathering`.

The expectation is over the tasks seen so far, so it changes with every arrival, on every server. What a class of tasks
cannot use depends only on the state of a server (what is free there), and many servers are in the same state. So does
whether a piece fits, and the state that it leads to. States have numbers; all this is kept by state, and the
expectation is computed once for each state that servers are in, or would be.

Axes: N tasks, R servers, K resources, G devices, C classes counted, E states, S as in `fitting`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.fitting import MANY, Fitting
from berth.families.placement.kernels.gathering import (
    BEST,
    NEXT,
    ROOM,
    Classes,
    Fleet,
    Free,
    Pieces,
    Rows,
    cost_of,
    hold,
    pieces_on,
)
from berth.kernels.compiled import inner

__all__ = ["Counted", "States", "count_task", "share_out", "visit"]

# indices in `Counted.number`
SIZE, CHANGES, TURN = 0, 1, 2
# indices in `States.number`: states that have a number, times that numbering began anew, visits, changes in `now`
MADE, ERA, VISIT, SEEN = 0, 1, 2, 3


class Counted(NamedTuple):
    """Classes of tasks seen so far, by the space-saving algorithm.

    `kind` (N,) is the class of each task, in the order in which classes are listed. Of each class that is counted:
    `owner`, `count`, `port`, `share` (C,) and `demand` (C, K); `listed` (C,) is their order, `place` the position of a
    class among those counted or -1, `changed` (C,) the number of the latest change of each.
    """

    kind: Any
    owner: Any
    count: Any
    port: Any
    share: Any
    demand: Any
    listed: Any
    place: Any
    changed: Any
    number: Any


class States(NamedTuple):
    """States of servers: name, wasted devices of each class (E, C), changes included, expectation and its turn (E,).

    `slot` (2 E,) finds the number of a state by its name: 1 + number, or 0. `visit` (E,) is the latest visit that met a
    state, and `total` (E,) the cost of a piece there. `alike` (R,) numbers servers that are equal when empty; `amount`
    and `devices` are what is free as whole numbers, for names. `now` (R,) is the state of each server.

    For each class of tasks that is kept (S, E): `then` is 1 + the state with one more piece, -1 if none fits and 0 if
    unknown, `room` the number of pieces that fit and `left` the cost by the rule `BEST`; `owner` (S, 2) is the class
    and the era of its numbers. `met` and `due` (2 E,) are scratch, and `cost` (R,) is the result.
    """

    slot: Any
    name: Any
    wasted: Any
    upto: Any
    value: Any
    turn: Any
    visit: Any
    total: Any
    alike: Any
    amount: Any
    devices: Any
    now: Any
    then: Any
    room: Any
    left: Any
    owner: Any
    number: Any
    met: Any
    due: Any
    cost: Any


@inner
def count_task(counted: Counted, pieces: Pieces, i: int) -> None:
    """Count a task; if its class is new and there is no room, it replaces the rarest and inherits its count."""
    kind, number = counted.kind[i], counted.number
    c = counted.place[kind]
    if c >= 0:
        counted.count[c] += 1
        return
    c = number[SIZE]
    if c < counted.owner.shape[0]:
        number[SIZE] += 1
    else:
        c = counted.listed[0]
        for place in range(number[SIZE]):  # in listed order: the first of the rarest
            if counted.count[counted.listed[place]] < counted.count[c]:
                c = counted.listed[place]
        counted.place[counted.owner[c]] = -1
        place = 0
        while counted.listed[place] != c:
            place += 1
        for other in range(place, number[SIZE] - 1):
            counted.listed[other] = counted.listed[other + 1]
    place = number[SIZE] - 1
    while place > 0 and counted.owner[counted.listed[place - 1]] > kind:
        counted.listed[place] = counted.listed[place - 1]
        place -= 1
    counted.listed[place] = c
    counted.place[kind] = c
    counted.owner[c] = kind
    counted.count[c] += 1
    counted.port[c] = pieces.port[i]
    for k in range(pieces.demand.shape[1]):
        counted.demand[c, k] = pieces.demand[i, k]
    number[CHANGES] += 1
    counted.changed[c] = number[CHANGES]


@inner
def share_out(counted: Counted) -> None:
    """Compute the share of each class."""
    total = 0
    for c in range(counted.number[SIZE]):
        total += counted.count[c]
    for c in range(counted.number[SIZE]):
        counted.share[c] = counted.count[c] / total
    counted.number[TURN] += 1


@inner
def _wasted(fleet: Fleet, free: Free, counted: Counted, c: int, r: int, total: float, whole: int) -> Any:
    """Free devices of server r that a task of class c cannot use, as in `gathering.fragments`.

    `total` is what is free of its devices, `whole` the number of those that are free as a whole.
    """
    k, share = fleet.device[0], counted.demand[c, fleet.device[0]]
    if share <= ROOM or not fleet.reach[counted.port[c], r]:
        return total
    for j in range(fleet.capacity.shape[1]):
        if j != k and not counted.demand[c, j] <= free.amount[r, j] + ROOM * (1.0 + fleet.capacity[r, j]):
            return total
    if share >= 1.0 - ROOM:
        return total - whole if whole >= int(share + 0.5) else total
    small, able = 0.0, False
    for g in range(free.devices.shape[1]):
        if free.devices[r, g] + ROOM < share:
            small += free.devices[r, g]
        else:
            able = True
    return small if able else total


@inner
def _name(states: States, r: int) -> Any:
    """Name of the state of server r: a hash of 64 bits."""
    name = np.uint64(states.alike[r] + 1) * np.uint64(0x9E3779B97F4A7C15)
    for k in range(states.amount.shape[1]):
        name = (name ^ np.uint64(states.amount[r, k])) * np.uint64(0xBF58476D1CE4E5B9)
        name ^= name >> np.uint64(29)
    for g in range(states.devices.shape[1]):
        name = (name ^ np.uint64(states.devices[r, g])) * np.uint64(0x94D049BB133111EB)
        name ^= name >> np.uint64(31)
    return name


@inner
def _number(states: States, r: int) -> Any:
    """Number of the state of server r."""
    name, mask = _name(states, r), states.slot.shape[0] - 1
    at = np.int64(name & np.uint64(mask))
    while states.slot[at] > 0 and states.name[states.slot[at] - 1] != name:
        at = (at + 1) & mask
    if states.slot[at] == 0:
        e = states.number[MADE]
        states.number[MADE] += 1
        states.slot[at] = e + 1
        states.name[e] = name
        states.upto[e] = -1
        states.turn[e] = -1
        states.visit[e] = -1
    return states.slot[at] - 1


@inner
def _fill(fleet: Fleet, free: Free, counted: Counted, states: States, e: int, r: int) -> None:
    """Compute what classes cannot use in state e, which is that of server r."""
    total, whole = 0.0, 0
    for g in range(free.devices.shape[1]):
        total += free.devices[r, g]
        whole += free.devices[r, g] >= 1.0 - ROOM
    for c in range(counted.number[SIZE]):
        if counted.changed[c] > states.upto[e]:
            states.wasted[e, c] = _wasted(fleet, free, counted, c, r, total, whole) if total > ROOM else 0.0
    states.upto[e] = counted.number[CHANGES]


@inner
def _with_piece(
    fleet: Fleet, free: Free, counted: Counted, pieces: Pieces, i: int, r: int, states: States, rows: Rows
) -> Any:
    """Number of the state of server r with a piece of task i, brought up to date."""
    k = fleet.device[0]
    for j in range(fleet.capacity.shape[1]):
        rows.spare[0, j] = free.amount[r, j]
        free.amount[r, j] -= pieces.demand[i, j]
    for g in range(free.devices.shape[1]):
        rows.spare[1, g] = free.devices[r, g]
    hold(free.devices, r, pieces.demand[i, k], rows.held, 0)
    e = _number(states, r)
    if states.upto[e] < counted.number[CHANGES]:
        _fill(fleet, free, counted, states, e, r)
    for j in range(fleet.capacity.shape[1]):
        free.amount[r, j] = rows.spare[0, j]
    for g in range(free.devices.shape[1]):
        free.devices[r, g] = rows.spare[1, g]
    return e


@inner
def _follow(fleet: Fleet, free: Free, fitting: Fitting, states: States) -> None:
    """Number the states of servers that have changed; of all servers if there is no room for further states."""
    servers, changes, number = fleet.speed.shape[0], fitting.changes[0], states.number
    if number[MADE] + 2 * servers > states.name.shape[0]:
        for at in range(states.slot.shape[0]):
            states.slot[at] = 0
        number[MADE] = 0
        number[ERA] += 1
        number[SEEN] = -servers
    if changes - number[SEEN] >= servers:
        for r in range(servers):
            states.now[r] = _number(states, r)
    else:
        for place in range(number[SEEN], changes):
            r = fitting.log[place & (fitting.log.shape[0] - 1)]
            if fitting.last[r] == place:
                states.now[r] = _number(states, r)
    number[SEEN] = changes


@inner
def _expect(counted: Counted, states: States, count: int) -> None:
    """Compute the expected fragments of the states in `due`: four at a time, each in the order of classes."""
    due = states.due
    for place in range(count, count + 3):
        due[place] = due[count - 1]
    for first in range(0, count, 4):
        one, two, three, four = due[first], due[first + 1], due[first + 2], due[first + 3]
        lost, second, third, fourth = 0.0, 0.0, 0.0, 0.0
        for place in range(counted.number[SIZE]):
            c = counted.listed[place]
            share = counted.share[c]
            lost += share * states.wasted[one, c]
            second += share * states.wasted[two, c]
            third += share * states.wasted[three, c]
            fourth += share * states.wasted[four, c]
        states.value[one] = lost
        states.value[two] = second
        states.value[three] = third
        states.value[four] = fourth


@inner
def visit(
    fleet: Fleet,
    free: Free,
    counted: Counted,
    classes: Classes,
    pieces: Pieces,
    i: int,
    fitting: Fitting,
    states: States,
    rows: Rows,
) -> Any:
    """Bring the class of task i up to date, as `fitting.refresh` does, and `states.cost`; return its place."""
    servers, number, kind = fleet.speed.shape[0], states.number, fitting.kind[i]
    at = kind % fitting.room.shape[0]
    _follow(fleet, free, fitting, states)
    if states.owner[at, 0] != kind or states.owner[at, 1] != number[ERA]:
        states.owner[at, 0] = kind
        states.owner[at, 1] = number[ERA]
        for e in range(states.then.shape[1]):
            states.then[at, e] = 0
    number[VISIT] += 1
    met, total = 0, 0
    for r in range(servers):
        e = states.now[r]
        if states.visit[e] != number[VISIT]:
            states.visit[e] = number[VISIT]
            states.met[met] = r
            met += 1
            if states.then[at, e] == 0:
                states.then[at, e] = -1
                states.room[at, e] = pieces_on(fleet, free, pieces, i, r, MANY)
                if states.room[at, e] > 0:
                    states.left[at, e] = cost_of(fleet, free, classes, pieces, i, r, BEST, rows)
                    states.then[at, e] = 1 + _with_piece(fleet, free, counted, pieces, i, r, states, rows)
        fitting.room[at, r] = states.room[at, e]
        total += states.room[at, e]
    fitting.total[at] = total
    fitting.owner[at] = kind
    fitting.seen[at] = fitting.changes[0]
    if total < pieces.count[i]:
        return at
    due = 0
    for place in range(met):
        r = states.met[place]
        e = states.now[r]
        after = states.then[at, e] - 1
        if after < 0:
            continue
        if states.turn[e] != counted.number[TURN]:
            states.turn[e] = counted.number[TURN]
            states.due[due] = e
            due += 1
            if states.upto[e] < counted.number[CHANGES]:
                _fill(fleet, free, counted, states, e, r)
        if states.turn[after] != counted.number[TURN]:
            states.turn[after] = counted.number[TURN]
            states.due[due] = after
            due += 1
            if states.upto[after] < counted.number[CHANGES]:
                _with_piece(fleet, free, counted, pieces, i, r, states, rows)
    if due > 0:
        _expect(counted, states, due)
    for place in range(met):
        e = states.now[states.met[place]]
        after = states.then[at, e] - 1
        if after >= 0:
            states.total[e] = states.value[after] - states.value[e] + NEXT * states.left[at, e]
    for r in range(servers):
        states.cost[r] = states.total[states.now[r]]
    return at
