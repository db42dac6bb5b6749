"""Plain twins of the reservation index: the additive model, the value of a draw from a pool, and ψ by a root finder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from scipy.optimize import brentq
from scipy.stats import norm

from berth.model import Floats

__all__ = ["fitted", "noise_of", "pool_value", "seen_value", "standard_value"]


def standard_value(uses: float) -> float:
    """The root ψ of H·(φ(ψ) − ψ·(1 − Φ(ψ))) = ψ."""
    return float(brentq(lambda x: uses * (norm.pdf(x) - x * norm.sf(x)) - x, 0.0, 40.0, xtol=1e-13))


def pool_value(residuals: Floats, weights: Floats, uses: float) -> float:
    """The root z of H·E[(X − z)⁺] = z − E[X]."""
    whole = sum(weights)
    mean = sum(w * x for x, w in zip(residuals, weights, strict=True)) / whole

    def excess(z: float) -> float:
        more: float = sum(w * max(x - z, 0.0) for x, w in zip(residuals, weights, strict=True)) / whole
        return float(uses * more - (z - mean))

    top = max(residuals)
    return float(mean) if top - mean < 1e-12 else float(brentq(excess, mean, top, xtol=1e-13))


def seen_value(mean: float, variance: float, noise: float, uses: float) -> float:
    """The best of 1, 2, 4, … tasks in a row, all of them tried."""
    if variance <= 0.0:
        return mean
    tries = [2.0**j for j in range(30)]
    return mean + max(variance * math.sqrt(k / (noise + k * variance)) * standard_value(uses / k) for k in tries)


def noise_of(squares: Floats, pulls: Floats, usual: float, weight: float) -> list[float]:
    """Variances, each averaged with the median of those of channels that were opened twice."""
    known = [s / (n - 1.0) for s, n in zip(squares, pulls, strict=True) if n >= 1.5]
    middle = median(known) if known else usual
    return [(s + weight * middle) / (max(n - 1.0, 0.0) + weight) for s, n in zip(squares, pulls, strict=True)]


def fitted(
    groups: Sequence[Sequence[int]],
    count: Floats,
    mean: Floats,
    noise: Floats,
    weight: float,
    pseudo: float,
    sweeps: int,
    start: float,
) -> tuple[list[float], float]:
    """What the effects say of each channel, and the variance of the rest, from scratch, group by group."""
    channels = range(len(mean))
    effects = [dict.fromkeys(level, 0.0) for level in groups]
    effects[0][groups[0][0]] = start
    spread = pseudo

    def said(e: int) -> float:
        return sum(effect[level[e]] for effect, level in zip(effects, groups, strict=True))

    for _ in range(sweeps):
        trust = [spread / (spread + noise[e] / count[e]) if count[e] > 0 else 0.0 for e in channels]
        for v, level in enumerate(groups):
            for group in effects[v]:
                members = [e for e in channels if level[e] == group and trust[e] > 0]
                if members:
                    own = effects[v][group]
                    top = sum(trust[e] * (mean[e] - said(e) + own) for e in members)
                    # members of a group share its effect: setting it at once changes nothing for other groups
                    effects[v][group] = top / (sum(trust[e] for e in members) + (weight if v else 0.0))
        seen = [e for e in channels if trust[e] > 0]
        left = sum((trust[e] * (mean[e] - said(e))) ** 2 + spread * (1.0 - trust[e]) for e in seen)
        spread = (pseudo + left) / (1.0 + len(seen))
    return [said(e) for e in channels], spread
