"""The best allocation for given weights: a preconditioned primal–dual ascent that certifies itself.

With w ≥ 0 per job (0/1 arrivals, or arrival rates), over floor ≤ y ≤ a and Σ_l y ≤ c per segment (r, k):

    F(y) = Σ_j w_j [ Σ_{r,k} f(y) − max_k β_jk S_jk ],   S_jk = Σ_r y,

and the maximum is the smallest mean: max_k β_k S_k = max_{p in the simplex} Σ_k p_k β_k S_k. So

    max_y min_p Σ_j w_j [ Σ f(y) − Σ_k p_jk β_jk S_jk ]

is a saddle point in which, for fixed p, every segment stands alone, and for fixed y every job does. Two facts
make it easy: the dual has only J·K numbers, each the sum of many elements, and ties in the maximum, which
break ascent on F itself (they are the norm at the optimum), are just an interior p. One iteration:

    h = 1.5·w|f''(y)| + ρ                    curvature, per element; ρ keeps linear utilities from jumping
    y⁺ = Π_h( y + (w f'(y) − w β p)/h )      projection in the metric h: clip(z − τ/h, floor, a), Σ = c
    p⁺ = Π_Δ( p + σ β (2S(y⁺) − S(y)) ),     1/σ = w·max_k β_k² Σ_r 1/h, over elements that are free to move

That is the primal–dual method of Chambolle, Pock and Condat with steps sized to each element and job: the
Newton step of the separable part, at the cost of one gradient and one projection. ρ is scale-free: slope at zero over
a few times the fair share of the segment.

Any p bounds the optimum from above: with p fixed, each segment's maximum is at most
Σ_l max_y (w f(y) − (w β p + τ) y) + τ c for any τ ≥ 0 (`upper_bound`). `solve` runs until value and bound meet.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from berth.kernels.lanes import WIDTH, Lanes
from berth.kernels.utilities import LINEAR, LOG, POLY, RECIPROCAL, TABLE, slope, table_slope, utility

__all__ = ["Workspace", "even_dual", "maximise", "recall", "solve", "upper_bound", "value", "workspace"]

MAX_EVALUATIONS = 100
SHARES = 6.0  # ρ moves a linear element by this many fair shares per unit of relative slope
DAMPING = 1.5  # curvature grows on the way down, so that a bare Newton step overshoots
PINNED = 0.1  # what an element at a bound counts for in σ: it may come off it
FIRST_CHECK = 20  # iterations before the first certificate; the next ones come after a quarter more each


class Workspace(NamedTuple):
    """What an ascent needs besides its arguments; `memory` and `tau` are its warm start, the rest is scratch."""

    memory: NDArray[Any]  # (N, W) y of each element when its job last had a weight
    tau: NDArray[Any]  # (B, W) multipliers of the capacities
    mean: NDArray[Any]  # (J, K) average of the dual over the last call: often the better certificate
    best: NDArray[Any]  # (N, W) best y seen by `solve`
    base: NDArray[Any]  # (N, W) floor, 0 where the job has no weight
    room: NDArray[Any]  # (N, W) a − floor, 0 where the job has no weight
    weight: NDArray[Any]  # (N, W) weight of the element's job, 1 where it is 0
    rest: NDArray[Any]  # (B, W) capacity above the floors
    damp: NDArray[Any]  # (B, W) ρ
    price: NDArray[Any]  # (cells + 1,) w β p
    sums: NDArray[Any]  # (cells + 1, 2) extrapolated S, and Σ 1/h of the elements that may move
    z: NDArray[Any]  # (most rows of a block, W)
    d: NDArray[Any]  # (most rows of a block, W)


def workspace(lanes: Lanes, jobs: int, resources: int) -> Workspace:
    """Scratch and warm start (cold) for these lanes."""
    dtype = lanes.cap.dtype
    rows = int(np.diff(lanes.start).max()) if len(lanes.kind) else 0
    by_element = [np.zeros(lanes.cap.shape, dtype) for _ in range(5)]
    by_lane = [np.zeros(lanes.alpha.shape, dtype) for _ in range(3)]
    cells = jobs * resources + 1
    return Workspace(
        by_element[0],
        by_lane[0],
        np.zeros((jobs, resources), dtype),
        *by_element[1:],
        *by_lane[1:],
        np.zeros(cells, dtype),
        np.zeros((cells, 2), dtype),
        np.zeros((rows, WIDTH), dtype),
        np.zeros((rows, WIDTH), dtype),
    )


def even_dual(jobs: int, resources: int, dtype: Any = np.float64) -> NDArray[Any]:
    """A cold start for the dual (J, K): every resource equally dominant."""
    return np.full((jobs, resources), 1.0 / resources, dtype)


@njit(cache=True, error_model="numpy")
def recall(lanes: Any, weight: Any, resources: int, work: Any, y: Any) -> None:
    """y = what each job with a weight had when it last had one; 0 for the others. Not feasible as it stands."""
    jobs = weight.shape[0]
    for i in range(y.shape[0]):
        for j in range(WIDTH):
            job = lanes.cell[i, j] // resources
            y[i, j] = work.memory[i, j] if job < jobs and weight[job] > 0.0 else y.dtype.type(0.0)


@njit(cache=True, error_model="numpy")
def _prepare(lanes: Any, limit: Any, weight: Any, resources: int, floor: Any, y: Any, dual: Any, work: Any) -> None:
    """Gather per element what stays fixed during a call; clip y into its box and put `dual` on the simplex."""
    jobs = weight.shape[0]
    zero, one = y.dtype.type(0.0), y.dtype.type(1.0)
    shares = y.dtype.type(SHARES)
    used, span, count = np.empty(WIDTH, y.dtype), np.empty(WIDTH, y.dtype), np.empty(WIDTH, y.dtype)
    for b in range(lanes.kind.shape[0]):
        used[:] = zero
        span[:] = zero
        count[:] = zero
        for i in range(lanes.start[b], lanes.start[b + 1]):
            for j in range(WIDTH):
                job = lanes.cell[i, j] // resources
                w = weight[job] if job < jobs else zero
                present = w > zero
                low = min(max(floor[i, j], zero), lanes.cap[i, j]) if present else zero
                room = lanes.cap[i, j] - low if present else zero
                work.weight[i, j] = w if present else one
                work.base[i, j] = low
                work.room[i, j] = room
                y[i, j] = low + min(max(y[i, j] - low, zero), room)
                used[j] += low
                span[j] += room
                count[j] += one if room > zero else zero
        for j in range(WIDTH):
            rest = max(limit[b, j] - used[j], zero)
            work.rest[b, j] = rest
            steep = abs(slope(lanes.kind[b], lanes.alpha[b, j], zero, lanes.slopes, lanes.steps))
            share = shares * min(rest, span[j])
            work.damp[b, j] = (steep if steep > zero else one) * (count[j] / share if share > zero else one)
    for job in range(dual.shape[0]):
        _to_simplex(dual[job])


@njit(cache=True, error_model="numpy")
def _to_simplex(p: Any) -> None:
    """The nearest point with p ≥ 0, Σ p = 1, in place (Michelot: drop what is negative, level the others)."""
    size = p.shape[0]
    level, members = p.dtype.type(0.0), 0
    low = p[0]
    for k in range(size):
        low = min(low, p[k])
    level = low - p.dtype.type(1.0)
    for _ in range(size):
        total, count = p.dtype.type(-1.0), 0
        for k in range(size):
            if p[k] > level:
                total += p[k]
                count += 1
        if count == members:
            break
        members = count
        level = total / p.dtype.type(count)
    for k in range(size):
        p[k] = max(p[k] - level, p.dtype.type(0.0))


@njit(cache=True, error_model="numpy")
def _model(lanes: Any, b: int, y: Any, g: Any, h: Any) -> None:
    """Slope g and curvature h = |f''| of the rows of one block, written from row 0."""
    zero, one, half, two = y.dtype.type(0.0), y.dtype.type(1.0), y.dtype.type(0.5), y.dtype.type(2.0)
    kind, first, alpha = lanes.kind[b], lanes.start[b], lanes.alpha
    rows = lanes.start[b + 1] - first
    if kind == LINEAR:
        for i in range(rows):
            for j in range(WIDTH):
                g[i, j] = alpha[b, j]
                h[i, j] = zero
    elif kind == LOG:
        for i in range(rows):
            for j in range(WIDTH):
                q = one / (y[first + i, j] + one)
                g[i, j] = alpha[b, j] * q
                h[i, j] = alpha[b, j] * q * q
    elif kind == RECIPROCAL:
        for i in range(rows):
            for j in range(WIDTH):
                q = one / (y[first + i, j] + alpha[b, j])
                g[i, j] = q * q
                h[i, j] = two * q * q * q
    elif kind == POLY:
        for i in range(rows):
            for j in range(WIDTH):
                q = one / (y[first + i, j] + one)
                s = half * alpha[b, j] * math.sqrt(q)
                g[i, j] = s
                h[i, j] = half * s * q
    else:
        slopes, step = lanes.slopes[kind - TABLE], lanes.steps[kind - TABLE]
        last = slopes.shape[0] - 1
        for i in range(rows):
            for j in range(WIDTH):
                amount = y[first + i, j]
                g[i, j] = alpha[b, j] * table_slope(slopes, step, amount)
                # a table may bend at any knot: take the sharpest of the piece and its neighbours
                place = min(int(amount / step), last)
                bend = zero
                for piece in range(max(place - 1, 0), min(place + 2, last)):
                    bend = max(bend, slopes[piece] - slopes[piece + 1])
                h[i, j] = alpha[b, j] * bend / step


@njit(cache=True, error_model="numpy")
def _ascend(lanes: Any, beta: Any, weight: Any, iterations: int, pace: Any, y: Any, dual: Any, work: Any) -> None:
    """Iterations on prepared data; the last y is exactly feasible. `pace` ≤ 1 shortens the dual's steps."""
    jobs, resources = beta.shape
    zero, one, half = y.dtype.type(0.0), y.dtype.type(1.0), y.dtype.type(0.5)
    tiny = y.dtype.type(1e-30)
    eps = np.finfo(y.dtype).eps
    damping, pinned = y.dtype.type(DAMPING), y.dtype.type(PINNED)
    total, inside = np.empty(WIDTH, y.dtype), np.empty(WIDTH, y.dtype)
    low, high, top = np.empty(WIDTH, y.dtype), np.empty(WIDTH, y.dtype), np.empty(WIDTH, y.dtype)
    near, t = np.empty(WIDTH, y.dtype), np.empty(WIDTH, y.dtype)
    price, sums, z, d, rest, tau = work.price, work.sums, work.z, work.d, work.rest, work.tau
    cells = jobs * resources
    work.mean[:] = zero
    for job in range(jobs):
        for k in range(resources):
            price[job * resources + k] = weight[job] * beta[job, k] * dual[job, k]
    price[cells] = zero
    for _ in range(iterations):
        sums[:] = zero
        for b in range(lanes.kind.shape[0]):
            first = lanes.start[b]
            rows = lanes.start[b + 1] - first
            _model(lanes, b, y, z, d)
            total[:] = zero
            top[:] = zero
            for i in range(rows):
                for j in range(WIDTH):
                    inside[j] = price[lanes.cell[first + i, j]]
                for j in range(WIDTH):
                    w, room = work.weight[first + i, j], work.room[first + i, j]
                    g = w * z[i, j] - inside[j]
                    h = w * (damping * d[i, j] + work.damp[b, j])
                    u = y[first + i, j] - work.base[first + i, j]
                    d_new = one / h
                    z_new = u + g * d_new
                    d[i, j] = d_new
                    z[i, j] = z_new
                    total[j] += min(max(z_new, zero), room)
                    top[j] = max(top[j], u * h + g if room > zero else zero)
            # segments that do not fit: Newton for τ inside a bracket, all lanes at once; the others are done at once
            open_lanes = 0
            for j in range(WIDTH):
                full = total[j] > rest[b, j]
                open_lanes += 1 if full else 0
                low[j] = zero
                high[j] = top[j] if full else zero
                near[j] = eps * 4 * total[j] if full else y.dtype.type(np.inf)
                warm = tau[b, j] if (tau[b, j] > zero) & (tau[b, j] < top[j]) else half * top[j]
                t[j] = warm if full else zero
            for _evaluation in range(MAX_EVALUATIONS):
                if open_lanes == 0:
                    break
                total[:] = zero
                inside[:] = zero
                for i in range(rows):
                    for j in range(WIDTH):
                        v = z[i, j] - t[j] * d[i, j]
                        u = min(max(v, zero), work.room[first + i, j])
                        total[j] += u
                        inside[j] += d[i, j] if u == v else zero
                open_lanes = 0
                for j in range(WIDTH):
                    excess = total[j] - rest[b, j]
                    low_new = t[j] if excess > zero else low[j]
                    high_new = high[j] if excess > zero else t[j]
                    newton = t[j] + excess / max(inside[j], tiny)
                    middle = half * (low_new + high_new)
                    t_new = newton if (newton > low_new) & (newton < high_new) else middle
                    done = (abs(excess) <= near[j]) | (high_new - low_new <= eps * 4 * top[j])
                    low[j] = low_new
                    high[j] = high_new
                    t[j] = t[j] if done else t_new
                    open_lanes += 0 if done else 1
            for j in range(WIDTH):
                tau[b, j] = t[j]
            for i in range(rows):
                for j in range(WIDTH):
                    v = z[i, j] - t[j] * d[i, j]
                    u = min(max(v, zero), work.room[first + i, j])
                    y_new = work.base[first + i, j] + u
                    z[i, j] = y_new + (y_new - y[first + i, j])
                    d[i, j] = d[i, j] if u == v else pinned * d[i, j]
                    y[first + i, j] = y_new
                for j in range(WIDTH):
                    c = lanes.cell[first + i, j]
                    sums[c, 0] += z[i, j]
                    sums[c, 1] += d[i, j]
        share = one / y.dtype.type(iterations)
        for job in range(jobs):
            w = weight[job]
            if w <= zero:
                continue
            stiff = tiny
            for k in range(resources):
                stiff = max(stiff, beta[job, k] * beta[job, k] * sums[job * resources + k, 1])
            for k in range(resources):
                dual[job, k] += pace / (w * stiff) * (beta[job, k] * sums[job * resources + k, 0])
            _to_simplex(dual[job])
            for k in range(resources):
                price[job * resources + k] = w * beta[job, k] * dual[job, k]
                work.mean[job, k] += share * dual[job, k]
    _fit(lanes, work, y)


