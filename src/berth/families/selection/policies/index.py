"""Base classes of index policies: estimates of each channel, and the problem that an index poses to the solvers.

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
    """Return the problem, or refuse it if it has gangs that this policy would break."""
    if problem.roles is not None:
        raise UnsupportedProblem(f"{type(policy).__name__} cannot keep gangs whole; use escb")
    return problem


def solved(problem: SelectionProblem, slot: SelectionSlot, gain: Floats, spread: Floats, gap: float) -> Choice:
    """Best choice over all channels (E,) for these gains after costs (E,) and spreads (E,), within `gap`.

    Only ports that have a job count, with the capacity that is free now.
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
    """Upper bound on the number of open channels: how many of the smallest demands fit in each pool."""
    most = np.bincount(pool, minlength=len(limits))
    start = np.cumsum(most) - most
    for demand, limit in zip(takes.T, limits.T, strict=True):
        order = np.lexsort((demand, pool))
        filled = np.concatenate([[0.0], np.cumsum(demand[order])])
        within = pool[order]
        used = filled[1:] - filled[start][within]
        fits = used <= limit[within] + 1e-9 * (1.0 + filled[-1])  # a count too high is harmless, one too low is not
        most = np.minimum(most, np.bincount(within[fits], minlength=len(limits)))
    return int(most.sum())


class IndexPolicy(ABC):
    """Maximises an index: `index` gives each channel the expected gain of a task, and its uncertainty.

    A channel that was never opened gets a gain so large that opening one more of them outweighs all else, but finite:
    such channels are tried as fast as they fit, and the remaining capacity is still used well. `choice` is the last
    choice of the solver over all channels, with its value and upper bound in terms of the index.

    Settings of all index policies:

    * `scale`: the range of a gain;
    * `discount`, `window`: forget old observations, for gains that change (γ = .998 for abrupt changes);
    * `pooled`: start from a prior by a channel's port, server and server class (`PooledPrior`) instead of trying every
      channel first;
    * `gap`: relative optimality gap of the solver.
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
        """Gain of a task before costs (E,) and spread (E,); values of channels never opened may be unused."""

    def believed(self) -> tuple[Floats, Floats]:
        """Mean gain of each channel (E,), and the number of tasks behind it (E,), never 0."""
        if self.pooled is None:
            return self.statistics.mean, self.statistics.tried
        return self.pooled.mean, self.pooled.tasks

    def noise(self) -> Floats:
        """Variance of the gain of a task in each channel, (E,)."""
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
        """Upper bound on the total worth, in this slot, of all channels with observations."""
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
    """An index policy whose confidence width grows with g = `p`·ln(t + 1), for gains within a range of `scale`.

    Forgotten channels are explored again for ever, at a cost each time, so the default of `p` is smaller with
    forgetting.
    """

    usual_p, forgetting_p = 0.25, 0.05
    """Defaults of `p`: without and with forgetting."""

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
        """Width of the confidence region for statistics over this many slots."""
        return self.p * math.log(time + 1.0)
