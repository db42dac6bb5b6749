"""ESCB on the ports that have a job: berth's policy for gains that must be learned."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.selection import solvers
from berth.families.selection.policies.index import OptimisticPolicy
from berth.families.selection.problem import SelectionProblem
from berth.families.selection.solvers import Question
from berth.model import Floats

__all__ = ["ESCB"]


class ESCB(OptimisticPolicy):
    """Opens what maximises v̂ᵀx − costᵀx + √(σ²ᵀx), σ² = g / 2n: optimism about the whole choice, not each channel.

    It looks only at ports that have a job and at what is free in each pool, keeps σ² as it is, and counts only what was
    really opened before this slot. With gangs it asks for whole gangs.

    Settings:

    * `p`: g = p·ln(t + 1), for gains within a range of `scale`; unless given, .2, and .05 where it forgets (what is
      forgotten is explored again for ever, and costs that much each time);
    * `radius`: `"log"` for that g; `"theory"` for ln t + 4·m·ln(ln t + 1), with m the most channels that can be open;
    * `scale`: the range of a gain;
    * `discount`, `window`: forget, for gains that change (γ = .998 when they change abruptly);
    * `pooled`: begin with what a channel's port, server and class of servers tell, in place of trying every channel;
    * `gap`: how near to the best index the solver must come, relative.

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
