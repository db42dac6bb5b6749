"""Combinatorial Thompson sampling: play the best choice of a world drawn from what is believed."""

from __future__ import annotations

import numpy as np

from berth.errors import InvalidInput
from berth.families.selection.policies.index import IndexPolicy, check_at_least
from berth.families.selection.problem import SelectionProblem
from berth.model import Floats

__all__ = ["CTS"]


class CTS(IndexPolicy):
    """Draws the mean of every channel from its posterior and opens what is best for those means.

    Settings:

    * `prior`: `"gaussian"` draws N(mean, width²·variance / n) with the variance that was seen (as `escb-v` takes it);
      `"beta"` draws Beta(1 + gains, 1 + n − gains), for gains in [0, scale], and tries no channel first;
    * `width`: how far Gaussian draws stray;
    * `scale`, `discount`, `window`, `gap`: as in `escb`.

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
        gap: float = 1e-4,
    ) -> None:
        super().__init__(problem, rng, scale=scale, discount=discount, window=window, gap=gap)
        if prior not in ("gaussian", "beta"):
            raise InvalidInput("'gaussian' or 'beta'", value=prior, key="prior")
        self.prior, self.width = prior, check_at_least(width, "width")
        self.explores_first = prior == "gaussian"

    def index(self) -> tuple[Floats, Floats]:
        seen = self.statistics
        none = np.zeros(seen.count.shape)
        if self.prior == "beta":
            won = np.clip(seen.mean / self.scale, 0.0, 1.0) * seen.count
            return self.scale * self.rng.beta(1.0 + won, 1.0 + seen.count - won), none
        deviation = np.sqrt(seen.variance(self.scale**2 / 4.0) / seen.tried)
        return seen.mean + self.width * deviation * self.rng.standard_normal(seen.count.shape), none
