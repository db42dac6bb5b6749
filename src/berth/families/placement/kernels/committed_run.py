"""Whole placement run in which every task is placed at its arrival, now or later: the paper's scope.

Axes: N tasks, R servers, K resources, m berths of a server at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.families.placement.kernels.greedy import Batch, Servers, place_ever
from berth.families.placement.kernels.network import Net, Scratch, meet, rank_tasks
from berth.kernels.compiled import compiled


@compiled
def _forget(now: float, idle: float, start: Any, end: Any, demand: Any, count: Any, free: Any, on_until: Any) -> None:
    """Remove ended berths; `free` (R, K), initially full, gets what begun berths leave."""
    for r in range(count.shape[0]):
        left, runs, last = 0, False, -np.inf
        for b in range(count[r]):
            if end[r, b] <= now:
                last = max(last, end[r, b])
                continue
            start[r, left], end[r, left] = start[r, b], end[r, b]
            for k in range(free.shape[1]):
                demand[r, left, k] = demand[r, b, k]
                if start[r, b] <= now:
                    free[r, k] -= demand[r, b, k]
            runs = runs or start[r, left] <= now
            left += 1
        count[r] = left
        if runs:
            on_until[r] = np.inf
        elif last > -np.inf:
            on_until[r] = last + idle
        elif on_until[r] == np.inf:
            on_until[r] = -np.inf


@compiled
def play_committed(
    batch: Batch,
    servers: Servers,
    net: Net,
    scratch: Scratch,
    only_order: bool,
    any_time: bool,
    idle: float,
    most: int,
    chosen: Any,
    starts: Any,
) -> None:
    """Rank each batch by the network and place it greedily for good, into `chosen` and `starts` (N,).

    With `only_order` launches count in full and resources have no price. A server never has more than `most` berths.
    """
    count_servers, resources = servers.capacity.shape
    berth_start, berth_end = np.zeros((count_servers, most)), np.zeros((count_servers, most))
    berth_demand = np.zeros((count_servers, most, resources))
    count = np.zeros(count_servers, dtype=np.int64)
    on_until, up = np.full(count_servers, -np.inf), np.ones(count_servers, dtype=np.bool_)
    free = np.empty((count_servers, resources))
    tasks, first = batch.work.shape[0], 0
    while first < tasks:
        now, last = batch.arrival[first], first
        while last < tasks and batch.arrival[last] == now:
            last += 1
        for r in range(count_servers):
            for k in range(resources):
                free[r, k] = servers.capacity[r, k]
        _forget(now, idle, berth_start, berth_end, berth_demand, count, free, on_until)
        meet(batch, servers.weight, first, last, scratch.means)
        ids, ranks = np.arange(first, last), np.empty(last - first)
        rank_tasks(batch, ids, last - first, servers, free, on_until, now, net, scratch, ranks)
        beta, toll = (1.0, 0.0) if only_order else (scratch.heads[0], scratch.heads[1])
        order = first + np.argsort(-ranks, kind="mergesort")
        place_ever(
            batch,
            order,
            servers,
            up,
            now,
            idle,
            beta,
            toll,
            False,
            any_time,
            on_until,
            berth_start,
            berth_end,
            berth_demand,
            count,
            chosen,
            starts,
        )
        first = last
