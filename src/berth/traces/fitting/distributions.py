"""Distributions of a workload: quantiles, mixes of common values with a rest, and readers of published ones.

Axes: N draws.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from berth.model import Floats
from berth.traces import rows

__all__ = [
    "LEVELS",
    "Amount",
    "Mix",
    "Part",
    "Positive",
    "Quantiles",
    "Share",
    "read_histograms",
    "read_marginals",
    "short",
]

LEVELS: tuple[float, ...] = (
    *(0.0, 0.002, 0.005, 0.01, 0.02, 0.035),
    *(round(0.05 + 0.025 * i, 3) for i in range(37)),
    *(0.965, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0),
)
"""Default levels of quantiles: closer at both ends, where the mean of a long tail is decided."""

Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]


class Part(BaseModel):
    """A part of a workload file: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Quantiles(Part):
    """A distribution by its quantile function: `values` at `levels`, geometric between them (even from a 0).

    >>> Quantiles(levels=[0, 0.5, 1], values=[1, 10, 1000]).draw(np.array([0.25, 0.75])).round(2).tolist()
    [3.16, 100.0]
    """

    values: Annotated[list[Amount], Field(min_length=2)]
    levels: list[Share] | None = Field(
        default=None, description="default: LEVELS, or evenly spaced for another number of values"
    )

    @model_validator(mode="after")
    def _rising(self) -> Self:
        levels = self._levels()
        if len(levels) != len(self.values):
            raise ValueError(f"as many values as levels, {len(levels)}")
        if levels[0] != 0 or levels[-1] != 1 or any(a >= b for a, b in pairwise(levels)):
            raise ValueError("levels that rise from 0 to 1")
        if any(a > b for a, b in pairwise(self.values)):
            raise ValueError("values that do not fall")
        return self

    def _levels(self) -> list[float]:
        if self.levels is not None:
            return self.levels
        count = len(self.values)
        return list(LEVELS) if count == len(LEVELS) else [place / (count - 1) for place in range(count)]

    def draw(self, luck: Floats) -> Floats:
        """Value at each level of `luck` in [0, 1), (N,) → (N,)."""
        levels, values = np.array(self._levels()), np.array(self.values)
        at = np.searchsorted(levels, luck, side="right").clip(1, len(levels) - 1)
        low, high = values[at - 1], values[at]
        part = (luck - levels[at - 1]) / (levels[at] - levels[at - 1])
        even = low <= 0
        drawn: Floats = np.where(even, high * part, np.where(even, 1.0, low) ** (1 - part) * high**part)
        return drawn

    def mean(self) -> float:
        """Exact mean of the distribution."""
        levels, values = np.array(self._levels()), np.array(self.values)
        low, high = values[:-1], values[1:]
        safe = np.where((low > 0) & (high > low * (1 + 1e-9)), high / np.where(low > 0, low, 1.0), math.e)
        inside = np.where(high > low * (1 + 1e-9), (high - low) / np.log(safe), low)
        return float((np.diff(levels) * np.where(low > 0, inside, high / 2)).sum())

    @classmethod
    def of(cls, sample: Floats) -> Self:
        """Quantiles of a sample (N,)."""
        return cls(values=[short(value) for value in np.quantile(sample, LEVELS)])

    @classmethod
    def even(cls, sample: Floats, points: int) -> Self:
        """Quantiles of a sample (N,) at evenly spaced levels."""
        return cls(values=[short(value) for value in np.quantile(sample, np.linspace(0.0, 1.0, points))])

    @classmethod
    def from_cdf(cls, values: Floats, percent: Floats, lowest: float, highest: float) -> Self:
        """Build from a published curve: `percent` of all lie at or below each of `values`.

        Curves say little about their ends: `lowest` and `highest` set where the distribution begins and ends.
        """
        levels, kept = [0.0], [lowest]
        for value, share in zip(values, np.asarray(percent) / 100, strict=True):
            if levels[-1] < share < 1 and value >= kept[-1]:
                levels.append(float(share))
                kept.append(float(value))
        return cls(levels=[*levels, 1.0], values=[*(short(v) for v in kept), short(max(highest, kept[-1]))])

    @classmethod
    def from_counts(cls, upper: Floats, count: Floats) -> Self:
        """Build from a histogram of values that are whole, or nearly: `count` values equal `upper`, which ascends."""
        ends = np.cumsum(count) / np.sum(count)
        at = np.searchsorted(ends, np.array(LEVELS) - 1e-12).clip(0, len(upper) - 1)
        return cls(values=[short(value) for value in np.asarray(upper)[at]])


