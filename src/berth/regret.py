"""Regret: reward lost against an oracle, as curves over time and seeds.

Rewards are arrays of shape (T,), or (S, T) for several seeds. Regret can be negative: an adaptive policy may earn more
than the best stationary decision.

Axes: S seeds, T slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from berth.errors import InvalidInput
from berth.model import Floats

__all__ = ["Band", "SlotOptima", "band", "cumulative_regret", "growth_exponent", "half_width", "log_fit"]


@dataclass(frozen=True, eq=False)
class SlotOptima:
    """The best reward of each slot (T,) when its arrivals are known, and a certified upper bound on it."""

    reward: Floats
    bound: Floats


def cumulative_regret(reward: ArrayLike, reference: ArrayLike) -> Floats:
    """Σ (reference − reward) up to each slot; same shape as `reward`.

    >>> cumulative_regret([1.0, 2.0, 4.0], reference=[3.0, 3.0, 3.0])
    array([2., 3., 2.])
    """
    earned, possible = np.asarray(reward, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if earned.shape != possible.shape:
        raise InvalidInput(f"as many slots as the reward has, {earned.shape}", value=possible.shape, key="reference")
    return np.cumsum(possible - earned, axis=-1)


def half_width(values: ArrayLike, level: float = 0.95) -> Floats | None:
    """Half the width of the Student-t interval of the mean over the first axis; None for a single value.

    >>> float(half_width([1.0, 2.0, 3.0])).__round__(4)
    2.4841
    >>> half_width([1.0]) is None
    True
    """
    sample = np.asarray(values, dtype=np.float64)
    count = len(sample)
    if count < 2:
        return None
    error = sample.std(axis=0, ddof=1) / np.sqrt(count)
    return np.asarray(stdtrit(count - 1, 0.5 + level / 2) * error)


@dataclass(frozen=True, eq=False)
class Band:
    """Mean over seeds, (T,), with a pointwise interval; no interval with one seed."""

    mean: Floats
    low: Floats | None
    high: Floats | None


def band(curves: ArrayLike, level: float = 0.95) -> Band:
    """Mean and pointwise Student-t interval of curves (S, T) over seeds.

    >>> both = band([[0.0, 1.0], [0.0, 3.0]])
    >>> both.mean, both.high.round(2)
    (array([0., 2.]), array([ 0.  , 14.71]))
    >>> band([[1.0, 2.0]]).low is None
    True
    """
    sample = np.asarray(curves, dtype=np.float64)
    if sample.ndim != 2 or not len(sample):
        raise InvalidInput("curves (S, T) of at least one seed", value=sample.shape, key="curves")
    mean, half = sample.mean(axis=0), half_width(sample, level)
    return Band(mean, None, None) if half is None else Band(mean, mean - half, mean + half)


def growth_exponent(curve: ArrayLike) -> float:
    """Growth of a regret curve (T,): the slope of log regret against log slot over the second half.

    About 0.5 for √T, 1 for linear growth; NaN if fewer than two slots of the second half are positive.

    >>> slots = np.arange(1, 1001)
    >>> round(growth_exponent(3.0 * np.sqrt(slots)), 6)
    0.5
    >>> growth_exponent(-slots)
    nan
    """
    values = np.asarray(curve, dtype=np.float64)
    slots = np.arange(1, len(values) + 1)
    second = (slots > len(values) // 2) & (values > 0)
    if second.sum() < 2:
        return float("nan")
    x, y = np.log(slots[second]), np.log(values[second])
    x = x - x.mean()
    return float((x * (y - y.mean())).sum() / (x * x).sum())


def log_fit(curve: ArrayLike) -> float:
    """R² of the best line through a regret curve (T,) against ln t, over its second half.

    1 for regret that grows like ln T; NaN if the second half is constant or has fewer than three slots. Over one
    doubling of t even linear growth reaches .992: the R² means little unless `growth_exponent` is small too.

    >>> slots = np.arange(1, 1001)
    >>> round(log_fit(5.0 + 2.0 * np.log(slots)), 6), round(log_fit(slots), 3)
    (1.0, 0.992)
    >>> log_fit(np.ones(1000))
    nan
    """
    values = np.asarray(curve, dtype=np.float64)
    slots = np.arange(1, len(values) + 1)
    second = slots > len(values) // 2
    if second.sum() < 3:
        return float("nan")
    x, y = np.log(slots[second]), values[second]
    x, y = x - x.mean(), y - y.mean()
    total = float((y * y).sum())
    if not total > 0.0:
        return float("nan")
    return float((x * y).sum() ** 2 / ((x * x).sum() * total))
