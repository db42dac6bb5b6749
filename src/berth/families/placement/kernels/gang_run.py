"""Whole run of gangs, greedy with a queue in the order of a rule or a network: for training and for the guard.

At every moment at which tasks end or arrive, all waiting tasks are tried in the order of their ranks
(`berth.families.placement.kernels.gang_greedy`). A rule's ranks never change; a network's ranks, launch factor and
price are renewed whenever tasks arrive. Servers do not fail here. Devices are given out in the order of starts.

Axes: N tasks, R servers, K resources, M places.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.gang_greedy import Trial, place_gangs
from berth.families.placement.kernels.gang_network import Totals, rank_gangs
from berth.families.placement.kernels.gathering import Fleet, Free, Pieces, Rows
from berth.families.placement.kernels.greedy import Batch, Servers, load, worth
from berth.families.placement.kernels.network import Net, Scratch, meet
from berth.kernels.compiled import inner, lean
from berth.kernels.small import sort_by

__all__ = ["Met", "Play", "play_gangs"]

ENDS, WAITS = range(2)
VALUE, EXECUTION, LAUNCH = range(3)


class Play(NamedTuple):
    """A run: start and end (N,), NaN for tasks that never start, value, execution and launch costs (3,); and scratch.

    Waiting tasks in order, sort keys, the network's ranks and whether tasks started (N,); places of each task and a
    heap of ends (N,); running tasks of a server and until when it is on (R,); counts of ends and of waiting tasks (2,).
    """

    start: Any
    end: Any
    sums: Any
    order: Any
    key: Any
    shown: Any
    spare: Any
    started: Any
    first: Any
    size: Any
    heap_time: Any
    heap_task: Any
    running: Any
    on_until: Any
    counts: Any


class Met(NamedTuple):
    """Smallest and largest inputs and outputs of a network in a run, (2, G + F + 2); empty if they are not needed."""

    bounds: Any


@inner
def _push(play: Play, time: float, task: int) -> None:
    at = play.counts[ENDS]
    play.counts[ENDS] += 1
    while at > 0:
        up = (at - 1) // 2
        if play.heap_time[up] < time or (play.heap_time[up] == time and play.heap_task[up] < task):
            break
        play.heap_time[at], play.heap_task[at] = play.heap_time[up], play.heap_task[up]
        at = up
    play.heap_time[at], play.heap_task[at] = time, task


@inner
def _pop(play: Play) -> Any:
    task = play.heap_task[0]
    play.counts[ENDS] -= 1
    size = play.counts[ENDS]
    time, last, at = play.heap_time[size], play.heap_task[size], 0
    while 2 * at + 1 < size:
        down = 2 * at + 1
        if down + 1 < size and (
            play.heap_time[down + 1] < play.heap_time[down]
            or (play.heap_time[down + 1] == play.heap_time[down] and play.heap_task[down + 1] < play.heap_task[down])
        ):
            down += 1
        if time < play.heap_time[down] or (time == play.heap_time[down] and last < play.heap_task[down]):
            break
        play.heap_time[at], play.heap_task[at] = play.heap_time[down], play.heap_task[down]
        at = down
    play.heap_time[at], play.heap_task[at] = time, last
    return task


@inner
def _release(fleet: Fleet, pieces: Pieces, free: Free, rows: Rows, play: Play, i: int, now: float, idle: float) -> None:
    """Free the places of an ended task."""
    device = fleet.device[0]
    for row in range(play.first[i], play.first[i] + play.size[i]):
        r = rows.server[row]
        play.running[r] -= 1
        empty = play.running[r] == 0
        for k in range(fleet.capacity.shape[1]):  # exactly, without rounding errors, once a server is empty
            free.amount[r, k] = (
                fleet.capacity[r, k] if empty else free.amount[r, k] + pieces.demand[i, k] * rows.count[row]
            )
        if empty:
            play.on_until[r] = now + idle
        for g in range(free.devices.shape[1]):
            free.devices[r, g] += rows.held[row, g]
            if empty and device >= 0:
                free.devices[r, g] = 1.0 if g < fleet.capacity[r, device] else 0.0


@inner
def _begin(
    batch: Batch,
    runs: Any,
    servers: Servers,
    rows: Rows,
    play: Play,
    begin: int,
    now: float,
) -> None:
    """Account for the places from `begin` on: tasks that start now."""
    row = begin
    while row < rows.size[0]:
        i, slowest, cost, first = rows.task[row], np.inf, 0.0, row
        heavy = load(servers.weight, batch.demand, i)
        while row < rows.size[0] and rows.task[row] == i:
            r = rows.server[row]
            slowest = min(slowest, servers.speed[r])
            cost += servers.rate[r] * heavy * rows.count[row]
            if play.running[r] == 0 and not now <= play.on_until[r]:
                play.sums[LAUNCH] += servers.launch[r]
            play.running[r] += 1
            play.on_until[r] = np.inf
            row += 1
        play.first[i], play.size[i] = first, row - first
        play.start[i], play.end[i] = now, now + runs[i] / slowest
        play.sums[VALUE] += worth(batch.value[i], batch.decay[i], batch.arrival[i], batch.deadline[i], play.end[i])
        play.sums[EXECUTION] += cost * (play.end[i] - now)
        _push(play, play.end[i], i)


@inner
def _note(scratch: Scratch, size: int, met: Met) -> None:
    """Widen the bounds by the inputs and outputs of this renewal."""
    groups, width = scratch.cluster.shape[0], scratch.features.shape[1]
    for g in range(groups):
        met.bounds[0, g] = min(met.bounds[0, g], scratch.cluster[g])
        met.bounds[1, g] = max(met.bounds[1, g], scratch.cluster[g])
    for f in range(width):
        for a in range(size):
            met.bounds[0, groups + f] = min(met.bounds[0, groups + f], scratch.features[a, f])
            met.bounds[1, groups + f] = max(met.bounds[1, groups + f], scratch.features[a, f])
    for part in range(2):
        x = scratch.heads[2 + part]
        met.bounds[0, groups + width + part] = min(met.bounds[0, groups + width + part], x)
        met.bounds[1, groups + width + part] = max(met.bounds[1, groups + width + part], x)


@lean
def play_gangs(
    batch: Batch,
    whole: Batch,
    runs: Any,
    ranks: Any,
    fleet: Fleet,
    servers: Servers,
    pieces: Pieces,
    beta: float,
    toll: float,
    forced: bool,
    only_order: bool,
    learned: bool,
    idle: float,
    net: Net,
    scratch: Scratch,
    totals: Totals,
    free: Free,
    trial: Trial,
    rows: Rows,
    play: Play,
    met: Met,
) -> None:
    """Play all tasks, until each has ended or its deadline has passed.

    `batch` has the demand of a piece, `whole` that of all pieces, `runs` (N,) the true work. With `learned` the network
    gives ranks, and unless `only_order` also launch factor and price; else `ranks` (N,) holds them, the largest first.
    `free` and `play` must be those of an empty cluster, and `rows` needs a place for every piece.
    """
    tasks, arrived = batch.work.shape[0], 0
    while arrived < tasks or play.counts[ENDS] > 0:
        now = batch.arrival[arrived] if arrived < tasks else np.inf
        if play.counts[ENDS] > 0:
            now = min(now, play.heap_time[0])
        while play.counts[ENDS] > 0 and play.heap_time[0] == now:
            _release(fleet, pieces, free, rows, play, _pop(play), now, idle)
        left, first = 0, arrived
        while arrived < tasks and batch.arrival[arrived] == now:
            arrived += 1
        for a in range(play.counts[WAITS] + arrived - first):
            i = play.order[a] if a < play.counts[WAITS] else first + a - play.counts[WAITS]
            if batch.deadline[i] > now:
                play.order[left] = i
                left += 1
        for r in range(servers.speed.shape[0]):
            free.off[r] = 0.0 if now <= play.on_until[r] else 1.0
        if arrived > first:
            for a in range(left):  # by number, as a policy sees them, and then by rank
                play.key[play.order[a]] = float(play.order[a])
            sort_by(play.key, play.order, play.spare, left)
            if learned:
                meet(whole, servers.weight, first, arrived, scratch.means)
                rank_gangs(
                    whole, play.order, left, fleet, servers, pieces, free, totals, play.on_until, now, net, scratch,
                    play.shown,
                )  # fmt: skip
                if not only_order:
                    beta, toll = scratch.heads[0], scratch.heads[1]
                if met.bounds.shape[0] > 0:
                    _note(scratch, left, met)
            for a in range(left):
                i = play.order[a]
                play.key[i] = -play.shown[a] if learned else -ranks[i]
            sort_by(play.key, play.order, play.spare, left)
        begin = rows.size[0]
        place_gangs(
            batch, play.order, left, fleet, servers, pieces, now, beta, toll, forced, free, trial, rows, play.started
        )
        _begin(batch, runs, servers, rows, play, begin, now)
        kept = 0
        for a in range(left):
            if play.started[play.order[a]] == 0:
                play.order[kept] = play.order[a]
                kept += 1
        play.counts[WAITS] = kept
