"""Kernels of the allocation slot: sums, dominant overhead, gradient, exact projection, reward.

All use the lane layout of `berth.families.allocation.kernels.lanes`; output arrays come after the inputs. They work in
float64 and float32: every constant takes the arrays' type.

`slot_step` is a whole slot in one pass over the blocks, so a block's numbers stay in the nearest cache from its
gradient to its projection. The other functions are its parts, for policies that combine them in another way; all share
a few helpers (names with an underscore).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from berth.families.allocation.kernels.lanes import cell_pairs
from berth.families.allocation.kernels.utilities import LOG, POLY, RECIPROCAL, TABLE, knot_slope, knot_value
from berth.kernels.compiled import compiled, inlined
from berth.kernels.vector import (
    WIDTH,
    address,
    any_lane,
    filled,
    lane,
    load,
    logarithm,
    maximum,
    minimum,
    root,
    store,
    total,
    where,
    with_lane,
)

MAX_EVALUATIONS = 200
LOG_ROWS = 16  # rows whose factors 1 + y are multiplied before one logarithm


class Rows(NamedTuple):
    """Addresses of the arrays in `Lanes`, for the compiled functions below."""

    start: Any
    kind: Any
    alpha: Any
    cap: Any
    cell: Any
    shared: Any
    slopes: Any
    values: Any
    steps: Any
    knots: Any


@inlined
def _rows(lanes: Any) -> Any:
    return Rows(
        address(lanes.start),
        address(lanes.kind),
        address(lanes.alpha),
        address(lanes.cap),
        address(lanes.cell),
        address(lanes.shared),
        address(lanes.slopes),
        address(lanes.values),
        address(lanes.steps),
        lanes.slopes.shape[1],
    )


@compiled
def cell_sums(cell: Any, y: Any, sums: Any) -> None:
    """Σ_r y of every cell (job, resource); `sums` has a spare cell at its end."""
    sums[:] = 0.0
    for i in range(y.shape[0]):
        # neighbouring lanes often share a cell: add them up before touching memory
        here, held = cell[i, 0], y[i, 0]
        for j in range(1, WIDTH):
            if cell[i, j] == here:
                held += y[i, j]
            else:
                sums[here] += held
                here, held = cell[i, j], y[i, j]
        sums[here] += held


@inlined
def _add_block(rows: Any, b: Any, y: Any, sums: Any) -> None:
    """`cell_sums` of one block, without clearing."""
    for i in range(rows.start[b], rows.start[b + 1]):
        cell = rows.shared[i]
        if cell >= 0:
            sums[cell] += total(load(y, i))
        else:
            for j in range(WIDTH):
                sums[rows.cell[i * WIDTH + j]] += y[i * WIDTH + j]


@compiled
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


@inlined
def _marginal(rows: Any, kind: Any, alpha: Any, y: Any) -> Any:
    """f(y) without its factor (1/α for reciprocal, else α) and f'(y), which share a root or a division.

    The value of a log is not computed.
    """
    value, slope = y, alpha
    if kind == LOG:
        slope = alpha / (y + 1.0)
    elif kind == RECIPROCAL:
        inverse = 1.0 / (y + alpha)
        value, slope = y * inverse, inverse * inverse
    elif kind == POLY:
        s = root(y + 1.0)
        value, slope = s - 1.0, 0.5 * alpha / s
    elif kind >= TABLE:
        u = kind - TABLE
        first, last, step = u * rows.knots, (u + 1) * rows.knots - 1, rows.steps[u]
        for j in range(WIDTH):
            v = lane(y, j)
            value = with_lane(value, j, knot_value(rows.slopes, rows.values, first, last, step, v))
            slope = with_lane(slope, j, lane(alpha, j) * knot_slope(rows.slopes, first, last, step, v))
    return value, slope


@inlined
def _climb(rows: Any, b: Any, price: Any, unit: Any, y: Any, eta: Any, offset: Any, out: Any) -> Any:
    """Ascend one block; return Σ weight·f(y), ‖g‖² and the highest number written in each lane.

    Rows from `offset` of `out` get y + η g, or g if `eta` is None; if `out` is None, nothing is written. With weights
    of 0 and 1 (`unit`), Σ ln(1+y) is the logarithm of a product: one logarithm serves LOG_ROWS rows.
    """
    kind, alpha = rows.kind[b], load(rows.alpha, b)
    first, last = rows.start[b], rows.start[b + 1]
    gain, norm, top = filled(y, 0.0), filled(y, 0.0), filled(y, 0.0)
    for chunk in range(first, last, LOG_ROWS):
        end = min(chunk + LOG_ROWS, last)
        product = filled(y, 1.0)
        for i in range(chunk, end):
            before = load(y, i)
            held = maximum(before, 0.0)
            weight, charge = cell_pairs(price, rows.shared, rows.cell, i)
            value, slope = _marginal(rows, kind, alpha, held)
            if kind == LOG:
                product *= where(weight > 0.0, held + 1.0, 1.0)
            else:
                gain += weight * value
            g = weight * slope - charge
            norm += g * g
            if out is not None:
                after = g if eta is None else before + eta * g
                top = maximum(top, after)
                store(out, i - first + offset, after)
        if kind == LOG:
            if unit and not any_lane(product == np.inf):
                gain += logarithm(product)
            else:
                for i in range(chunk, end):
                    gain += cell_pairs(price, rows.shared, rows.cell, i)[0] * logarithm(maximum(load(y, i), 0.0) + 1.0)
    return total(gain / alpha if kind == RECIPROCAL else gain * alpha), total(norm), top


@inlined
def _unit(weight: Any) -> Any:
    """Whether all weights are 0 or 1."""
    others = 0
    for w in weight:
        others += w != 0.0 and w != 1.0
    return others == 0


@compiled
def gradient(lanes: Any, y: Any, price: Any, g: Any) -> Any:
    """g = weight·f'(y) − price, eq. (30); returns ‖g‖² over elements that can move."""
    rows, y_, price_, g_ = _rows(lanes), address(y), address(price), address(g)
    norm = y.dtype.type(0.0)
    for b in range(lanes.kind.shape[0]):
        norm += _climb(rows, b, price_, True, y_, None, rows.start[b], g_)[1]
    return norm


