"""What index policies share: statistics of each channel, and the question that an index puts to the solvers.

Axes: E channels, J jobs, L ports.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.selection import solvers
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.families.selection.solvers import Choice, GangQuestion, Question
from berth.model import Floats, Ints

__all__ = ["IndexPolicy", "OptimisticPolicy", "Statistics", "check_at_least", "most_open", "no_roles", "solved"]

UNSEEN = 1e-6  # weight of observations below which a channel counts as never opened: only discounting gets there


def check_at_least(value: object, key: str, low: float = 0.0, *, above: bool = False) -> float:
    """The value itself, refused when it is not a finite number ≥ (or, with `above`, >) `low`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidInput(f"a number {'>' if above else '≥'} {low:g}", value=value, key=key)
    if value < low or (above and value == low):
        raise InvalidInput(f"a number {'>' if above else '≥'} {low:g}", value=value, key=key)
    return float(value)


def no_roles(problem: SelectionProblem, policy: object) -> SelectionProblem:
    """The problem itself, refused when it has gangs that this policy would break."""
    if problem.roles is not None:
        raise UnsupportedProblem(f"{type(policy).__name__} cannot keep gangs whole; use escb")
    return problem


class Statistics:
    """What has been seen of each channel: weight of the tasks `count`, their `mean` gain, and its variance.

    Outcomes may come late, twice, in any order or never: each counts for the slot that it names. With `discount` γ an
    outcome of a slots ago weighs γᵃ; with `window` those of the last `window` slots weigh 1 and others nothing.

    A sum of n gains tells as much of the mean as n single ones, but of the variance only as much as one.

    >>> seen = Statistics(2)
    >>> seen.learn(SelectionOutcome(0, np.array([1]), np.array([2]), np.array([1.0]), 1.0))
    >>> seen.count, seen.mean
    (array([0., 2.]), array([0. , 0.5]))
    """

    def __init__(self, channels: int, discount: float = 1.0, window: int | None = None) -> None:
        if not check_at_least(discount, "discount", above=True) <= 1.0:
            raise InvalidInput("a number in (0, 1]", value=discount, key="discount")
        if window is not None and (int(check_at_least(window, "window", 1.0)) != window):
            raise InvalidInput("a whole number ≥ 1, or none", value=window, key="window")
        if window is not None and discount < 1.0:
            raise InvalidInput("either a discount or a window, not both", value=(discount, window), key="window")
        self.discount, self.window = float(discount), window
        self.count = np.zeros(channels)
        self.mean = np.zeros(channels)
        self._squares = np.zeros(channels)  # Σ weight·(gain of a task − mean)²
        self._pulls = np.zeros(channels)
        self._now = 0
        self._kept: dict[int, list[tuple[Ints, Floats, Floats]]] = {}

    def advance(self, slot: int) -> None:
        """Let time pass until this slot."""
        passed = slot - self._now
        if passed <= 0:
            return
        self._now = slot
        if self.discount < 1.0:
            fade = self.discount**passed
            self.count *= fade
            self._squares *= fade
            self._pulls *= fade
        if self.window is not None:
            for old in [kept for kept in self._kept if kept <= slot - self.window]:
                for channels, tasks, each in self._kept.pop(old):
                    self._forget(channels, tasks, each)

    @property
    def forgets(self) -> bool:
        """Whether what was seen long ago counts less."""
        return self.discount < 1.0 or self.window is not None

    @property
    def time(self) -> float:
        """How many slots the statistics look back on: all of them, or as many as the discount or window leaves."""
        slots = self._now + 1.0
        if self.discount < 1.0:
            return (1.0 - math.pow(self.discount, slots)) / (1.0 - self.discount)
        return slots if self.window is None else min(slots, float(self.window))

    @property
    def unseen(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Channels (E,) of which nothing is known."""
        return self.count < UNSEEN

    @property
    def tried(self) -> Floats:
        """`count`, but 1 for channels of which nothing is known: what to divide by, (E,)."""
        return np.where(self.unseen, 1.0, self.count)

    def variance(self, prior: float, weight: float = 1.0) -> Floats:
        """Of the gain of one task, (E,): what was seen, together with `weight` observations of variance `prior`."""
        degrees = np.maximum(self._pulls - 1.0, 0.0)
        return (self._squares + weight * prior) / (degrees + weight)

    def learn(self, outcome: SelectionOutcome) -> None:
        """Take an outcome in."""
        age = self._now - outcome.slot
        if not len(outcome.channels) or (self.window is not None and age >= self.window):
            return
        channels = np.array(outcome.channels)
        tasks = np.array(outcome.tasks, dtype=np.float64)
        each = outcome.gains / tasks
        weight = self.discount ** max(age, 0)
        tasks *= weight
        total = self.count[channels] + tasks
        shift = each - self.mean[channels]
        self.mean[channels] += shift * tasks / total
        self._squares[channels] += tasks * shift * (each - self.mean[channels])
        self.count[channels] = total
        self._pulls[channels] += weight
        if self.window is not None:
            self._kept.setdefault(outcome.slot, []).append((channels, tasks, each))

    def _forget(self, channels: Ints, tasks: Floats, each: Floats) -> None:
        left = self.count[channels] - tasks  # whole numbers: exact
        mean = self.mean[channels]
        with np.errstate(divide="ignore", invalid="ignore"):
            before = np.where(left > 0, mean - (each - mean) * tasks / left, 0.0)
        squares = self._squares[channels] - tasks * (each - before) * (each - mean)
        self.count[channels], self.mean[channels] = left, before
        self._squares[channels] = np.where(left > 0, np.maximum(squares, 0.0), 0.0)
        self._pulls[channels] -= 1.0


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
        gap: float = 1e-4,
    ) -> None:
        self.problem, self.rng = problem, rng
        self.scale = check_at_least(scale, "scale", above=True)
        self.gap = check_at_least(gap, "gap")
        self.statistics = Statistics(len(problem.cost), discount, window)
        self.choice: Choice | None = None
        self._most = most_open(problem.takes, problem.channel_pool, problem.limits)

    @abstractmethod
    def index(self) -> tuple[Floats, Floats]:
        """Gain of a task before costs (E,) and spread (E,); what it says of channels never opened may not matter."""

    def decide(self, slot: SelectionSlot, /) -> Ints:
        self.statistics.advance(slot.index)
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
        gap: float = 1e-4,
    ) -> None:
        super().__init__(problem, rng, scale=scale, discount=discount, window=window, gap=gap)
        usual = self.forgetting_p if self.statistics.forgets else self.usual_p
        self.p = check_at_least(usual if p is None else p, "p")

    def g(self, time: float) -> float:
        """The width of the confidence region when statistics look back on this many slots."""
        return self.p * math.log(time + 1.0)
