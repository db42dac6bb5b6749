"""The reservation index: the additive model behind it, and up to which sure gain a channel is worth a try.

Axes: E channels, L ports, V levels of the model, S groups of all levels, B bins, N steps of a table.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.kernels.compiled import compiled

SEEN = 1e-6  # weight of observations from which a channel counts as opened: only discounting gets below
BINS = 512  # of the pool of residuals
OCTAVES = 60  # that the table of ψ spans: H from 2⁻²⁰ to 2⁴⁰
LOWEST = -20
STEPS = 32  # of an octave: ψ is within 1e-4 of the root


@compiled
def standard_values(table: Any) -> None:
    """Fill (N,) with ψ(H), H = 2^(LOWEST + i / STEPS): the root of H·(φ(ψ) − ψ·(1 − Φ(ψ))) = ψ.

    It is what a draw from a standard normal is worth trying for, when it can then be used H times. Left of the root
    the function is convex and falls, so that Newton's steps come from below and never pass it.
    """
    x = 0.0
    for i in range(table.shape[0]):  # ψ grows with H: each root begins where the last one ended
        h = 2.0 ** (LOWEST + i / STEPS)
        for _ in range(50):
            beyond = 0.5 * math.erfc(x / math.sqrt(2.0))
            excess = math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi) - x * beyond
            step = (h * excess - x) / (h * beyond + 1.0)
            x += step
            if step < 1e-12:
                break
        table[i] = x


@compiled
def shrunk_noise(squares: Any, pulls: Any, usual: Any, weight: Any, noise: Any) -> None:
    """The variance of a gain in each channel: its own, with `weight` observations of the median of all channels.

    Where no channel was opened twice the median is `usual`.
    """
    known = np.empty(squares.shape[0])
    many = 0
    for e in range(squares.shape[0]):
        if pulls[e] >= 1.5:
            known[many] = squares[e] / (pulls[e] - 1.0)
            many += 1
    median = np.median(known[:many]) if many else usual
    for e in range(squares.shape[0]):
        noise[e] = (squares[e] + weight * median) / (max(pulls[e] - 1.0, 0.0) + weight)


@compiled
def fit_levels(
    group: Any,
    first: Any,
    count: Any,
    mean: Any,
    noise: Any,
    weight: Any,
    pseudo: Any,
    sweeps: Any,
    effect: Any,
    spread: Any,
    prior: Any,
    trust: Any,
) -> Any:
    """Fit mean gains by a sum of effects, one of each level, and return the variance of what is left of a channel.

    `group` (V, E) says which of the groups a channel is in at each level, `first` (V + 1,) which groups are of a level.
    The first level has one group, the mean of all, which is not shrunk; the others shrink to zero with `weight`
    channels. `trust` (E,) becomes the share of a channel's deviation that is not luck: a channel counts for that much.
    `effect` (S,), `prior` (E,), the sum of a channel's effects, and `spread` go on from the last call: a few sweeps of
    least squares, level by level, are enough for what has changed since. The variance is that of one round of EM, with
    `pseudo` as one channel more.
    """
    channels = mean.shape[0]
    total, share = np.empty(effect.shape[0]), np.empty(effect.shape[0])
    for _ in range(sweeps):
        for e in range(channels):
            trust[e] = spread / (spread + noise[e] / count[e]) if count[e] >= SEEN else 0.0
        for v in range(group.shape[0]):
            shrink = weight if v > 0 else 0.0
            for s in range(first[v], first[v + 1]):
                total[s] = share[s] = 0.0
            for e in range(channels):
                if trust[e] > 0.0:
                    s = group[v, e]
                    total[s] += trust[e] * (mean[e] - prior[e] + effect[s])
                    share[s] += trust[e]
            for s in range(first[v], first[v + 1]):
                if share[s] > 0.0:
                    new = total[s] / (share[s] + shrink)
                    total[s] = new - effect[s]
                    effect[s] = new
            for e in range(channels):
                prior[e] += total[group[v, e]]
        squares, many = pseudo, 1.0
        for e in range(channels):
            if trust[e] > 0.0:
                deviation = trust[e] * (mean[e] - prior[e])
                squares += deviation * deviation + spread * (1.0 - trust[e])
                many += 1.0
        spread = squares / many
    return spread


@compiled
def pool_values(residual: Any, weight: Any, uses: Any, value: Any) -> None:
    """For each port (L,) the root z of H·E[(X − z)⁺] = z − E[X], X drawn from residuals (n,) with weights (n,), H uses.

    It is the maximum of (H·E[X; A] + E[X]) / (1 + H·P[A]) over sets A of the largest residuals. These are gathered in
    bins, each at its mean: z is then right to the width of a bin.
    """
    low, high = residual.min(), residual.max()
    mass, place = np.zeros(BINS), np.zeros(BINS)
    scale = (BINS - 1) / (high - low) if high > low else 0.0
    for i in range(residual.shape[0]):
        b = int((high - residual[i]) * scale)  # the largest first
        mass[b] += weight[i]
        place[b] += weight[i] * residual[i]
    whole, mean = mass.sum(), place.sum()
    bins = 0
    for b in range(BINS):
        if mass[b] > 0.0:
            mass[bins], place[bins] = mass[b] / whole, place[b] / whole
            bins += 1
    mean /= whole
    for port in range(uses.shape[0]):
        h, above, worth = uses[port], 0.0, 0.0
        z = mean
        for b in range(bins):
            if place[b] <= z * mass[b]:
                break
            above += mass[b]
            worth += place[b]
            z = (h * worth + mean) / (1.0 + h * above)
        value[port] = z


@compiled
def reservation_values(port: Any, mean: Any, variance: Any, noise: Any, uses: Any, table: Any, index: Any) -> None:
    """The reservation value of each channel (E,): `mean` plus what trying it is worth, used H = `uses` (L,) times.

    Considered are k = 1, 2, 4, … tasks in a row: they move the posterior mean by sₖ = variance·√(k / (noise +
    k·variance)) and cost k times as much, so that sₖ·ψ(H / k) is what they are worth. That is log-concave in ln k: the
    first k after which it falls is the best.
    """
    standard = np.zeros((uses.shape[0], OCTAVES))
    last = table.shape[0] - 1
    for p in range(uses.shape[0]):
        place = (math.log2(uses[p]) - LOWEST) * STEPS if uses[p] > 0.0 else 0.0
        for j in range(OCTAVES):  # ψ(H / 2ʲ), by the line between its neighbours in the table
            if place <= 0.0:
                break
            i = min(int(place), last - 1)
            standard[p, j] = table[i] + min(place - i, 1.0) * (table[i + 1] - table[i])
            place -= STEPS
    for e in range(mean.shape[0]):
        p = port[e]
        best, k = 0.0, 1.0
        if variance[e] > 0.0:
            for j in range(OCTAVES):
                worth = variance[e] * math.sqrt(k / (noise[e] + k * variance[e])) * standard[p, j]
                if worth <= best:
                    break
                best = worth
                k *= 2.0
        index[e] = mean[e] + best
