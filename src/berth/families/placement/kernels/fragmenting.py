"""Fragmentation-aware placement of whole logs: the rule `WHOLE` of `berth.families.placement.kernels.gathering`.

The expectation is over the tasks seen so far, so it changes with every arrival, on every server. What a class of tasks
cannot use depends only on the state of a server (what is free there), and many servers are in the same state: these
numbers are kept by state, and the expectation is computed once for each state that servers are in, or would be.

Axes: N tasks, R servers, K resources, G devices, C classes counted, E states kept (a power of two), S as in `fitting`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.fitting import Fitting
from berth.families.placement.kernels.gathering import NEXT, ROOM, Fleet, Free, Pieces, Rows, hold
from berth.kernels.compiled import inlined, inner

__all__ = ["Counted", "States", "count_task", "share_out", "whole_costs"]

# indices in `Counted.number`
SIZE, CHANGES, TURN = 0, 1, 2


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
    """States of servers: name (E,), wasted devices of each class (E, C), changes included (E,), expectation and turn.

    `alike` (R,) numbers servers that are equal when empty; `amount` and `devices` are what is free as whole numbers,
    for names. `now` (R,) and `then` (S, R) name the state of servers now and with one more piece; `seen` (1 + S,)
    counts the changes that they include, and `owner` (S,) is the class of tasks. `cost` (R,) is the result.
    """

    name: Any
    wasted: Any
    upto: Any
    value: Any
    turn: Any
    alike: Any
    amount: Any
    devices: Any
    now: Any
    then: Any
    seen: Any
    owner: Any
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
def _fill(fleet: Fleet, free: Free, counted: Counted, states: States, name: Any, r: int) -> None:
    """Compute what classes cannot use in the state of this name, which is that of server r."""
    e = int(name & np.uint64(states.name.shape[0] - 1))
    known = states.upto[e] if states.name[e] == name else -1
    total, whole = 0.0, 0
    for g in range(free.devices.shape[1]):
        total += free.devices[r, g]
        whole += free.devices[r, g] >= 1.0 - ROOM
    for c in range(counted.number[SIZE]):
        if counted.changed[c] > known:
            states.wasted[e, c] = _wasted(fleet, free, counted, c, r, total, whole) if total > ROOM else 0.0
    states.name[e] = name
    states.upto[e] = counted.number[CHANGES]
    states.turn[e] = -1


@inlined
def _ready(counted: Counted, states: States, name: Any) -> Any:
    """Whether the expectation of a state is up to date."""
    e = name & np.uint64(states.name.shape[0] - 1)
    return states.name[e] == name and states.turn[e] == counted.number[TURN]


@inlined
def _value(states: States, name: Any) -> Any:
    return states.value[name & np.uint64(states.name.shape[0] - 1)]


@inner
def _known(counted: Counted, states: States, name: Any) -> Any:
    """Whether it is known what classes cannot use in a state."""
    e = name & np.uint64(states.name.shape[0] - 1)
    return states.name[e] == name and states.upto[e] == counted.number[CHANGES]


@inner
def _expect(counted: Counted, states: States, name: Any) -> None:
    """Compute the expected fragments in a known state."""
    e = name & np.uint64(states.name.shape[0] - 1)
    lost = 0.0
    for place in range(counted.number[SIZE]):
        c = counted.listed[place]
        lost += counted.share[c] * states.wasted[e, c]
    states.value[e] = lost
    states.turn[e] = counted.number[TURN]


@inner
def _with_piece(
    fleet: Fleet, free: Free, counted: Counted, pieces: Pieces, i: int, r: int, name: Any, states: States, rows: Rows
) -> Any:
    """Name the state of server r with a piece of task i, and fill it if `name` is that name."""
    k = fleet.device[0]
    for j in range(fleet.capacity.shape[1]):
        rows.spare[0, j] = free.amount[r, j]
        free.amount[r, j] -= pieces.demand[i, j]
    for g in range(free.devices.shape[1]):
        rows.spare[1, g] = free.devices[r, g]
    hold(free.devices, r, pieces.demand[i, k], rows.held, 0)
    found = _name(states, r)
    if found == name:
        _fill(fleet, free, counted, states, name, r)
    for j in range(fleet.capacity.shape[1]):
        free.amount[r, j] = rows.spare[0, j]
    for g in range(free.devices.shape[1]):
        free.devices[r, g] = rows.spare[1, g]
    return found


@inner
def whole_costs(
    fleet: Fleet,
    free: Free,
    counted: Counted,
    pieces: Pieces,
    i: int,
    at: int,
    fitting: Fitting,
    states: States,
    rows: Rows,
) -> None:
    """Costs of all servers where a piece of task i fits; its class at place `at` is up to date by the rule `BEST`."""
    servers, changes, keep = fleet.speed.shape[0], fitting.changes[0], fitting.log.shape[0] - 1
    if fleet.device[0] < 0:
        for r in range(servers):
            states.cost[r] = NEXT * fitting.cost[at, r]
        return
    if states.owner[at] != fitting.kind[i]:
        states.owner[at] = fitting.kind[i]
        states.seen[1 + at] = -1
    if changes - states.seen[0] >= servers:
        for r in range(servers):
            states.now[r] = _name(states, r)
    else:
        for place in range(states.seen[0], changes):
            r = fitting.log[place & keep]
            if fitting.last[r] == place:
                states.now[r] = _name(states, r)
    states.seen[0] = changes
    none = np.uint64(0)
    before, after, added = none, none, 0.0
    for r in range(servers):
        if fitting.room[at, r] == 0:
            continue
        if fitting.last[r] >= states.seen[1 + at]:
            states.then[at, r] = _with_piece(fleet, free, counted, pieces, i, r, none, states, rows)
        if states.now[r] != before or states.then[at, r] != after:
            before, after = states.now[r], states.then[at, r]
            if not _ready(counted, states, before):
                if not _known(counted, states, before):
                    _fill(fleet, free, counted, states, before, r)
                _expect(counted, states, before)
            base = _value(states, before)
            if not _ready(counted, states, after):
                if not _known(counted, states, after):
                    _with_piece(fleet, free, counted, pieces, i, r, after, states, rows)
                _expect(counted, states, after)
            added = _value(states, after) - base
        states.cost[r] = added + NEXT * fitting.cost[at, r]
    states.seen[1 + at] = changes
