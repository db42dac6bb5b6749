"""Twins of the allocation kernels.

First in plain Python, to be read next to the papers: sequences and loops over l, r, k. Then one slot in
vectorised NumPy, the peer that benchmarks compare with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]


class Graph(NamedTuple):
    """An allocation problem as plain arrays: E channels sorted by server, J jobs, R servers, K resources."""

    server_start: NDArray[np.int64]  # (R+1,)
    channel_job: NDArray[np.int64]  # (E,)
    cap: NDArray[np.float64]  # (E, K)
    capacity: NDArray[np.float64]  # (R, K)
    kind: NDArray[np.int64]  # (R, K) utility codes
    alpha: NDArray[np.float64]  # (R, K)
    beta: NDArray[np.float64]  # (J, K)

    @property
    def channel_server(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.server_start) - 1), np.diff(self.server_start))


# ---------------------------------------------------------------------------- projections of one segment


def project_exact(z: Sequence[Any], cap: Sequence[Any], capacity: Any) -> list[Any]:
    """The nearest y with 0 ≤ y ≤ a and Σ y ≤ c, by sorting the bends of Σ clip(z − τ, 0, a).

    Works on any numbers that add and divide, so also on fractions.
    """
    zero = capacity * 0
    if capacity <= 0:
        return [zero for _ in z]
    clipped = [min(max(zi, zero), ai) for zi, ai in zip(z, cap, strict=True)]
    if sum(clipped) <= capacity:
        return clipped
    # the sum at τ is Σ s (p − τ) over the bends p > τ, with s = 1 where an entry leaves 0, −1 where it meets its cap
    bends = [(zi, 1) for zi, ai in zip(z, cap, strict=True) if ai > 0]
    bends += [(zi - ai, -1) for zi, ai in zip(z, cap, strict=True) if ai > 0]
    bends.sort(key=lambda bend: bend[0], reverse=True)
    constant, slope = zero, 0
    high, low = bends[0][0], zero
    for place, sign in bends:
        if place <= 0 or constant - slope * place >= capacity:
            low = max(place, zero)
            break
        high = place
        constant += sign * place
        slope += sign
    # between low and high nothing bends: who is at the cap, who moves
    capped = [ai > 0 and zi - ai >= high for zi, ai in zip(z, cap, strict=True)]
    moving = [ai > 0 and zi >= high and zi - ai < high for zi, ai in zip(z, cap, strict=True)]
    count = sum(moving)
    if count == 0:  # rounding: the whole change happens at one place
        tau = high
    else:
        wanted = [ai if at_cap else zi for zi, ai, at_cap in zip(z, cap, capped, strict=True)]
        held = [w for w, at_cap, moves in zip(wanted, capped, moving, strict=True) if at_cap or moves]
        tau = (sum(held) - capacity) / count
        tau = min(max(tau, low), high)
    return [min(max(zi - tau, zero), ai) for zi, ai in zip(z, cap, strict=True)]


def project_printed(z: Sequence[float], cap: Sequence[float], capacity: float, zero_dropped: bool) -> list[float]:
    """Lines 7-31 of Algorithm 1 with sets, as printed but for the repairs in
    `berth.families.allocation.kernels.printed`."""
    ports = sorted(range(len(z)), key=lambda port: -z[port])
    y = [0.0] * len(z)
    if not ports:
        return y
    first = True
    while True:
        b2: set[int] = set()
        if first:
            b1: set[int] = set()
            b3 = set(ports)
        elif y[ports[0]] > cap[ports[0]]:
            b1 = {ports[0]}
            b3 = set(ports) - b1
        else:
            break
        while True:
            dropped: set[int] = set()
            rho = 0.0
            if b3:
                level = sum(cap[p] for p in ports if p in b1) + sum(z[p] for p in ports if p in b3)
                rho = 2.0 / len(b3) * (level - capacity)
            for place, port in enumerate(ports):
                if port in b1:
                    y[port] = cap[port]
                elif port in b3:
                    y[port] = z[port] - rho / 2.0
                    if y[port] < 0.0:
                        dropped = set(ports[place:])
                        break
            b3 -= dropped
            b2 |= dropped
            if zero_dropped:
                for port in b2:
                    y[port] = 0.0
            if not dropped:
                break
        first = False
    return y


def project_decision(graph: Graph, z: Floats, printed: bool = False, zero_dropped: bool = False) -> NDArray[np.float64]:
    """Project every segment of a decision (E, K), exactly or as printed."""
    y = np.zeros(graph.cap.shape)
    for r, (first, last) in enumerate(zip(graph.server_start[:-1], graph.server_start[1:], strict=True)):
        for k in range(graph.cap.shape[1]):
            zs, caps, capacity = z[first:last, k].tolist(), graph.cap[first:last, k].tolist(), graph.capacity[r, k]
            if printed:
                y[first:last, k] = project_printed(zs, caps, float(capacity), zero_dropped)
            else:
                y[first:last, k] = project_exact(zs, caps, float(capacity))
    return y


# ------------------------------------------------------------------------------------- reward and gradient


def utility(kind: int, alpha: float, y: float) -> float:
    """Eq. (51); the four utilities of the papers."""
    if kind == 0:
        return alpha * y
    if kind == 1:
        return alpha * math.log(y + 1.0)
    if kind == 2:
        return 1.0 / alpha - 1.0 / (y + alpha)
    return alpha * math.sqrt(y + 1.0) - alpha


def slope(kind: int, alpha: float, y: float) -> float:
    if kind == 0:
        return alpha
    if kind == 1:
        return alpha / (y + 1.0)
    if kind == 2:
        return 1.0 / (y + alpha) ** 2
    return 0.5 * alpha / math.sqrt(y + 1.0)


def totals(graph: Graph, y: Floats) -> list[list[float]]:
    """Σ_r y by job and resource."""
    sums = [[0.0] * graph.beta.shape[1] for _ in range(graph.beta.shape[0])]
    for row, job in zip(y.tolist(), graph.channel_job.tolist(), strict=True):
        for k, value in enumerate(row):
            sums[job][k] += value
    return sums


def reward(graph: Graph, arrivals: Sequence[float], y: Floats) -> float:
    """Σ_l x_l (Σ_r Σ_k f − max_k β_k Σ_r y)."""
    kind, alpha, beta = graph.kind.tolist(), graph.alpha.tolist(), graph.beta.tolist()
    gained = 0.0
    for r, row, job in zip(graph.channel_server.tolist(), y.tolist(), graph.channel_job.tolist(), strict=True):
        if arrivals[job] != 0.0:
            for k, value in enumerate(row):
                gained += arrivals[job] * utility(kind[r][k], alpha[r][k], max(value, 0.0))
    for job, sums in enumerate(totals(graph, y)):
        gained -= arrivals[job] * max(b * s for b, s in zip(beta[job], sums, strict=True))
    return gained


def gradient(graph: Graph, arrivals: Sequence[float], y: Floats) -> NDArray[np.float64]:
    """Eq. (30), (E, K)."""
    kind, alpha, beta = graph.kind.tolist(), graph.alpha.tolist(), graph.beta.tolist()
    dominant = []
    for job, sums in enumerate(totals(graph, y)):
        overheads = [b * s for b, s in zip(beta[job], sums, strict=True)]
        dominant.append(overheads.index(max(overheads)))
    g = []
    for r, row, job in zip(graph.channel_server.tolist(), y.tolist(), graph.channel_job.tolist(), strict=True):
        slopes = [arrivals[job] * slope(kind[r][k], alpha[r][k], max(value, 0.0)) for k, value in enumerate(row)]
        slopes[dominant[job]] -= arrivals[job] * beta[job][dominant[job]]
        g.append(slopes)
    return np.array(g).reshape(graph.cap.shape)


# ------------------------------------------------------------------------------------- one slot in NumPy


class NumpySlot:
    """Reward, gradient and exact projection without a Python loop over servers, ports or resources.

    One row per segment that can hold anything, padded to the longest; rows sorted by utility. The
    projection sorts the bends of each row that is over its capacity and reads τ from cumulative sums.
    """

    def __init__(self, graph: Graph) -> None:
        jobs, self.resources = graph.beta.shape
        self.beta = graph.beta
        e, k = np.nonzero((graph.cap > 0) & (graph.capacity[graph.channel_server] > 0))
        segment = graph.channel_server[e] * self.resources + k
        used, row, size = np.unique(segment, return_inverse=True, return_counts=True)
        order = np.argsort(graph.kind.reshape(-1)[used], kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        row, used = place[row], used[order]
        rank = np.empty(len(e), dtype=np.int64)
        by_row = np.lexsort((e, row))
        rank[by_row] = np.arange(len(e)) - np.searchsorted(row[by_row], row[by_row])
        shape = (len(used), int(size.max(initial=0)))
        self.cap = np.zeros(shape)
        self.cap[row, rank] = graph.cap[e, k]
        self.cell = np.full(shape, jobs * self.resources)
        self.cell[row, rank] = graph.channel_job[e] * self.resources + k
        self.element = (row, rank, e, k)
        self.capacity = graph.capacity.reshape(-1)[used]
        self.alpha = graph.alpha.reshape(-1)[used][:, None]
        edges = np.searchsorted(graph.kind.reshape(-1)[used], np.arange(5))
        self.of_kind = [slice(edges[code], edges[code + 1]) for code in range(4)]
        self.y = np.zeros(shape)

    def reward_and_gradient(self, arrivals: Floats) -> tuple[float, Floats]:
        y, cells = self.y, self.beta.size
        sums = np.bincount(self.cell.ravel(), weights=y.ravel(), minlength=cells + 1)
        overheads = self.beta * sums[:-1].reshape(self.beta.shape)
        dominant = overheads.argmax(axis=1)
        jobs = np.arange(len(dominant))
        overhead = float(arrivals @ overheads[jobs, dominant])
        weight = np.zeros(cells + 1)
        weight[:-1] = np.repeat(arrivals, self.resources)
        price = np.zeros(cells + 1)
        price[jobs * self.resources + dominant] = arrivals * self.beta[jobs, dominant]
        value, marginal = np.empty_like(y), np.empty_like(y)
        linear, log, reciprocal, poly = self.of_kind
        value[linear] = self.alpha[linear] * y[linear]
        marginal[linear] = self.alpha[linear]
        shifted = y[log] + 1.0
        value[log] = self.alpha[log] * np.log(shifted)
        marginal[log] = self.alpha[log] / shifted
        inverse = 1.0 / (y[reciprocal] + self.alpha[reciprocal])
        value[reciprocal] = 1.0 / self.alpha[reciprocal] - inverse
        marginal[reciprocal] = inverse * inverse
        root = np.sqrt(y[poly] + 1.0)
        value[poly] = self.alpha[poly] * (root - 1.0)
        marginal[poly] = 0.5 * self.alpha[poly] / root
        weights = weight[self.cell]
        return float((weights * value).sum()) - overhead, weights * marginal - price[self.cell]

    def project(self, z: Floats) -> Floats:
        y = np.clip(z, 0.0, self.cap)
        full = np.flatnonzero(y.sum(axis=1) > self.capacity)
        if len(full):
            zs, caps, capacity = z[full], self.cap[full], self.capacity[full]
            bends = np.concatenate([zs, zs - caps], axis=1)
            order = np.argsort(-bends, axis=1)
            sign = np.where(order < zs.shape[1], 1.0, -1.0)
            bends = np.take_along_axis(bends, order, axis=1)
            constant = np.cumsum(sign * bends, axis=1)
            count = np.cumsum(sign, axis=1)
            # Σ at the next bend, τ = 0 after the last: the first that reaches c ends the piece that holds τ
            ends = np.concatenate([bends[:, 1:], np.zeros((len(full), 1))], axis=1)
            ends = np.maximum(ends, 0.0)
            piece = (constant - count * ends >= capacity[:, None]).argmax(axis=1)
            rows = np.arange(len(full))
            moving = np.maximum(count[rows, piece], 1.0)
            tau = (constant[rows, piece] - capacity) / moving
            tau = np.clip(tau, ends[rows, piece], bends[rows, piece])
            y[full] = np.clip(zs - tau[:, None], 0.0, caps)
        return y

    def step(self, arrivals: Floats, eta: float) -> float:
        """The reward of the present decision, and a projected step from it."""
        value, g = self.reward_and_gradient(arrivals)
        self.y = self.project(self.y + eta * g)
        return value

    def decision(self, shape: tuple[int, int]) -> NDArray[np.float64]:
        out = np.zeros(shape)
        row, rank, e, k = self.element
        out[e, k] = self.y[row, rank]
        return out


def random_graph(
    rng: np.random.Generator, jobs: int, servers: int, resources: int, most: int, zeros: float = 0.2
) -> Graph:
    """Up to `most` channels a server (some servers may have none); a share `zeros` of caps and capacities is 0."""
    degree = rng.integers(0, min(most, jobs) + 1, servers)
    channel_job = [np.sort(rng.choice(jobs, size=d, replace=False)) for d in degree]
    start = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
    channels = int(start[-1])
    return Graph(
        start,
        np.concatenate([*channel_job, np.zeros(0, np.int64)]).astype(np.int64),
        np.where(rng.random((channels, resources)) < zeros, 0.0, rng.uniform(0.1, 4.0, (channels, resources))),
        np.where(rng.random((servers, resources)) < zeros, 0.0, rng.uniform(0.5, 6.0, (servers, resources))),
        rng.integers(0, 4, (servers, resources)),
        rng.uniform(1.0, 1.5, (servers, resources)),
        rng.uniform(0.3, 0.5, (jobs, resources)),
    )
