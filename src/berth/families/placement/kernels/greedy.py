"""Greedy placement by scanning every server: the work of a policy in one slot.

The score of task i on server r is its value when done there, less running cost, `beta` times the launch cost if the
server is off, and `price` per weighted unit of resource and time. A task goes where its score is largest; ties go to
the server with the fewest whole units of the first resource left, then to the first. It waits if no score is above 0,
unless it is `forced`.

Axes: n tasks, R servers, K resources, m berths.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.compiled import inlined, lean

ROOM = 1e-9  # tolerance of a sum of floats, relative to 1 + the limit


class Servers(NamedTuple):
    """Servers, every field (R,) but `capacity` (R, K) and `weight` (K,)."""

    capacity: Any
    speed: Any
    launch: Any
    rate: Any
    weight: Any


class Batch(NamedTuple):
    """Tasks, every field (n,) but `demand` (n, K)."""

    arrival: Any
    demand: Any
    work: Any
    value: Any
    decay: Any
    deadline: Any


@inlined
def worth(value: float, decay: float, arrival: float, deadline: float, end: float) -> Any:
    """Value of a task that is done at `end`."""
    if end > deadline:
        return 0.0
    return max(value - decay * (end - arrival), 0.0)


@inlined
def load(weight: Any, demand: Any, i: int) -> Any:
    """Weighted demand of task i."""
    total = 0.0
    for k in range(weight.shape[0]):
        total += weight[k] * demand[i, k]
    return total


@inlined
def fits(demand: Any, i: int, free: Any, capacity: Any, r: int) -> Any:
    """Whether task i fits in the free capacity of server r."""
    inside = True
    for k in range(capacity.shape[1]):
        inside = inside and demand[i, k] <= free[r, k] + ROOM * (1.0 + capacity[r, k])
    return inside


@inlined
def units(free: Any, capacity: Any, r: int) -> Any:
    """Whole units of the first resource that server r has left, as `fits` counts them."""
    return int(free[r, 0] + ROOM * (1.0 + capacity[r, 0]))


@inlined
def score_at(batch: Batch, i: int, heavy: float, speed: float, rate: float, toll: float, start: float) -> Any:
    """Score of task i, without the launch cost, on a server of this speed and rate if it starts at `start`."""
    time = batch.work[i] / speed
    gain = worth(batch.value[i], batch.decay[i], batch.arrival[i], batch.deadline[i], start + time)
    return gain - (rate + toll) * heavy * time


@lean
def place_now(
    batch: Batch,
    order: Any,
    servers: Servers,
    now: float,
    beta: float,
    toll: float,
    forced: bool,
    free: Any,
    on_until: Any,
    chosen: Any,
) -> None:
    """Place tasks in `order` on what is `free` (R, K) now; `chosen` (n,) gets a server or -1.

    A server launched for one task may then pay for another that came before it, so unplaced tasks are tried twice.
    Changes `free` and `on_until` (R,) as if the tasks had started.
    """
    for i in order:
        chosen[i] = -1
    for _ in range(2):
        launched = False
        for i in order:
            if chosen[i] >= 0:
                continue
            heavy = load(servers.weight, batch.demand, i)
            best, best_score, best_units = -1, 0.0, 0
            if forced:
                best_score = -np.inf
            for r in range(servers.speed.shape[0]):
                if not fits(batch.demand, i, free, servers.capacity, r):
                    continue
                score = score_at(batch, i, heavy, servers.speed[r], servers.rate[r], toll, now)
                if not now <= on_until[r]:
                    score -= beta * servers.launch[r]
                left = units(free, servers.capacity, r)
                if score > best_score or (best >= 0 and score == best_score and left < best_units):
                    best, best_score, best_units = r, score, left
            chosen[i] = best
            if best >= 0:
                for k in range(free.shape[1]):
                    free[best, k] -= batch.demand[i, k]
                launched = launched or not now <= on_until[best]
                on_until[best] = np.inf
        if not launched:
            break


# ---------------------------------------------------------------------------- reservations


@inlined
def _room(
    demand: Any, i: int, capacity: Any, r: int, start: float, end: float, at: Any, until: Any, holds: Any, size: int
) -> Any:
    """Whether task i fits on server r from `start` to `end` beside its `size` berths."""
    for point in range(-1, size):
        time = start if point < 0 else at[point]  # usage only rises when some task starts
        if time < start or time >= end:
            continue
        for k in range(capacity.shape[1]):
            used = demand[i, k]
            for b in range(size):
                if at[b] <= time < until[b]:
                    used += holds[b, k]
            if used > capacity[r, k] + ROOM * (1.0 + capacity[r, k]):
                return False
    return True


@lean
def earliest(
    demand: Any, i: int, time: float, capacity: Any, r: int, now: float, at: Any, until: Any, holds: Any, size: int
) -> float:
    """Earliest time for task i on server r for `time`: now, or at the end of one of its `size` berths; inf if never."""
    for k in range(capacity.shape[1]):
        if demand[i, k] > capacity[r, k] + ROOM * (1.0 + capacity[r, k]):
            return np.inf
    best = np.inf
    if _room(demand, i, capacity, r, now, now + time, at, until, holds, size):
        return now
    for b in range(size):
        if until[b] < best and until[b] > now:
            start = until[b]
            if _room(demand, i, capacity, r, start, start + time, at, until, holds, size):
                best = start
    return best


@lean
def place_ever(
    batch: Batch,
    order: Any,
    servers: Servers,
    up: Any,
    now: float,
    idle: float,
    beta: float,
    toll: float,
    forced: bool,
    any_time: bool,
    on_until: Any,
    berth_start: Any,
    berth_end: Any,
    berth_demand: Any,
    count: Any,
    chosen: Any,
    starts: Any,
) -> None:
    """Place tasks in `order` for good, now or later; `chosen` (n,) gets a server or -1, `starts` (n,) the start.

    With `any_time` a task may start later although it fits somewhere now; without, only if it fits nowhere now. Berths
    of server r are the first `count` (R,) columns of `berth_start` and `berth_end` (R, m) and `berth_demand` (R, m, K);
    new ones are added.
    """
    for i in order:
        heavy = load(servers.weight, batch.demand, i)
        nothing = -np.inf if forced else 0.0
        best, best_score, best_start, best_units = -1, nothing, now, 0.0
        fits_now = False
        for r in range(servers.speed.shape[0]):
            if not up[r]:
                continue
            time = batch.work[i] / servers.speed[r]
            start = earliest(
                batch.demand, i, time, servers.capacity, r, now, berth_start[r], berth_end[r], berth_demand[r], count[r]
            )
            if start == np.inf or (fits_now and start > now):
                continue
            if start == now and not any_time and not fits_now:
                fits_now = True  # discards later places
                best, best_score = -1, nothing
            score = score_at(batch, i, heavy, servers.speed[r], servers.rate[r], toll, start)
            launched = start <= on_until[r]
            left = servers.capacity[r, 0]
            for b in range(count[r]):
                if berth_start[r, b] <= start <= berth_end[r, b] + idle:
                    launched = True
                if berth_start[r, b] <= start < berth_end[r, b]:
                    left -= berth_demand[r, b, 0]
            if not launched:
                score -= beta * servers.launch[r]
            left = np.floor(left + ROOM * (1.0 + servers.capacity[r, 0]))
            if score > best_score or (best >= 0 and score == best_score and left < best_units):
                best, best_score, best_start, best_units = r, score, start, left
        chosen[i] = best
        starts[i] = best_start
        if best >= 0:
            b = count[best]
            berth_start[best, b] = best_start
            berth_end[best, b] = best_start + batch.work[i] / servers.speed[best]
            for k in range(servers.capacity.shape[1]):
                berth_demand[best, b, k] = batch.demand[i, k]
            count[best] = b + 1
