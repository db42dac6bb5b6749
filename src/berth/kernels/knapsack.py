"""Knapsacks with a square root: maximise vᵀx + √(qᵀx) over x in {0, 1}ⁿ with A x ≤ 1, on plain arrays.

v (n,) gains, q (n,) ≥ 0 spreads, A (n, K) ≥ 0 what each item takes of every capacity, as a share of it. Since
√y = min_u 1/(2u) + u y/2, any u > 0 and λ ≥ 0 bound the optimum from above:

    D(u, λ) = 1/(2u) + Σ_k λ_k + Σ_e max(0, r_e),      r_e = v_e + u q_e/2 − λᵀA_e,

and a choice x that differs from x̄ = [r > 0] on a set F and leaves slack s ≥ 0 is worth at most
D − Σ_F |r_e| − λᵀs. That **loss** is what every search here counts: choices within a budget β of D flip only items with
|r_e| ≤ β, and their slack has to fall in a narrow window.

* `interior` finds (u, λ) by a primal–dual interior point method, for one or several capacities side by side;
* `improve` enumerates flips of one knapsack from two lists, all choices with a loss up to β for growing β;
* `fronts`, `best_slope` and `combine` do the same for many small knapsacks, each enumerated;
* `label_table` and `rounded_table` are dynamic programmes for tiny integer capacities.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.kernels.compiled import compiled, inlined

__all__ = [
    "arrange",
    "best_slope",
    "combine",
    "fronts",
    "improve",
    "interior",
    "label_table",
    "pack",
    "reduce",
    "rounded_table",
    "sized",
    "tiny_choice",
]

ITERATIONS = 60  # of the interior point method; 10 to 20 are usual
INSIDE = 0.995  # share of the way to the nearest bound
LIST = 20_000  # entries of the sorted list of flips
STRIPS = 64  # of the sorted list
REACH = 2.0  # losses that a round looks for, in budgets of one side
WIDEST = 62  # items behind it: their flips are bits of one integer


@compiled
def _sort(key: Any, size: int, order: Any, other: Any) -> None:
    """Put 0 … size − 1 into `order` by rising key, equal keys by place; `other` is scratch. Short to compile."""
    for i in range(size):
        order[i] = i
    width = 1
    while width < size:
        for first in range(0, size, 2 * width):
            middle, last = min(first + width, size), min(first + 2 * width, size)
            a, b = first, middle
            for to in range(first, last):
                if a < middle and (b == last or key[order[a]] <= key[order[b]]):
                    other[to] = order[a]
                    a += 1
                else:
                    other[to] = order[b]
                    b += 1
        for i in range(size):
            order[i] = other[i]
        width *= 2


# ---------------------------------------------------------------------------- what is asked


@compiled
def arrange(
    gain: Any, spread: Any, takes: Any, pool: Any, free: Any, channel: Any, v: Any, q: Any, share: Any, start: Any
) -> Any:
    """The channels that fit alone and could pay, sorted by pool: gives (how many, of how many pools, a scale).

    Fills `channel` (n,) with them, `v` and `q` with gains divided by the scale and spreads by its square (all at
    most 1), `share` (n, K) with demands as shares of what the pool has, `start` (G + 1,) with where each pool begins;
    pools without such channels are left out. Where all demands on a capacity are whole numbers, only whole numbers of
    it count, which sharpens bounds. A number of −1: gains or spreads that are no numbers.
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


# ---------------------------------------------------------------------------- prices


@inlined
def _solve_spd(matrix: Any, size: int, right: Any, column: Any) -> None:
    """Overwrite right and column (size,) with matrix⁻¹ times them; the matrix (size, size) is lost."""
    for i in range(size):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = math.sqrt(max(total, 1e-300)) if i == j else total / matrix[j, j]
    for i in range(size):
        for k in range(i):
            right[i] -= matrix[i, k] * right[k]
            column[i] -= matrix[i, k] * column[k]
        right[i] /= matrix[i, i]
        column[i] /= matrix[i, i]
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            right[i] -= matrix[k, i] * right[k]
            column[i] -= matrix[k, i] * column[k]
        right[i] /= matrix[i, i]
        column[i] /= matrix[i, i]


