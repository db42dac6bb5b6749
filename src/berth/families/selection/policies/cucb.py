"""CUCB: optimism about each channel by itself."""

from __future__ import annotations

import numpy as np

from berth.families.selection.policies.index import OptimisticPolicy
from berth.model import Floats

__all__ = ["CUCB"]


class CUCB(OptimisticPolicy):
    """Values each channel at v̂ + √(g / 2n), g = p·ln(t + 1); equals `escb` if one channel is open at a time.

    With m open channels it allows for all m being unlucky at once, and so explores more. The published constant is p =
    3; here the default is .2, or .05 with forgetting. Other settings are those of `escb`.

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> CUCB(problem, p=3.0).decide(slot)
    array([1, 0, 0])
    """

    usual_p = 0.2
    reference = "Chen et al., Combinatorial Multi-Armed Bandit: General Framework and Applications"

    def index(self) -> tuple[Floats, Floats]:
        mean, tasks = self.believed()
        bonus = self.scale * np.sqrt(self.g(self.statistics.time) / (2.0 * tasks))
        return mean + bonus, np.zeros(bonus.shape)
