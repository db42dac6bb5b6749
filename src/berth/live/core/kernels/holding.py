"""Places of running jobs, one job after another, and their releases in order of time.

Axes: n jobs, p places, K resources.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.compiled import compiled

__all__ = ["Held", "held_by", "released"]


class Held(NamedTuple):
    """By row of the table of jobs: the first of its places, how many there are, and its shape.

    Of each place the server, the role of its job and the number of tasks. The first role of each shape is a row of
    `demand`, what a task of each role takes.
    """

    first: Any
    places: Any
    shape: Any
    server: Any
    role: Any
    count: Any
    roles: Any
    demand: Any


@compiled
def held_by(rows: Any, held: Held) -> Any:
    """Where the places of these jobs begin (n + 1,); the server, number of tasks (p,) and amounts (p, K) of each."""
    start = np.zeros(rows.shape[0] + 1, dtype=np.int64)
    for i in range(rows.shape[0]):
        start[i + 1] = start[i] + held.places[rows[i]]
    size, resources = start[rows.shape[0]], held.demand.shape[1]
    server, count = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    amount = np.empty((size, resources), dtype=np.int64)
    for i in range(rows.shape[0]):
        role = held.roles[held.shape[rows[i]]]
        for at in range(start[i], start[i + 1]):
            place = held.first[rows[i]] + at - start[i]
            server[at], count[at] = held.server[place], held.count[place]
            for k in range(resources):
                amount[at, k] = held.count[place] * held.demand[role + held.role[place], k]
    return start, server, count, amount


@compiled
def released(order: Any, left: Any, start: Any, server: Any, amount: Any, spare: int) -> Any:
    """When places are given back, on which server and how much, of jobs in this order, with `spare` rows behind them.

    `left` (n,) are the seconds until a job ends; its places are rows `start[job]` to `start[job + 1]`.
    """
    size = server.shape[0]
    time, where = np.zeros(size + spare), np.zeros(size + spare, dtype=np.int64)
    much = np.zeros((size + spare, amount.shape[1]), dtype=np.int64)
    at = 0
    for job in order:
        for place in range(start[job], start[job + 1]):
            time[at], where[at] = left[job], server[place]
            for k in range(amount.shape[1]):
                much[at, k] = amount[place, k]
            at += 1
    return time, where, much
