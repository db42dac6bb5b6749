"""Combinatorial Thompson sampling: play the best choice of a world drawn from the posterior."""

from __future__ import annotations

import numpy as np

from berth.errors import InvalidInput
from berth.families.selection.policies.index import IndexPolicy
from berth.families.selection.policies.statistics import check_at_least
from berth.families.selection.problem import SelectionProblem
from berth.model import Floats

__all__ = ["CTS"]


class CTS(IndexPolicy):
    """Draws the mean of every channel from its posterior and opens the best choice for those means.

    Settings:

    * `prior`: `"gaussian"` draws N(mean, width²·variance / n) with the observed variance (as in `escb-v`);
      `"beta"` draws Beta(1 + gains, 1 + n − gains), for gains in [0, scale], and has no initial round;
    * `width`: factor on the standard deviation of Gaussian draws;
    * `scale`, `discount`, `window`, `pooled`, `gap`: as in `escb`.

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> CTS(problem, np.random.default_rng(0)).decide(slot)
    array([1, 0, 0])
    """

    reference = "Wang & Chen, Thompson Sampling for Combinatorial Semi-Bandits, with empirical variances"

    def __init__(
        self,
        problem: SelectionProblem,
        rng: np.random.Generator,
        *,
        prior: str = "gaussian",
        width: float = 0.7,
        scale: float = 1.0,
        discount: float = 1.0,
        window: int | None = None,
        pooled: bool = False,
        gap: float = 1e-4,
    ) -> None:
        super().__init__(problem, rng, scale=scale, discount=discount, window=window, pooled=pooled, gap=gap)
        if prior not in ("gaussian", "beta"):
            raise InvalidInput("'gaussian' or 'beta'", value=prior, key="prior")
        self.prior, self.width = prior, check_at_least(width, "width")
        self.explores_first = prior == "gaussian" and not pooled

    def index(self) -> tuple[Floats, Floats]:
        mean, tasks = self.believed()
        none = np.zeros(mean.shape)
        if self.prior == "beta":
            count = self.statistics.count if self.pooled is None else tasks
            won = np.clip(mean / self.scale, 0.0, 1.0) * count
            return self.scale * self.rng.beta(1.0 + won, 1.0 + count - won), none
        return mean + self.width * np.sqrt(self.noise() / tasks) * self.rng.standard_normal(mean.shape), none
