"""The reservation index: berth's default learner.

Axes: E channels, L ports.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.families.selection.kernels.reservation import (
    OCTAVES,
    STEPS,
    pool_values,
    reservation_values,
    standard_values,
)
from berth.families.selection.policies.drift import DriftWatch
from berth.families.selection.policies.index import IndexPolicy
from berth.families.selection.policies.pooled import PooledPrior
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.model import Floats, Ints

__all__ = ["Reservation"]


class Reservation(IndexPolicy):
    """Asks of each channel up to which sure gain a try of it still pays, and opens what has the largest sum.

    What is known of ports, servers and classes of servers is the prior of channels that were never opened: no channel
    must be tried. How often knowledge will be used is how often it could have been used so far: a port that had n jobs
    expects n more. When gains change, it notices that a shorter memory predicts them better, and forgets.

    Settings:

    * `discount`, `window`: how it forgets; unless one is given, it finds out by itself (`DriftWatch`);
    * `scale`: the range of a gain, which matters only until a few channels were opened;
    * `gap`: how near to the best index the solver must come, relative.

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> policy = Reservation(problem)
    >>> policy.decide(slot)
    array([1, 0, 0])
    """

    reference = "berth; Weitzman, Optimal Search for the Best Alternative (1979), with a prior that is estimated"
    explores_first = False
    pooled: PooledPrior

    def __init__(
        self,
        problem: SelectionProblem,
        rng: Any = None,
        *,
        scale: float = 1.0,
        discount: float | None = None,
        window: int | None = None,
        gap: float = 1e-4,
    ) -> None:
        kept = 1.0 if discount is None else discount
        super().__init__(problem, rng, scale=scale, discount=kept, window=window, pooled=True, gap=gap)
        watched = discount is None and window is None
        self._watch = DriftWatch(len(problem.cost), self.scale) if watched else None
        graph = problem.instance
        self._job = np.arange(len(graph.ports)) if problem.roles is None else problem.roles.job_of_port
        self._came = np.zeros(problem.jobs)
        self._fresh = np.zeros(len(graph.ports))
        self._table = np.empty(OCTAVES * STEPS + 1)
        standard_values(self._table)

    def decide(self, slot: SelectionSlot, /) -> Ints:
        passed = max(slot.index - self.statistics.now, 0)
        if self._watch is not None:
            self._watch.advance(slot.index)
            self.statistics = self._watch.best
        self._came = self._came * self.statistics.fade(passed) + slot.arrivals
        return super().decide(slot)

    def observe(self, outcome: SelectionOutcome, /) -> None:
        if self._watch is None:
            super().observe(outcome)
        else:
            self._watch.learn(outcome)

    @property
    def uses(self) -> Floats:
        """How often each port (L,) will use what it learns: as often as it had jobs, at most as tasks were seen."""
        came: Floats = np.minimum(self._came[self._job], self.statistics.count.sum())
        return 1.0 + came

    def index(self) -> tuple[Floats, Floats]:
        pooled = self.pooled
        pool_values(*pooled.residuals(self.statistics), self.uses, self._fresh)
        fresh = pooled.mean + self._fresh[self.problem.instance.channel_port]
        index = self.values(pooled.mean, pooled.variance, pooled.noise)
        return np.where(self.statistics.unseen, fresh, index), np.zeros(index.shape)

    def values(self, mean: Floats, variance: Floats, noise: Floats) -> Floats:
        """The reservation values of channels (E,) of which this is believed, each (E,)."""
        index = np.empty(mean.shape)
        reservation_values(self.problem.instance.channel_port, mean, variance, noise, self.uses, self._table, index)
        return index
