"""Means over seeds with 95 % confidence intervals, and paired comparisons.

Instances differ more between seeds than policies differ on one instance, so a ratio of means says little: every ratio,
fraction and difference is taken within a seed first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from berth.regret import half_width

__all__ = ["Estimate", "estimate", "paired"]


@dataclass(frozen=True)
class Estimate:
    """A mean over `seeds` seeds with its Student-t interval; `low` and `high` are None with one seed."""

    mean: float
    low: float | None
    high: float | None
    seeds: int

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.high is None else self.high - self.mean

    def as_dict(self) -> dict[str, float | int | None]:
        """Fields as a dictionary, for JSON."""
        return {"mean": self.mean, "low": self.low, "high": self.high, "seeds": self.seeds}


def estimate(values: Iterable[float]) -> Estimate | None:
    """Mean and 95 % interval; None if there is no value or one is not finite.

    >>> found = estimate([1.0, 2.0, 3.0])
    >>> found.mean, round(found.low, 4), round(found.high, 4)
    (2.0, -0.4841, 4.4841)
    >>> estimate([5.0])
    Estimate(mean=5.0, low=None, high=None, seeds=1)
    """
    sample = [float(v) for v in values]
    if not sample or not all(math.isfinite(v) for v in sample):
        return None
    mean, half = math.fsum(sample) / len(sample), half_width(sample)
    if half is None:
        return Estimate(mean, None, None, len(sample))
    return Estimate(mean, mean - float(half), mean + float(half), len(sample))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float], difference: bool = False) -> Estimate | None:
    """Mean over common seeds of ours / theirs, or of ours − theirs.

    None if a denominator is not positive.

    >>> paired({0: 11.0, 1: 24.0}, {0: 10.0, 1: 20.0}).mean.__round__(3)
    1.15
    >>> paired({0: 11.0, 1: 24.0}, {0: 10.0, 1: 20.0}, difference=True).mean
    2.5
    >>> paired({0: 1.0}, {0: -1.0}) is None
    True
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if difference:
        return estimate(ours[s] - theirs[s] for s in seeds)
    if any(not theirs[s] > 0 for s in seeds):
        return None
    return estimate(ours[s] / theirs[s] for s in seeds)
