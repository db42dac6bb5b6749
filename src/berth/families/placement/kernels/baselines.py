"""Placement by a fixed preference of servers, and the gain of whole assignments, for the papers' baselines.

Axes: n tasks, R servers, K resources, G generations, M assignments.
"""

from __future__ import annotations

from typing import Any

from berth.families.placement.kernels.greedy import Batch, Servers, fits, load, score_at
from berth.kernels.compiled import lean


@lean
def place_preferred(
    batch: Batch,
    order: Any,
    servers: Servers,
    now: float,
    paying: bool,
    on_key: Any,
    off_key: Any,
    opened: Any,
    free: Any,
    on: Any,
    chosen: Any,
) -> None:
    """Place tasks in `order`, each on the fitting server with the smallest key; `chosen` (n,) gets a server or -1.

    Servers that are `on` (R,) come first, by `on_key` (R,), then the others by `off_key` (R,). A launched server gets
    `opened[0]` as its key, if that is ≥ 0, which then rises. With `paying` a task goes only where its value exceeds the
    cost of running it. Changes `free` (R, K), `on` and `on_key`.
    """
    for i in order:
        heavy = load(servers.weight, batch.demand, i)
        best = -1
        for r in range(servers.speed.shape[0]):
            if not fits(batch.demand, i, free, servers.capacity, r):
                continue
            if paying and score_at(batch, i, heavy, servers.speed[r], servers.rate[r], 0.0, now) <= 0.0:
                continue
            if best >= 0 and (on[best] > on[r]):
                continue
            if best < 0 or on[r] > on[best]:
                best = r
            elif on[r]:
                if on_key[r] < on_key[best]:
                    best = r
            elif off_key[r] < off_key[best]:
                best = r
        chosen[i] = best
        if best >= 0:
            for k in range(free.shape[1]):
                free[best, k] -= batch.demand[i, k]
            if not on[best]:
                on[best] = True
                if opened[0] >= 0:
                    on_key[best] = opened[0]
                    opened[0] += 1


@lean
def assignment_gain(
    batch: Batch, genes: Any, m: int, servers: Servers, now: float, on: Any, free: Any, left: Any, used: Any
) -> float:
    """Immediate gain of assignment m (a server for each task, in turn); a task that does not fit gains nothing.

    `left` (R, K) and `used` (R,) are scratch; `used` must be false, and is so again afterwards.
    """
    total = 0.0
    for i in range(genes.shape[1]):
        r = genes[m, i]
        if not used[r]:
            for k in range(free.shape[1]):
                left[r, k] = free[r, k]
        if not fits(batch.demand, i, left, servers.capacity, r):
            continue
        heavy = load(servers.weight, batch.demand, i)
        total += score_at(batch, i, heavy, servers.speed[r], servers.rate[r], 0.0, now)
        if not used[r] and not on[r]:
            total -= servers.launch[r]
        used[r] = True
        for k in range(free.shape[1]):
            left[r, k] -= batch.demand[i, k]
    for i in range(genes.shape[1]):
        used[genes[m, i]] = False
    return total


@lean
def evolve(
    batch: Batch,
    servers: Servers,
    now: float,
    on: Any,
    free: Any,
    draws: Any,
    crossover: float,
    mutation: float,
    genes: Any,
    next_genes: Any,
    gains: Any,
    left: Any,
    used: Any,
) -> None:
    """Evolve assignments `genes` (M, n) for G generations; the best of the last comes first.

    Each child has the better of two random parents; with probability `crossover` another such parent gives it all genes
    from a random position on; with probability `mutation` one random gene is redrawn. The best assignment stays.
    `draws` (G, M, 9) are uniform.
    """
    population, size = genes.shape
    servers_number = servers.speed.shape[0]
    for m in range(population):
        gains[m] = assignment_gain(batch, genes, m, servers, now, on, free, left, used)
    for g in range(draws.shape[0] + 1):
        best = 0
        for m in range(population):
            if gains[m] > gains[best]:
                best = m
        for i in range(size):
            next_genes[0, i] = genes[best, i]
        if g == draws.shape[0]:
            for i in range(size):
                genes[0, i] = next_genes[0, i]
            break
        for m in range(1, population):
            a, b = int(draws[g, m, 0] * population), int(draws[g, m, 1] * population)
            parent = a if gains[a] >= gains[b] else b
            a, b = int(draws[g, m, 2] * population), int(draws[g, m, 3] * population)
            other = a if gains[a] >= gains[b] else b
            cut = size
            if draws[g, m, 4] < crossover:
                cut = int(draws[g, m, 5] * size)
            for i in range(size):
                next_genes[m, i] = genes[parent if i < cut else other, i]
            if draws[g, m, 6] < mutation:
                next_genes[m, int(draws[g, m, 7] * size)] = int(draws[g, m, 8] * servers_number)
        for m in range(population):
            for i in range(size):
                genes[m, i] = next_genes[m, i]
            gains[m] = assignment_gain(batch, genes, m, servers, now, on, free, left, used)


@lean
def decode(batch: Batch, genes: Any, servers: Servers, now: float, free: Any, chosen: Any) -> None:
    """Decode the first assignment: `chosen` (n,) gets the server if the task fits, else -1."""
    for i in range(genes.shape[1]):
        r = genes[0, i]
        chosen[i] = -1
        if fits(batch.demand, i, free, servers.capacity, r):
            chosen[i] = r
            for k in range(free.shape[1]):
                free[r, k] -= batch.demand[i, k]
