"""A placement run the slow way: at every event, every task that waits is tried on every server."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from berth.families.placement.kernels.greedy import Batch, Servers, place_now
from berth.families.placement.problem import PlacementProblem, PlacementSlot, Tasks
from berth.model import Floats, Ints
from tests.reference.gathering import Server, put, room


def tasks_of(*columns: ArrayLike) -> Tasks:
    """Tasks from plain lists, in the order of the fields."""
    arrays: list[Any] = [np.asarray(column, dtype=np.float64) for column in columns]
    return Tasks(*arrays)


def batch_of(tasks: Tasks) -> Batch:
    return Batch(tasks.arrival, tasks.demand, tasks.work, tasks.value, tasks.decay, tasks.deadline)


def servers_of(problem: PlacementProblem) -> Servers:
    return Servers(problem.instance.capacity, problem.speed, problem.launch, problem.rate, problem.weight)


def play(problem: PlacementProblem, tasks: Tasks, rank: Floats, beta: float, price: float) -> tuple[Ints, Floats]:
    """Server (N,), -1 where none, and start (N,) of every task."""
    batch, servers = batch_of(tasks), servers_of(problem)
    capacity = problem.instance.capacity
    free, on_until = capacity.copy(), np.full(len(capacity), -np.inf)
    running = np.zeros(len(capacity), dtype=int)
    server, start = np.full(len(tasks), -1), np.zeros(len(tasks))
    events = [(float(t), 1, -1) for t in np.unique(tasks.arrival)]
    heapq.heapify(events)
    waiting: list[int] = []
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, _, i = heapq.heappop(events)
            if i < 0:
                waiting += np.flatnonzero(tasks.arrival == now).tolist()
                continue
            r = server[i]
            running[r] -= 1
            if running[r]:
                free[r] += tasks.demand[i]
            else:
                free[r], on_until[r] = capacity[r], now + problem.idle
        order = np.array(sorted(waiting, key=lambda i: (-rank[i], i)), dtype=np.int64)
        chosen = np.full(len(tasks), -1, dtype=np.int64)
        place_now(batch, order, servers, now, beta, price, False, free, on_until, chosen)
        for i in order.tolist():
            if chosen[i] >= 0:
                server[i], start[i] = chosen[i], now
                running[chosen[i]] += 1
                heapq.heappush(events, (now + tasks.work[i] / problem.speed[chosen[i]], 0, i))
        waiting = [i for i in waiting if chosen[i] < 0]
    return server, start


# ---------------------------------------------------------------------------- one slot, in plain Python

ROOM = 1e-9


def _score(batch: Batch, i: int, servers: Servers, r: int, price: float, start: float) -> float:
    """What task i brings on server r, launch apart."""
    heavy = 0.0
    for unit, amount in zip(servers.weight.tolist(), batch.demand[i].tolist(), strict=True):
        heavy += unit * amount
    time = float(batch.work[i] / servers.speed[r])
    end = start + time
    late = end > batch.deadline[i]
    worth = 0.0 if late else max(float(batch.value[i] - batch.decay[i] * (end - batch.arrival[i])), 0.0)
    return worth - float(servers.rate[r] + price) * heavy * time


def _inside(used: Floats, capacity: Floats) -> bool:
    return bool((used <= capacity + ROOM * (1.0 + capacity)).all())


def _best(offers: list[tuple[float, int, int, float]], forced: bool) -> tuple[int, float]:
    """Server and start of the largest score, of equal ones the least units left, of those the first server."""
    paying = [offer for offer in offers if forced or offer[0] > 0.0]
    if not paying:
        return -1, np.nan
    _, _, r, start = min(paying, key=lambda offer: (-offer[0], offer[1], offer[2]))
    return r, start


def place_now_twin(
    batch: Batch,
    order: Ints,
    servers: Servers,
    now: float,
    beta: float,
    price: float,
    forced: bool,
    free: Floats,
    on_until: Floats,
) -> list[int]:
    """What `families.placement.kernels.greedy.place_now` chooses; changes nothing."""
    free, on = free.copy(), [now <= until for until in on_until.tolist()]
    chosen = dict.fromkeys(order.tolist(), -1)
    for _ in range(2):
        launched = False
        for i in [i for i in order.tolist() if chosen[i] < 0]:
            offers = []
            for r, capacity in enumerate(servers.capacity):
                slack = ROOM * (1.0 + capacity)
                if (batch.demand[i] <= free[r] + slack).all():
                    score = _score(batch, i, servers, r, price, now) - (0.0 if on[r] else beta * servers.launch[r])
                    offers.append((score, int(free[r, 0] + slack[0]), r, now))
            chosen[i], _ = _best(offers, forced)
            if chosen[i] >= 0:
                free[chosen[i]] -= batch.demand[i]
                launched |= not on[chosen[i]]
                on[chosen[i]] = True
        if not launched:
            break
    return [chosen[i] for i in range(len(batch.work))]


Held = list[tuple[float, float, Floats]]


def earliest_twin(demand: Floats, time: float, capacity: Floats, now: float, held: Held) -> float:
    """When a task can first have a server beside its berths: now or when one of them ends."""

    def room(start: float) -> bool:
        moments = [start] + [s for s, _, _ in held if start <= s < start + time]
        return all(
            _inside(sum((d for s, e, d in held if s <= moment < e), start=demand.copy()), capacity)
            for moment in moments
        )

    if not _inside(demand, capacity):
        return np.inf
    return min((t for t in [now, *(e for _, e, _ in held if e > now)] if room(t)), default=np.inf)


def place_ever_twin(
    batch: Batch,
    order: Ints,
    servers: Servers,
    up: NDArray[np.bool_],
    now: float,
    idle: float,
    beta: float,
    price: float,
    forced: bool,
    any_time: bool,
    on_until: Floats,
    held: Sequence[Held],
) -> list[tuple[int, float]]:
    """What `families.placement.kernels.greedy.place_ever` chooses: server and start; `held` has the berths of each
    server."""
    chosen = {}
    held = [list(berths) for berths in held]
    for i in order.tolist():
        offers = []
        for r in np.flatnonzero(up).tolist():
            capacity = servers.capacity[r]
            start = earliest_twin(batch.demand[i], float(batch.work[i] / servers.speed[r]), capacity, now, held[r])
            if start == np.inf:
                continue
            on = start <= on_until[r] or any(s <= start <= e + idle for s, e, _ in held[r])
            left = capacity[0]
            for s, e, d in held[r]:
                if s <= start < e:
                    left -= d[0]
            score = _score(batch, i, servers, r, price, start) - (0.0 if on else beta * servers.launch[r])
            offers.append((score, int(np.floor(left + ROOM * (1.0 + capacity[0]))), r, start))
        if not any_time and any(start == now for *_, start in offers):
            offers = [offer for offer in offers if offer[3] == now]
        r, start = _best(offers, forced)
        chosen[i] = (r, start)
        if r >= 0:
            held[r].append((start, start + batch.work[i] / servers.speed[r], batch.demand[i]))
    return [chosen[i] for i in range(len(batch.work))]


# ---------------------------------------------------------------------------- gangs, in plain Python


def place_gangs_twin(
    problem: PlacementProblem, slot: PlacementSlot, order: Ints, beta: float, price: float, forced: bool
) -> dict[int, list[int]]:
    """What `families.placement.kernels.gang_greedy.place_gangs` starts: the servers of each task's pieces, sorted."""
    tasks, device = slot.tasks, problem.devices
    servers = [
        Server(slot.free[r].tolist(), [] if slot.devices is None else slot.devices[r].tolist()) if slot.up[r] else None
        for r in range(len(problem.speed))
    ]
    on = (slot.time <= slot.on_until).tolist()
    chosen: dict[int, list[int]] = {}
    for _ in range(2):
        launched = False
        for i in [i for i in order.tolist() if i not in chosen]:
            demand, wanted = tuple(tasks.demand[i].tolist()), int(tasks.pieces[i])
            heavy = float(problem.weight @ tasks.demand[i])
            fits = {
                r: room(server, demand, device, wanted)
                for r, server in enumerate(servers)
                if server is not None and problem.reach[tasks.port[i], r]
            }
            offers = []
            for least in sorted({float(problem.speed[r]) for r in fits}, reverse=True):
                able = [r for r in fits if fits[r] > 0 and problem.speed[r] >= least]
                if sum(fits[r] for r in able) < wanted:
                    continue
                if wanted == 1:  # each server for itself
                    sets = [[r] for r in able if problem.speed[r] == least]
                else:
                    sets = [_cheapest(problem, tasks, i, able, fits, least, heavy, servers, on, beta, price)]
                for places in sets:
                    score = _gang_score(problem, slot, i, places, heavy, on, beta, price)
                    left = int(servers[places[0]].amount[0]) if wanted == 1 else 0  # type: ignore[union-attr]
                    offers.append((score, left, places if wanted == 1 else [], places))
            paying = [offer for offer in offers if forced or offer[0] > 0.0]
            if not paying:
                continue
            places = min(paying, key=lambda offer: (-offer[0], offer[1], offer[2]))[3]
            for r in places:
                server = servers[r]
                assert server is not None
                assert put(server, demand, device)
                launched |= not on[r]
                on[r] = True
            chosen[i] = sorted(places)
        if not launched:
            break
    return chosen


