"""Upper confidence bounds: ESCB, ESCB-V, CUCB and KL-UCB."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.selection import solvers
from berth.families.selection.kernels.channels import kl_upper
from berth.families.selection.policies.index import OptimisticPolicy
from berth.families.selection.problem import SelectionProblem
from berth.families.selection.solvers import Question
from berth.model import Floats

__all__ = ["CUCB", "ESCB", "ESCBV", "KLUCB"]


class ESCB(OptimisticPolicy):
    """Maximises v̂ᵀx − costᵀx + √(σ²ᵀx), σ² = g / 2n: optimism about the whole choice, not each channel.

    It considers only ports that have a job and the free capacity of each pool, does not round σ², and counts only
    channels really opened before this slot. With gangs it chooses whole gangs.

    Settings:

    * `p`: g = p·ln(t + 1), for gains within a range of `scale`; default: .2, or .05 with forgetting (forgotten channels
      are explored again for ever, at a cost each time);
    * `radius`: `"log"` for that g; `"theory"` for ln t + 4·m·ln(ln t + 1), with m the most channels that can be open;
    * `scale`: the range of a gain;
    * `discount`, `window`: forget old observations, for gains that change (γ = .998 for abrupt changes);
    * `pooled`: start from a prior by a channel's port, server and server class instead of trying every channel;
    * `gap`: relative optimality gap of the solver.

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> policy = ESCB(problem)
    >>> policy.decide(slot)
    array([1, 0, 0])
    >>> policy.choice.gap <= 1e-4
    True
    """

    usual_p = 0.2
    reference = "Combes et al., Combinatorial Bandits Revisited (ESCB-2), as used by the ESDP papers, on Ω(t)"

    def __init__(
        self,
        problem: SelectionProblem,
        rng: Any = None,
        *,
        p: float | None = None,
        radius: str = "log",
        scale: float = 1.0,
        discount: float = 1.0,
        window: int | None = None,
        pooled: bool = False,
        gap: float = 1e-4,
    ) -> None:
        super().__init__(problem, rng, p=p, scale=scale, discount=discount, window=window, pooled=pooled, gap=gap)
        if radius not in ("log", "theory"):
            raise InvalidInput("'log' or 'theory'", value=radius, key="radius")
        self.radius = radius
        self.most = 0
        if radius == "theory":
            if problem.roles is not None:
                raise UnsupportedProblem("radius='theory' counts channels, not gangs; use radius='log'")
            ones = np.ones(len(problem.cost))
            question = Question(ones, 0.0 * ones, problem.takes, problem.channel_pool, problem.limits)
            self.most = math.floor(solvers.choose(question).bound + 1e-6)

    def g(self, time: float) -> float:
        if self.radius == "log":
            return super().g(time)
        return math.log(time + 1.0) + 4.0 * self.most * math.log(math.log(time + 1.0) + 1.0)

    def index(self) -> tuple[Floats, Floats]:
        mean, tasks = self.believed()
        return mean, self.scale**2 * self.g(self.statistics.time) / (2.0 * tasks)


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