@compiled
def gain(lanes: Any, weight: Any, y: Any) -> Any:
    """Σ weight·f(max(y, 0)); `weight` (cells + 1,) is 0 or 1 for arrivals, any number ≥ 0 in general."""
    price = np.empty((weight.shape[0], 2), y.dtype)
    for cell in range(weight.shape[0]):
        price[cell, 0] = weight[cell]
        price[cell, 1] = 0.0
    rows, y_, price_ = _rows(lanes), address(y), address(price)
    unit = _unit(weight)
    gained = y.dtype.type(0.0)
    for b in range(lanes.kind.shape[0]):
        gained += _climb(rows, b, price_, unit, y_, None, 0, None)[0]
    return gained


@inlined
def _fill(rows: Any, b: Any, offset: Any, z: Any, t: Any, y: Any) -> Any:
    """y = clip(z − t, 0, a) in one block; returns Σ y, and the number of elements of each lane that move with t."""
    first, last = rows.start[b], rows.start[b + 1]
    zero, one = filled(y, 0.0), filled(y, 1.0)
    filling, moving = zero, zero
    for i in range(first, last):
        d = load(z, i - first + offset) - t
        v = minimum(maximum(d, 0.0), load(rows.cap, i))
        store(y, i, v)
        filling += v
        moving += where(v == d, one, zero)
    return filling, moving


@inlined
def _next_bend(rows: Any, b: Any, offset: Any, z: Any, t: Any, over: Any, top: Any, eps: Any) -> Any:
    """Next τ at which Σ y moves if no element moves at t: above t if the sum is `over` c, else below."""
    first, last = rows.start[b], rows.start[b + 1]
    above, below = top, filled(z, 0.0)
    for i in range(first, last):
        zi, a = load(z, i - first + offset), load(rows.cap, i)
        leaves_cap = zi - a  # slightly further, or rounding may leave it at its cap
        leaves_cap += eps * (leaves_cap + a)
        above = where((zi - t > a) & (a > 0.0), minimum(above, leaves_cap), above)
        below = where(zi < t, maximum(below, zi - eps * zi), below)
    return where(over, above, below)


