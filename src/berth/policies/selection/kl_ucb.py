"""KL-UCB for each channel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.kernels.selection import kl_upper
from berth.model import Floats
from berth.policies.selection.index import IndexPolicy, check_at_least
from berth.problems.selection import SelectionProblem

__all__ = ["KLUCB"]


class KLUCB(IndexPolicy):
    """Takes each channel for the largest mean q with n·kl(v̂, q) ≤ p·ln(t + 1), for gains in [0, scale].

    Near 0 and near `scale`, where a bounded gain cannot vary much, it is surer than `cucb`. Settings are those of
    `escb`.

    >>> from berth.model import Instance
    >>> from berth.problems.selection import SelectionSlot
    >>> graph = Instance.from_arrays([[2.0], [1.0]], [[1.0], [1.0]], [(0, 0), (1, 0), (1, 1)])
    >>> problem = SelectionProblem(graph, cost=[0.1, 0.2, 0.0])
    >>> slot = SelectionSlot(0, problem.limits, np.array([1.0, 0.0]))
    >>> KLUCB(problem).decide(slot)
    array([1, 0, 0])
    """

    reference = "Garivier & Cappé, The KL-UCB Algorithm for Bounded Stochastic Bandits and Beyond, channel by channel"

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
        upper = np.empty(seen.count.shape)
        level = self.p * math.log(seen.time + 1.0)
        kl_upper(seen.mean / self.scale, level / np.where(seen.unseen, 1.0, seen.count), upper)
        return self.scale * upper, np.zeros(upper.shape)