@njit(cache=True, error_model="numpy")
def _fit(lanes: Any, work: Any, y: Any) -> None:
    """Take off the last rounding, so that Σ y ≤ c and y ≤ a hold in whatever order they are summed."""
    zero, one = y.dtype.type(0.0), y.dtype.type(1.0)
    total, used = np.empty(WIDTH, y.dtype), np.empty(WIDTH, y.dtype)
    for b in range(lanes.kind.shape[0]):
        first, last = lanes.start[b], lanes.start[b + 1]
        slack = np.finfo(y.dtype).eps * y.dtype.type(last - first + 2)
        total[:] = zero
        used[:] = zero
        for i in range(first, last):
            for j in range(WIDTH):
                total[j] += y[i, j] - work.base[i, j]
                used[j] += work.base[i, j]
        for j in range(WIDTH):
            rest = work.rest[b, j]
            target = max(rest - slack * (rest + used[j]), zero)
            total[j] = target / total[j] if total[j] > target else one
        for i in range(first, last):
            for j in range(WIDTH):
                base = work.base[i, j]
                y[i, j] = min(base + total[j] * (y[i, j] - base), base + work.room[i, j], lanes.cap[i, j])


@njit(cache=True, error_model="numpy")
def maximise(
    lanes: Any, limit: Any, weight: Any, beta: Any, floor: Any, iterations: int, y: Any, dual: Any, work: Any
) -> None:
    """Improve y (N, W) and `dual` (J, K) by some iterations; y comes out exactly feasible.

    `limit` (B, W), `weight` (J,), `beta` (J, K), `floor` (N, W). Elements of jobs without weight get 0, their
    dual stays. y need not be feasible at the start: `recall` gives the warm start by job.
    """
    _prepare(lanes, limit, weight, beta.shape[1], floor, y, dual, work)
    _ascend(lanes, beta, weight, max(iterations, 1), y.dtype.type(1.0), y, dual, work)
    _remember(lanes.cell, weight, beta.shape[1], y, work.memory)


