"""ESCB that learns how noisy each channel is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.model import Floats
from berth.policies.selection.index import IndexPolicy, check_at_least
from berth.problems.selection import SelectionProblem

__all__ = ["ESCBV"]


class ESCBV(IndexPolicy):
    """ESCB with σ² = 2·variance·p·ln(t + 1) / n: channels with little noise need few tries.

    The variance is that of what was seen, together with one observation of the largest variance that a gain within a
    range of `scale` can have, so that two equal draws do not make a channel certain. Other settings are those of
    `escb`.

    >>> from berth.model import Instance
    >>> from berth.problems.selection import SelectionSlot
    >>> graph = Instance.from_arrays([[2.0], [1.0]], [[1.0], [1.0]], [(0, 0), (1, 0), (1, 1)])
    >>> problem = SelectionProblem(graph, cost=[0.1, 0.2, 0.0])
    >>> slot = SelectionSlot(0, problem.limits, np.array([1.0, 0.0]))
    >>> ESCBV(problem).decide(slot)
    array([1, 0, 0])
    """

    reference = "Degenne & Perchet, Combinatorial semi-bandit with known covariance; Audibert et al., UCB-V"

    def __init__(
        self,
        problem: SelectionProblem,
        rng: Any = None,
        *,
        p: float = 0.25,
        scale: float = 1.0,
        discount: float = 1.0,
        window: int | None = None,
        gap: float = 1e-4,
    ) -> None:
        super().__init__(problem, discount=discount, window=window, gap=gap)
        self.p, self.scale = check_at_least(p, "p"), check_at_least(scale, "scale", above=True)

    def index(self) -> tuple[Floats, Floats]:
        seen = self.statistics
        variance = seen.variance(self.scale**2 / 4.0)
        level = 2.0 * self.p * math.log(seen.time + 1.0)
        return seen.mean, level * variance / np.where(seen.unseen, 1.0, seen.count)
