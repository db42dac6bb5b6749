"""CUCB: optimism about each channel by itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.model import Floats
from berth.policies.selection.index import IndexPolicy, check_at_least
from berth.problems.selection import SelectionProblem

__all__ = ["CUCB"]


class CUCB(IndexPolicy):
    """Takes each channel for v̂ + √(g / 2n), g = p·ln(t + 1): where one channel is open at a time, `escb` itself.

    Where m are, it allows for m channels being unlucky at once, and so explores more. The published constant is
    p = 3. Settings are those of `escb`.

    >>> from berth.model import Instance
    >>> from berth.problems.selection import SelectionSlot
    >>> graph = Instance.from_arrays([[2.0], [1.0]], [[1.0], [1.0]], [(0, 0), (1, 0), (1, 1)])
    >>> problem = SelectionProblem(graph, cost=[0.1, 0.2, 0.0])
    >>> slot = SelectionSlot(0, problem.limits, np.array([1.0, 0.0]))
    >>> CUCB(problem, p=3.0).decide(slot)
    array([1, 0, 0])
    """

    reference = "Chen et al., Combinatorial Multi-Armed Bandit: General Framework and Applications"

    def __init__(
        self,
        problem: SelectionProblem,
        rng: Any = None,
        *,
        p: float = 0.2,
        scale: float = 1.0,
        discount: float = 1.0,
        window: int | None = None,
        gap: float = 1e-4,
    ) -> None:
        super().__init__(problem, discount=discount, window=window, gap=gap)
        self.p, self.scale = check_at_least(p, "p"), check_at_least(scale, "scale", above=True)

    def index(self) -> tuple[Floats, Floats]:
        seen = self.statistics
        level = self.p * math.log(seen.time + 1.0) / 2.0
        bonus = self.scale * np.sqrt(level / np.where(seen.unseen, 1.0, seen.count))
        return seen.mean + bonus, np.zeros(bonus.shape)
