"""Means over seeds with 95 % confidence intervals, and paired comparisons.

Instances differ more between seeds than policies differ on one instance, so numbers are compared within a seed. Where
the number to compare with may be near zero in some seed, the mean of ratios says little, and `studentised` gives the
interval of a ratio of means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from berth.model import Floats
from berth.regret import half_width

__all__ = ["Estimate", "discoveries", "estimate", "holm", "paired", "studentised"]

RESAMPLES = 1999
FEW = 8
"""With fewer seeds, resamples are too few of a kind, and the interval is Student's."""


@dataclass(frozen=True)
class Estimate:
    """A mean over `seeds` seeds with its 95 % interval; `low` and `high` are None with one seed."""

    mean: float
    low: float | None
    high: float | None
    seeds: int
    chance: float | None = None
    """The p-value of zero, two-sided, from `studentised`."""

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
    Estimate(mean=5.0, low=None, high=None, seeds=1, chance=None)
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


def studentised(samples: Floats, effect: Callable[[Floats], Floats]) -> Estimate | None:
    """An effect of means over seeds, with its symmetric bootstrap-t interval; None if it is not finite.

    `samples` has a row for each seed, and `effect` gets means of the columns, (..., columns), and gives (...). The
    standard error is the jackknife's; the bootstrap resamples seeds, so columns stay paired. The resamples are the same
    in every call.

    >>> ours, theirs = np.array([1.0, 3, 2, 4, 3, 2, 5, 4]), np.array([0.1, 2, 2, 3, 1, 1, 4, 3])
    >>> found = studentised(np.stack([ours, theirs], axis=1), lambda means: means[..., 0] / means[..., 1] - 1)
    >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3), round(found.chance, 3)
    (0.491, 0.025, 0.956, 0.045)
    """
    count = len(samples)
    with np.errstate(all="ignore"):
        mean = float(effect(samples.mean(axis=0))) if count else math.nan
        if not math.isfinite(mean):
            return None
        if count < 2:
            return Estimate(mean, None, None, count)
        error = float(_jackknife(samples, effect))
        if error == 0:
            return Estimate(mean, mean, mean, count, float(mean == 0))
        if count < FEW:
            half, chance = stdtrit(count - 1, 0.975) * error, 2 * stdtr(count - 1, -abs(mean) / error)
        else:
            again = samples[np.random.default_rng(count).integers(count, size=(RESAMPLES, count))]
            distances = np.abs(effect(again.mean(axis=1)) - mean) / _jackknife(again, effect)
            distances = np.sort(np.where(np.isfinite(distances), distances, np.inf))
            half = distances[math.ceil(0.95 * (RESAMPLES + 1)) - 1] * error
            chance = 1 - np.searchsorted(distances, abs(mean) / error) / (1 + RESAMPLES)
    return Estimate(mean, mean - float(half), mean + float(half), count, float(chance)) if math.isfinite(half) else None


def _jackknife(samples: Floats, effect: Callable[[Floats], Floats]) -> Floats:
    """The jackknife's standard error of an effect of means, (...), from samples (..., seeds, columns)."""
    count = samples.shape[-2]
    without = effect((samples.sum(axis=-2, keepdims=True) - samples) / (count - 1))
    return np.asarray(np.sqrt(count - 1) * without.std(axis=-1))


def discoveries(chances: Iterable[float | None], rate: float = 0.05) -> list[bool]:
    """Which p-values are discoveries at this false discovery rate (Benjamini and Hochberg, 1995).

    >>> discoveries([0.01, 0.2, None, 0.03])
    [True, False, False, True]
    """
    values = list(chances)
    known = sorted(value for value in values if value is not None)
    limit = max((value for rank, value in enumerate(known, 1) if value <= rate * rank / len(known)), default=-1.0)
    return [value is not None and value <= limit for value in values]


def holm(chances: Iterable[float | None]) -> list[float | None]:
    """P-values adjusted for their number (Holm, 1979): those below 0.05 hold together with 95 % confidence.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    values = list(chances)
    ranked = sorted((value, place) for place, value in enumerate(values) if value is not None)
    found: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, place) in enumerate(ranked):
        largest = max(largest, min(1.0, (len(ranked) - rank) * value))
        found[place] = largest
    return found