@inlined
def _settle(rows: Any, b: Any, limit: Any, eps: Any, top: Any, offset: Any, z: Any, tau: Any, y: Any) -> Any:
    """Project one block: rows of z from `offset`, `top` the highest z of each lane; returns τ.

    Σ clip(z − τ, 0, a) falls in τ and is piecewise linear. Newton's method walks from piece to piece and is exact once
    on the right one, but with caps the sum is not convex and plain Newton can cycle: so a step that leaves the bracket
    (low, high) of earlier evaluations is replaced by the midpoint.
    """
    c, t = load(limit, b), load(tau, b)
    t = minimum(where(t > 0.0, t, 0.0), top)
    low, high = filled(y, -1.0), top  # the sum at low is above c, or low < 0; at high it is not above c
    # rounding errors: half a unit of τ for every element, and of the sum for every addition
    rounding = filled(y, eps) * (4 + rows.start[b + 1] - rows.start[b])
    for _ in range(MAX_EVALUATIONS):
        filling, moving = _fill(rows, b, offset, z, t, y)
        excess = filling - c
        slack = rounding * (c + t)
        unfinished = (excess > slack) | ((excess < 0.0 - slack) & (t > 0.0))
        if not any_lane(unfinished):
            break
        over = excess > 0.0
        low, high = where(over, t, low), where(over, high, t)
        step = maximum(t + excess / moving, 0.0)
        if any_lane(unfinished & (moving == 0.0)):
            step = where(moving == 0.0, _next_bend(rows, b, offset, z, t, over, top, eps), step)
        step = where((low < step) & (step < high), step, maximum(0.5 * low + 0.5 * high, 0.0))
        step = where(c > 0.0, step, top)  # without capacity even rounding is removed
        t = where(unfinished, step, t)
    store(tau, b, t)
    return t


@compiled
def project(lanes: Any, limit: Any, z: Any, tau: Any, y: Any) -> int:
    """y = Π(z): for each segment the nearest y with 0 ≤ y ≤ a and Σ y ≤ c. Exact.

    y = clip(z, 0, a) if that fits; else y = clip(z − τ, 0, a) with the τ > 0 that fills c, found by Newton's method
    inside a bracket, started from `tau` (B, W), which is left at the new multipliers (0 if the segment is not full).
    Any start gives the same result; the last slot's is fastest. Σ y may exceed c by the rounding of c + max z. `z` and
    `y` must be different arrays. Returns the number of blocks with a full segment.
    """
    rows, limit_, z_, tau_, y_ = _rows(lanes), address(limit), address(z), address(tau), address(y)
    eps = np.finfo(y.dtype).eps
    full_blocks = 0
    for b in range(lanes.kind.shape[0]):
        first = rows.start[b]
        top = filled(y_, 0.0)
        for i in range(first, rows.start[b + 1]):
            top = maximum(top, load(z_, i))
        if any_lane(_settle(rows, b, limit_, eps, top, first, z_, tau_, y_) > 0.0):
            full_blocks += 1
    return full_blocks


@compiled
def scratch_rows(lanes: Any) -> int:
    """Rows of the longest block; `scratch` below has the shape (scratch_rows, WIDTH)."""
    most = 0
    for b in range(lanes.kind.shape[0]):
        most = max(most, lanes.start[b + 1] - lanes.start[b])
    return most


@compiled
def ascent_step(lanes: Any, limit: Any, g: Any, eta: Any, scratch: Any, tau: Any, y: Any) -> None:
    """y ← Π(y + η g), in place: the step and `project` in one pass."""
    rows, limit_, g_, z_ = _rows(lanes), address(limit), address(g), address(scratch)
    tau_, y_ = address(tau), address(y)
    eps = np.finfo(y.dtype).eps
    for b in range(lanes.kind.shape[0]):
        first = rows.start[b]
        top = filled(y_, 0.0)
        for i in range(first, rows.start[b + 1]):
            z = load(y_, i) + eta * load(g_, i)
            top = maximum(top, z)
            store(z_, i - first, z)
        _settle(rows, b, limit_, eps, top, 0, z_, tau_, y_)