@njit(cache=True, error_model="numpy")
def _remember(cell: Any, weight: Any, resources: int, y: Any, memory: Any) -> None:
    jobs = weight.shape[0]
    for i in range(y.shape[0]):
        for j in range(WIDTH):
            job = cell[i, j] // resources
            if job < jobs and weight[job] > 0.0:
                memory[i, j] = y[i, j]


@njit(cache=True, error_model="numpy")
def value(lanes: Any, weight: Any, beta: Any, y: Any) -> float:
    """F(y), summed in float64 whatever the type of y."""
    jobs, resources = beta.shape
    sums = np.zeros((jobs, resources))
    total = 0.0
    for b in range(lanes.kind.shape[0]):
        kind = lanes.kind[b]
        for i in range(lanes.start[b], lanes.start[b + 1]):
            for j in range(WIDTH):
                job = lanes.cell[i, j] // resources
                if job < jobs and weight[job] > 0.0 and y[i, j] > 0.0:
                    amount = np.float64(y[i, j])
                    gain = utility(kind, np.float64(lanes.alpha[b, j]), amount, lanes.slopes, lanes.values, lanes.steps)
                    total += np.float64(weight[job]) * gain
                    sums[job, lanes.cell[i, j] % resources] += amount
    for job in range(jobs):
        worst = 0.0
        for k in range(resources):
            worst = max(worst, beta[job, k] * sums[job, k])
        total -= weight[job] * worst
    return total


