"""Prices of a knapsack with a square root: the smallest bound, by a primal–dual interior point method."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.kernels.compiled import compiled, inlined

__all__ = ["interior"]

ITERATIONS = 60  # 10 to 20 are usual
INSIDE = 0.995  # share of the distance to the nearest bound


@inlined
def _solve_spd(matrix: Any, size: int, right: Any, column: Any) -> None:
    """Overwrite right and column (size,) with matrix⁻¹ times them; destroys the matrix (size, size)."""
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
    """Minimise D over u and λ ≥ 0: returns u, and λ in `price` (G, K).

    Items of knapsack g are start[g] … start[g + 1]; `free` (G, K) is its capacity; `settled` is the spread of items
    already chosen. Without any spread u = 0, which stands for √0.

    With s the slack, z and w the multipliers of x ≥ 0 and x ≤ 1, a step solves the Newton equations of
        Ax + s = c,  v + q/(2√y) − Aᵀλ + z − w = 0,  xz = (1 − x)w = sλ = μ.
    The Hessian of √y has rank one, so eliminating x leaves K equations per knapsack and one that couples them.
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
        wrong = 0.0  # residual of Ax + s = c
        for g in range(pools):
            for k in range(resources):
                used = slack[g, k] - free[g, k]
                for e in range(start[g], start[g + 1]):
                    used += takes[e, k] * x[e]
                dslack[g, k] = -used
                wrong = max(wrong, abs(used))
        if not math.isfinite(apart + u + wrong):
            break
        if apart + wrong * abs(value + root) < merit:  # rounding can spoil the last steps
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
                # divide only if this one limits the step
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
