"""ESCB with a learned noise variance for each channel."""

from __future__ import annotations

from berth.families.selection.policies.index import OptimisticPolicy
from berth.model import Floats

__all__ = ["ESCBV"]


class ESCBV(OptimisticPolicy):
    """ESCB with σ² = 2·variance·p·ln(t + 1) / n: channels with little noise need few tries.

    The variance is the observed one, together with one observation of the largest variance that a gain within a range
    of `scale` can have, so two equal draws do not make a channel certain. `p` defaults to .25, or .05 with forgetting;
    other settings are those of `escb`.

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> ESCBV(problem).decide(slot)
    array([1, 0, 0])
    """

    reference = "Degenne & Perchet, Combinatorial semi-bandit with known covariance; Audibert et al., UCB-V"

    def index(self) -> tuple[Floats, Floats]:
        mean, tasks = self.believed()
        return mean, 2.0 * self.g(self.statistics.time) * self.noise() / tasks
