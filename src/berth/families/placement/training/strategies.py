"""Evolution strategies for any model whose weights are one vector.

After Salimans et al., Evolution Strategies as a Scalable Alternative to Reinforcement Learning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from berth.model import Floats

__all__ = ["Strategies"]


class Weighted(Protocol):
    """A model with weights, (W,)."""

    @property
    def weights(self) -> Floats: ...

    def replace(self, weights: Floats, /) -> Self: ...


class Belongs(Protocol):
    """A run, which belongs to a world."""

    @property
    def world(self) -> int: ...


Model = TypeVar("Model", bound=Weighted)
Run = TypeVar("Run", bound=Belongs)


class Strategies(ABC, Generic[Model, Run]):
    """Antithetic perturbations, ranked by gain, and Adam on the resulting direction."""

    def __init__(self, network: Model, pairs: int = 16, width: float = 0.1, rate: float = 0.03) -> None:
        self.network, self.pairs, self.width, self.rate = network, pairs, width, rate
        self._steps = 0
        self._first = np.zeros(network.weights.shape)
        self._second = np.zeros(network.weights.shape)

    @abstractmethod
    def _earned(self, networks: Sequence[Model], runs: Sequence[Run]) -> Floats:
        """Gain of each network over these runs."""

    def step(self, episodes: Sequence[Run], rng: np.random.Generator, rate: float = 1.0) -> float:
        """Take one step, scaled by `rate`; return the mean gain of all perturbed networks."""
        weights = self.network.weights
        change = rng.standard_normal((self.pairs, weights.size))
        tried = [self.network.replace(weights + side * self.width * way) for side in (1.0, -1.0) for way in change]
        credit, total = np.zeros(len(tried)), 0.0
        worlds = sorted({episode.world for episode in episodes})
        if not worlds:  # runs in which nothing can be earned or lost
            return 1.0
        for world in worlds:  # ranked within each world, so that none dominates
            runs = [episode for episode in episodes if episode.world == world]
            earned = self._earned(tried, runs)
            place = earned.argsort(kind="stable").argsort(kind="stable")
            credit += place / (len(tried) - 1.0) - 0.5
            total += float(earned.mean())
        slope = ((credit[: self.pairs] - credit[self.pairs :]) @ change) / (self.pairs * self.width * len(worlds))
        self._climb(slope, rate)
        return total / len(worlds)

    def _climb(self, slope: Floats, rate: float) -> None:
        self._steps += 1
        self._first = 0.9 * self._first + 0.1 * slope
        self._second = 0.99 * self._second + 0.01 * slope**2
        ahead = self._first / (1.0 - 0.9**self._steps)
        size = np.sqrt(self._second / (1.0 - 0.99**self._steps)) + 1e-8
        self.network = self.network.replace(self.network.weights + rate * self.rate * ahead / size)

    def state(self) -> dict[str, Any]:
        """State to resume from, for JSON."""
        parts = {"weights": self.network.weights, "first": self._first, "second": self._second}
        return {"steps": self._steps, **{name: part.tolist() for name, part in parts.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from a saved state."""
        self._steps = int(state["steps"])
        self._first, self._second = (np.array(state[name], dtype=np.float64) for name in ("first", "second"))
        self.network = self.network.replace(np.array(state["weights"], dtype=np.float64))
