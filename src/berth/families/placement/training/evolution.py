"""Evolution strategies for networks, and the cross-entropy method for the three numbers of a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from typing import Any

import numpy as np

from berth.families.placement.policies.gang_runs import run_gangs
from berth.families.placement.policies.network import Network
from berth.families.placement.policies.rule import Rule
from berth.families.placement.rule_runs import run_rule
from berth.families.placement.training.episodes import WHOLE, Episode, Scope, gang_result, run_network
from berth.families.placement.training.strategies import Strategies
from berth.model import Floats

__all__ = ["Evolution", "RuleSearch", "mean_gain", "rule_gain"]


def mean_gain(network: Network, episodes: Sequence[Episode], scope: Scope = WHOLE) -> float:
    """Mean gain of the network over runs, relative to greedy with a queue; with gangs, to the safe side."""
    if network.gangs:
        return float(np.mean([gang_result(network, episode, scope) for episode in episodes]))
    return float(np.mean([run_network(e.problem, e.tasks, network, scope).gain / e.plain for e in episodes]))


def _gains(networks: Sequence[Network], episodes: Sequence[Episode], scope: Scope) -> list[float]:
    return [mean_gain(network, episodes, scope) for network in networks]


class Evolution(Strategies[Network, Episode]):
    """Evolution strategies for networks that rank tasks: in several processes if asked to."""

    def __init__(
        self,
        network: Network,
        pairs: int = 16,
        width: float = 0.1,
        rate: float = 0.03,
        scope: Scope = WHOLE,
        workers: int = 1,
    ) -> None:
        super().__init__(network, pairs, width, rate)
        self.scope, self.workers = scope, workers
        self._pool: ProcessPoolExecutor | None = None

    def _earned(self, networks: Sequence[Network], runs: Sequence[Episode]) -> Floats:
        """Mean gain of each network."""
        if self.workers > 1:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(self.workers, get_context("spawn"))
            size = -(-len(networks) // self.workers)
            shares = [networks[at : at + size] for at in range(0, len(networks), size)]
            found = self._pool.map(_gains, shares, repeat(runs), repeat(self.scope))
            return np.array([gain for share in found for gain in share])
        return np.array(_gains(networks, runs, self.scope))

    def close(self) -> None:
        """Stop the workers."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def rule_gain(numbers: Floats, episodes: Sequence[Episode]) -> float:
    """Gain of the rule with this length, beta and price, relative to greedy with a queue."""
    length, beta, price = (float(x) for x in numbers)
    gains = []
    for episode in episodes:
        ranks = Rule.ranks(episode.tasks, episode.problem.weight, length)
        if episode.runs is None:
            gain = run_rule(episode.problem, episode.tasks, ranks, beta, price).gain
        else:
            gain = run_gangs(episode.problem, episode.tasks, ranks, runs=episode.runs, beta=beta, price=price).gain
        gains.append(gain / episode.plain)
    return float(np.mean(gains))


class RuleSearch:
    """Draw many triples, keep the best quarter, draw the next ones near them."""

    def __init__(self, tries: int = 24) -> None:
        self.tries = tries
        self._centre = np.array([1.0, 0.5, 0.1])
        self._width = np.array([0.7, 0.4, 0.1])

    @property
    def numbers(self) -> Floats:
        """Best length, beta and price so far."""
        return self._allowed(self._centre)

    @staticmethod
    def _allowed(numbers: Floats) -> Floats:
        return np.concatenate([numbers[..., :1], np.abs(numbers[..., 1:])], axis=-1)

    def step(self, episodes: Sequence[Episode], rng: np.random.Generator, rate: float = 1.0) -> float:
        """Run one round; return the mean gain of all triples."""
        drawn = self._allowed(self._centre + self._width * rng.standard_normal((self.tries, 3)))
        earned = np.array([rule_gain(numbers, episodes) for numbers in drawn])
        best = drawn[np.argsort(-earned, kind="stable")[: max(self.tries // 4, 2)]]
        self._centre = best.mean(axis=0)
        self._width = np.maximum(0.7 * self._width + 0.3 * best.std(axis=0), 1e-3) * 0.95
        return float(earned.mean())

    def state(self) -> dict[str, Any]:
        """State to resume from, for JSON."""
        return {"centre": self._centre.tolist(), "width": self._width.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from a saved state."""
        self._centre, self._width = (np.array(state[name], dtype=np.float64) for name in ("centre", "width"))
