"""The three numbers of `placement-rule` for a scenario, by the cross-entropy method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from berth.families.placement.policies.rule import Rule
from berth.families.placement.rule_runs import run_rule
from berth.families.placement.training.episodes import Episode
from berth.model import Floats

__all__ = ["RuleSearch", "rule_gain"]


def rule_gain(numbers: Floats, episodes: Sequence[Episode]) -> float:
    """What the rule with this length, beta and price earns for each unit that greedy with a queue earns."""
    length, beta, price = (float(x) for x in numbers)
    gains = []
    for episode in episodes:
        ranks = Rule.ranks(episode.tasks, episode.problem.weight, length)
        gains.append(run_rule(episode.problem, episode.tasks, ranks, beta, price).gain / episode.plain)
    return float(np.mean(gains))


class RuleSearch:
    """Draw many triples, keep the best quarter, draw the next ones near them."""

    def __init__(self, tries: int = 24) -> None:
        self.tries = tries
        self._centre = np.array([1.0, 0.5, 0.1])
        self._width = np.array([0.7, 0.4, 0.1])

    @property
    def numbers(self) -> Floats:
        """Length, beta and price as found so far."""
        return self._allowed(self._centre)

    @staticmethod
    def _allowed(numbers: Floats) -> Floats:
        return np.concatenate([numbers[..., :1], np.abs(numbers[..., 1:])], axis=-1)

    def step(self, episodes: Sequence[Episode], rng: np.random.Generator, rate: float = 1.0) -> float:
        """One round; gives the mean of what all triples earned."""
        drawn = self._allowed(self._centre + self._width * rng.standard_normal((self.tries, 3)))
        earned = np.array([rule_gain(numbers, episodes) for numbers in drawn])
        best = drawn[np.argsort(-earned, kind="stable")[: max(self.tries // 4, 2)]]
        self._centre = best.mean(axis=0)
        self._width = np.maximum(0.7 * self._width + 0.3 * best.std(axis=0), 1e-3) * 0.95
        return float(earned.mean())

    def state(self) -> dict[str, Any]:
        """All that is needed to go on later, as JSON can keep it."""
        return {"centre": self._centre.tolist(), "width": self._width.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._centre, self._width = (np.array(state[name], dtype=np.float64) for name in ("centre", "width"))
