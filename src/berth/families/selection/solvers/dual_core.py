"""Solve by prices, then search the few channels that prices leave open: for real capacities and many channels.

One pool: prices λ of resources and the slope u of √ minimise the bound D(u, λ); channels with a clear reduced gain r
are settled, and the rest searched (see `berth.families.selection.kernels.knapsack`). Several pools: for a fixed u every
pool is independent, so only u couples them, and the bound is min_u 1/(2u) + Σ_pools max_x …. A few small pools are
enumerated and combined, which is exact; otherwise every pool is solved by itself, in threads, for a few values of u.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from berth.errors import InvalidInput
from berth.families.selection.kernels.knapsack import arrange, reduce
from berth.families.selection.kernels.knapsack_core import Items, improve
from berth.families.selection.kernels.knapsack_each import solve_each
from berth.families.selection.kernels.knapsack_pools import best_slope, combine, fronts
from berth.families.selection.kernels.knapsack_prices import interior
from berth.families.selection.solvers.dynamic import NUMBERS, worth, writable
from berth.families.selection.solvers.question import Choice, Question
from berth.kernels.threads import each_part
from berth.model import Floats, Ints

__all__ = ["dual_core"]

EFFORT = 200_000  # entries visited in one search: a few milliseconds
ENDLESS = 1 << 62
SMALL = 12  # largest pool that is enumerated, in channels; up to four more if few pools have them
SUBSETS = 1 << 19
LABELS = 200_000  # partial sums kept when pools are combined
CLOSE = 1e-7  # relative tolerance of prices
FIRST = 16  # channels nearest to the margin that a search begins with
SIEVE = 6000  # from this many channels on, prices come from a sample and the channels near the margin
SAMPLE = 1200
MARGIN = 1200
ATTEMPTS = 4
PARTS = 64  # of several pools, for threads
SLOPES = 8  # most values of u for several pools
EACH, LEAST = 50_000, 1000  # entries visited in the search of one of several pools: by default, and at least


class Active(NamedTuple):
    """Channels that can be opened at all, sorted by pool; demands are shares of the pool's capacity."""

    channel: Ints
    gain: Floats
    spread: Floats
    takes: Floats
    start: Ints  # (pools + 1,) start of each pool that has such channels
    scale: float  # gains are divided by it, spreads by its square


def active_channels(question: Question) -> Active:
    """Drop channels that cannot fit or cannot pay; scale gains to at most 1, and demands to capacities 1."""
    n, resources = question.takes.shape
    channel, v, q = np.empty(n, dtype=np.int64), np.empty(n), np.empty(n)
    share, start = np.empty((n, resources)), np.empty(len(question.free) + 1, dtype=np.int64)
    count, pools, scale = arrange(
        writable(question.gain),
        writable(question.spread),
        writable(question.takes),
        np.array(question.pool, dtype=np.int64),
        writable(question.free),
        channel,
        v,
        q,
        share,
        start,
    )
    if count < 0:
        raise InvalidInput(NUMBERS)
    return Active(channel[:count], v[:count], q[:count], share[:count], start[: pools + 1], scale)