class Mix(Part):
    """A mixture: the most common `values` with their `shares`, and the rest by quantiles.

    >>> Mix(values=[1, 64], shares=[0.75, 0.25]).draw(np.array([0.0, 0.8])).tolist()
    [1.0, 64.0]
    """

    values: list[Amount] = Field(default_factory=list)
    shares: list[Share] = Field(default_factory=list)
    rest: Quantiles | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len(self.values) != len(self.shares):
            raise ValueError("a share for each value")
        total = sum(self.shares)
        if self.rest is None and abs(total - 1) > 1e-3:
            raise ValueError(f"shares that add up to 1 where there is no rest, not to {total:g}")
        if total > 1 + 1e-3:
            raise ValueError(f"shares that add up to at most 1, not to {total:g}")
        return self

    def draw(self, luck: Floats) -> Floats:
        """Value for each number in [0, 1), (N,) → (N,)."""
        ends = np.cumsum(self.shares)
        total = float(ends[-1]) if len(ends) else 0.0
        if self.rest is None:
            return np.array(self.values)[np.searchsorted(ends[:-1], luck, side="right")]
        if not self.values:
            return self.rest.draw(luck)
        common = luck < total
        left = max(1.0 - total, 1e-12)
        drawn: Floats = np.where(
            common,
            np.array(self.values)[np.searchsorted(ends[:-1], luck, side="right")],
            self.rest.draw(((luck - total) / left).clip(0.0, 1.0)),
        )
        return drawn

    def mean(self) -> float:
        """Mean of the distribution."""
        common = sum(v * s for v, s in zip(self.values, self.shares, strict=True))
        total = sum(self.shares)
        return common / total if self.rest is None else common + max(1.0 - total, 0.0) * self.rest.mean()

    @classmethod
    def of(cls, sample: Floats, common: float = 0.01, most: int = 24) -> Self:
        """Fit a sample: values with at least the share `common`, at most `most` of them, and quantiles of the rest."""
        values, counts = np.unique(sample, return_counts=True)
        top = _commonest(counts, common, most)
        if len(top) == len(values):
            return cls(values=[short(v, 9) for v in values], shares=_whole(counts / len(sample)))
        return cls(
            values=[short(v, 9) for v in values[top]],
            shares=[round(float(s), 5) for s in counts[top] / len(sample)],
            rest=Quantiles.of(sample[~np.isin(sample, values[top])]),
        )

    @classmethod
    def of_values(cls, sample: Floats, named: Floats, points: int) -> Self:
        """Fit a sample: the values among `named` with their shares, and evenly spaced quantiles of the rest."""
        rare = ~np.isin(sample, named)
        values, counts = np.unique(sample[~rare], return_counts=True)
        return cls(
            values=[short(v, 9) for v in values],
            shares=[round(float(s), 6) for s in counts / len(sample)] if rare.any() else _whole(counts / len(sample)),
            rest=Quantiles.even(sample[rare], points) if rare.any() else None,
        )

    @classmethod
    def from_counts(cls, upper: Floats, count: Floats, common: float = 0.01, most: int = 24) -> Self:
        """Like `of`, from a histogram: `count` values equal `upper`, which ascends."""
        upper, count = np.asarray(upper, dtype=np.float64), np.asarray(count, dtype=np.float64)
        top = _commonest(count, common, most)
        if len(top) == len(upper):
            return cls(values=[short(v, 9) for v in upper], shares=_whole(count / count.sum()))
        others = np.setdiff1d(np.arange(len(upper)), top)
        return cls(
            values=[short(v, 9) for v in upper[top]],
            shares=[round(float(s), 5) for s in count[top] / count.sum()],
            rest=Quantiles.from_counts(upper[others], count[others]),
        )


def short(value: float, digits: int = 5) -> float:
    """Round to few digits: files stay small, and fits are no more precise."""
    return float(f"{float(value):.{digits}g}")


def _commonest(counts: Any, common: float, most: int) -> Any:
    """Indices of the values that a mix names; all if they are few."""
    if len(counts) <= most:
        return np.arange(len(counts))
    top = np.flatnonzero(counts >= common * counts.sum())
    return np.sort(top[np.argsort(-counts[top], kind="stable")[:most]])


def _whole(shares: Floats) -> list[float]:
    """Rounded shares that still add up to 1."""
    rounded = np.round(shares, 6)
    rounded[int(np.argmax(shares))] += 1.0 - rounded.sum()
    return [round(float(share), 6) for share in rounded]


# ---------------------------------------------------------------------------- published

_COUNTS = rows.schema("lower:float upper:float! count:float")


def read_histograms(path: str | Path, report: rows.Report | None = None) -> pl.DataFrame:
    """Histograms: columns `quantity`, `given`, `lower`, `upper`, `count`.

    `count` values lie in (`lower`, `upper`]; whole quantities have the value `upper`. `given` is null except for shapes
    of DAGs, where it is the value of the quantity after the `|` in the name.
    """
    path = Path(path)
    shapes = "kind" in rows.first_line(path).split(",")
    name = rows.Field("kind" if shapes else "quantity", required=True)
    table = rows.read_whole(
        path, rows.Layout((name, rows.Field("given", pl.Float64), *_COUNTS)), report or rows.Report(strict=True)
    )
    return table.drop("line").rename({"kind": "quantity"} if shapes else {})


def read_marginals(path: str | Path, report: rows.Report | None = None) -> pl.DataFrame:
    """Points of distributions: columns `quantity`, `value`, `percent`, `kind`.

    By kind, `percent` is the share of tasks at or below the value (`cdf`), at or above it (`ccdf`), the share that the
    name of the quantity describes (`share_of_tasks`, without a value), or a `count`.
    """
    layout = rows.Layout(rows.schema("quantity! value:float percent:float! kind!"))
    return rows.read_whole(Path(path), layout, report or rows.Report(strict=True)).drop("line")
