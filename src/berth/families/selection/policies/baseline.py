"""Base class of the papers' baselines: open channels in an order while they fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.families.selection.kernels.channels import fill
from berth.families.selection.policies.index import no_roles
from berth.families.selection.policies.statistics import Statistics
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.model import Floats, Ints

__all__ = ["Baseline"]


class Baseline(ABC):
    """Ranks channels of ports that have a job and opens them in that order.

    "In turn until the constraint cannot be satisfied" has two readings: `misfit="stop"` stops at the first channel that
    does not fit, `misfit="skip"` skips it and tries the next. Gains are averages of the observations, 0 for a channel
    never opened.
    """

    family = "selection"
    reference = "none: a base class"

    def __init__(self, problem: SelectionProblem, rng: Any = None, *, misfit: str = "stop") -> None:
        self.problem = no_roles(problem, self)
        if misfit not in ("stop", "skip"):
            raise InvalidInput("'stop' or 'skip'", value=misfit, key="misfit")
        self.misfit = misfit
        self.statistics = Statistics(len(problem.cost))

    @abstractmethod
    def order(self) -> Ints:
        """All channels (E,), in the order to open them."""

    @property
    def net(self) -> Floats:
        """Average observed net gain of each channel, 0 if never opened, (E,)."""
        return np.where(self.statistics.unseen, 0.0, self.statistics.mean - self.problem.cost)

    def decide(self, slot: SelectionSlot, /) -> Ints:
        problem = self.problem
        ranked = self.order()
        decision = np.zeros(len(problem.cost), dtype=np.int64)
        there = np.ascontiguousarray(ranked[problem.available(slot)[ranked]])
        fill(there, problem.channel_pool, problem.takes, self.misfit == "skip", slot.free.copy(), decision)
        return decision

    def observe(self, outcome: SelectionOutcome, /) -> None:
        self.statistics.learn(outcome)
