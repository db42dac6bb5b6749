"""ε-greedy: mostly the choice that looks best, sometimes a random one."""

from __future__ import annotations

import numpy as np

from berth.families.selection.policies.index import IndexPolicy
from berth.families.selection.policies.statistics import check_at_least
from berth.families.selection.problem import SelectionProblem
from berth.model import Floats

__all__ = ["EpsilonGreedy"]


class EpsilonGreedy(IndexPolicy):
    """Opens the best choice for the observed mean gains; with probability ε, for random gains instead.

    In slot t, ε is `epsilon` / (1 + t / `decay`); `decay=0` keeps it at `epsilon`. `scale`, `discount`, `window`,
    `pooled` and `gap` are those of `escb`.

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> EpsilonGreedy(problem, np.random.default_rng(0)).decide(slot)
    array([1, 0, 0])
    """

    reference = "Auer et al., Finite-time Analysis of the Multiarmed Bandit Problem, for choices of channels"

    def __init__(
        self,
        problem: SelectionProblem,
        rng: np.random.Generator,
        *,
        epsilon: float = 0.5,
        decay: float = 50.0,
        scale: float = 1.0,
        discount: float = 1.0,
        window: int | None = None,
        pooled: bool = False,
        gap: float = 1e-4,
    ) -> None:
        super().__init__(problem, rng, scale=scale, discount=discount, window=window, pooled=pooled, gap=gap)
        self.epsilon, self.decay = check_at_least(epsilon, "epsilon"), check_at_least(decay, "decay")

    def index(self) -> tuple[Floats, Floats]:
        seen = self.statistics
        chance = self.epsilon / (1.0 + seen.time / self.decay) if self.decay > 0 else self.epsilon
        explore = self.rng.random() < chance
        # drawn gains exceed the costs: exploration that opens nothing would teach nothing
        mean, _ = self.believed()
        drawn = self.problem.cost + self.scale * self.rng.random(mean.shape)
        return drawn if explore else mean, np.zeros(mean.shape)
