"""What index policies share: what they believe of each channel, and the question that an index puts to the solvers.

Axes: E channels, J jobs, L ports.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.selection import solvers
from berth.families.selection.policies.pooled import PooledPrior
from berth.families.selection.policies.statistics import Statistics, check_at_least
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.families.selection.solvers import Choice, GangQuestion, Question
from berth.model import Floats, Ints

__all__ = ["IndexPolicy", "OptimisticPolicy", "most_open", "no_roles", "solved"]


def no_roles(problem: SelectionProblem, policy: object) -> SelectionProblem:
    """The problem itself, refused when it has gangs that this policy would break."""
    if problem.roles is not None:
        raise UnsupportedProblem(f"{type(policy).__name__} cannot keep gangs whole; use escb")
    return problem


def solved(problem: SelectionProblem, slot: SelectionSlot, gain: Floats, spread: Floats, gap: float) -> Choice:
    """The best choice over all channels (E,) for these gains after costs (E,) and spreads (E,), within `gap`.

    Only ports that have a job are asked about, and only what is free now.
    """
    if problem.roles is not None:
        question = GangQuestion(
            gain,
            spread,
            problem.takes,
            problem.channel_pool,
            slot.free,
            problem.instance.channel_port,
            problem.roles.job_of_port,
            problem.roles.minimum,
            problem.roles.most,
            slot.arrivals > 0,
        )
        return solvers.choose_gang(question)
    there = np.flatnonzero(problem.available(slot))
    takes, pool = problem.takes[there], problem.channel_pool[there]
    choice = solvers.choose(Question(gain[there], spread[there], takes, pool, slot.free), gap=gap)
    tasks = np.zeros(len(gain), dtype=np.int64)
    tasks[there] = choice.tasks
    return Choice(tasks, choice.value, choice.bound)


def most_open(takes: Floats, pool: Ints, limits: Floats) -> int:
    """No choice opens more channels than this: how many of the smallest demands fit in each pool."""
    most = np.bincount(pool, minlength=len(limits))
    start = np.cumsum(most) - most
    for demand, limit in zip(takes.T, limits.T, strict=True):
        order = np.lexsort((demand, pool))
        filled = np.concatenate([[0.0], np.cumsum(demand[order])])
        within = pool[order]
        used = filled[1:] - filled[start][within]
        fits = used <= limit[within] + 1e-9 * (1.0 + filled[-1])  # a count too many does no harm, one too few would
        most = np.minimum(most, np.bincount(within[fits], minlength=len(limits)))
    return int(most.sum())


class IndexPolicy(ABC):
    """Opens what maximises an index: `index` says for each channel what a task may gain, and how unsure that is.

    Channels that were never opened get a gain so large that opening one more of them outweighs all else, but finite:
    they are tried as fast as they fit, and the rest of the capacity is still used well. `choice` is the last answer of
    the solver over all channels, with its value and upper bound in terms of the index.

    Settings of all of them:

    * `scale`: the range of a gain;
    * `discount`, `window`: forget, for gains that change (γ = .998 when they change abruptly);
    * `pooled`: begin with what a channel's port, server and class of servers tell (`PooledPrior`) in place of trying
      every channel first;
    * `gap`: how near to the best index the solver must come, relative.
    """

    family = "selection"
    reference = "none: a base class"
    explores_first = True
    """Whether channels that were never opened are tried before all others."""

    def __init__(
        self,
        problem: SelectionProblem,
        rng: Any = None,
        *,
        scale: float = 1.0,
        discount: float = 1.0,
        window: int | None = None,
        pooled: bool = False,
        gap: float = 1e-4,
    ) -> None:
        self.problem, self.rng = problem, rng
        self.scale = check_at_least(scale, "scale", above=True)
        self.gap = check_at_least(gap, "gap")
        self.statistics = Statistics(len(problem.cost), discount, window)
        if not isinstance(pooled, bool):
            raise InvalidInput("true or false", value=pooled, key="pooled")
        self.pooled = PooledPrior(problem, self.scale) if pooled else None
        if pooled:
            self.explores_first = False
        self.choice: Choice | None = None
        self._most = most_open(problem.takes, problem.channel_pool, problem.limits)

    @abstractmethod
    def index(self) -> tuple[Floats, Floats]:
        """Gain of a task before costs (E,) and spread (E,); what it says of channels never opened may not matter."""

    def believed(self) -> tuple[Floats, Floats]:
        """The mean gain of each channel (E,), and from how many tasks it is known (E,), never 0."""
        if self.pooled is None:
            return self.statistics.mean, self.statistics.tried
        return self.pooled.mean, self.pooled.tasks

    def noise(self) -> Floats:
        """The variance of the gain of a task in each channel, (E,)."""
        return self.statistics.variance(self.scale**2 / 4.0) if self.pooled is None else self.pooled.noise

    def decide(self, slot: SelectionSlot, /) -> Ints:
        self.statistics.advance(slot.index)
        if self.pooled is not None:
            self.pooled.update(self.statistics)
        gain, spread = self.index()
        gain = gain - self.problem.cost
        if self.explores_first:
            unseen = self.statistics.unseen
            if unseen.any():
                spread = np.where(unseen, 0.0, spread)
                gain = np.where(unseen, -self.problem.cost, gain)
                gain[unseen] += self._outweighing(slot, gain + np.sqrt(spread))
        self.choice = solved(self.problem, slot, gain, spread, self.gap)
        return np.array(self.choice.tasks, dtype=np.int64)

    def _outweighing(self, slot: SelectionSlot, worth: Floats) -> float:
        """More than all that channels already seen can be worth together in this slot."""
        problem = self.problem
        worth = np.where(problem.available(slot), np.maximum(worth, 0.0), 0.0)
        if problem.roles is not None:
            best = np.zeros(len(problem.instance.ports))
            np.maximum.at(best, problem.instance.channel_port, worth)
            return 1.0 + float(best @ problem.roles.most) + float(np.abs(problem.cost).max(initial=0.0))
        most = min(self._most, worth.size)
        best = np.partition(worth, worth.size - most)[worth.size - most :] if most else np.zeros(0)
        return 1.0 + float(best.sum()) + float(np.abs(problem.cost).max(initial=0.0))

    def observe(self, outcome: SelectionOutcome, /) -> None:
        self.statistics.learn(outcome)


class OptimisticPolicy(IndexPolicy):
    """An index policy whose confidence grows with g = `p`·ln(t + 1), for gains within a range of `scale`.

    What is forgotten is explored again for ever, and costs that much each time: so `p` is smaller where it forgets.
    """

    usual_p, forgetting_p = 0.25, 0.05
    """What `p` is unless it is given: where statistics last, and where they do not."""

    def __init__(
        self,
        problem: SelectionProblem,
        rng: Any = None,
        *,
        p: float | None = None,
        scale: float = 1.0,
        discount: float = 1.0,
        window: int | None = None,
        pooled: bool = False,
        gap: float = 1e-4,
    ) -> None:
        super().__init__(problem, rng, scale=scale, discount=discount, window=window, pooled=pooled, gap=gap)
        usual = self.forgetting_p if self.statistics.forgets else self.usual_p
        self.p = check_at_least(usual if p is None else p, "p")

    def g(self, time: float) -> float:
        """The width of the confidence region when statistics look back on this many slots."""
        return self.p * math.log(time + 1.0)
