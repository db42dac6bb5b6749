"""Many knapsacks without a root, each by itself: maximise wᵀx over x in {0, 1}ⁿ with A x ≤ 1.

Small ones are solved by branch and bound: items in the order of worth per surrogate demand (the demands on all
resources in one, weighted by how much all items would take), bounded by the best fractional filling. Others have prices
and a search (`knapsack_prices`, `knapsack_core`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.families.selection.kernels.knapsack import reduce
from berth.families.selection.kernels.knapsack_core import Items, improve
from berth.families.selection.kernels.knapsack_prices import interior
from berth.kernels.compiled import compiled
from berth.kernels.small import sort_places

__all__ = ["solve_each"]

FEW = 28  # most items of a small knapsack
NODES = 200_000  # of one small knapsack
FIRST = 16  # items nearest to the margin that a search begins with
CLOSE = 1e-7  # relative tolerance of prices


@compiled
def _branch(worth: Any, takes: Any, chosen: Any) -> float:
    """Fill `chosen` (n,) with the best choice of a small knapsack; return a bound, its worth if it is optimal."""
    n, resources = takes.shape
    load, demand, density = np.zeros(resources), np.zeros(n), np.empty(n)
    order, scratch = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    room = 0.0
    for k in range(resources):
        for e in range(n):
            load[k] += takes[e, k] if worth[e] > 0.0 else 0.0
        if load[k] > 1.0:  # others do not bind
            room += load[k]
            for e in range(n):
                demand[e] += load[k] * takes[e, k]
    for e in range(n):
        chosen[e] = 0
        density[e] = -worth[e] / demand[e] if demand[e] > 0.0 else -np.inf
        if worth[e] <= 0.0:
            density[e] = np.inf
    sort_places(density, n, order, scratch)
    size = n
    while size > 0 and worth[order[size - 1]] <= 0.0:
        size -= 1
    taken = np.zeros(size, dtype=np.uint8)
    value, filled, used = np.zeros(size + 1), np.zeros(size + 1), np.zeros((size + 1, resources))
    best, root, at, nodes = 0.0, 0.0, 0, 0
    while True:
        bound, left = value[at], room - filled[at]
        for i in range(at, size):
            e = order[i]
            if demand[e] > left:
                bound += worth[e] * max(left, 0.0) / demand[e]
                break
            bound += worth[e]
            left -= demand[e]
        if nodes == 0:
            root = bound
        nodes += 1
        if nodes > NODES:
            return max(root, best)
        if at < size and bound > best * (1.0 + 1e-13):
            e = order[at]
            fits = True
            for k in range(resources):
                fits = fits and used[at, k] + takes[e, k] <= 1.0
            taken[at] = 1 if fits else 0
            value[at + 1] = value[at] + worth[e] if fits else value[at]
            filled[at + 1] = filled[at] + demand[e] if fits else filled[at]
            for k in range(resources):
                used[at + 1, k] = used[at, k] + takes[e, k] if fits else used[at, k]
            at += 1
            continue
        if at == size and value[at] > best:
            best = value[at]
            for i in range(size):
                chosen[order[i]] = taken[i]
        at -= 1
        while at >= 0 and taken[at] == 0:
            at -= 1
        if at < 0:
            return best * (1.0 + 1e-13)
        taken[at] = 0
        value[at + 1], filled[at + 1] = value[at], filled[at]
        for k in range(resources):
            used[at + 1, k] = used[at, k]
        at += 1


@compiled
def _search(worth: Any, takes: Any, gap: float, effort: int, chosen: Any) -> float:
    """Fill `chosen` (n,) with a good choice of a larger knapsack; return a bound."""
    n, resources = takes.shape
    price, reduced, flat = np.zeros((1, resources)), np.empty(n), np.zeros(n)
    start = np.array([0, n])
    interior(worth, flat, takes, start, np.ones((1, resources)), 0.0, CLOSE, price)
    dual = reduce(worth, flat, takes, 0.0, price[0], reduced)
    order, scratch = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    distance = np.abs(reduced)
    sort_places(distance, n, order, scratch)
    budget = distance[order[min(FIRST, n) - 1]]
    sort_places(-reduced, n, order, scratch)
    return improve(Items(worth, flat, takes, reduced, price[0]), order, dual, budget, gap, effort, chosen)[0]


@compiled
def solve_each(
    worth: Any, takes: Any, start: Any, first: int, last: int, gap: float, effort: int, chosen: Any, bound: Any
) -> None:
    """Fill `chosen` (n,) and `bound` (G,) for knapsacks `first` to `last` − 1; `effort` limits the search of each."""
    for g in range(first, last):
        a, b = start[g], start[g + 1]
        if b - a <= FEW:
            bound[g] = _branch(worth[a:b], takes[a:b], chosen[a:b])
        else:
            bound[g] = _search(worth[a:b], takes[a:b], gap, effort, chosen[a:b])
