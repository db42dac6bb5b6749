"""Prices for gangs: an upper bound, and where tasks belong.

A **price** (G, K) is charged for every unit of a pool; the gain of a task minus its prices is its **worth**. `pull` is
u in √y = min over u of 1/(2u) + u·y/2, which linearises the root. At any prices and any pull each job is an independent
problem; the jobs' values, plus the prices of all pools and 1/(2u), are an upper bound.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.selection.kernels.gang_answers import Gangs
from berth.kernels.compiled import compiled, inlined, inner

__all__ = ["BOUND", "BOUND_PULL", "PULL", "STEP", "Prices", "improve_prices", "worths"]

LEVEL = 0.03  # target of steps below the bound, relative to it, while no answer is nearer
MEMORY = 0.04  # weight of the newest step in the averages
PATIENCE = 12  # steps without a clearly better bound before they become shorter
SHORTER = 0.7  # factor on the step length
SHORTEST = 1e-4  # smallest step length
BEND = 1.5  # weight of the last step if the next opposes it
PULL, BOUND, BOUND_PULL, STEP = 0, 1, 2, 3  # places in `Prices.reals`


class Prices(NamedTuple):
    """Prices being improved towards a small bound."""

    now: Any  # (G, K)
    best: Any  # (G, K) those of the bound
    reals: Any  # (4,) pull, bound, pull of the bound, length of steps
    order: Any  # (n,) channels of each role, best worth first
    job_worth: Any  # (J,) worth of each job at the best prices
    mean: Any  # (n,) tasks, averaged over recent steps: nearly the solution of the relaxed problem
    share: Any  # (J,) the same of starts
    fixed: Any  # (J,) 1: the job must start, −1: it must not, 0: if it pays


@compiled
def worths(gangs: Gangs, price: Any, pull: float, worth: Any) -> None:
    """Worth of a task through each channel (n,) after prices."""
    for e in range(gangs.gain.shape[0]):
        g = gangs.pool[e]
        w = gangs.gain[e] + 0.5 * pull * gangs.spread[e]
        for k in range(gangs.takes.shape[1]):
            w -= price[g, k] * gangs.takes[e, k]
        worth[e] = w


@inner
def _sort_roles(role_start: Any, worth: Any, order: Any) -> None:
    """Sort each role by worth, best first; `order` comes from the last call, so it is nearly sorted already."""
    for i in range(role_start.shape[0] - 1):
        first = role_start[i]
        for a in range(first + 1, role_start[i + 1]):
            e = order[a]
            w = worth[e]
            b = a - 1
            while b >= first and worth[order[b]] < w:
                order[b + 1] = order[b]
                b -= 1
            order[b + 1] = e


@inlined
def _starts(fixed: int, worth: float) -> bool:
    return fixed > 0 or (fixed == 0 and worth > 0.0)


@inner
def _price_jobs(gangs: Gangs, prices: Prices, worth: Any, count: Any, job_worth: Any) -> float:
    """Solve every job alone at these worths: best tasks into `count` (n,), their worth into `job_worth` (J,).

    The best channels are filled, with others up to the minimum. `count` is as if every job had to start; a job starts
    if it is worth more than 0, or if it must. Returns the sum over those that start.
    """
    order = prices.order
    _sort_roles(gangs.role_start, worth, order)
    total = 0.0
    for j in range(gangs.job_start.shape[0] - 1):
        value = 0.0
        for i in range(gangs.job_start[j], gangs.job_start[j + 1]):
            placed = 0
            for a in range(gangs.role_start[i], gangs.role_start[i + 1]):
                e = order[a]
                w = worth[e]
                n = min(gangs.cap[e], (gangs.high[i] if w > 0.0 else max(gangs.low[i], placed)) - placed)
                count[e] = n
                placed += n
                value += n * w
        job_worth[j] = value
        if _starts(prices.fixed[j], value):
            total += value
    return total


@inner
def _use(gangs: Gangs, prices: Prices, count: Any, job_worth: Any, used: Any) -> float:
    """Sum the use of the pools by started jobs into `used` (G, K); update the averages; return their spread."""
    for g in range(used.shape[0]):
        for k in range(used.shape[1]):
            used[g, k] = 0.0
    spreads = 0.0
    for j in range(gangs.job_start.shape[0] - 1):
        started = _starts(prices.fixed[j], job_worth[j])
        prices.share[j] += MEMORY * ((1.0 if started else 0.0) - prices.share[j])
        for e in range(gangs.role_start[gangs.job_start[j]], gangs.role_start[gangs.job_start[j + 1]]):
            c = float(count[e]) if started else 0.0
            prices.mean[e] += MEMORY * (c - prices.mean[e])
            spreads += prices.mean[e] * gangs.spread[e]
            if c > 0.0:
                for k in range(used.shape[1]):
                    used[gangs.pool[e], k] += c * gangs.takes[e, k]
    return spreads


@inner
def _step(gangs: Gangs, prices: Prices, used: Any, way: Any, away: float) -> bool:
    """Move the prices against the subgradient; `way` (G, K) is the last move. Return whether there was one.

    Subgradients are per whole pool, so a pool's size does not matter; at price 0 only upward ones count. If a step
    opposes the last one, bending it towards that one keeps prices from zigzagging.
    """
    free, price, slope = gangs.free, prices.now, used
    size, along, last = 0.0, 0.0, 0.0
    for g in range(free.shape[0]):
        for k in range(free.shape[1]):
            slope[g, k] = 1.0 - used[g, k] / free[g, k] if free[g, k] > 0.0 else 0.0
            if price[g, k] <= 0.0 and slope[g, k] > 0.0:
                slope[g, k] = 0.0
            size += slope[g, k] * slope[g, k]
            along += slope[g, k] * way[g, k]
            last += way[g, k] * way[g, k]
    if size <= 1e-18:
        return False
    bend = -BEND * along / last if along < 0.0 and last > 0.0 else 0.0
    size = 0.0
    for g in range(free.shape[0]):
        for k in range(free.shape[1]):
            way[g, k] = slope[g, k] + bend * way[g, k]
            size += way[g, k] * way[g, k]
    step = prices.reals[STEP] * away / max(size, 1e-12)
    for g in range(free.shape[0]):
        for k in range(free.shape[1]):
            if free[g, k] > 0.0:
                price[g, k] = max(price[g, k] - step * way[g, k] / free[g, k], 0.0)
    return True


@compiled
def improve_prices(gangs: Gangs, prices: Prices, steps: int, value: float, gap: float) -> int:
    """Take subgradient steps on the prices towards a smaller bound; return the number of steps.

    `value` is that of a known answer: no bound can be below it, and one within `gap` of it is enough.
    """
    n, resources, pools, jobs = gangs.gain.shape[0], gangs.takes.shape[1], gangs.free.shape[0], prices.share.shape[0]
    reals = prices.reals
    worth, count, job_worth = np.empty(n), np.zeros(n, dtype=np.int64), np.empty(jobs)
    used, way = np.empty((pools, resources)), np.zeros((pools, resources))
    stuck = 0
    rooted = False
    for e in range(n):
        rooted = rooted or gangs.spread[e] > 0.0
    for step in range(steps):
        pull = reals[PULL]
        worths(gangs, prices.now, pull, worth)
        bound = _price_jobs(gangs, prices, worth, count, job_worth)
        if rooted:
            bound += 0.5 / pull
        for g in range(pools):
            for k in range(resources):
                bound += prices.now[g, k] * gangs.free[g, k]
        spreads = _use(gangs, prices, count, job_worth, used)
        stuck += 1
        if bound < reals[BOUND]:
            level = max(value, (1.0 - LEVEL) * bound)
            if bound < reals[BOUND] - 0.02 * (bound - level):
                stuck = 0
            reals[BOUND], reals[BOUND_PULL] = bound, pull
            for g in range(pools):
                for k in range(resources):
                    prices.best[g, k] = prices.now[g, k]
            for j in range(jobs):
                prices.job_worth[j] = job_worth[j]
            if bound - value <= gap * abs(bound):
                return step + 1
        if stuck > PATIENCE:
            reals[STEP] *= SHORTER
            stuck = 0
            for g in range(pools):
                for k in range(resources):
                    prices.now[g, k] = prices.best[g, k]
                    way[g, k] = 0.0
            reals[PULL] = reals[BOUND_PULL]
            if reals[STEP] < SHORTEST:
                return step + 1
            continue
        level = max(value, (1.0 - LEVEL) * reals[BOUND])
        moved = _step(gangs, prices, used, way, bound - level)
        if not moved and not rooted:
            return step + 1
        if rooted:
            # the best pull is 1/√spreads; it diverges for few tasks, so its growth is limited
            reals[PULL] = pull + 0.1 * (min(1.0 / np.sqrt(max(spreads, 1e-300)), 10.0 * pull) - pull)
    return steps