def prices(gain: Floats, spread: Floats, takes: Floats, tolerance: float) -> tuple[float, Floats]:
    """u and λ (K,) of one knapsack with capacities 1.

    Most of many channels are far from the margin. Prices of a sample show which; those are settled, and the exact
    prices computed on the rest.
    """
    n, resources = takes.shape
    price = np.zeros((1, resources))
    if n > SIEVE:
        # by hashed index: no order of the channels can bias the sample; it represents all channels, so its demands and
        # gains count n / size times
        sample = np.flatnonzero((np.arange(n) * 2654435761 >> 11) % (n // SAMPLE) == 0)
        more = n / max(len(sample), 1)
        u = _interior(
            more * gain[sample], more * spread[sample], more * takes[sample], np.ones(resources), 0.0, 1e-4, price
        )
        reduced, near = np.empty(n), MARGIN
        for _ in range(ATTEMPTS):
            reduce(gain, spread, takes, u, price[0], reduced)
            distance = np.abs(reduced)
            settled = distance > np.partition(distance, near)[near]
            opened = settled & (reduced > 0.0)
            free = 1.0 - takes[opened].sum(axis=0)
            if free.min() <= 0.0:  # settled too much
                near = min(2 * near, n - 1)
                continue
            rest = np.flatnonzero(~settled)
            u = _interior(gain[rest], spread[rest], takes[rest], free, float(spread[opened].sum()), tolerance, price)
            moved = gain + 0.5 * u * spread - takes @ price[0]
            wrong = settled & ((moved > 0.0) != opened)
            if not (np.abs(moved[wrong]) > 1e-3 * tolerance * n).any():
                return u, price[0]
    return _interior(gain, spread, takes, np.ones(resources), 0.0, tolerance, price), price[0]


def _interior(
    gain: Floats, spread: Floats, takes: Floats, free: Floats, settled: float, tolerance: float, price: Floats
) -> float:
    return interior(gain, spread, takes, np.array([0, len(gain)]), free[None].copy(), settled, tolerance, price)


def _one(gain: Floats, spread: Floats, takes: Floats, gap: float, effort: int) -> tuple[Ints, float]:
    """Tasks and bound of one knapsack with capacities 1."""
    u, price = prices(gain, spread, takes, min(CLOSE, max(gap * 1e-2, 1e-9)))
    reduced = np.empty(len(gain))
    dual = reduce(gain, spread, takes, u, price, reduced)
    tasks = np.zeros(len(gain), dtype=np.int64)
    first = min(FIRST, len(gain)) - 1
    budget = float(np.partition(np.abs(reduced), first)[first])
    items = Items(gain, spread, takes, reduced, price)
    bound, _ = improve(items, np.argsort(-reduced), dual, budget, gap, effort, tasks)
    return tasks, bound


def _small_pools(active: Active, gap: float) -> tuple[Ints, float]:
    """Enumerate every pool, then combine."""
    begin, gain, spread, bits = fronts(active.gain, active.spread, active.takes, active.start)
    u, dual = best_slope(begin, gain, spread)
    pick = np.zeros(len(active.start) - 1, dtype=np.int64)
    bound, _ = combine(begin, gain, spread, u, dual, gap, LABELS, pick)
    place = np.arange(len(active.gain)) - np.repeat(active.start[:-1], np.diff(active.start))
    return (np.repeat(bits[pick], np.diff(active.start)) >> place) & 1, bound


def _apart(active: Active, gap: float, effort: int) -> tuple[Ints, float, bool]:
    """Solve every pool by itself for gains + u/2 · spreads, in threads, and adjust u to the spread of the choice.

    Every u gives a bound: 1/(2u) and the bounds of the pools. The best u is 1/√y, with y the spread of the choice.
    `effort` limits the search of one pool. Returns the tasks, a bound, and whether they are within `gap`.
    """
    used = np.add.reduceat(active.takes, active.start[:-1]).max(axis=1)
    fit = np.repeat(1.0 / np.maximum(used, 1.0), np.diff(active.start))
    y = float((fit * active.spread).sum())  # of about the share that fits
    tasks, value, bound = np.zeros(len(active.gain), dtype=np.int64), 0.0, np.inf
    for _ in range(SLOPES):
        u = 1.0 / math.sqrt(y) if y > 0.0 else 0.0  # without any spread there is no root
        chosen, total = _at_slope(active, u, 0.1 * gap, effort)
        opened, before = chosen > 0, bound - value
        y = float(active.spread[opened].sum())
        reached = float(active.gain[opened].sum()) + math.sqrt(y)
        bound = min(bound, total + (0.5 / u if u > 0.0 else 0.0))
        if reached > value:
            tasks, value = chosen, reached
        if bound - value <= gap * bound or bound - value > 0.9 * before or (u > 0.0 and y <= 0.0):
            break
    return tasks, bound, bound - value <= gap * bound


def _at_slope(active: Active, u: float, gap: float, effort: int) -> tuple[Ints, float]:
    """Tasks of all pools for gains + u/2 · spreads, and the sum of their bounds.

    The parts of the work depend on the channels alone, and no pool on another: threads change no number.
    """
    pools = len(active.start) - 1
    edges = np.searchsorted(active.start, np.linspace(0, active.start[-1], min(pools, PARTS) + 1))
    gains, bounds = active.gain + 0.5 * u * active.spread, np.empty(pools)
    tasks = np.zeros(len(gains), dtype=np.int64)

    def part(number: int) -> None:
        first, last = edges[number], edges[number + 1]
        solve_each(gains, active.takes, active.start, first, last, gap, effort, tasks, bounds)

    list(each_part(part, len(edges) - 1))
    return tasks, float(bounds.sum())


def dual_core(question: Question, gap: float = 1e-4, effort: int | None = None) -> Choice:
    """Find a choice and a bound within `gap` of each other, or as close as `effort` allows.

    `effort` counts entries visited by the search, 200 000 by default, or 50 000 for each of several pools. With gap=0
    the default is no limit: one pool, or pools of at most 12 channels each, are then solved exactly (several larger
    pools keep a gap from the root).

    >>> rng = np.random.default_rng(0)
    >>> question = Question(
    ...     rng.random(300), rng.random(300) / 50, rng.random((300, 2)), np.zeros(300, dtype=np.int64),
    ...     np.full((1, 2), 40.0),
    ... )
    >>> choice = dual_core(question)
    >>> question.fits(choice.tasks), choice.gap < 1e-3
    (True, True)
    """
    tasks = np.zeros(len(question.gain), dtype=np.int64)
    active = active_channels(question)
    if not len(active.channel):
        return Choice(tasks, 0.0, 0.0)
    limit = (ENDLESS if gap <= 0.0 else EFFORT) if effort is None else effort
    sizes = np.diff(active.start)
    few = np.exp2(np.minimum(sizes, 62)).sum() <= SUBSETS
    if sizes.max() <= (SMALL + 4 if few else SMALL if gap <= 0.0 else 0):
        found, bound = _small_pools(active, gap)
    elif len(sizes) == 1:
        found, bound = _one(active.gain, active.spread, active.takes, gap, limit)
    else:
        each = EACH if effort is None and gap > 0.0 else max(limit // len(sizes), LEAST)
        found, bound, close = _apart(active, gap, each)
        if not close and sizes.max() <= SMALL:
            found, bound = _small_pools(active, gap)
    tasks[active.channel] = found
    value = worth(question, tasks)
    if value < 0.0:  # opening nothing is always allowed
        tasks, value = np.zeros_like(tasks), 0.0
    return Choice(tasks, value, max(bound * active.scale, value))