@compiled
def interior(
    gain: Any, spread: Any, takes: Any, start: Any, free: Any, settled: float, tolerance: float, price: Any
) -> float:
    """Minimise D over u and λ ≥ 0: gives u, and λ in `price` (G, K).

    Items of knapsack g are start[g] … start[g + 1]; `free` (G, K) is what it has; `settled` is the spread of items
    already chosen. Without any spread u = 0, which stands for √0.

    With s the slack, z and w the multipliers of x ≥ 0 and x ≤ 1, a step solves the Newton equations of
        Ax + s = c,  v + q/(2√y) − Aᵀλ + z − w = 0,  xz = (1 − x)w = sλ = μ.
    The Hessian of √y has rank one, so that after eliminating x there remain K equations per knapsack and one that
    couples them.
    """
    n, resources = takes.shape
    pools = free.shape[0]
    total, mean = settled, 1e-300
    for e in range(n):
        total += spread[e]
        mean += abs(gain[e]) + math.sqrt(spread[e])
    mean /= max(n, 1)
    curved = total > 0.0
    x, z, w = np.full(n, 0.5), np.full(n, mean), np.full(n, mean)
    theta, right, over_x, over_t = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    slack, dprice, dslack = np.empty((pools, resources)), np.empty((pools, resources)), np.empty((pools, resources))
    couple, matrix = np.empty((pools, resources)), np.empty((resources, resources))
    dual, column = np.empty((pools, resources)), np.empty((pools, resources))
    for g in range(pools):
        for k in range(resources):
            used = 0.0
            for e in range(start[g], start[g + 1]):
                used += 0.5 * takes[e, k]
            slack[g, k] = max(free[g, k] - used, 0.1 * abs(free[g, k]) + 0.1)
            dual[g, k] = mean
            price[g, k] = mean
    kept_u = 1.0 / math.sqrt(total) if curved else 0.0
    merit = np.inf
    centre = 0.1
    count = 2 * n + pools * resources
    for _ in range(ITERATIONS):
        y, value = settled, 0.0
        apart = 0.0
        for e in range(n):
            y += spread[e] * x[e]
            value += gain[e] * x[e]
            apart += x[e] * z[e] + (1.0 - x[e]) * w[e]
        for g in range(pools):
            for k in range(resources):
                apart += slack[g, k] * dual[g, k]
        root = math.sqrt(y)
        u = 1.0 / root if curved else 0.0
        wrong = 0.0  # how far Ax + s is from c
        for g in range(pools):
            for k in range(resources):
                used = slack[g, k] - free[g, k]
                for e in range(start[g], start[g + 1]):
                    used += takes[e, k] * x[e]
                dslack[g, k] = -used
                wrong = max(wrong, abs(used))
        if not math.isfinite(apart + u + wrong):
            break
        if apart + wrong * abs(value + root) < merit:  # the last steps can be lost to rounding
            merit = apart + wrong * abs(value + root)
            kept_u = u
            for g in range(pools):
                for k in range(resources):
                    price[g, k] = dual[g, k]
        if apart <= tolerance * (abs(value) + root) and wrong <= 1e-6:
            break
        mu = centre * apart / count
        slope = 0.5 * u
        bend = 1.0 / (4.0 * y * root) if curved else 0.0
        # the equation of p = bend · qᵀdx, which couples the knapsacks
        top, bottom = 0.0, (1.0 / bend if curved else 1.0)
        for g in range(pools):
            first, last = start[g], start[g + 1]
            for k in range(resources):
                dprice[g, k] = -(dslack[g, k] + slack[g, k] - mu / dual[g, k])
                couple[g, k] = 0.0
                for j in range(k + 1):
                    matrix[k, j] = 0.0
                matrix[k, k] = slack[g, k] / dual[g, k]
            for e in range(first, last):
                below, above = 1.0 / x[e], 1.0 / (1.0 - x[e])
                over_x[e], over_t[e] = below, above
                inverse = 1.0 / (z[e] * below + w[e] * above)
                side = gain[e] + slope * spread[e] + mu * (below - above)
                for k in range(resources):
                    side -= takes[e, k] * dual[g, k]
                theta[e] = inverse
                right[e] = side
                scaled = inverse * side
                bent = inverse * spread[e]
                top += bent * side
                bottom += bent * spread[e]
                for k in range(resources):
                    share = takes[e, k]
                    dprice[g, k] += share * scaled
                    couple[g, k] += share * bent
                    share *= inverse
                    for j in range(k + 1):
                        matrix[k, j] += share * takes[e, j]
            for k in range(resources):
                column[g, k] = couple[g, k]
            _solve_spd(matrix, resources, dprice[g], column[g])
            for k in range(resources):
                top -= couple[g, k] * dprice[g, k]
                bottom -= couple[g, k] * column[g, k]
        p = top / bottom if curved and bottom > 0.0 else 0.0
        along, dual_along = 1.0, 1.0
        for g in range(pools):
            for k in range(resources):
                dprice[g, k] -= p * column[g, k]
                step = mu / dual[g, k] - slack[g, k] - slack[g, k] / dual[g, k] * dprice[g, k]
                dslack[g, k] = step
                if step < 0.0:
                    along = min(along, -INSIDE * slack[g, k] / step)
                if dprice[g, k] < 0.0:
                    dual_along = min(dual_along, -INSIDE * dual[g, k] / dprice[g, k])
            for e in range(start[g], start[g + 1]):
                side = right[e] - p * spread[e]
                for k in range(resources):
                    side -= takes[e, k] * dprice[g, k]
                dx = theta[e] * side
                right[e] = dx
                dz = (mu - z[e] * dx) * over_x[e] - z[e]
                dw = (mu + w[e] * dx) * over_t[e] - w[e]
                # divided only where this one sets the step
                if -dx * along > INSIDE * x[e]:
                    along = -INSIDE * x[e] / dx
                if dx * along > INSIDE * (1.0 - x[e]):
                    along = INSIDE * (1.0 - x[e]) / dx
                if -dz * dual_along > INSIDE * z[e]:
                    dual_along = -INSIDE * z[e] / dz
                if -dw * dual_along > INSIDE * w[e]:
                    dual_along = -INSIDE * w[e] / dw
        for g in range(pools):
            for k in range(resources):
                slack[g, k] += along * dslack[g, k]
                dual[g, k] += dual_along * dprice[g, k]
        for e in range(n):
            dx = right[e]
            dz = (mu - z[e] * dx) * over_x[e] - z[e]
            dw = (mu + w[e] * dx) * over_t[e] - w[e]
            x[e] = min(max(x[e] + along * dx, 1e-15), 1.0 - 1e-15)
            z[e] = max(z[e] + dual_along * dz, 1e-300)
            w[e] = max(w[e] + dual_along * dw, 1e-300)
        short = min(along, dual_along)
        centre = 0.02 if short > 0.95 else (0.1 if short > 0.7 else 0.4)
    return kept_u