@njit(cache=True, error_model="numpy")
def _table_response(slopes: Any, step: float, q: float) -> float:
    """The largest y with table slope ≥ q (inf if all are, 0 if none is), by halving over the knots."""
    last = slopes.shape[0] - 1
    if slopes[last] >= q:
        return np.inf
    if slopes[0] <= q:
        return 0.0
    low, high = 0, last  # slopes[low] > q ≥ ... > slopes[high]
    while high - low > 1:
        middle = (low + high) // 2
        if slopes[middle] >= q:
            low = middle
        else:
            high = middle
    return step * (low + (slopes[low] - q) / (slopes[low] - slopes[high]))


@njit(cache=True, error_model="numpy")
def _respond(kind: int, alpha: Any, slopes: Any, step: float, q: Any, low: Any, high: Any, out: Any, fall: Any) -> None:
    """One row: the y in [low, high] that maximises f(y) − q y, and −dy/dq where y is inside."""
    if kind == LINEAR:
        for j in range(WIDTH):
            out[j] = high[j] if alpha[j] > q[j] else low[j]
            fall[j] = 0.0
        return
    if kind == LOG:
        for j in range(WIDTH):
            inverse = 1.0 / q[j]
            out[j] = alpha[j] * inverse - 1.0
            fall[j] = alpha[j] * inverse * inverse
    elif kind == RECIPROCAL:
        for j in range(WIDTH):
            root = 1.0 / math.sqrt(q[j])
            out[j] = root - alpha[j]
            fall[j] = 0.5 * root * root * root
    elif kind == POLY:
        for j in range(WIDTH):
            ratio = 0.5 * alpha[j] / q[j]
            out[j] = ratio * ratio - 1.0
            fall[j] = 2.0 * ratio * ratio / q[j]
    else:
        for j in range(WIDTH):
            out[j] = _table_response(slopes, step, q[j] / alpha[j])
            fall[j] = 0.0
    for j in range(WIDTH):
        v = out[j]
        out[j] = min(max(v, low[j]), high[j])
        fall[j] = fall[j] if out[j] == v else 0.0