def _cheapest(
    problem: PlacementProblem,
    tasks: Tasks,
    i: int,
    able: list[int],
    fits: dict[int, int],
    least: float,
    heavy: float,
    servers: list[Server | None],
    on: list[bool],
    beta: float,
    price: float,
) -> list[int]:
    """The server of each piece: cheapest servers first, each filled before the next."""

    def key(r: int) -> tuple[float, int, int]:
        running = float(problem.rate[r] + price) * heavy * float(tasks.work[i] / least)
        launch = 0.0 if on[r] else beta * float(problem.launch[r]) / fits[r]
        return running + launch, int(servers[r].amount[0]), r  # type: ignore[union-attr]

    places: list[int] = []
    for r in sorted(able, key=key):
        places += [r] * min(fits[r], int(tasks.pieces[i]) - len(places))
    return places


def _gang_score(
    problem: PlacementProblem,
    slot: PlacementSlot,
    i: int,
    places: list[int],
    heavy: float,
    on: list[bool],
    beta: float,
    price: float,
) -> float:
    tasks = slot.tasks
    time = float(tasks.work[i]) / min(float(problem.speed[r]) for r in places)
    end = slot.time + time
    late = end > tasks.deadline[i]
    worth = 0.0 if late else max(float(tasks.value[i] - tasks.decay[i] * (end - tasks.arrival[i])), 0.0)
    running = sum(float(problem.rate[r] + price) * heavy for r in places) * time
    return worth - running - beta * sum(float(problem.launch[r]) for r in set(places) if not on[r])
