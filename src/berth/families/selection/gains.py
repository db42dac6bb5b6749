"""Gain distributions, drift and supply costs.

A **law** converts the centre of each channel to a mean and to draws. A **drift** moves centres. `DrawnGains` combines a
law and a drift. All channels are drawn in every slot, opened or not, and identically at every iteration.

Axes: T slots, E channels, K resources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from berth.errors import InvalidInput
from berth.model import Floats, frozen_array
from berth.random import stream

__all__ = [
    "Beta",
    "ClippedNormal",
    "DrawnGains",
    "Drift",
    "Empirical",
    "Law",
    "Lognormal",
    "NetNormal",
    "Normal",
    "Redraw",
    "Uniform",
    "Walk",
    "clipped_normal_mean",
    "normal_costs",
    "supply_cost",
]

CHUNK = 2**16  # numbers drawn at a time: half a megabyte


def clipped_normal_mean(centre: ArrayLike, sd: ArrayLike, low: ArrayLike = 0.0, high: ArrayLike = 1.0) -> Floats:
    """Mean of clip(X, low, high) for X ~ N(centre, sd²), in closed form.

    >>> float(clipped_normal_mean(0.5, 0.2)), float(clipped_normal_mean(-3.0, 0.0))
    (0.5, 0.0)
    """
    mu, sigma, a, b = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (centre, sd, low, high)))
    safe = np.where(sigma > 0, sigma, 1.0)
    alpha, beta = (a - mu) / safe, (b - mu) / safe
    density = (np.exp(-0.5 * alpha**2) - np.exp(-0.5 * beta**2)) / math.sqrt(2.0 * math.pi)
    below, above = ndtr(alpha), ndtr(-beta)
    mean = a * below + b * above + mu * (1.0 - below - above) + safe * density
    clipped: Floats = np.where(sigma > 0, mean, np.clip(mu, a, b))
    return clipped


class Law(Protocol):
    """Distribution of a gain around its centre; both methods take centres (…, E) and return arrays of that shape."""

    def mean(self, centre: Floats) -> Floats: ...

    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats: ...


def _deviation(sd: ArrayLike, relative: bool, centre: Floats) -> Floats:
    spread = np.asarray(sd, dtype=np.float64)
    return spread * np.abs(centre) if relative else np.broadcast_to(spread, centre.shape)


@dataclass(frozen=True, eq=False)
class Normal:
    """Normal gain with standard deviation `sd`, a number or (E,); with `relative`, a share of the centre."""

    sd: ArrayLike
    relative: bool = False

    def __post_init__(self) -> None:
        frozen_array(self.sd, "sd")

    def mean(self, centre: Floats) -> Floats:
        return centre

    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats:
        return centre + _deviation(self.sd, self.relative, centre) * rng.standard_normal(centre.shape)


@dataclass(frozen=True, eq=False)
class ClippedNormal:
    """Normal gain clipped to [`low`, `high`]; its mean is that after clipping.

    >>> law = ClippedNormal(0.5)
    >>> law.mean(np.array([0.5, 1.0])).round(3)
    array([0.5  , 0.805])
    """

    sd: ArrayLike
    relative: bool = False
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        frozen_array(self.sd, "sd")
        if not self.low < self.high:
            raise InvalidInput("low < high", value=(self.low, self.high))

    def mean(self, centre: Floats) -> Floats:
        return clipped_normal_mean(centre, _deviation(self.sd, self.relative, centre), self.low, self.high)

    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats:
        drawn = centre + _deviation(self.sd, self.relative, centre) * rng.standard_normal(centre.shape)
        return np.clip(drawn, self.low, self.high)


@dataclass(frozen=True, eq=False)
class NetNormal:
    """The papers' gain: a normal clipped so that the gain after the known `cost` (E,) lies in [0, 1].

    A draw is clip(Z − cost, 0, 1) + cost.

    >>> law = NetNormal(0.0, cost=np.array([0.1, 0.1]))
    >>> law.mean(np.array([0.5, 0.05])).round(6)
    array([0.5, 0.1])
    """

    sd: ArrayLike
    cost: ArrayLike
    relative: bool = False

    def __post_init__(self) -> None:
        frozen_array(self.sd, "sd")
        frozen_array(self.cost, "cost", low=-np.inf)

    def mean(self, centre: Floats) -> Floats:
        cost = np.asarray(self.cost, dtype=np.float64)
        return clipped_normal_mean(centre - cost, _deviation(self.sd, self.relative, centre)) + cost

    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats:
        cost = np.asarray(self.cost, dtype=np.float64)
        drawn = centre + _deviation(self.sd, self.relative, centre) * rng.standard_normal(centre.shape)
        return np.clip(drawn - cost, 0.0, 1.0) + cost


@dataclass(frozen=True)
class Beta:
    """Gain in [0, 1] with mean `centre`: Beta(c·centre, c·(1 − centre)) with c the `concentration`."""

    concentration: float = 4.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.concentration) and self.concentration > 0):
            raise InvalidInput("a number > 0", value=self.concentration, key="concentration")

    def mean(self, centre: Floats) -> Floats:
        return np.clip(centre, 0.0, 1.0)

    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats:
        least = 1e-9  # a Beta needs both its parameters above 0
        inside = np.clip(centre, least, 1.0 - least)
        drawn: Floats = rng.beta(self.concentration * inside, self.concentration * (1.0 - inside))
        return drawn


@dataclass(frozen=True, eq=False)
class Uniform:
    """Gain uniform within `half` (a number or (E,)) of its centre."""

    half: ArrayLike

    def __post_init__(self) -> None:
        frozen_array(self.half, "half")

    def mean(self, centre: Floats) -> Floats:
        return centre

    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats:
        return centre + np.asarray(self.half, dtype=np.float64) * (2.0 * rng.random(centre.shape) - 1.0)


@dataclass(frozen=True)
class Lognormal:
    """Positive gain with a long tail: mean `centre`, and `sigma` the standard deviation of its logarithm."""

    sigma: float = 0.5

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise InvalidInput("a number ≥ 0", value=self.sigma, key="sigma")

    def mean(self, centre: Floats) -> Floats:
        return centre

    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats:
        return centre * np.exp(self.sigma * rng.standard_normal(centre.shape) - 0.5 * self.sigma**2)


class Empirical:
    """Gains resampled from measurements: `values` holds a row of numbers for each channel, of any length.

    The centre shifts them: at centre 0 a channel draws its own values.

    >>> law = Empirical([[1.0, 3.0], [0.5]])
    >>> law.mean(np.zeros(2))
    array([2. , 0.5])
    """

    def __init__(self, values: Sequence[ArrayLike]) -> None:
        rows = [frozen_array(row, f"values[{e}]", low=-np.inf).ravel() for e, row in enumerate(values)]
        for e, row in enumerate(rows):
            if not row.size:
                raise InvalidInput("at least one value per channel", key=f"values[{e}]")
        self._values = np.concatenate(rows) if rows else np.zeros(0)
        self._size = np.array([row.size for row in rows], dtype=np.int64)
        self._start = np.cumsum(self._size) - self._size
        self._mean = np.array([row.mean() for row in rows])

    def mean(self, centre: Floats) -> Floats:
        shifted: Floats = centre + self._mean
        return shifted

    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats:
        place = (rng.random(centre.shape) * self._size).astype(np.int64)
        drawn: Floats = centre + self._values[self._start + place]
        return drawn


class Drift(Protocol):
    """Movement of centres over time."""

    def chunks(self, rng: np.random.Generator, centre: Floats, rows: int) -> Iterator[Floats]:
        """Centres (rows, E) of the first `rows` slots, then of the next, endlessly; slot 0 is at `centre`."""
        ...


def _range(low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidInput("low < high", value=(low, high))


@dataclass(frozen=True)
class Walk:
    """Random walk of every centre, N(0, step²) per slot, reflected at `low` and `high`."""

    step: float = 0.005
    low: float = 0.1
    high: float = 1.0

    def __post_init__(self) -> None:
        _range(self.low, self.high)
        if not (math.isfinite(self.step) and self.step >= 0):
            raise InvalidInput("a number ≥ 0", value=self.step, key="step")

    def chunks(self, rng: np.random.Generator, centre: Floats, rows: int) -> Iterator[Floats]:
        width = self.high - self.low
        at = centre - self.low
        while True:  # folding an unbounded walk into the range reflects it at the ends
            steps = self.step * rng.standard_normal((rows, centre.size))
            path = at + np.cumsum(steps, axis=0)
            folded = np.mod(path - steps, 2.0 * width)
            yield self.low + np.minimum(folded, 2.0 * width - folded)
            at = path[-1]


@dataclass(frozen=True)
class Redraw:
    """Redraw: every `every` slots a random `share` of the channels get a new centre, uniform in [low, high]."""

    every: int = 1000
    share: float = 0.3
    low: float = 0.1
    high: float = 1.0

    def __post_init__(self) -> None:
        _range(self.low, self.high)
        if self.every < 1:
            raise InvalidInput("at least 1 slot", value=self.every, key="every")
        if not 0.0 <= self.share <= 1.0:
            raise InvalidInput("a share in [0, 1]", value=self.share, key="share")

    def chunks(self, rng: np.random.Generator, centre: Floats, rows: int) -> Iterator[Floats]:
        at = centre.copy()
        moved = round(self.share * centre.size)
        first = 0
        while True:
            path = np.empty((rows, centre.size))
            change = first + (-first) % self.every or self.every  # nothing changes at slot 0
            done = 0
            while change < first + rows:
                path[done : change - first] = at
                done = change - first
                at[rng.permutation(centre.size)[:moved]] = rng.uniform(self.low, self.high, moved)
                change += self.every
            path[done:] = at
            yield path
            first += rows


class DrawnGains:
    """Gains of a law around `centre` (E,), drawn from a seed, with or without drift.

    `centres` (Q, E), if known, are evenly spaced quantiles of the distribution of each channel's centre.

    >>> gains = DrawnGains(Normal(0.1), [0.5, 0.8], seed=3)
    >>> means, draws = next(iter(gains))
    >>> means, bool((next(iter(gains))[1] == draws).all())
    (array([0.5, 0.8]), True)
    """

    def __init__(
        self, law: Law, centre: ArrayLike, seed: int, drift: Drift | None = None, centres: ArrayLike | None = None
    ) -> None:
        self.law, self.seed, self.drift = law, seed, drift
        self.centre = frozen_array(centre, "centre", low=-np.inf)
        if self.centre.ndim != 1:
            raise InvalidInput("centre (E,)", value=self.centre.shape, key="centre")
        self.centres = None if centres is None else frozen_array(centres, "centres", low=-np.inf)
        if self.centres is not None and self.centres.shape[1:] != self.centre.shape:
            raise InvalidInput(f"centres (Q, {self.centre.size})", value=self.centres.shape, key="centres")

    def __iter__(self) -> Iterator[tuple[Floats, Floats]]:
        """Means (E,) and draws (E,), slot by slot, endlessly."""
        rng, size = stream(self.seed, "gains"), self.centre.size
        rows = max(1, CHUNK // max(size, 1))
        if self.drift is None:
            means = np.array(self.law.mean(self.centre))
            means.setflags(write=False)
            centres = np.broadcast_to(self.centre, (rows, size))
            while True:
                draws = self.law.draw(rng, centres)
                draws.setflags(write=False)
                for row in draws:
                    yield means, row
        for moved in self.drift.chunks(stream(self.seed, "gains", "drift"), self.centre, rows):
            means, draws = np.array(self.law.mean(moved)), self.law.draw(rng, moved)
            means.setflags(write=False)
            draws.setflags(write=False)
            yield from zip(means, draws, strict=True)


SHAPES: dict[str, Callable[[Floats], Floats]] = {
    "linear": lambda amount: amount,
    "quadratic": np.square,
    "sqrt": np.sqrt,
}


def supply_cost(
    takes: ArrayLike,
    shapes: str | Callable[[Floats], Floats] | Sequence[str | Callable[[Floats], Floats]] = "linear",
    weights: ArrayLike = 1.0,
) -> Floats:
    """Σ_k weight_k · f_k(takes_k) for each channel, (E,); the f_k need not be convex or smooth.

    `shapes` is one name ("linear", "quadratic", "sqrt") or function for all resources, or one for each.

    >>> supply_cost([[4.0, 1.0], [9.0, 2.0]], ["sqrt", "quadratic"], weights=[1.0, 0.5])
    array([2.5, 5. ])
    """
    amounts = frozen_array(takes, "takes")
    if amounts.ndim != 2:
        raise InvalidInput("takes (E, K)", value=amounts.shape, key="takes")
    resources = amounts.shape[1]
    each = [shapes] * resources if isinstance(shapes, str) or callable(shapes) else list(shapes)
    if len(each) != resources:
        raise InvalidInput(f"{resources} shapes, one per resource", value=len(each), key="shapes")
    total = np.zeros(len(amounts))
    for k, (shape, weight) in enumerate(zip(each, np.broadcast_to(np.asarray(weights), resources), strict=True)):
        if isinstance(shape, str) and shape not in SHAPES:
            raise InvalidInput(f"one of {', '.join(SHAPES)}, or a function", value=shape, key=f"shapes[{k}]")
        function = SHAPES[shape] if isinstance(shape, str) else shape
        total += weight * np.asarray(function(amounts[:, k]), dtype=np.float64)
    return total


def normal_costs(
    rng: np.random.Generator, channels: int, resources: int, mean: float = 0.5, sd: float = 0.1, scale: float = 1.0
) -> Floats:
    """The papers' supply costs, (E,): `scale` times a sum of K normals per channel, independent of the demand."""
    costs: Floats = scale * rng.normal(mean, sd, (channels, resources)).sum(axis=1)
    return costs
