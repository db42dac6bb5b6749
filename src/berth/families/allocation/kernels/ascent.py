"""Best allocation for given weights: a preconditioned primal–dual ascent with a certificate.

With w ≥ 0 per job (0/1 arrivals, or arrival rates), over floor ≤ y ≤ a and Σ_l y ≤ c per segment (r, k):

    F(y) = Σ_j w_j [ Σ_{r,k} f(y) − max_k β_jk S_jk ],   S_jk = Σ_r y,

and the maximum is the smallest mean: max_k β_k S_k = max_{p in the simplex} Σ_k p_k β_k S_k. So

    max_y min_p Σ_j w_j [ Σ f(y) − Σ_k p_jk β_jk S_jk ]

is a saddle point in which, for fixed p, every segment is independent, and for fixed y every job is. Two facts make it
easy: the dual has only J·K numbers, each the sum of many elements, and ties in the maximum, which break ascent on F
itself (they are the norm at the optimum), are just an interior p. One iteration:

    h = 1.5·w|f''(y)| + ρ                    curvature, per element; ρ keeps linear utilities from jumping
    y⁺ = Π_h( y + (w f'(y) − w β p)/h )      projection in the metric h: clip(z − τ/h, floor, a), Σ = c
    p⁺ = Π_Δ( p + σ β (2S(y⁺) − S(y)) ),     1/σ = w·max_k β_k² Σ_r 1/h, over elements that can move

That is the primal–dual method of Chambolle, Pock and Condat with steps sized to each element and job: the
Newton step of the separable part, at the cost of one gradient and one projection. ρ is scale-free: slope at zero over
a few times the fair share of the segment.

Any p bounds the optimum from above: with p fixed, each segment's maximum is at most
Σ_l max_y (w f(y) − (w β p + τ) y) + τ c for any τ ≥ 0 (`upper_bound`). `solve` runs until value and bound meet.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.families.allocation.kernels.bound import upper_bound, value
from berth.families.allocation.kernels.lanes import Lanes, by_cell, cell_pairs
from berth.families.allocation.kernels.utilities import LOG, POLY, RECIPROCAL, TABLE, knot_slope, slope
from berth.kernels.compiled import compiled, inlined
from berth.kernels.vector import (
    WIDTH,
    address,
    any_lane,
    filled,
    lane,
    load,
    maximum,
    minimum,
    root,
    store,
    total,
    where,
    with_lane,
)

__all__ = ["Workspace", "even_dual", "maximise", "recall", "solve", "upper_bound", "value", "workspace"]

MAX_EVALUATIONS = 100
SHARES = 6.0  # 1/ρ: fair shares that a linear element moves if its slope is pure gain
DAMPING = 1.5  # curvature grows on the way down, so a plain Newton step overshoots
PINNED = 0.1  # weight in 1/σ of an element at a bound, which may leave it
FIRST_CHECK = 16  # iterations before `solve` first checks the gap; each later interval is a quarter longer
STALLED = 0.95  # a gap above this share of the previous one calls for shorter steps
RELAX, LOOSEST = 0.7, 0.06  # factor and floor by which `solve` shrinks ρ between checks: larger steps suit the end


class Workspace(NamedTuple):
    """Buffers of an ascent; `memory` and `tau` are its warm start, the rest is scratch."""

    memory: NDArray[Any]  # (N, W) y of each element when its job last had a weight
    tau: NDArray[Any]  # (B, W) multipliers of the capacities
    mean: NDArray[Any]  # (J, K) average of the dual over the last call
    best: NDArray[Any]  # (N, W) best y seen by `solve`
    base: NDArray[Any]  # (N, W) floor, 0 if the job has no weight
    room: NDArray[Any]  # (N, W) a − floor, 0 if the job has no weight
    rest: NDArray[Any]  # (B, W) capacity above the floors
    damp: NDArray[Any]  # (B, W) ρ
    steep: NDArray[Any]  # (B, W) slope at 0, the scale of ρ
    bends: NDArray[Any]  # (U,) sharpest curvature of each table
    price: NDArray[Any]  # (cells + 1, 2) w (1 if it is 0) and w β p
    sums: NDArray[Any]  # (cells + 1, 2) extrapolated S, and Σ 1/h of the elements that can move
    z: NDArray[Any]  # (most rows of a block, W)
    d: NDArray[Any]  # (most rows of a block, W)


def workspace(lanes: Lanes, jobs: int, resources: int) -> Workspace:
    """Scratch and a cold start for these lanes."""
    dtype = lanes.cap.dtype
    elements, segments, cells = lanes.cap.shape, lanes.alpha.shape, jobs * resources + 1
    buffer = (int(np.diff(lanes.start).max(initial=0)), WIDTH)
    steep = np.zeros(segments, dtype)
    _slopes_at_zero(lanes, steep)
    falls = -np.diff(lanes.slopes, axis=1).min(axis=1, initial=0.0)
    return Workspace(
        memory=np.zeros(elements, dtype),
        tau=np.zeros(segments, dtype),
        mean=np.zeros((jobs, resources), dtype),
        best=np.zeros(elements, dtype),
        base=np.zeros(elements, dtype),
        room=np.zeros(elements, dtype),
        rest=np.zeros(segments, dtype),
        damp=np.ones(segments, dtype),
        steep=steep,
        bends=np.ascontiguousarray(falls / lanes.steps, dtype),
        price=np.zeros((cells, 2), dtype),
        sums=np.zeros((cells, 2), dtype),
        z=np.zeros(buffer, dtype),
        d=np.zeros(buffer, dtype),
    )


def even_dual(jobs: int, resources: int, dtype: Any = np.float64) -> NDArray[Any]:
    """A cold start for the dual (J, K): every resource equally dominant."""
    return np.full((jobs, resources), 1.0 / resources, dtype)


@compiled
def _slopes_at_zero(lanes: Any, steep: Any) -> None:
    one = steep.dtype.type(1.0)
    for b in range(lanes.kind.shape[0]):
        for j in range(WIDTH):
            at_zero = abs(slope(lanes.kind[b], lanes.alpha[b, j], 0.0, lanes.slopes, lanes.steps))
            steep[b, j] = at_zero if at_zero > 0.0 else one


@compiled
def recall(lanes: Any, weight: Any, resources: int, work: Any, y: Any) -> None:
    """Set y to what each job with a weight had when it last had one; 0 for the others. May be infeasible."""
    weights = by_cell(weight, resources, y)
    shared, cells, memory, pairs, out = (
        address(lanes.shared),
        address(lanes.cell),
        address(work.memory),
        address(weights),
        address(y),
    )
    for i in range(y.shape[0]):
        w, _ = cell_pairs(pairs, shared, cells, i)
        store(out, i, where(w > 0.0, load(memory, i), 0.0))


@compiled
def _remember(work: Any, y: Any) -> None:
    memory, room, now = address(work.memory), address(work.room), address(y)
    for i in range(y.shape[0]):
        store(memory, i, where(load(room, i) > 0.0, load(now, i), load(memory, i)))


@compiled
def _prepare(lanes: Any, limit: Any, weight: Any, resources: int, floor: Any, y: Any, dual: Any, work: Any) -> None:
    """Gather per-element constants of a call; clip y into its box and put `dual` on the simplex."""
    weights = by_cell(weight, resources, y)
    start, shared, cells, cap = lanes.start, address(lanes.shared), address(lanes.cell), address(lanes.cap)
    base, room, rest, damp, steep = (
        address(work.base),
        address(work.room),
        address(work.rest),
        address(work.damp),
        address(work.steep),
    )
    pairs, bottom, limits, held = address(weights), address(floor), address(limit), address(y)
    for b in range(lanes.kind.shape[0]):
        used, span, count = filled(held, 0.0), filled(held, 0.0), filled(held, 0.0)
        for i in range(start[b], start[b + 1]):
            w, _ = cell_pairs(pairs, shared, cells, i)
            top = where(w > 0.0, load(cap, i), 0.0)
            low = minimum(maximum(load(bottom, i), 0.0), top)
            space = top - low
            store(base, i, low)
            store(room, i, space)
            store(held, i, low + minimum(maximum(load(held, i) - low, 0.0), space))
            used += low
            span += space
            count += where(space > 0.0, filled(held, 1.0), 0.0)
        left = maximum(load(limits, b) - used, 0.0)
        share = SHARES * minimum(left, span)
        store(rest, b, left)
        store(damp, b, load(steep, b) * where(share > 0.0, count / share, 1.0))
    for job in range(dual.shape[0]):
        _to_simplex(dual, job)


@compiled
def _to_simplex(dual: Any, job: int) -> None:
    """Project one row onto p ≥ 0, Σ p = 1, in place (Michelot: level, drop negative entries, repeat)."""
    zero, one = dual.dtype.type(0.0), dual.dtype.type(1.0)
    size = dual.shape[1]
    top = dual[job, 0]
    for k in range(1, size):
        top = max(top, dual[job, k])
    # relative to the largest, nothing below −1 matters, and large entries lose no digits
    for k in range(size):
        dual[job, k] = max(dual[job, k] - top, -one)
    level, members = -one, 0
    for _ in range(size):
        mass, count = -one, 0
        for k in range(size):
            if dual[job, k] > level:
                mass += dual[job, k]
                count += 1
        if count == members:
            break
        members = count
        level = mass / dual.dtype.type(count)
    for k in range(size):
        dual[job, k] = max(dual[job, k] - level, zero)


@inlined
def _model(kind: int, alpha: Any, slopes: Any, bends: Any, knots: int, steps: Any, y: Any) -> Any:
    """Slope f'(y) and curvature |f''(y)| of one row; for a table its sharpest.

    A table may bend at any knot: its curvature at y says nothing about the rest of a step.
    """
    g, h = alpha, alpha * 0.0
    if kind == LOG:
        q = 1.0 / (y + 1.0)
        g = alpha * q
        h = g * q
    elif kind == RECIPROCAL:
        q = 1.0 / (y + alpha)
        g = q * q
        h = 2.0 * g * q
    elif kind == POLY:
        q = 1.0 / (y + 1.0)
        g = 0.5 * alpha * root(q)
        h = 0.5 * g * q
    elif kind >= TABLE:
        first, last, step = (kind - TABLE) * knots, (kind - TABLE + 1) * knots - 1, steps[kind - TABLE]
        for j in range(WIDTH):
            amount = lane(y, j)
            g = with_lane(g, j, lane(alpha, j) * knot_slope(slopes, first, last, step, amount))
        h = alpha * bends[kind - TABLE]
    return g, h


@inlined
def _capacity_price(
    rows: int, offset: int, rest: Any, top: Any, fill: Any, eps: Any, t: Any, z: Any, d: Any, room: Any
) -> Any:
    """τ of one block: if Σ clip(z, 0, room) = `fill` exceeds `rest`, the τ with Σ clip(z − τ d, 0, room) = rest.

    Newton's method inside a bracket, all lanes at once, from the guess t; `top` is a τ at which nothing is left.
    """
    full = fill > rest
    t = where(full, where((t > 0.0) & (t < top), t, 0.5 * top), 0.0)
    if not any_lane(full):
        return t
    low, high, near = 0.0 * top, top, eps * fill
    for _ in range(MAX_EVALUATIONS):
        filling, moving = 0.0 * top, 0.0 * top
        for i in range(rows):
            di = load(d, i)
            free = load(z, i) - t * di
            kept = minimum(maximum(free, 0.0), load(room, offset + i))
            filling += kept
            moving += where(kept == free, di, 0.0)
        excess = filling - rest
        over = excess > 0.0
        low, high = where(over, t, low), where(over, high, t)
        unfinished = full & ((excess > near) | (excess < 0.0 - near)) & (high - low > eps * top)
        if not any_lane(unfinished):
            break
        newton = t + excess / moving  # NaN if nothing moves: then the midpoint is taken
        step = where((newton > low) & (newton < high), newton, 0.5 * (low + high))
        t = where(unfinished, step, t)
    return t


@compiled
def _ascend(lanes: Any, beta: Any, weight: Any, iterations: int, pace: Any, y: Any, dual: Any, work: Any) -> None:
    """Iterations on prepared data; the last y is exactly feasible. `pace` ≤ 1 shortens the dual's steps."""
    jobs, resources = beta.shape
    zero, one = y.dtype.type(0.0), y.dtype.type(1.0)
    tiny = y.dtype.type(1e-30)
    eps = y.dtype.type(4.0) * np.finfo(y.dtype).eps
    start, kind, alpha, cell, shared = lanes.start, lanes.kind, address(lanes.alpha), lanes.cell, address(lanes.shared)
    slopes, steps, knots = address(lanes.slopes), address(lanes.steps), lanes.slopes.shape[1]
    bends = address(work.bends)
    base, room, rest, damp = address(work.base), address(work.room), address(work.rest), address(work.damp)
    tau, z, d, held = address(work.tau), address(work.z), address(work.d), address(y)
    cells, price, sums, mean, ahead, give = address(cell), work.price, work.sums, work.mean, work.z, work.d
    prices = address(price)
    mean[:] = zero
    share = one / y.dtype.type(iterations)
    for job in range(jobs):
        for k in range(resources):
            price[job * resources + k, 0] = weight[job] if weight[job] > zero else one
            price[job * resources + k, 1] = weight[job] * beta[job, k] * dual[job, k]
    price[jobs * resources, 0] = one
    price[jobs * resources, 1] = zero
    for _ in range(iterations):
        sums[:] = zero
        for b in range(kind.shape[0]):
            first = start[b]
            rows = start[b + 1] - first
            alphas, damping, capacity = load(alpha, b), load(damp, b), load(rest, b)
            fill, top = filled(held, 0.0), filled(held, 0.0)
            for i in range(rows):
                w, charge = cell_pairs(prices, shared, cells, first + i)
                now, space = load(held, first + i), load(room, first + i)
                g, h = _model(kind[b], alphas, slopes, bends, knots, steps, now)
                g = w * g - charge
                h = w * (DAMPING * h + damping)
                u = now - load(base, first + i)
                di = 1.0 / h
                zi = u + g * di
                store(d, i, di)
                store(z, i, zi)
                fill += minimum(maximum(zi, 0.0), space)
                top = maximum(top, where(space > 0.0, u * h + g, 0.0))
            t = _capacity_price(rows, first, capacity, top, fill, eps, load(tau, b), z, d, room)
            store(tau, b, t)
            for i in range(rows):
                di = load(d, i)
                free = load(z, i) - t * di
                kept = minimum(maximum(free, 0.0), load(room, first + i))
                after = load(base, first + i) + kept
                extrapolated = after + (after - load(held, first + i))
                loose = where(kept == free, di, PINNED * di)
                store(held, first + i, after)
                c = shared[first + i]
                if c >= 0:
                    sums[c, 0] += total(extrapolated)
                    sums[c, 1] += total(loose)
                else:
                    store(z, i, extrapolated)
                    store(d, i, loose)
                    for j in range(WIDTH):
                        c = cell[first + i, j]
                        sums[c, 0] += ahead[i, j]
                        sums[c, 1] += give[i, j]
        for job in range(jobs):
            w_job = weight[job]
            if w_job <= zero:
                continue
            stiff = tiny
            for k in range(resources):
                stiff = max(stiff, beta[job, k] * beta[job, k] * sums[job * resources + k, 1])
            for k in range(resources):
                dual[job, k] += pace / (w_job * stiff) * (beta[job, k] * sums[job * resources + k, 0])
            _to_simplex(dual, job)
            for k in range(resources):
                price[job * resources + k, 1] = w_job * beta[job, k] * dual[job, k]
                mean[job, k] += share * dual[job, k]
    _fit(lanes, work, y)


