"""Value of an allocation, and a certificate: an upper bound on all allocations, from any prices.

With the simplex weights p of each job's overhead fixed, every segment is independent, and for any τ ≥ 0 its maximum is
at most Σ_l max_y (w f(y) − (w β p + τ) y) + τ c. A poor τ gives a looser bound, never a wrong one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.families.allocation.kernels.lanes import by_cell
from berth.families.allocation.kernels.utilities import LINEAR, LOG, POLY, RECIPROCAL, TABLE, slope, utility
from berth.kernels.compiled import compiled
from berth.kernels.vector import WIDTH

__all__ = ["upper_bound", "value"]

MAX_EVALUATIONS = 100


@compiled
def _table_response(slopes: Any, step: float, q: float) -> tuple[float, float]:
    """The y at which a table's slope falls to q (inf if it never does) and −dy/dq, by bisection over the knots."""
    high = slopes.shape[0] - 1
    low = 0
    if slopes[high] >= q:
        return np.inf, 0.0
    if slopes[low] <= q:
        return 0.0, 0.0
    while high - low > 1:
        middle = (low + high) // 2
        if slopes[middle] >= q:
            low = middle
        else:
            high = middle
    fall = step / (np.float64(slopes[low]) - np.float64(slopes[high]))
    return step * low + (np.float64(slopes[low]) - q) * fall, fall


@compiled
def _respond(kind: int, rows: int, alpha: Any, tables: Any, q: Any, low: Any, high: Any, out: Any, fall: Any) -> None:
    """Solve the rows of one block: the y in [low, high] that maximises f(y) − q y, and −dy/dq if y is inside."""
    if kind == LINEAR:
        for i in range(rows):
            for j in range(WIDTH):
                out[i, j] = high[i, j] if alpha[j] > q[i, j] else low[i, j]
                fall[i, j] = 0.0
        return
    if kind == LOG:
        for i in range(rows):
            for j in range(WIDTH):
                inverse = 1.0 / q[i, j]
                out[i, j] = alpha[j] * inverse - 1.0
                fall[i, j] = alpha[j] * inverse * inverse
    elif kind == RECIPROCAL:
        for i in range(rows):
            for j in range(WIDTH):
                root = 1.0 / math.sqrt(q[i, j])
                out[i, j] = root - alpha[j]
                fall[i, j] = 0.5 * root * root * root
    elif kind == POLY:
        for i in range(rows):
            for j in range(WIDTH):
                inverse = 1.0 / q[i, j]
                ratio = 0.5 * alpha[j] * inverse
                out[i, j] = ratio * ratio - 1.0
                fall[i, j] = 2.0 * ratio * ratio * inverse
    else:
        slopes, step = tables[0][kind - TABLE], np.float64(tables[1][kind - TABLE])
        for i in range(rows):
            for j in range(WIDTH):
                out[i, j], fall[i, j] = _table_response(slopes, step, q[i, j] / alpha[j])
                fall[i, j] /= alpha[j]
    for i in range(rows):
        for j in range(WIDTH):
            free = out[i, j]
            kept = min(max(free, low[i, j]), high[i, j])
            out[i, j] = kept
            fall[i, j] = fall[i, j] if kept == free else 0.0


