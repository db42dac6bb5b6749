"""Many small knapsacks under one root: each enumerated, then combined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.kernels.compiled import compiled
from berth.kernels.small import sort_places

__all__ = ["best_slope", "combine", "fronts"]


@compiled
def fronts(gain: Any, spread: Any, takes: Any, start: Any) -> Any:
    """Pareto-optimal choices of each knapsack (capacities 1) by gain and spread.

    Returns (begin (G + 1,), gain, spread, bits) with the choices of g at begin[g] … begin[g + 1], by descending gain;
    bit i of `bits` is item start[g] + i. Lists all subsets of a knapsack on the way: for knapsacks of a dozen items.
    """
    pools, resources = start.shape[0] - 1, takes.shape[1]
    widest = 0
    for g in range(pools):
        widest = max(widest, start[g + 1] - start[g])
    room = 1 << widest
    all_gain, all_spread, used = np.empty(room), np.empty(room), np.empty((room, resources))
    all_bits = np.empty(room, dtype=np.int64)
    key, order, scratch = np.empty(room), np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    space = 16 * (pools + 1)
    front_gain, front_spread, front_bits = np.empty(space), np.empty(space), np.empty(space, dtype=np.int64)
    begin = np.zeros(pools + 1, dtype=np.int64)
    kept = 0
    for g in range(pools):
        size = 1
        all_gain[0], all_spread[0], all_bits[0] = 0.0, 0.0, 0
        for k in range(resources):
            used[0, k] = 0.0
        for e in range(start[g], start[g + 1]):
            for j in range(size):
                fits = True
                for k in range(resources):
                    fits = fits and used[j, k] + takes[e, k] <= 1.0
                if fits:
                    all_gain[size] = all_gain[j] + gain[e]
                    all_spread[size] = all_spread[j] + spread[e]
                    all_bits[size] = all_bits[j] | (1 << (e - start[g]))
                    for k in range(resources):
                        used[size, k] = used[j, k] + takes[e, k]
                    size += 1
        for j in range(size):
            key[j] = -all_gain[j]
        sort_places(key, size, order, scratch)
        if kept + size > space:
            space = 2 * (kept + size)
            front_gain = np.concatenate((front_gain[:kept], np.empty(space - kept)))
            front_spread = np.concatenate((front_spread[:kept], np.empty(space - kept)))
            front_bits = np.concatenate((front_bits[:kept], np.empty(space - kept, dtype=np.int64)))
        first = kept
        for i in range(size):
            j = order[i]
            if kept == first or all_spread[j] > front_spread[kept - 1]:
                if kept > first and all_gain[j] == front_gain[kept - 1]:
                    kept -= 1  # same gain, more spread
                front_gain[kept], front_spread[kept], front_bits[kept] = all_gain[j], all_spread[j], all_bits[j]
                kept += 1
        begin[g + 1] = kept
    return begin, front_gain[:kept], front_spread[:kept], front_bits[:kept]


@compiled
def _at_slope(begin: Any, gain: Any, spread: Any, u: float, pick: Any) -> tuple[float, float]:
    """Best choice of each knapsack for gains + u/2 spreads; return (their sum, the sum of their spreads)."""
    total, y = 0.0, 0.0
    for g in range(begin.shape[0] - 1):
        best, at = -np.inf, -1
        for j in range(begin[g], begin[g + 1]):
            worth = gain[j] + 0.5 * u * spread[j]
            if worth > best:
                best, at = worth, j
        total += best
        y += spread[at]
        pick[g] = at
    return total, y


@compiled
def best_slope(begin: Any, gain: Any, spread: Any) -> tuple[float, float]:
    """The u that minimises 1/(2u) + Σ_g max(gain + u/2 spread), and that minimum; u = 0 without spreads."""
    pick = np.empty(begin.shape[0] - 1, dtype=np.int64)
    most = 0.0
    for g in range(begin.shape[0] - 1):
        largest = 0.0
        for j in range(begin[g], begin[g + 1]):
            largest = max(largest, spread[j])
        most += largest
    if most <= 0.0:
        return 0.0, _at_slope(begin, gain, spread, 0.0, pick)[0]
    # the derivative has the sign of u² y(u) − 1, and y(u) grows
    low = 1.0 / math.sqrt(most)
    high = 2.0 * low
    while _at_slope(begin, gain, spread, high, pick)[1] * high * high < 1.0 and high < 1e150:
        low = high
        high *= 4.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        if _at_slope(begin, gain, spread, middle, pick)[1] * middle * middle < 1.0:
            low = middle
        else:
            high = middle
        if high - low <= 1e-12 * high:
            break
    at_low = _at_slope(begin, gain, spread, low, pick)[0] + 0.5 / low
    at_high = _at_slope(begin, gain, spread, high, pick)[0] + 0.5 / high
    return (low, at_low) if at_low <= at_high else (high, at_high)


@compiled
def combine(
    begin: Any, gain: Any, spread: Any, u: float, dual: float, gap: float, labels: int, pick: Any
) -> tuple[float, bool]:
    """Choose one entry per knapsack to maximise Σ gain + √(Σ spread): fills `pick` (G,), returns a bound.

    Starts from the choices that are best at u and keeps, knapsack by knapsack, all Pareto-optimal partial sums with a
    loss up to β; β grows until it covers the gap to the bound. At most `labels` sums are kept; also returns whether
    that was enough.
    """
    pools = begin.shape[0] - 1
    _at_slope(begin, gain, spread, u, pick)
    value, y = 0.0, 0.0
    for g in range(pools):
        value += gain[pick[g]]
        y += spread[pick[g]]
    best = value + math.sqrt(y)
    bound = dual
    noise = 1e-13 * abs(dual)
    if dual - best <= max(gap * abs(dual), noise):
        return max(best, bound), True
    top = np.empty(pools)
    for g in range(pools):
        top[g] = gain[pick[g]] + 0.5 * u * spread[pick[g]]
    parent, option = np.empty(labels, dtype=np.int64), np.empty(labels, dtype=np.int64)
    owner = np.empty(labels, dtype=np.int64)
    beta = (dual - best) / 64.0
    while True:
        beta = min(beta, dual - best + noise)
        loss, sum_gain, sum_spread, name = np.zeros(1), np.zeros(1), np.zeros(1), np.full(1, -1, dtype=np.int64)
        size, used = 1, 0
        enough = True
        for g in range(pools):
            choices = 0
            for j in range(begin[g], begin[g + 1]):
                if top[g] - gain[j] - 0.5 * u * spread[j] <= beta:
                    choices += 1
            if size * choices > labels:
                enough = False
                break
            new_loss, new_gain, new_spread = (
                np.empty(size * choices),
                np.empty(size * choices),
                np.empty(size * choices),
            )
            source, which = np.empty(size * choices, dtype=np.int64), np.empty(size * choices, dtype=np.int64)
            grown = 0
            for j in range(begin[g], begin[g + 1]):
                lost = top[g] - gain[j] - 0.5 * u * spread[j]
                if lost <= beta:
                    for i in range(size):
                        if loss[i] + lost <= beta + noise:
                            new_loss[grown] = loss[i] + lost
                            new_gain[grown] = sum_gain[i] + gain[j]
                            new_spread[grown] = sum_spread[i] + spread[j]
                            source[grown], which[grown] = name[i], j
                            grown += 1
            key, order, scratch = -new_gain, np.empty(grown, dtype=np.int64), np.empty(grown, dtype=np.int64)
            sort_places(key, grown, order, scratch)
            loss, sum_gain, sum_spread = np.empty(grown), np.empty(grown), np.empty(grown)
            name = np.empty(grown, dtype=np.int64)
            size = 0
            for place in range(grown):
                i = order[place]
                if size > 0 and new_spread[i] <= sum_spread[size - 1]:
                    continue
                if used == labels:
                    enough = False
                    break
                loss[size], sum_gain[size], sum_spread[size] = new_loss[i], new_gain[i], new_spread[i]
                parent[used], option[used], owner[used] = source[i], which[i], g
                name[size] = used
                used += 1
                size += 1
            if not enough:
                break
        if not enough:
            return max(best, bound), False
        for i in range(size):
            value = sum_gain[i] + math.sqrt(sum_spread[i])
            if value > best:
                best = value
                at = name[i]
                while at >= 0:
                    pick[owner[at]] = option[at]
                    at = parent[at]
        bound = min(bound, max(best, dual - beta))
        if beta >= dual - best or bound - best <= gap * abs(bound):
            return max(best, bound), True
        beta *= 4.0
