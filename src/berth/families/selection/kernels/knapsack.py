"""Knapsacks with a square root: maximise vᵀx + √(qᵀx) over x in {0, 1}ⁿ with A x ≤ 1, on plain arrays.

v (n,) gains, q (n,) ≥ 0 spreads, A (n, K) ≥ 0 the share of every capacity that each item takes. Since
√y = min_u 1/(2u) + u y/2, any u > 0 and λ ≥ 0 bound the optimum from above:

    D(u, λ) = 1/(2u) + Σ_k λ_k + Σ_e max(0, r_e),      r_e = v_e + u q_e/2 − λᵀA_e,

and a choice x that differs from x̄ = [r > 0] on a set F and leaves slack s ≥ 0 is worth at most
D − Σ_F |r_e| − λᵀs. Every search here counts that **loss**: choices within a budget β of D flip only items with
|r_e| ≤ β, and their slack lies in a narrow window.

This module holds the arrangement of a question, D, and a plain filling. Further,

* `knapsack_prices` finds the u and λ of the smallest D, for one or several capacities side by side;
* `knapsack_core` enumerates flips of one knapsack, all choices with a loss up to β for growing β;
* `knapsack_pools` does the same for many small knapsacks, each enumerated;
* `knapsack_tables` are dynamic programmes for tiny integer capacities.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.kernels.compiled import compiled

__all__ = ["arrange", "pack", "reduce"]


@compiled
def arrange(
    gain: Any, spread: Any, takes: Any, pool: Any, free: Any, channel: Any, v: Any, q: Any, share: Any, start: Any
) -> Any:
    """Select the channels that fit alone and could pay, sorted by pool; return (count, number of pools, scale).

    Fills `channel` (n,) with them, `v` and `q` with gains divided by the scale and spreads by its square (all at most
    1), `share` (n, K) with demands as shares of the pool's capacity, `start` (G + 1,) with the start of each pool;
    pools without such channels are left out. If all demands on a capacity are whole numbers, the capacity is rounded
    down, which sharpens bounds. A count of −1 means that gains or spreads are not numbers.
    """
    n, resources = takes.shape
    pools = free.shape[0]
    limit, whole = np.empty((pools, resources)), np.ones((pools, resources), dtype=np.uint8)
    for g in range(pools):
        for k in range(resources):
            have = max(free[g, k], 0.0)
            limit[g, k] = have + 1e-9 * (1.0 + have)
    size = np.zeros(pools + 1, dtype=np.int64)
    usable = np.zeros(n, dtype=np.uint8)
    scale, count = 0.0, 0
    for e in range(n):
        if not (math.isfinite(gain[e]) and spread[e] >= 0.0 and math.isfinite(spread[e])):
            return -1, 0, 1.0
        if gain[e] <= 0.0 and spread[e] <= 0.0:
            continue
        g = pool[e]
        fits = True
        for k in range(resources):
            fits = fits and takes[e, k] <= limit[g, k]
        if not fits:
            continue
        usable[e] = 1
        size[g] += 1
        count += 1
        scale = max(scale, abs(gain[e]), math.sqrt(spread[e]))
        for k in range(resources):
            if takes[e, k] != math.floor(takes[e, k]):
                whole[g, k] = 0
    place = np.zeros(pools, dtype=np.int64)
    kept, at = 0, 0
    for g in range(pools):
        place[g] = at
        if size[g] > 0:
            start[kept] = at
            kept += 1
        at += size[g]
        for k in range(resources):
            if whole[g, k] == 1 and math.isfinite(limit[g, k]):
                most = math.floor(limit[g, k])
                limit[g, k] = most + 1e-9 * (1.0 + most)
    start[kept] = at
    for e in range(n):
        if usable[e] == 1:
            i = place[pool[e]]
            place[pool[e]] += 1
            channel[i] = e
            v[i] = gain[e] / scale
            q[i] = spread[e] / scale / scale
            for k in range(resources):
                share[i, k] = takes[e, k] / limit[pool[e], k]
    return count, kept, scale


@compiled
def reduce(gain: Any, spread: Any, takes: Any, u: float, price: Any, reduced: Any) -> float:
    """Fill r (n,) of one knapsack with capacities 1, and return D."""
    bound = 0.5 / u if u > 0.0 else 0.0
    for k in range(takes.shape[1]):
        bound += price[k]
    for e in range(takes.shape[0]):
        r = gain[e] + 0.5 * u * spread[e]
        for k in range(takes.shape[1]):
            r -= price[k] * takes[e, k]
        reduced[e] = r
        bound += max(r, 0.0)
    return bound


@compiled
def pack(gain: Any, spread: Any, takes: Any, order: Any, chosen: Any) -> float:
    """Fill the knapsack in this order, skipping what does not fit or pay; return the value."""
    resources = takes.shape[1]
    left = np.ones(resources)
    value, y = 0.0, 0.0
    for e in order:
        chosen[e] = 0
        if gain[e] + math.sqrt(y + spread[e]) - math.sqrt(y) <= 0.0:
            continue
        fits = True
        for k in range(resources):
            fits = fits and takes[e, k] <= left[k]
        if fits:
            chosen[e] = 1
            value += gain[e]
            y += spread[e]
            for k in range(resources):
                left[k] -= takes[e, k]
    return value + math.sqrt(y)
