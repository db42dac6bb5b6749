"""A slow referee for the ascent: linear programmes with tangents in place of the concave utilities.

Every tangent lies above its utility, so that the programme's optimum is an upper bound, and the true
value of its solution a lower one. A new tangent at each solution brings the two together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from tests.reference.allocation import Graph

Floats = NDArray[np.float64]
Tables = tuple[Floats, Floats, Floats]  # slopes (U, M), values (U, M), steps (U,)


def utility_and_slope(kind: int, alpha: float, y: float, tables: Tables) -> tuple[float, float]:
    """f(y) and f'(y) for one element."""
    if kind == 0:
        return alpha * y, alpha
    if kind == 1:
        return alpha * np.log1p(y), alpha / (y + 1.0)
    if kind == 2:
        return 1.0 / alpha - 1.0 / (y + alpha), (y + alpha) ** -2.0
    if kind == 3:
        return alpha * (np.sqrt(y + 1.0) - 1.0), 0.5 * alpha / np.sqrt(y + 1.0)
    slopes, step = tables[0][kind - 4], tables[2][kind - 4]
    knots = step * np.arange(len(slopes))
    slope = float(np.interp(y, knots, slopes))
    # the slope is linear between knots: trapezia up to y are exact
    places = np.append(knots[knots < y], y)
    heights = np.interp(places, knots, slopes)
    area = float(np.sum(0.5 * (heights[1:] + heights[:-1]) * np.diff(places)))
    return alpha * area, alpha * slope


def objective(graph: Graph, weight: Any, y: Any, tables: Tables) -> float:
    """F of a decision (E, K)."""
    total = 0.0
    sums = np.zeros(graph.beta.shape)
    for e, (server, job) in enumerate(zip(graph.channel_server, graph.channel_job, strict=True)):
        for k in range(graph.cap.shape[1]):
            f, _ = utility_and_slope(graph.kind[server, k], graph.alpha[server, k], y[e, k], tables)
            total += weight[job] * f
            sums[job, k] += y[e, k]
    return float(total - (np.asarray(weight) * (graph.beta * sums).max(axis=1)).sum())


def best_allocation(
    graph: Graph, weight: Any, floor: Any, tables: Tables, gap: float = 1e-7, rounds: int = 60
) -> tuple[Floats, float, float]:
    """(y, value, bound) with bound − value ≤ gap·max(bound, 1), or as close as the rounds brought them."""
    channels, resources = graph.cap.shape
    jobs, servers = len(graph.beta), len(graph.server_start) - 1
    size = channels * resources
    server, job = np.repeat(graph.channel_server, resources), np.repeat(graph.channel_job, resources)
    k = np.tile(np.arange(resources), channels)
    w = np.asarray(weight, dtype=np.float64)
    kinds, alphas = graph.kind[server, k], graph.alpha[server, k]
    present = (w[job] > 0) & (graph.capacity[server, k] > 0)
    high = np.where(present, graph.cap.reshape(-1), 0.0)
    low = np.where(present, np.asarray(floor, dtype=np.float64).reshape(-1), 0.0)
    # variables: y (size), utilities v (size), overheads m (jobs)
    cost = np.concatenate([np.zeros(size), -w[job], w])
    places = np.arange(size)
    segment, cell = server * resources + k, job * resources + k
    segments, cells = servers * resources, jobs * resources
    rows = np.concatenate([segment, segments + cell, segments + np.arange(cells)])
    columns = np.concatenate([places, places, 2 * size + np.arange(cells) // resources])
    entries = np.concatenate([np.ones(size), graph.beta[job, k], -np.ones(cells)])
    right = [np.concatenate([graph.capacity.reshape(-1), np.zeros(cells)])]
    made = segments + cells
    bounds: Any = [*zip(low, high, strict=True), *[(None, None)] * size, *[(0.0, None)] * jobs]
    points = [low + share * (high - low) for share in (0.0, 0.1, 0.3, 0.6, 1.0)]
    best, best_value, bound = low.reshape(channels, resources), -np.inf, np.inf
    for _ in range(rounds):
        for point in points:
            pairs = [utility_and_slope(kinds[i], alphas[i], point[i], tables) for i in range(size)]
            f, slope = (np.array(part, dtype=np.float64) for part in zip(*pairs, strict=True))
            rows = np.concatenate([rows, made + places, made + places])
            columns = np.concatenate([columns, places, size + places])
            entries = np.concatenate([entries, -slope, np.ones(size)])
            right.append(f - slope * point)
            made += size
        matrix: Any = csr_matrix((entries, (rows, columns)), shape=(made, 2 * size + jobs))
        found: Any = linprog(cost, A_ub=matrix, b_ub=np.concatenate(right), bounds=bounds, method="highs")
        assert found.success, found.message
        y = np.clip(found.x[:size], low, high)
        reached = objective(graph, w, y.reshape(channels, resources), tables)
        if reached > best_value:
            best, best_value = y.reshape(channels, resources), reached
        bound = min(bound, -float(found.fun))
        if bound - best_value <= gap * max(abs(bound), 1.0):
            break
        points = [y]
    return best, best_value, bound