@njit(cache=True, error_model="numpy")
def upper_bound(lanes: Any, limit: Any, weight: Any, beta: Any, floor: Any, dual: Any) -> float:
    """A number no feasible F(y) exceeds, from any `dual` (J, K) ≥ 0 (its rows are scaled to sum to 1).

    Float64 throughout. Each segment's τ is found by Newton's method inside a bracket; a poor one would give a
    looser bound, never a wrong one.
    """
    jobs, resources = beta.shape
    price = np.zeros(jobs * resources + 1)
    for job in range(jobs):
        mass = 0.0
        for k in range(resources):
            mass += max(np.float64(dual[job, k]), 0.0)
        for k in range(resources):
            if mass > 0.0:
                price[job * resources + k] = beta[job, k] * (max(np.float64(dual[job, k]), 0.0) / mass)
    most = 0
    for b in range(lanes.kind.shape[0]):
        most = max(most, lanes.start[b + 1] - lanes.start[b])
    w, inverse, q0 = np.empty((most, WIDTH)), np.empty((most, WIDTH)), np.empty((most, WIDTH))
    low, high = np.empty((most, WIDTH)), np.empty((most, WIDTH))
    q, out, fall, alpha = np.empty(WIDTH), np.empty(WIDTH), np.empty(WIDTH), np.empty(WIDTH)
    t, left, right, top = np.empty(WIDTH), np.empty(WIDTH), np.empty(WIDTH), np.empty(WIDTH)
    total, inside, near = np.empty(WIDTH), np.empty(WIDTH), np.empty(WIDTH)
    bound = 0.0
    for b in range(lanes.kind.shape[0]):
        kind, first = lanes.kind[b], lanes.start[b]
        rows = lanes.start[b + 1] - first
        table = max(kind - TABLE, 0)
        slopes, step = lanes.slopes[table], np.float64(lanes.steps[table])
        top[:] = 0.0
        for j in range(WIDTH):
            alpha[j] = lanes.alpha[b, j]
        for i in range(rows):
            for j in range(WIDTH):
                cell = lanes.cell[first + i, j]
                job = cell // resources
                present = job < jobs and weight[job] > 0.0
                w[i, j] = weight[job] if present else 1.0
                inverse[i, j] = 1.0 / w[i, j]
                q0[i, j] = price[cell]
                cap = np.float64(lanes.cap[first + i, j])
                low[i, j] = min(max(np.float64(floor[first + i, j]), 0.0), cap) if present else 0.0
                high[i, j] = cap if present else 0.0
                if high[i, j] > low[i, j]:
                    steepest = slope(kind, alpha[j], low[i, j], lanes.slopes, lanes.steps)
                    top[j] = max(top[j], w[i, j] * (steepest - q0[i, j]))
        for j in range(WIDTH):
            t[j] = 0.0
            left[j] = 0.0
            right[j] = top[j]
            near[j] = 1e-10 * limit[b, j]
        for evaluation in range(MAX_EVALUATIONS):
            total[:] = 0.0
            inside[:] = 0.0
            for i in range(rows):
                for j in range(WIDTH):
                    q[j] = q0[i, j] + t[j] * inverse[i, j]
                _respond(kind, alpha, slopes, step, q, low[i], high[i], out, fall)
                for j in range(WIDTH):
                    total[j] += out[j]
                    inside[j] += fall[j] * inverse[i, j]
            open_lanes = 0
            for j in range(WIDTH):
                excess = total[j] - limit[b, j]
                if evaluation == 0 and excess <= 0.0:
                    right[j] = 0.0  # slack at τ = 0
                left_new = t[j] if excess > 0.0 else left[j]
                right_new = right[j] if excess > 0.0 else t[j]
                newton = t[j] + excess / max(inside[j], 1e-300)
                middle = 0.5 * (left_new + right_new)
                t_new = newton if (newton > left_new) & (newton < right_new) else middle
                done = (abs(excess) <= near[j]) | (right_new - left_new <= 1e-12 * top[j])
                left[j] = left_new
                right[j] = right_new
                t[j] = t[j] if done else t_new
                open_lanes += 0 if done else 1
            if open_lanes == 0:
                break
        for j in range(WIDTH):
            bound += t[j] * limit[b, j]
        for i in range(rows):
            for j in range(WIDTH):
                q[j] = q0[i, j] + t[j] * inverse[i, j]
            _respond(kind, alpha, slopes, step, q, low[i], high[i], out, fall)
            for j in range(WIDTH):
                if high[i, j] > 0.0:
                    gain = utility(kind, alpha[j], out[j], lanes.slopes, lanes.values, lanes.steps)
                    bound += w[i, j] * (gain - q[j] * out[j])
    return bound


