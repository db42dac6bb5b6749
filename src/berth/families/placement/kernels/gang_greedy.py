"""Greedy placement of gangs: score order, every class of speeds tried, whole or not at all.

The score of a placement is the task's value when its slowest server is done, less the running cost and `price` of all
pieces, and `beta` times the launch costs of servers that are off. A task of one piece goes where its score is largest,
as in `berth.families.placement.kernels.greedy.place_now`. For a gang, each speed of the cluster is tried as the least
speed: its pieces go to the cheapest servers of at least that speed, each filled before the next, and the least speed
with the largest score decides. Ties go to the server with the fewest whole units of the first resource left, then to
the first; of equal scores, to the larger least speed.

Axes: n tasks, R servers, K resources, S different speeds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.gathering import Fleet, Free, Pieces, Rows, pieces_on, take
from berth.families.placement.kernels.greedy import Batch, Servers, load, score_at, units, worth
from berth.kernels.compiled import inner, lean

__all__ = ["Trial", "place_gangs"]


class Trial(NamedTuple):
    """Different speeds, largest first (S,), and scratch: pieces that fit on each server, and the cost of one (R,)."""

    speeds: Any
    holds: Any
    cost: Any


@inner
def _best_server(
    batch: Batch,
    i: int,
    heavy: float,
    fleet: Fleet,
    servers: Servers,
    pieces: Pieces,
    now: float,
    beta: float,
    toll: float,
    forced: bool,
    free: Free,
) -> Any:
    """Server with the largest score for a task of one piece, -1 if none pays."""
    best, best_score, best_units = -1, 0.0, 0
    if forced:
        best_score = -np.inf
    for r in range(servers.speed.shape[0]):
        if pieces_on(fleet, free, pieces, i, r, 1) == 0:
            continue
        score = score_at(batch, i, heavy, servers.speed[r], servers.rate[r], toll, now)
        if free.off[r] > 0.0:
            score -= beta * servers.launch[r]
        left = units(free.amount, servers.capacity, r)
        if score > best_score or (best >= 0 and score == best_score and left < best_units):
            best, best_score, best_units = r, score, left
    return best


@inner
def _gathered(
    batch: Batch,
    i: int,
    heavy: float,
    least: float,
    servers: Servers,
    pieces: Pieces,
    now: float,
    beta: float,
    toll: float,
    free: Free,
    trial: Trial,
    rows: Rows,
) -> Any:
    """Put a gang on the cheapest servers of this least speed: rows from `rows.size[0]` on. Return number and score."""
    time, wanted, first, size = batch.work[i] / least, pieces.count[i], rows.size[0], 0
    rows.size[1] += 1  # a unique mark for every call
    mark = rows.size[1]
    for r in range(servers.speed.shape[0]):
        if trial.holds[r] > 0 and servers.speed[r] >= least:
            trial.cost[r] = (servers.rate[r] + toll) * heavy * time
            if free.off[r] > 0.0:
                trial.cost[r] += beta * servers.launch[r] / trial.holds[r]
    slowest, running, launches = np.inf, 0.0, 0.0
    while wanted > 0:
        best, best_units = -1, 0
        for r in range(servers.speed.shape[0]):
            if trial.holds[r] == 0 or servers.speed[r] < least or rows.mark[r] == mark:
                continue
            if best >= 0 and trial.cost[r] > trial.cost[best]:
                continue
            left = units(free.amount, servers.capacity, r)
            if best < 0 or trial.cost[r] < trial.cost[best] or left < best_units:
                best, best_units = r, left
        count = min(trial.holds[best], wanted)
        rows.mark[best] = mark
        rows.task[first + size] = i
        rows.server[first + size] = best
        rows.count[first + size] = count
        size += 1
        wanted -= count
        slowest = min(slowest, servers.speed[best])
        running += (servers.rate[best] + toll) * heavy * count
        if free.off[best] > 0.0:
            launches += servers.launch[best]
    time = batch.work[i] / slowest
    gain = worth(batch.value[i], batch.decay[i], batch.arrival[i], batch.deadline[i], now + time)
    return size, gain - running * time - beta * launches


@inner
def _best_gang(
    batch: Batch,
    i: int,
    heavy: float,
    fleet: Fleet,
    servers: Servers,
    pieces: Pieces,
    now: float,
    beta: float,
    toll: float,
    forced: bool,
    free: Free,
    trial: Trial,
    rows: Rows,
) -> Any:
    """Write the best placement of a gang to rows from `rows.size[0]` on; return their number, 0 if none pays."""
    wanted, total = pieces.count[i], 0
    for r in range(servers.speed.shape[0]):
        trial.holds[r] = pieces_on(fleet, free, pieces, i, r, wanted)
        total += trial.holds[r]
    if total < wanted:
        return 0
    nothing = -np.inf if forced else 0.0
    chosen, best_score, last, size, fitting = -1, nothing, -1, 0, 0
    for s in range(trial.speeds.shape[0]):
        least, more = trial.speeds[s], 0
        for r in range(servers.speed.shape[0]):
            if servers.speed[r] == least:
                more += trial.holds[r]
        fitting += more
        if more == 0 or fitting < wanted:
            continue
        most = worth(batch.value[i], batch.decay[i], batch.arrival[i], batch.deadline[i], now + batch.work[i] / least)
        if most <= best_score:  # slower servers only take longer
            break
        size, score = _gathered(batch, i, heavy, least, servers, pieces, now, beta, toll, free, trial, rows)
        last = s
        if score > best_score:
            chosen, best_score = s, score
    if chosen < 0:
        return 0
    if chosen != last:
        size, _ = _gathered(batch, i, heavy, trial.speeds[chosen], servers, pieces, now, beta, toll, free, trial, rows)
    return size


@lean
def place_gangs(
    batch: Batch,
    order: Any,
    count: int,
    fleet: Fleet,
    servers: Servers,
    pieces: Pieces,
    now: float,
    beta: float,
    toll: float,
    forced: bool,
    free: Free,
    trial: Trial,
    rows: Rows,
    started: Any,
) -> None:
    """Start those of the first `count` tasks of `order` that pay and fit: places to `rows`, and 1 to `started` (n,).

    `free.off` is 1 for servers that are off, whatever their launch cost. A server launched for one task may then pay
    for another that came before it, so tasks that did not start are tried twice.
    """
    for place in range(count):
        started[order[place]] = 0
    for _ in range(2):
        launched = False
        for place in range(count):
            i = order[place]
            if started[i] > 0:
                continue
            heavy, first = load(servers.weight, batch.demand, i), rows.size[0]
            size = 0
            if pieces.count[i] > 1:
                size = _best_gang(batch, i, heavy, fleet, servers, pieces, now, beta, toll, forced, free, trial, rows)
            else:
                best = _best_server(batch, i, heavy, fleet, servers, pieces, now, beta, toll, forced, free)
                if best >= 0:
                    rows.task[first], rows.server[first], rows.count[first] = i, best, 1
                    size = 1
            if size == 0:
                continue
            for row in range(first, first + size):
                launched = launched or free.off[rows.server[row]] > 0.0
            take(fleet, free, pieces, first, size, rows)
            rows.size[0] += size
            started[i] = 1
        if not launched:
            break