@compiled
def reduce(gain: Any, spread: Any, takes: Any, u: float, price: Any, reduced: Any) -> float:
    """Fill r (n,) of one knapsack with capacities 1, and give D."""
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


# ---------------------------------------------------------------------------- one knapsack


@compiled
def pack(gain: Any, spread: Any, takes: Any, order: Any, chosen: Any) -> float:
    """Fill the knapsack in this order, skipping what does not fit or pay; gives the value."""
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


@compiled
def improve(
    gain: Any,
    spread: Any,
    takes: Any,
    reduced: Any,
    order: Any,
    dual: float,
    price: Any,
    first_budget: float,
    gap: float,
    effort: int,
    chosen: Any,
) -> tuple[float, bool]:
    """The best choice of one knapsack with capacities 1, from prices: fills `chosen` (n,), gives a bound on the best.

    Rounds with a growing budget β. In each, the items with |r| ≤ β are dealt to two sides. All flips of one side
    with a loss up to β make a list, sorted by what they take of the dearest resource; the flips of the other side
    are walked through, and each is completed by the entries in the window of slack that could still improve. After a
    round every choice with a loss up to β has been seen, so the bound falls to D − β. Ends when bound and value are
    within `gap` of each other, or after `effort` entries looked at; also gives whether it ended by itself.

    `dual` and `reduced` (n,) are what `reduce` gives, `order` (n,) falling r, `first_budget` the β to begin with.
    """
    n, resources = takes.shape
    best = pack(gain, spread, takes, order, chosen)
    if best < 0.0:
        best = 0.0
        for e in range(n):
            chosen[e] = 0
    bound = dual
    noise = 1e-13 * (abs(dual) + abs(best))  # rounding of sums must not cost the optimum
    distance = np.empty(n)
    base_gain, base_spread = 0.0, 0.0
    room = np.ones(resources)
    for e in range(n):
        distance[e] = abs(reduced[e])
        if reduced[e] > 0.0:
            base_gain += gain[e]
            base_spread += spread[e]
            for k in range(resources):
                room[k] -= takes[e, k]
    if n == 0 or dual - best <= gap * abs(dual):
        return max(bound, best), True
    beta = max(first_budget, 1e-9 * abs(dual))

    core, rank, near = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty(n)
    by_second, scratch = np.empty(LIST, dtype=np.int64), np.empty(max(n, LIST), dtype=np.int64)
    held_loss, held_gain, held_spread = np.empty(LIST), np.empty(LIST), np.empty(LIST)
    held_takes = np.empty((resources, LIST))
    held_bits = np.empty(LIST, dtype=np.int64)
    key, record, line = np.empty(LIST), np.empty((LIST, 3 + resources)), np.empty(LIST, dtype=np.int64)
    begin = np.empty(STRIPS + 2, dtype=np.int64)
    listed, walked = np.empty(WIDEST, dtype=np.int64), np.empty(n, dtype=np.int64)
    path, place = np.empty(n + 1, dtype=np.int64), np.empty(n + 1, dtype=np.int64)
    at_loss, at_gain, at_spread = np.empty(n + 1), np.empty(n + 1), np.empty(n + 1)
    at_takes = np.empty((n + 1, resources))
    best_path = np.empty(n + 1, dtype=np.int64)
    spent = 0
    while True:
        budget = dual - best + noise
        beta = min(beta, budget)
        reach = max(REACH * beta, gap * abs(dual))
        size = 0
        for e in range(n):
            if distance[e] <= beta:
                core[size] = e
                size += 1
        for i in range(size):
            near[i] = distance[core[i]]
        _sort(near, size, rank, scratch)
        # the two dearest resources around here give the sharpest windows
        dearest, second, most, next_most = 0, 0, -1.0, -1.0
        for k in range(resources):
            weight = 0.0
            for i in range(size):
                weight += (price[k] * takes[core[i], k]) ** 2
            if weight > most:
                second, next_most = dearest, most
                dearest, most = k, weight
            elif weight > next_most:
                second, next_most = k, weight
        # one side as a list, as long as there is room; the other takes the rest
        entries, width, rest = 1, 0, 0
        held_loss[0], held_gain[0], held_spread[0], held_bits[0] = 0.0, 0.0, 0.0, 0
        for k in range(resources):
            held_takes[k, 0] = 0.0
        full = False
        for i in range(size):
            e = core[rank[i]]
            if i % 2 == 0 and width < WIDEST and not full:
                sign = -1.0 if reduced[e] > 0.0 else 1.0
                grown = entries
                for j in range(entries):
                    loss = held_loss[j] + distance[e]
                    if loss <= beta:
                        if grown == LIST:
                            full = True
                            break
                        held_loss[grown] = loss
                        held_gain[grown] = held_gain[j] + sign * gain[e]
                        held_spread[grown] = held_spread[j] + sign * spread[e]
                        held_bits[grown] = held_bits[j] | (1 << width)
                        for k in range(resources):
                            held_takes[k, grown] = held_takes[k, j] + sign * takes[e, k]
                        grown += 1
                spent += entries
                if not full:
                    entries = grown
                    listed[width] = e
                    width += 1
                    continue
            walked[rest] = e
            rest += 1
        # sorted by the second resource within strips of the first, as wide as a window can be
        lowest, highest = 0.0, 0.0
        for i in range(entries):
            lowest = min(lowest, held_takes[dearest, i])
            highest = max(highest, held_takes[dearest, i])
        strip = (highest - lowest) * (1.0 + 1e-9) / STRIPS + 1e-300
        strip = max(strip, min(reach, budget) / price[dearest]) if price[dearest] > 0.0 else 1e300
        for i in range(STRIPS + 2):
            begin[i] = 0
        for i in range(entries):
            begin[int((held_takes[dearest, i] - lowest) / strip) + 1] += 1
        for i in range(STRIPS + 1):
            begin[i + 1] += begin[i]
        _sort(held_takes[second], entries, by_second, scratch)
        for i in range(entries):
            j = by_second[i]
            at = int((held_takes[dearest, j] - lowest) / strip)
            to = begin[at]
            begin[at] += 1
            line[to] = j
            key[to] = held_takes[second, j]
            record[to, 0], record[to, 1], record[to, 2] = held_loss[j], held_gain[j], held_spread[j]
            for k in range(resources):
                record[to, 3 + k] = held_takes[k, j]
        for i in range(STRIPS, 0, -1):
            begin[i] = begin[i - 1]
        begin[0] = 0
        spent += 8 * entries
        # depth first through the flips of the other side
        improved, best_entry, best_depth = False, 0, 0
        depth = 0
        at_loss[0], at_gain[0], at_spread[0] = 0.0, base_gain, base_spread
        for k in range(resources):
            at_takes[0, k] = room[k]
        place[0] = 0
        fresh = True
        while depth >= 0:
            if fresh:
                fresh = False
                allowed = min(dual - best + noise, reach) - at_loss[depth]
                high, top = at_takes[depth, dearest], at_takes[depth, second]
                low = high - allowed / price[dearest] if price[dearest] > 0.0 else lowest
                floor = top - allowed / price[second] if price[second] > 0.0 else -np.inf
                first = int(max(low - lowest, 0.0) / strip)
                last = int((high - lowest) / strip) if high >= lowest else -1
                for at in range(first, min(last, STRIPS - 1) + 1):
                    left, right = begin[at], begin[at + 1]
                    while left < right:
                        middle = (left + right) // 2
                        if key[middle] <= top:
                            left = middle + 1
                        else:
                            right = middle
                    i = left - 1
                    while i >= begin[at] and key[i] >= floor:
                        if record[i, 0] < allowed:
                            fits = True
                            for k in range(resources):
                                fits = fits and record[i, 3 + k] <= at_takes[depth, k]
                            if fits:
                                value = at_gain[depth] + record[i, 1]
                                value += math.sqrt(max(at_spread[depth] + record[i, 2], 0.0))
                                if value > best:
                                    best = value
                                    improved, best_entry, best_depth = True, line[i], depth
                                    for d in range(depth):
                                        best_path[d] = path[d]
                                    allowed = min(dual - best + noise, reach) - at_loss[depth]
                        i -= 1
                    spent += left - i
                spent += 8
                if spent > effort or dual - best <= gap * abs(dual):
                    break
            nearest = place[depth]
            if nearest < rest and at_loss[depth] + distance[walked[nearest]] <= min(beta, dual - best + noise):
                e = walked[nearest]
                sign = -1.0 if reduced[e] > 0.0 else 1.0
                place[depth] = nearest + 1
                path[depth] = e
                at_loss[depth + 1] = at_loss[depth] + distance[e]
                at_gain[depth + 1] = at_gain[depth] + sign * gain[e]
                at_spread[depth + 1] = at_spread[depth] + sign * spread[e]
                for k in range(resources):
                    at_takes[depth + 1, k] = at_takes[depth, k] - sign * takes[e, k]
                depth += 1
                place[depth] = nearest + 1
                fresh = True
            else:
                depth -= 1
        if improved:
            for e in range(n):
                chosen[e] = 1 if reduced[e] > 0.0 else 0
            for d in range(best_depth):
                chosen[best_path[d]] = 1 - chosen[best_path[d]]
            for i in range(width):
                if held_bits[best_entry] >> i & 1:
                    chosen[listed[i]] = 1 - chosen[listed[i]]
        if depth < 0:
            bound = min(bound, max(best, dual - beta))
        if bound - best <= gap * abs(bound):
            return max(bound, best), True
        if dual - best <= gap * abs(dual):
            return max(bound, best), True
        if spent > effort:
            return max(bound, best), False
        if beta >= dual - best:
            return max(best, min(bound, best + noise)), True
        beta *= 1.6


