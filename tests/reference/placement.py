"""A placement run the slow way: at every event, every task that waits is tried on every server."""

from __future__ import annotations

import heapq

import numpy as np

from berth.kernels.placement import Batch, Servers, place_now
from berth.problems.placement import PlacementProblem, Tasks


def batch_of(tasks: Tasks) -> Batch:
    return Batch(tasks.arrival, tasks.demand, tasks.work, tasks.value, tasks.decay, tasks.deadline)


def servers_of(problem: PlacementProblem) -> Servers:
    return Servers(problem.instance.capacity, problem.speed, problem.launch, problem.rate, problem.weight)


def play(problem: PlacementProblem, tasks: Tasks, rank: np.ndarray, beta: float, price: float) -> tuple:
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