@compiled
def slot_step(
    lanes: Any,
    limit: Any,
    weight: Any,
    beta: Any,
    eta: Any,
    scratch: Any,
    price: Any,
    sums: Any,
    tau: Any,
    y: Any,
) -> Any:
    """Reward of y and one step y ← Π(y + η g), in place. Returns (gain, overhead, ‖g‖²) at the old y.

    `weight` (J,) are the arrivals, `beta` (J, K). `sums` must be the cell sums of y (zeros for y = 0, else see
    `cell_sums`) and is left at those of the new y; `price` (cells + 1, 2) is left at the prices of the gradient.
    `scratch` is (scratch_rows(lanes), WIDTH).
    """
    overhead = dominant_prices(weight, beta, sums, price)
    sums[:] = 0.0
    last = lanes.kind.shape[0]
    gained, norm = _part(lanes, limit, _unit(weight), eta, scratch, price, sums, tau, y, 0, last)
    return gained, overhead, norm


@inlined
def _part(
    lanes: Any,
    limit: Any,
    unit: Any,
    eta: Any,
    scratch: Any,
    price: Any,
    sums: Any,
    tau: Any,
    y: Any,
    first: Any,
    last: Any,
) -> Any:
    """The blocks first…last−1 of `slot_step`; adds their cell sums and returns their gain and ‖g‖²."""
    rows, limit_, z_, price_ = _rows(lanes), address(limit), address(scratch), address(price)
    sums_, tau_, y_ = address(sums), address(tau), address(y)
    eps = np.finfo(y.dtype).eps
    gained, norm = y.dtype.type(0.0), y.dtype.type(0.0)
    for b in range(first, last):
        value, square, top = _climb(rows, b, price_, unit, y_, eta, 0, z_)
        gained += value
        norm += square
        _settle(rows, b, limit_, eps, top, 0, z_, tau_, y_)
        _add_block(rows, b, y_, sums_)
    return gained, norm


@compiled
def slot_part(
    lanes: Any,
    limit: Any,
    weight: Any,
    eta: Any,
    scratch: Any,
    price: Any,
    sums: Any,
    tau: Any,
    y: Any,
    first: int,
    last: int,
) -> Any:
    """The blocks first…last−1 of a slot whose prices are set, for `threads`; `sums` becomes their cell sums."""
    sums[:] = 0.0
    return _part(lanes, limit, _unit(weight), eta, scratch, price, sums, tau, y, first, last)


@compiled
def mirror_step(lanes: Any, limit: Any, y: Any, g: Any, eta: Any, least: Any, out: Any) -> None:
    """out = argmin over feasible v of KL(v, y·e^{ηg}); entries are kept ≥ `least` times their cap before scaling.

    Per segment v = min(a, s·z) with z = y·e^{ηg} and the largest s ≤ 1 that fits in c. The sum is concave and piecewise
    linear in s, so Newton's method from s = c / Σz reaches the solution without overshooting.
    """
    for b in range(lanes.kind.shape[0]):
        first, last = lanes.start[b], lanes.start[b + 1]
        for j in range(WIDTH):
            total, plain = 0.0, 0.0
            for i in range(first, last):
                cap = lanes.cap[i, j]
                grown = max(y[i, j], least * cap) * math.exp(min(max(eta * g[i, j], -30.0), 30.0))
                out[i, j] = grown
                plain += grown
                total += min(grown, cap)
            scale = 1.0
            if total > limit[b, j]:
                scale = limit[b, j] / plain if plain > 0.0 else 0.0
                for _ in range(last - first + 1):
                    free, capped = 0.0, 0.0
                    for i in range(first, last):
                        if scale * out[i, j] < lanes.cap[i, j]:
                            free += out[i, j]
                        else:
                            capped += lanes.cap[i, j]
                    if free <= 0.0:
                        break
                    better = (limit[b, j] - capped) / free
                    if not better > scale:
                        break
                    scale = better
            for i in range(first, last):
                out[i, j] = min(scale * out[i, j], lanes.cap[i, j])