# ---------------------------------------------------------------------------- many small knapsacks


@compiled
def fronts(gain: Any, spread: Any, takes: Any, start: Any) -> Any:
    """Every choice of each knapsack (capacities 1) that no other beats in both gain and spread.

    Gives (begin (G + 1,), gain, spread, bits) with the choices of g at begin[g] … begin[g + 1], by falling gain; bit i
    of `bits` is item start[g] + i. All subsets of a knapsack are listed on the way: for knapsacks of a dozen items.
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
        _sort(key, size, order, scratch)
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
                    kept -= 1  # as much gain, more spread
                front_gain[kept], front_spread[kept], front_bits[kept] = all_gain[j], all_spread[j], all_bits[j]
                kept += 1
        begin[g + 1] = kept
    return begin, front_gain[:kept], front_spread[:kept], front_bits[:kept]


@compiled
def _at_slope(begin: Any, gain: Any, spread: Any, u: float, pick: Any) -> tuple[float, float]:
    """Best choice of each knapsack for gains + u/2 spreads: (their sum, the sum of their spreads)."""
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
    """One choice for each knapsack so that Σ gain + √(Σ spread) is largest: fills `pick` (G,), gives a bound.

    From the choices that are best at u, knapsack by knapsack, all partial sums with a loss up to β that no other beats
    in gain and spread; β grows until it covers what is missing to the bound. At most `labels` sums are kept;
    also gives whether that was enough.
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
            _sort(key, grown, order, scratch)
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