@compiled
def _fit(lanes: Any, work: Any, y: Any) -> None:
    """Remove the last rounding, so that Σ y ≤ c and y ≤ a hold in any order of summation."""
    start, cap, held = lanes.start, address(lanes.cap), address(y)
    base, room, rest = address(work.base), address(work.room), address(work.rest)
    for b in range(lanes.kind.shape[0]):
        first, last = start[b], start[b + 1]
        slack = np.finfo(y.dtype).eps * y.dtype.type(last - first + 2)
        above, used = filled(held, 0.0), filled(held, 0.0)
        for i in range(first, last):
            above += load(held, i) - load(base, i)
            used += load(base, i)
        target = maximum(load(rest, b) - slack * (load(rest, b) + used), 0.0)
        shrink = where(above > target, target / above, 1.0)
        for i in range(first, last):
            low = load(base, i)
            fitted = low + shrink * (load(held, i) - low)
            store(held, i, minimum(minimum(fitted, low + load(room, i)), load(cap, i)))


def maximise(
    lanes: Any, limit: Any, weight: Any, beta: Any, floor: Any, iterations: int, y: Any, dual: Any, work: Any
) -> None:
    """Improve y (N, W) and `dual` (J, K) by some iterations; y comes out exactly feasible.

    Plain Python around compiled parts, like `solve`: compiling them together would take longer than it saves.

    `limit` (B, W), `weight` (J,), `beta` (J, K), `floor` (N, W). Elements of jobs without weight get 0, their dual
    stays. y may be infeasible at the start: `recall` gives the warm start by job.
    """
    _prepare(lanes, limit, weight, beta.shape[1], floor, y, dual, work)
    _ascend(lanes, beta, weight, max(iterations, 1), y.dtype.type(1.0), y, dual, work)
    _remember(work, y)


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
    nothing: float = 1e-12,
) -> tuple[float, float, int]:
    """Ascend until (bound − value)/|bound| ≤ gap; return (value, bound, iterations), with the best y in `y`.

    Values below `nothing` count as 0.

    `dual` is left at the last one, ready for the next call. ρ shrinks between checks; if value and bound stop
    approaching each other, it grows back and the dual's steps are shortened.
    """
    _prepare(lanes, limit, weight, beta.shape[1], floor, y, dual, work)
    best, bound, previous = -np.inf, np.inf, np.inf
    done, pace, loose = 0, 1.0, 1.0
    while True:
        chunk = max(min(max(FIRST_CHECK, done // 4), max_iterations - done), 1)
        _ascend(lanes, beta, weight, chunk, y.dtype.type(pace), y, dual, work)
        done += chunk
        reached = value(lanes, weight, beta, y)
        if reached > best:
            best = reached
            work.best[:] = y
        fresh = upper_bound(lanes, limit, weight, beta, floor, dual)
        if fresh >= bound:  # the dual cycles instead of converging: its average does better
            fresh = upper_bound(lanes, limit, weight, beta, floor, work.mean)
        bound = min(bound, fresh)
        now = (bound - best) / max(abs(bound), nothing)
        if now <= gap or done >= max_iterations:
            break
        change = 1.0
        if now > STALLED * previous:
            pace = max(RELAX * pace, 0.1)
            change = 1.0 / RELAX if loose < 1.0 else 1.0
        elif loose > LOOSEST:
            change = RELAX
        loose *= change
        work.damp[:] *= y.dtype.type(change)
        previous = now
    y[:] = work.best
    _remember(work, y)
    return best, bound, done
