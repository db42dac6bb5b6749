"""World of a selection run: mean gains, their noise and drift, arrivals, lost servers, delayed feedback.

Each slot draws the gain of *every* channel, opened or not, so all policies under one seed meet the same draws.

Axes: T slots, J jobs, E channels, G pools, K resources.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from berth.errors import InvalidInput
from berth.families.arrivals import given_arrivals, given_up, what_is_up
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.model import Floats, Ints, frozen_array

__all__ = ["Gains", "SelectionWorld", "Welfare", "welfare"]


class Gains(Protocol):
    """Gains of channels, slot by slot."""

    def __iter__(self) -> Iterator[tuple[Floats, Floats]]:
        """True means (E,) and drawn gains (E,) of one task for each slot; the same at every iteration."""
        ...


class SelectionWorld:
    """Yields slots and answers decisions.

    `arrivals` (T, J) holds 0 or 1. `gains` gives means and draws for each slot. `up` (T, G), if given, says which pools
    are up. Feedback of a slot reaches the policy `delay` (T,) slots later (0: at once; -1: never).

    n tasks on one channel gain n·mean + √n·(draw − mean): the moments of n independent tasks, from one draw.
    """

    measures = ("expected", "gain", "cost")
    """`expected` is the mean reward of the decision, which regret uses."""

    def __init__(
        self,
        problem: SelectionProblem,
        arrivals: ArrayLike,
        gains: Gains,
        up: ArrayLike | None = None,
        delay: ArrayLike | None = None,
    ) -> None:
        self.problem = problem
        self.arrivals = given_arrivals(arrivals, problem.jobs)
        self.gains = gains
        self.up = given_up(up, len(self.arrivals), len(problem.limits))
        self.delay = None if delay is None else np.array(delay, dtype=np.int64)
        if self.delay is not None and self.delay.shape != (len(self.arrivals),):
            raise InvalidInput("delay (T,)", value=self.delay.shape, key="delay")
        self._now = -1
        self._means = self._draws = np.zeros(len(problem.cost))
        self._expected = 0.0
        self._waiting: dict[int, list[SelectionOutcome]] = {}

    def __len__(self) -> int:
        return len(self.arrivals)

    def free(self, index: int) -> Floats:
        """Capacity of the pools in this slot, (G, K)."""
        return what_is_up(self.problem.limits, self.up, index)

    def __iter__(self) -> Iterator[SelectionSlot]:
        self._waiting = {}
        index = -1
        for index, (means, draws) in zip(range(len(self)), self.gains, strict=False):
            self._now, self._means, self._draws = index, means, draws
            yield SelectionSlot(index, self.free(index), self.arrivals[index])
        if index + 1 < len(self):
            raise InvalidInput(f"gains for {len(self)} slots", value=index + 1, key="gains")

    def expected(self, decision: Ints) -> float:
        """Mean reward of this decision in the current slot."""
        return float(decision @ (self._means - self.problem.cost))

    def score(self, decision: Ints) -> float:
        """Reward of this decision in the current slot, feasible or not; has no side effect."""
        return self._outcome(np.asarray(decision)).reward

    def _outcome(self, decision: Ints) -> SelectionOutcome:
        opened = np.flatnonzero(decision)
        tasks = decision[opened].astype(np.int64)
        means, draws = self._means[opened], self._draws[opened]
        gains = tasks * means + np.sqrt(np.abs(tasks)) * (draws - means)
        reward = float(gains.sum() - tasks @ self.problem.cost[opened])
        return SelectionOutcome(self._now, opened, tasks, gains, reward)

    def step(self, decision: Ints) -> SelectionOutcome:
        """Play a feasible decision in the current slot."""
        self._expected = self.expected(decision)
        return self._outcome(decision)

    def measured(self, outcome: SelectionOutcome) -> tuple[float, ...]:
        """The numbers named in `measures`, for the slot just played."""
        cost = float(outcome.tasks @ self.problem.cost[outcome.channels])
        return self._expected, float(outcome.gains.sum()), cost

    def feedback(self, outcome: SelectionOutcome) -> list[SelectionOutcome]:
        """Outcomes that reach the policy at the end of this slot: late ones of earlier slots, perhaps this one."""
        wait = 0 if self.delay is None else int(self.delay[self._now])
        if wait >= 0:
            self._waiting.setdefault(self._now + wait, []).append(outcome)
        return self._waiting.pop(self._now, [])


@dataclass(frozen=True, eq=False)
class Welfare:
    """Division of a slot's reward: the utility of each job (J,), gains less payment, and that of the cluster."""

    jobs: Floats
    cluster: float

    @property
    def total(self) -> float:
        """Social welfare: independent of payments, which the cluster receives."""
        return float(self.jobs.sum()) + self.cluster


def welfare(problem: SelectionProblem, outcome: SelectionOutcome, payments: ArrayLike) -> Welfare:
    """Utilities of an outcome if a served job pays `payments` (J,), once for all its channels.

    One paper maximises this sum of utilities, the other the accumulated overall utility: both are the reward.

    >>> from berth.model import Instance
    >>> graph = Instance.from_arrays([[2.0]], [[1.0], [1.0]], [(0, 0), (1, 0)])
    >>> problem = SelectionProblem(graph, cost=[0.25, 0.5])
    >>> outcome = SelectionOutcome(0, np.array([0]), np.array([1]), np.array([1.0]), 0.75)
    >>> shared = welfare(problem, outcome, payments=[0.5, 0.5])
    >>> shared.jobs, shared.cluster, shared.total
    (array([0.5, 0. ]), 0.25, 0.75)
    """
    jobs = problem.channel_job[outcome.channels]
    gained: Floats = np.bincount(jobs, weights=outcome.gains, minlength=problem.jobs).astype(np.float64)
    served = np.bincount(jobs, minlength=problem.jobs) > 0
    paid = np.where(served, frozen_array(payments, "payments", (problem.jobs,), low=-np.inf), 0.0)
    cost = float(outcome.tasks @ problem.cost[outcome.channels])
    return Welfare(gained - paid, float(paid.sum()) - cost)
