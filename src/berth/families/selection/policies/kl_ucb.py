"""KL-UCB for each channel."""

from __future__ import annotations

import numpy as np

from berth.families.selection.kernels.channels import kl_upper
from berth.families.selection.policies.index import OptimisticPolicy
from berth.model import Floats

__all__ = ["KLUCB"]


class KLUCB(OptimisticPolicy):
    """Values each channel at the largest mean q with n·kl(v̂, q) ≤ p·ln(t + 1), for gains in [0, scale].

    Near 0 and near `scale`, where a bounded gain cannot vary much, it is tighter than `cucb`. `p` defaults to .25, or
    .05 with forgetting; other settings are those of `escb`.

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> KLUCB(problem).decide(slot)
    array([1, 0, 0])
    """

    reference = "Garivier & Cappé, The KL-UCB Algorithm for Bounded Stochastic Bandits and Beyond, channel by channel"

    def index(self) -> tuple[Floats, Floats]:
        mean, tasks = self.believed()
        upper = np.empty(mean.shape)
        kl_upper(mean / self.scale, self.g(self.statistics.time) / tasks, upper)
        return self.scale * upper, np.zeros(upper.shape)