@njit(cache=True, error_model="numpy")
def solve(
    lanes: Any,
    limit: Any,
    weight: Any,
    beta: Any,
    floor: Any,
    gap: float,
    max_iterations: int,
    y: Any,
    dual: Any,
    work: Any,
) -> tuple[float, float, int]:
    """Ascend until (bound − value)/max(|bound|, 1) ≤ gap; gives (value, bound, iterations), the best y in `y`.

    `dual` comes back as the last one, ready for the next call. Where the value and the bound stop
    approaching each other, the dual's steps are shortened.
    """
    _prepare(lanes, limit, weight, beta.shape[1], floor, y, dual, work)
    best, bound = -np.inf, np.inf
    done = 0
    pace = 1.0
    previous = np.inf
    while True:
        chunk = min(max(FIRST_CHECK, done // 4), max(max_iterations - done, 1))
        _ascend(lanes, beta, weight, chunk, y.dtype.type(pace), y, dual, work)
        done += chunk
        reached = value(lanes, weight, beta, y)
        if reached > best:
            best = reached
            work.best[:] = y
        bound = min(bound, upper_bound(lanes, limit, weight, beta, floor, dual))
        scale = max(abs(bound), 1.0)
        if bound - best > gap * scale:
            bound = min(bound, upper_bound(lanes, limit, weight, beta, floor, work.mean))
        now = (bound - best) / max(abs(bound), 1.0)
        if now <= gap or done >= max_iterations:
            break
        if now > 0.8 * previous:
            pace = max(0.7 * pace, 0.1)
        previous = now
    y[:] = work.best
    _remember(lanes.cell, weight, beta.shape[1], y, work.memory)
    return best, bound, done
