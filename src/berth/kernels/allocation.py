"""The allocation slot: sums, dominant overhead, gradient, exact projection, reward.

All of it in the lane layout of `berth.kernels.lanes`; arrays are outputs where their name comes
after the inputs. Works in float64 and float32: every constant takes the arrays' type.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from berth.kernels.lanes import WIDTH
from berth.kernels.utilities import LINEAR, LOG, POLY, RECIPROCAL, TABLE, table_slope, table_value

MAX_EVALUATIONS = 100


@njit(cache=True)
def cell_sums(cell: Any, y: Any, sums: Any) -> None:
    """Σ_r y of every cell (job, resource); `sums` has one spare cell at its end."""
    sums[:] = 0.0
    for i in range(y.shape[0]):
        for j in range(WIDTH):
            sums[cell[i, j]] += y[i, j]


@njit(cache=True)
def dominant_prices(weight: Any, beta: Any, sums: Any, price: Any) -> Any:
    """Charge each job its dominant resource, eq. (27) and (30); returns the total overhead.

    `weight` (J,), `beta` (J, K); `price` (cells + 1, 2) gets [weight of the job, weight·β at k*].
    Ties go to the lowest k.
    """
    jobs, resources = beta.shape
    overhead = price.dtype.type(0.0)
    for job in range(jobs):
        best, worst = 0, beta[job, 0] * sums[job * resources]
        for k in range(1, resources):
            value = beta[job, k] * sums[job * resources + k]
            if value > worst:
                best, worst = k, value
        for k in range(resources):
            price[job * resources + k, 0] = weight[job]
            price[job * resources + k, 1] = 0.0
        price[job * resources + best, 1] = weight[job] * beta[job, best]
        overhead += weight[job] * worst
    price[jobs * resources, 0] = 0.0
    price[jobs * resources, 1] = 0.0
    return overhead


@njit(cache=True)
def gradient(lanes: Any, y: Any, price: Any, g: Any) -> Any:
    """g = weight·f'(y) − price, eq. (30); returns ‖g‖² over elements that may move."""
    one = y.dtype.type(1.0)
    zero = y.dtype.type(0.0)
    half = y.dtype.type(0.5)
    norm = zero
    for b in range(lanes.kind.shape[0]):
        kind = lanes.kind[b]
        alpha = lanes.alpha[b]
        for i in range(lanes.start[b], lanes.start[b + 1]):
            gi, yi, cell = g[i], y[i], lanes.cell[i]
            if kind == LINEAR:
                for j in range(WIDTH):
                    gi[j] = alpha[j]
            elif kind == LOG:
                for j in range(WIDTH):
                    gi[j] = alpha[j] / (max(yi[j], zero) + one)
            elif kind == RECIPROCAL:
                for j in range(WIDTH):
                    d = max(yi[j], zero) + alpha[j]
                    gi[j] = one / (d * d)
            elif kind == POLY:
                for j in range(WIDTH):
                    gi[j] = half * alpha[j] / math.sqrt(max(yi[j], zero) + one)
            else:
                slopes, step = lanes.slopes[kind - TABLE], lanes.steps[kind - TABLE]
                for j in range(WIDTH):
                    gi[j] = alpha[j] * table_slope(slopes, step, max(yi[j], zero))
            for j in range(WIDTH):
                gi[j] = price[cell[j], 0] * gi[j] - price[cell[j], 1]
                norm += gi[j] * gi[j]
    return norm