@compiled
def upper_bound(lanes: Any, limit: Any, weight: Any, beta: Any, floor: Any, dual: Any) -> float:
    """Upper bound on every feasible F(y) (to float64 rounding), from any `dual` (J, K) ≥ 0, rows scaled to sum 1.

    Newton's method inside a bracket finds each segment's τ; a poor one would give a looser bound, never a wrong one.
    """
    jobs, resources = beta.shape
    weights = by_cell(weight, resources, weight)
    price = np.zeros(jobs * resources + 1)
    for job in range(jobs):
        mass = 0.0
        for k in range(resources):
            mass += max(np.float64(dual[job, k]), 0.0)
        for k in range(resources):
            if mass > 0.0:
                price[job * resources + k] = np.float64(beta[job, k]) * max(np.float64(dual[job, k]), 0.0) / mass
    most = 0
    for b in range(lanes.kind.shape[0]):
        most = max(most, lanes.start[b + 1] - lanes.start[b])
    w, inverse, q0 = np.empty((most, WIDTH)), np.empty((most, WIDTH)), np.empty((most, WIDTH))
    low, high = np.empty((most, WIDTH)), np.empty((most, WIDTH))
    q, out, fall = np.empty((most, WIDTH)), np.empty((most, WIDTH)), np.empty((most, WIDTH))
    t, left, right, top = np.empty(WIDTH), np.empty(WIDTH), np.empty(WIDTH), np.empty(WIDTH)
    filling, inside, alpha, space = np.empty(WIDTH), np.empty(WIDTH), np.empty(WIDTH), np.empty(WIDTH)
    start, kinds, cells, caps, alphas = lanes.start, lanes.kind, lanes.cell, lanes.cap, lanes.alpha
    slopes, values, steps = lanes.slopes, lanes.values, lanes.steps
    bound = 0.0
    for b in range(lanes.kind.shape[0]):
        kind, first = kinds[b], start[b]
        rows = start[b + 1] - first
        for j in range(WIDTH):
            alpha[j] = alphas[b, j]
            space[j] = limit[b, j]
            top[j] = 0.0
        for i in range(rows):
            for j in range(WIDTH):
                cell, cap = cells[first + i, j], np.float64(caps[first + i, j])
                present = weights[cell, 0] > 0.0
                w[i, j] = weights[cell, 0] if present else 1.0
                inverse[i, j] = 1.0 / w[i, j]
                q0[i, j] = price[cell]
                low[i, j] = min(max(np.float64(floor[first + i, j]), 0.0), cap) if present else 0.0
                high[i, j] = cap if present else 0.0
                if high[i, j] > low[i, j]:
                    steepest = slope(kind, alpha[j], low[i, j], slopes, steps)
                    top[j] = max(top[j], w[i, j] * (steepest - q0[i, j]))
        open_lanes = 0
        for j in range(WIDTH):
            t[j] = 0.0
            left[j] = 0.0
            right[j] = top[j]
        for _ in range(MAX_EVALUATIONS):
            for i in range(rows):
                for j in range(WIDTH):
                    q[i, j] = q0[i, j] + t[j] * inverse[i, j]
            _respond(kind, rows, alpha, (slopes, steps), q, low, high, out, fall)
            filling[:] = 0.0
            inside[:] = 0.0
            for i in range(rows):
                for j in range(WIDTH):
                    filling[j] += out[i, j]
                    inside[j] += fall[i, j] * inverse[i, j]
            open_lanes = 0
            for j in range(WIDTH):
                excess = filling[j] - space[j]
                left_new = t[j] if excess > 0.0 else left[j]
                right_new = right[j] if excess > 0.0 else t[j]  # slack at the first τ = 0 closes the bracket there
                newton = t[j] + excess / max(inside[j], 1e-300)
                t_new = newton if (newton > left_new) & (newton < right_new) else 0.5 * (left_new + right_new)
                done = (abs(excess) <= 1e-9 * space[j]) | (right_new - left_new <= 1e-12 * top[j])
                left[j] = left_new
                right[j] = right_new
                t[j] = t[j] if done else t_new
                open_lanes += 0 if done else 1
            if open_lanes == 0:
                break
        # finished lanes kept their τ: q and out belong to it, unless the evaluations ran out
        if open_lanes > 0:
            for i in range(rows):
                for j in range(WIDTH):
                    q[i, j] = q0[i, j] + t[j] * inverse[i, j]
            _respond(kind, rows, alpha, (slopes, steps), q, low, high, out, fall)
        for j in range(WIDTH):
            bound += t[j] * space[j]
        for i in range(rows):
            for j in range(WIDTH):
                if high[i, j] > 0.0:
                    gain = utility(kind, alpha[j], out[i, j], slopes, values, steps)
                    bound += w[i, j] * (gain - q[i, j] * out[i, j])
    return bound


@compiled
def value(lanes: Any, weight: Any, beta: Any, y: Any) -> float:
    """F(y), summed in float64 for any type of y."""
    jobs, resources = beta.shape
    weights = by_cell(weight, resources, weight)
    sums = np.zeros(jobs * resources + 1)
    cells, alphas, start = lanes.cell, lanes.alpha, lanes.start
    slopes, values, steps = lanes.slopes, lanes.values, lanes.steps
    reward = 0.0
    for b in range(lanes.kind.shape[0]):
        kind = lanes.kind[b]
        for i in range(start[b], start[b + 1]):
            for j in range(WIDTH):
                cell = cells[i, j]
                if weights[cell, 0] > 0.0 and y[i, j] > 0.0:
                    amount, alpha = np.float64(y[i, j]), np.float64(alphas[b, j])
                    gain = utility(kind, alpha, amount, slopes, values, steps)
                    reward += np.float64(weights[cell, 0]) * gain
                    sums[cell] += amount
    for job in range(jobs):
        worst = 0.0
        for k in range(resources):
            worst = max(worst, np.float64(beta[job, k]) * sums[job * resources + k])
        reward -= np.float64(weight[job]) * worst
    return reward
