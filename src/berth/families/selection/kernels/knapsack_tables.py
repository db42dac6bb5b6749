"""Dynamic programmes for a knapsack of tiny whole capacities: exact, or with rounded gains as in the papers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.kernels.compiled import compiled

__all__ = ["rounded_table", "sized", "tiny_choice"]


@compiled
def sized(
    gain: Any, spread: Any, takes: Any, pool: Any, free: Any, most: int, active: Any, whole: Any, limit: Any
) -> int:
    """Number of states of the question's table, or −1 if it exceeds `most`.

    Fills `active` (n,) with the channels that fit alone and could pay (their number is whole[n, 0]), `whole` (n + 1, K)
    with their demands, `limit` (K,) with the capacities, none larger than all demands together. −2: gains or spreads
    that are not numbers.
    """
    n, resources = takes.shape
    size = 0
    first = -1
    for e in range(n):
        if not (math.isfinite(gain[e]) and spread[e] >= 0.0 and math.isfinite(spread[e])):
            return -2
        if gain[e] <= 0.0 and spread[e] <= 0.0:
            continue
        fits = True
        for k in range(resources):
            have = max(free[pool[e], k], 0.0)
            fits = fits and takes[e, k] <= have + 1e-9 * (1.0 + have)
        if not fits:
            continue
        if first < 0:
            first = pool[e]
        if pool[e] != first:
            return -1
        for k in range(resources):
            amount = round(takes[e, k])
            if abs(takes[e, k] - amount) > 1e-12 * (1.0 + amount) or amount > 1e9:
                return -1
            whole[size, k] = int(amount)
        active[size] = e
        size += 1
    whole[n, 0] = size
    states = 1
    for k in range(resources):
        total = 0
        for i in range(size):
            total += whole[i, k]
        have = max(free[first, k], 0.0) if size > 0 else 0.0
        limit[k] = int(min(float(total), math.floor(have + 1e-9 * (1.0 + have))))
        states *= limit[k] + 1
        if states > most:
            return -1
    return states


@compiled
def _grid(takes: Any, size: int, limit: Any, states: int) -> Any:
    """States reachable from the full capacity, downwards: (count, states, coordinates, steps, ranks)."""
    resources = takes.shape[1]
    stride = np.ones(resources, dtype=np.int64)
    for k in range(resources - 2, -1, -1):
        stride[k] = stride[k + 1] * (limit[k + 1] + 1)
    step = np.zeros(size, dtype=np.int64)
    for i in range(size):
        for k in range(resources):
            step[i] += stride[k] * takes[i, k]
    rank = np.full(states, -1, dtype=np.int64)
    found = np.empty(states, dtype=np.int64)
    left = np.empty((states, resources), dtype=np.int64)
    rank[states - 1] = 0
    count = 0
    for state in range(states - 1, -1, -1):
        if rank[state] < 0:
            continue
        rank[state] = count
        found[count] = state
        rest = state
        for k in range(resources):
            left[count, k] = rest // stride[k]
            rest -= left[count, k] * stride[k]
        for i in range(size):
            fits = True
            for k in range(resources):
                fits = fits and takes[i, k] <= left[count, k]
            if fits and rank[state - step[i]] < 0:
                rank[state - step[i]] = 0
        count += 1
    return count, found, left, step, rank


@compiled
def _label_table(
    gain: Any, spread: Any, active: Any, takes: Any, limit: Any, states: int, width: int, labels: int, chosen: Any
) -> float:
    """Exact optimum for whole capacities: fills `chosen` (n,), returns the value; NaN if there is no room.

    For each reachable capacity, keeps the Pareto-optimal (Σ gain, Σ spread) of choices that fit, channel by channel. A
    list holds at most `width` of them, with `labels` in all.
    """
    size = takes[gain.shape[0], 0]
    count, found, left, step, rank = _grid(takes, size, limit, states)
    resources = takes.shape[1]
    label_gain, label_spread = np.empty(labels), np.empty(labels)
    parent, item = np.empty(labels, dtype=np.int64), np.empty(labels, dtype=np.int64)
    lists, length = np.empty((count, width), dtype=np.int64), np.empty(count, dtype=np.int64)
    merged = np.empty(width, dtype=np.int64)
    label_gain[0], label_spread[0], parent[0], item[0] = 0.0, 0.0, -1, -1
    made = 1
    for c in range(count):
        lists[c, 0] = 0
        length[c] = 1
    for i in range(size):
        e = active[i]
        v, q = gain[e], spread[e]
        for c in range(count):  # descending capacities: lower ones do not contain this item yet
            fits = True
            for k in range(resources):
                fits = fits and takes[i, k] <= left[c, k]
            if not fits:
                continue
            below = rank[found[c] - step[i]]
            a, b, kept = 0, 0, 0
            highest = -1.0
            while a < length[c] or b < length[below]:
                new = False
                if a == length[c]:
                    new = True
                elif b < length[below]:
                    old_gain = label_gain[lists[c, a]]
                    new_gain = label_gain[lists[below, b]] + v
                    new = new_gain > old_gain or (
                        new_gain == old_gain and label_spread[lists[below, b]] + q > label_spread[lists[c, a]]
                    )
                if new:
                    source = lists[below, b]
                    b += 1
                    if label_spread[source] + q > highest:
                        if kept == width or made == labels:
                            return np.nan
                        highest = label_spread[source] + q
                        label_gain[made], label_spread[made] = label_gain[source] + v, highest
                        parent[made], item[made] = source, e
                        merged[kept] = made
                        made += 1
                        kept += 1
                else:
                    source = lists[c, a]
                    a += 1
                    if label_spread[source] > highest:
                        if kept == width:
                            return np.nan
                        highest = label_spread[source]
                        merged[kept] = source
                        kept += 1
            for j in range(kept):
                lists[c, j] = merged[j]
            length[c] = kept
    best, at = -np.inf, 0
    for j in range(length[0]):
        value = label_gain[lists[0, j]] + math.sqrt(label_spread[lists[0, j]])
        if value > best:
            best, at = value, lists[0, j]
    for e in range(gain.shape[0]):
        chosen[e] = 0
    while parent[at] >= 0:
        chosen[item[at]] = 1
        at = parent[at]
    return best


@compiled
def tiny_choice(
    gain: Any, spread: Any, takes: Any, pool: Any, free: Any, most: int, width: int, labels: int, chosen: Any
) -> tuple[int, float]:
    """`sized`, then the exact optimum: number of states (−1, −2: as there; −3: no room for lists), and value."""
    n, resources = takes.shape
    active, whole = np.empty(n, dtype=np.int64), np.empty((n + 1, resources), dtype=np.int64)
    limit = np.empty(resources, dtype=np.int64)
    states = sized(gain, spread, takes, pool, free, most, active, whole, limit)
    if states <= 0:
        return states, 0.0
    value = _label_table(gain, spread, active, whole, limit, states, width, labels, chosen)
    return (-3, 0.0) if math.isnan(value) else (states, value)


@compiled
def rounded_table(
    steps: Any,
    spread: Any,
    active: Any,
    takes: Any,
    limit: Any,
    states: int,
    low: int,
    high: int,
    scale: float,
    chosen: Any,
) -> float:
    """Maximise Υᵀx/ξ + √(qᵀx) for whole Υ = `steps` (n,) and ξ = `scale`: fills `chosen` (n,), returns that value.

    The papers' table: for each reachable capacity and each sum s = Υᵀx in low … high, the largest spread. Sums that no
    choice has stay −∞; one decision bit per entry and channel is enough to recover the choice.
    """
    size = takes[steps.shape[0], 0]
    count, found, left, step, rank = _grid(takes, size, limit, states)
    resources = takes.shape[1]
    width = high - low + 1
    table = np.full((count, width), -np.inf)
    bits = np.empty((size, count, width), dtype=np.uint8)
    lowest, highest = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for c in range(count):
        table[c, -low] = 0.0
    for i in range(size):
        jump, q = steps[active[i]], spread[active[i]]
        for c in range(count):
            fits = True
            for k in range(resources):
                fits = fits and takes[i, k] <= left[c, k]
            if not fits:
                for s in range(lowest[c] - low, highest[c] - low + 1):
                    bits[i, c, s] = 0
                continue
            below = rank[found[c] - step[i]]
            first = max(min(lowest[c], lowest[below] + jump), low)
            last = min(max(highest[c], highest[below] + jump), high)
            from_low, from_high = lowest[below], highest[below]
            # a channel without demand reads from the row it writes: always from sums not yet updated
            down = jump > 0
            for t in range(first, last + 1):
                s = first + last - t if down else t
                bits[i, c, s - low] = 0
                if from_low <= s - jump <= from_high:
                    with_it = table[below, s - jump - low] + q
                    if with_it > table[c, s - low]:
                        table[c, s - low] = with_it
                        bits[i, c, s - low] = 1
            lowest[c], highest[c] = first, last
    best, at = -np.inf, 0
    for s in range(lowest[0], highest[0] + 1):
        if table[0, s - low] >= 0.0:
            value = s / scale + math.sqrt(table[0, s - low])
            if value > best:
                best, at = value, s
    for e in range(steps.shape[0]):
        chosen[e] = 0
    c = 0
    for i in range(size - 1, -1, -1):
        if bits[i, c, at - low] == 1:
            chosen[active[i]] = 1
            at -= steps[active[i]]
            c = rank[found[c] - step[i]]
    return best