@njit(cache=True)
def gain(lanes: Any, weight: Any, y: Any) -> Any:
    """Σ weight·f(y); `weight` (cells + 1,) is 0 or 1 for arrivals, any number ≥ 0 in general."""
    one = y.dtype.type(1.0)
    total = y.dtype.type(0.0)
    for b in range(lanes.kind.shape[0]):
        kind = lanes.kind[b]
        alpha = lanes.alpha[b]
        for i in range(lanes.start[b], lanes.start[b + 1]):
            yi, cell = y[i], lanes.cell[i]
            for j in range(WIDTH):
                w = weight[cell[j]]
                if w == 0.0:
                    continue
                if kind == LINEAR:
                    f = alpha[j] * yi[j]
                elif kind == LOG:
                    f = alpha[j] * math.log(yi[j] + one)
                elif kind == RECIPROCAL:
                    f = yi[j] / (alpha[j] * (yi[j] + alpha[j]))
                elif kind == POLY:
                    f = alpha[j] * (math.sqrt(yi[j] + one) - one)
                else:
                    u = kind - TABLE
                    f = alpha[j] * table_value(lanes.slopes[u], lanes.values[u], lanes.steps[u], yi[j])
                total += w * f
    return total


@njit(cache=True)
def project(lanes: Any, limit: Any, z: Any, tau: Any, y: Any) -> int:
    """y = Π(z): for each segment the nearest y with 0 ≤ y ≤ a and Σ y ≤ c. Exact.

    y = clip(z, 0, a) where that fits; else y = clip(z − τ, 0, a) with the τ > 0 that fills c, found by
    Newton's method inside a bracket (with caps the sum is not convex in τ: bare Newton can cycle),
    started from `tau` (B, W), which is left at the new multipliers. Returns how many blocks had a
    full segment. `z` and `y` may be the same array... they must not be: z is read again.
    """
    zero = y.dtype.type(0.0)
    half = y.dtype.type(0.5)
    eps = y.dtype.type(4.0) * np.finfo(y.dtype).eps
    total = np.empty(WIDTH, y.dtype)
    inside = np.empty(WIDTH, y.dtype)
    top = np.empty(WIDTH, y.dtype)
    low = np.empty(WIDTH, y.dtype)
    high = np.empty(WIDTH, y.dtype)
    full_blocks = 0
    for b in range(lanes.kind.shape[0]):
        first, last = lanes.start[b], lanes.start[b + 1]
        total[:] = zero
        top[:] = zero
        for i in range(first, last):
            zi, ai, yi = z[i], lanes.cap[i], y[i]
            for j in range(WIDTH):
                v = min(max(zi[j], zero), ai[j])
                yi[j] = v
                total[j] += v
                top[j] = max(top[j], zi[j])
        open_lanes = 0
        for j in range(WIDTH):
            if total[j] > limit[b, j]:
                open_lanes += 1
                low[j] = zero
                high[j] = top[j]
                t = tau[b, j]
                tau[b, j] = t if zero < t < top[j] else half * top[j]
            else:
                low[j] = zero
                high[j] = -y.dtype.type(1.0)  # closed
                tau[b, j] = zero
        if open_lanes == 0:
            continue
        full_blocks += 1
        for _ in range(MAX_EVALUATIONS):
            total[:] = zero
            inside[:] = zero
            for i in range(first, last):
                zi, ai, yi = z[i], lanes.cap[i], y[i]
                for j in range(WIDTH):
                    d = zi[j] - tau[b, j]
                    v = min(max(d, zero), ai[j])
                    yi[j] = v
                    total[j] += v
                    inside[j] += y.dtype.type(1.0) if v == d else zero
            for j in range(WIDTH):
                if high[j] < low[j]:
                    continue
                excess = total[j] - limit[b, j]
                t = tau[b, j]
                if abs(excess) <= eps * (limit[b, j] + top[j]) or high[j] - low[j] <= eps * top[j]:
                    high[j] = low[j] - y.dtype.type(1.0)
                    open_lanes -= 1
                    continue
                if excess > zero:
                    low[j] = t
                else:
                    high[j] = t
                step = t + excess / inside[j] if inside[j] > zero else -y.dtype.type(1.0)
                tau[b, j] = step if low[j] < step < high[j] else half * (low[j] + high[j])
            if open_lanes == 0:
                break
    return full_blocks


@njit(cache=True)
def ascend(y: Any, g: Any, eta: Any, z: Any) -> None:
    """z = y + η g."""
    for i in range(y.shape[0]):
        for j in range(WIDTH):
            z[i, j] = y[i, j] + eta * g[i, j]
