"""Evolution strategies: try the network with small random changes, and move towards those that earned more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from berth.model import Floats
from berth.policies.placement.network import Network
from berth.training.episodes import Episode
from berth.worlds.schedule import run_network

__all__ = ["Evolution", "mean_gain"]


def mean_gain(network: Network, episodes: Sequence[Episode]) -> float:
    """What the network earns for each unit that plain greedy earns, on average over runs."""
    return float(np.mean([run_network(e.problem, e.tasks, network).gain / e.plain for e in episodes]))


@dataclass
class Evolution:
    """Pairs of opposite changes, ranked by what they earned, and Adam on the direction that this gives.

    After Salimans et al., Evolution Strategies as a Scalable Alternative to Reinforcement Learning.
    """

    network: Network
    pairs: int = 16
    width: float = 0.1
    rate: float = 0.03
    steps: int = 0
    first: Floats | None = None
    second: Floats | None = None

    def step(self, episodes: Sequence[Episode], rng: np.random.Generator) -> float:
        """One move; gives the mean of what all changed networks earned."""
        weights = self.network.weights
        change = rng.standard_normal((self.pairs, weights.size))
        tried = [self.network.replace(weights + side * self.width * way) for side in (1.0, -1.0) for way in change]
        credit, total = np.zeros(len(tried)), 0.0
        worlds = sorted({episode.world for episode in episodes})
        for world in worlds:  # ranked in each world by itself, so that none outweighs the others
            runs = [episode for episode in episodes if episode.world == world]
            earned = np.array([mean_gain(network, runs) for network in tried])
            place = earned.argsort(kind="stable").argsort(kind="stable")
            credit += place / (len(tried) - 1.0) - 0.5
            total += float(earned.mean())
        slope = ((credit[: self.pairs] - credit[self.pairs :]) @ change) / (self.pairs * self.width * len(worlds))
        self._climb(slope)
        return total / len(worlds)

    def _climb(self, slope: Floats) -> None:
        first = np.zeros(slope.shape) if self.first is None else self.first
        second = np.zeros(slope.shape) if self.second is None else self.second
        self.steps += 1
        self.first = 0.9 * first + 0.1 * slope
        self.second = 0.99 * second + 0.01 * slope**2
        ahead = self.first / (1.0 - 0.9**self.steps)
        size = np.sqrt(self.second / (1.0 - 0.99**self.steps)) + 1e-8
        self.network = self.network.replace(self.network.weights + self.rate * ahead / size)