# ---------------------------------------------------------------------------- tiny integer capacities


@compiled
def sized(
    gain: Any, spread: Any, takes: Any, pool: Any, free: Any, most: int, active: Any, whole: Any, limit: Any
) -> int:
    """Whether one table of at most `most` states holds the question: the number of its states, or −1.

    Fills `active` (n,) with the channels that fit alone and could pay (their number is whole[n, 0]), `whole` (n + 1, K)
    with their demands, `limit` (K,) with the capacities, none larger than all demands together. −2: gains or spreads
    that are no numbers.
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
    """The states in reach of the full capacity, from it downwards: (count, states, coordinates, steps, ranks)."""
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
def label_table(
    gain: Any, spread: Any, active: Any, takes: Any, limit: Any, states: int, width: int, labels: int, chosen: Any
) -> float:
    """The exact optimum for whole capacities: fills `chosen` (n,), gives the value; NaN when there is no room.

    For each capacity in reach, the (Σ gain, Σ spread) of choices that fit and that no other beats in both, channel by
    channel. A list holds at most `width` of them, and `labels` may be made in all.
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
        for c in range(count):  # falling capacities: those below still are without this item
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
    """`sized`, then `label_table`: the number of states, −1 or −2 as there, −3 without room in the lists; the value."""
    n, resources = takes.shape
    active, whole = np.empty(n, dtype=np.int64), np.empty((n + 1, resources), dtype=np.int64)
    limit = np.empty(resources, dtype=np.int64)
    states = sized(gain, spread, takes, pool, free, most, active, whole, limit)
    if states <= 0:
        return states, 0.0
    value = label_table(gain, spread, active, whole, limit, states, width, labels, chosen)
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
    """Maximise Υᵀx/ξ + √(qᵀx) for whole Υ = `steps` (n,) and ξ = `scale`: fills `chosen` (n,), gives that value.

    The papers' table: for each capacity in reach and each sum s = Υᵀx in low … high, the largest spread. Sums that no
    choice has stay −∞; one decision bit per entry and channel is enough to read the choice back.
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
            # a channel that takes nothing reads from the row it writes: always from sums not yet reached
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
