"""Core of one knapsack: every choice whose loss is within a budget, for growing budgets.

Rounds have a growing budget β. In each, the items with |r| ≤ β are dealt to two sides. All flips of one side with a
loss up to β form a list, sorted by their use of the two most expensive resources; a walk visits the flips of the other
side and completes each with the entries in the window of slack that could still improve. After a round every choice
with a loss up to β has been seen, so the bound falls to D − β.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from berth.families.selection.kernels.knapsack import pack
from berth.kernels.compiled import compiled
from berth.kernels.small import sort_places

__all__ = ["Items", "improve"]

LIST = 20_000  # entries of the list of flips
STRIPS = 64  # of the sorted list
REACH = 2.0  # largest loss that a round searches, in budgets of one side
WIDEST = 62  # items behind the list: their flips are bits of one integer


class Items(NamedTuple):
    """One knapsack with capacities 1, and its reduced gains."""

    gain: Any  # (n,)
    spread: Any  # (n,)
    takes: Any  # (n, K)
    reduced: Any  # (n,) r at these prices
    price: Any  # (K,)


class Sides(NamedTuple):
    """Items near the margin, dealt to two sides; all flips of the listed side, and those flips in strips.

    A strip is a range of use of the most expensive resource; within it flips are sorted by the second most expensive.
    """

    listed: Any  # items of the list: bit i of `bits` is listed[i]
    walked: Any  # (n,) items of the other side, nearest to the margin first
    loss: Any  # (LIST,)
    gain: Any  # (LIST,)
    spread: Any  # (LIST,)
    takes: Any  # (K, LIST)
    bits: Any  # (LIST,)
    begin: Any  # (STRIPS + 2,) start of each strip
    line: Any  # (LIST,) entries by strip
    key: Any  # (LIST,) their use of the second resource
    record: Any  # (LIST, 3 + K) their loss, gain, spread, takes: stored together, as they are read together


class Goal(NamedTuple):
    """Goal of a search."""

    dual: float  # D, an upper bound
    noise: float  # rounding of sums, which must not cost the optimum
    enough: float  # distance to D at which a value is good enough


class Window(NamedTuple):
    """Parameters of a round."""

    beta: float  # the budget of one side
    reach: float  # largest loss searched
    dearest: int  # resource that orders the strips
    second: int  # resource that orders each strip
    lowest: float  # start of the first strip
    strip: float  # width of strips


class Walk(NamedTuple):
    """Flips of the walked side, one more at each depth, and their sums."""

    path: Any  # (n + 1,) items flipped
    place: Any  # (n + 1,) next item to try
    loss: Any  # (n + 1,)
    gain: Any  # (n + 1,)
    spread: Any  # (n + 1,)
    left: Any  # (n + 1, K)
    best_path: Any  # (n + 1,) of the best choice


@compiled
def _two_dearest(items: Items, near: Any, size: int) -> tuple[int, int]:
    """The two resources that the items near the margin pay most for: they give the sharpest windows."""
    dearest, second, most, next_most = 0, 0, -1.0, -1.0
    for k in range(items.takes.shape[1]):
        weight = 0.0
        for i in range(size):
            weight += (items.price[k] * items.takes[near[i], k]) ** 2
        if weight > most:
            second, next_most = dearest, most
            dearest, most = k, weight
        elif weight > next_most:
            second, next_most = k, weight
    return dearest, second


@compiled
def _deal(items: Items, near: Any, rank: Any, size: int, beta: float, sides: Sides) -> tuple[int, int, int, int]:
    """Deal every other item to the list while there is room, the rest to the walked side.

    Returns the numbers of entries, of listed items and of walked ones, and of entries visited.
    """
    resources = items.takes.shape[1]
    entries, width, rest, spent = 1, 0, 0, 0
    sides.loss[0], sides.gain[0], sides.spread[0], sides.bits[0] = 0.0, 0.0, 0.0, 0
    for k in range(resources):
        sides.takes[k, 0] = 0.0
    full = False
    for i in range(size):
        e = near[rank[i]]
        if i % 2 == 0 and width < WIDEST and not full:
            sign = -1.0 if items.reduced[e] > 0.0 else 1.0
            grown = entries
            for j in range(entries):
                loss = sides.loss[j] + abs(items.reduced[e])
                if loss <= beta:
                    if grown == LIST:
                        full = True
                        break
                    sides.loss[grown] = loss
                    sides.gain[grown] = sides.gain[j] + sign * items.gain[e]
                    sides.spread[grown] = sides.spread[j] + sign * items.spread[e]
                    sides.bits[grown] = sides.bits[j] | (1 << width)
                    for k in range(resources):
                        sides.takes[k, grown] = sides.takes[k, j] + sign * items.takes[e, k]
                    grown += 1
            spent += entries
            if not full:
                entries = grown
                sides.listed[width] = e
                width += 1
                continue
        sides.walked[rest] = e
        rest += 1
    return entries, width, rest, spent


@compiled
def _sort_into_strips(
    sides: Sides, entries: int, dearest: int, second: int, slack: float, by_second: Any, scratch: Any
) -> tuple[float, float]:
    """Sort the list; strips are at least `slack` wide. Return the start of the first strip, and their width."""
    lowest, highest = 0.0, 0.0
    for i in range(entries):
        lowest = min(lowest, sides.takes[dearest, i])
        highest = max(highest, sides.takes[dearest, i])
    strip = max((highest - lowest) * (1.0 + 1e-9) / STRIPS + 1e-300, slack)
    begin = sides.begin
    for i in range(STRIPS + 2):
        begin[i] = 0
    for i in range(entries):
        begin[int((sides.takes[dearest, i] - lowest) / strip) + 1] += 1
    for i in range(STRIPS + 1):
        begin[i + 1] += begin[i]
    sort_places(sides.takes[second], entries, by_second, scratch)
    for i in range(entries):
        j = by_second[i]
        at = int((sides.takes[dearest, j] - lowest) / strip)
        to = begin[at]
        begin[at] += 1
        sides.line[to] = j
        sides.key[to] = sides.takes[second, j]
        sides.record[to, 0], sides.record[to, 1], sides.record[to, 2] = sides.loss[j], sides.gain[j], sides.spread[j]
        for k in range(sides.takes.shape[0]):
            sides.record[to, 3 + k] = sides.takes[k, j]
    for i in range(STRIPS, 0, -1):
        begin[i] = begin[i - 1]
    begin[0] = 0
    return lowest, strip


@compiled
def _walk(
    items: Items, sides: Sides, walk: Walk, window: Window, goal: Goal, rest: int, effort: int, best: float
) -> tuple[float, int, int, bool, int]:
    """Walk depth first through the flips of the walked side, from depth 0 of the walk.

    Returns the best value, its entry (−1: none better than `best`) and depth, whether the walk is complete, and the
    number of entries visited.
    """
    resources = items.takes.shape[1]
    dearest, second, lowest, strip = window.dearest, window.second, window.lowest, window.strip
    dear, next_dear = items.price[dearest], items.price[second]
    best_entry, best_depth, spent = -1, 0, 0
    depth = 0
    walk.place[0] = 0
    fresh = True
    while depth >= 0:
        if fresh:
            fresh = False
            allowed = min(goal.dual - best + goal.noise, window.reach) - walk.loss[depth]
            high, top = walk.left[depth, dearest], walk.left[depth, second]
            low = high - allowed / dear if dear > 0.0 else lowest
            floor = top - allowed / next_dear if next_dear > 0.0 else -np.inf
            first = int(max(low - lowest, 0.0) / strip)
            last = int((high - lowest) / strip) if high >= lowest else -1
            for at in range(first, min(last, STRIPS - 1) + 1):
                left, right = sides.begin[at], sides.begin[at + 1]
                while left < right:
                    middle = (left + right) // 2
                    if sides.key[middle] <= top:
                        left = middle + 1
                    else:
                        right = middle
                i = left - 1
                while i >= sides.begin[at] and sides.key[i] >= floor:
                    if sides.record[i, 0] < allowed:
                        fits = True
                        for k in range(resources):
                            fits = fits and sides.record[i, 3 + k] <= walk.left[depth, k]
                        if fits:
                            value = walk.gain[depth] + sides.record[i, 1]
                            value += math.sqrt(max(walk.spread[depth] + sides.record[i, 2], 0.0))
                            if value > best:
                                best = value
                                best_entry, best_depth = sides.line[i], depth
                                for d in range(depth):
                                    walk.best_path[d] = walk.path[d]
                                allowed = min(goal.dual - best + goal.noise, window.reach) - walk.loss[depth]
                    i -= 1
                spent += left - i
            spent += 8
            if spent > effort or goal.dual - best <= goal.enough:
                return best, best_entry, best_depth, False, spent
        nearest = walk.place[depth]
        e = sides.walked[nearest] if nearest < rest else -1
        budget = min(window.beta, goal.dual - best + goal.noise)
        if e >= 0 and walk.loss[depth] + abs(items.reduced[e]) <= budget:
            sign = -1.0 if items.reduced[e] > 0.0 else 1.0
            walk.place[depth] = nearest + 1
            walk.path[depth] = e
            walk.loss[depth + 1] = walk.loss[depth] + abs(items.reduced[e])
            walk.gain[depth + 1] = walk.gain[depth] + sign * items.gain[e]
            walk.spread[depth + 1] = walk.spread[depth] + sign * items.spread[e]
            for k in range(resources):
                walk.left[depth + 1, k] = walk.left[depth, k] - sign * items.takes[e, k]
            depth += 1
            walk.place[depth] = nearest + 1
            fresh = True
        else:
            depth -= 1
    return best, best_entry, best_depth, True, spent


@compiled
def improve(
    items: Items, order: Any, dual: float, first_budget: float, gap: float, effort: int, chosen: Any
) -> tuple[float, bool]:
    """Find the best choice of one knapsack with capacities 1, from prices: fills `chosen` (n,), returns a bound.

    Ends when bound and value are within `gap` of each other, or after `effort` visited entries; also returns whether it
    finished. `dual` and the reduced gains come from `reduce`, `order` (n,) has descending r, `first_budget` is the
    initial β.
    """
    n, resources = items.takes.shape
    best = pack(items.gain, items.spread, items.takes, order, chosen)
    if best < 0.0:
        best = 0.0
        for e in range(n):
            chosen[e] = 0
    goal = Goal(dual, 1e-13 * (abs(dual) + abs(best)), gap * abs(dual))
    if n == 0 or dual - best <= goal.enough:
        return max(dual, best), True
    bound, beta, spent = dual, max(first_budget, 1e-9 * abs(dual)), 0

    near, rank, distance = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty(n)
    by_second, scratch = np.empty(LIST, dtype=np.int64), np.empty(max(n, LIST), dtype=np.int64)
    sides = Sides(
        np.empty(WIDEST, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty(LIST),
        np.empty(LIST),
        np.empty(LIST),
        np.empty((resources, LIST)),
        np.empty(LIST, dtype=np.int64),
        np.empty(STRIPS + 2, dtype=np.int64),
        np.empty(LIST, dtype=np.int64),
        np.empty(LIST),
        np.empty((LIST, 3 + resources)),
    )
    walk = Walk(
        np.empty(n + 1, dtype=np.int64),
        np.empty(n + 1, dtype=np.int64),
        np.zeros(n + 1),
        np.zeros(n + 1),
        np.zeros(n + 1),
        np.ones((n + 1, resources)),
        np.empty(n + 1, dtype=np.int64),
    )
    for e in range(n):
        if items.reduced[e] > 0.0:
            walk.gain[0] += items.gain[e]
            walk.spread[0] += items.spread[e]
            for k in range(resources):
                walk.left[0, k] -= items.takes[e, k]
    while True:
        budget = dual - best + goal.noise
        beta = min(beta, budget)
        reach = max(REACH * beta, goal.enough)
        size = 0
        for e in range(n):
            if abs(items.reduced[e]) <= beta:
                near[size] = e
                distance[size] = abs(items.reduced[e])
                size += 1
        sort_places(distance, size, rank, scratch)
        dearest, second = _two_dearest(items, near, size)
        entries, width, rest, looked = _deal(items, near, rank, size, beta, sides)
        spent += looked + 8 * entries
        slack = min(reach, budget) / items.price[dearest] if items.price[dearest] > 0.0 else 1e300
        lowest, strip = _sort_into_strips(sides, entries, dearest, second, slack, by_second, scratch)
        window = Window(beta, reach, dearest, second, lowest, strip)
        best, entry, depth, all_seen, looked = _walk(items, sides, walk, window, goal, rest, effort - spent, best)
        spent += looked
        if entry >= 0:
            for e in range(n):
                chosen[e] = 1 if items.reduced[e] > 0.0 else 0
            for d in range(depth):
                chosen[walk.best_path[d]] = 1 - chosen[walk.best_path[d]]
            for i in range(width):
                if sides.bits[entry] >> i & 1:
                    chosen[sides.listed[i]] = 1 - chosen[sides.listed[i]]
        if all_seen:
            bound = min(bound, max(best, dual - beta))
        if bound - best <= gap * abs(bound) or dual - best <= goal.enough:
            return max(bound, best), True
        if spent > effort:
            return max(bound, best), False
        if beta >= dual - best:
            return max(best, min(bound, best + goal.noise)), True
        beta *= 1.6
