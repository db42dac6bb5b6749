"""Baselines of ESDP's papers: channels are opened in an order while they fit."""

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

__all__ = ["HAUF", "LCF", "LWTF", "Baseline"]


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


class HAUF(Baseline):
    """Ports by the sum of their channels' average net gain, highest first; within a port, the best channel first.

    One paper calls it HAUF, the other HSWF; both names are registered. `misfit` is `"stop"` or `"skip"`.

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> HAUF(problem).decide(slot)
    array([1, 0, 0])
    """

    reference = "ESDP, section 4.1, baseline HAUF (AOU version), HSWF (social-welfare version)"

    def order(self) -> Ints:
        ports, net = self.problem.instance.channel_port, self.net
        total = np.bincount(ports, weights=net, minlength=len(self.problem.instance.ports))
        return np.lexsort((-net, ports, -total[ports])).astype(np.int64)


class LCF(Baseline):
    """Channels by their supply cost, lowest first, regardless of gain. `misfit` is `"stop"` or `"skip"`.

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> LCF(problem).decide(slot)
    array([1, 0, 0])
    """

    reference = "ESDP, section 4.1, baseline LCF"

    def __init__(self, problem: SelectionProblem, rng: Any = None, *, misfit: str = "stop") -> None:
        super().__init__(problem, rng, misfit=misfit)
        self._order = np.argsort(problem.cost, kind="stable").astype(np.int64)

    def order(self) -> Ints:
        return self._order


class LWTF(Baseline):
    """Ports by the number of jobs dropped since one was served, most first; within a port, the best channel first.

    A job that is not served in its slot is dropped, so the port waits. `misfit` is `"stop"` or `"skip"`.

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> LWTF(problem).decide(slot)
    array([1, 0, 0])
    """

    reference = "ESDP, section 4.1, baseline LWTF"

    def __init__(self, problem: SelectionProblem, rng: Any = None, *, misfit: str = "stop") -> None:
        super().__init__(problem, rng, misfit=misfit)
        self._waited = np.zeros(len(problem.instance.ports), dtype=np.int64)

    def order(self) -> Ints:
        ports = self.problem.instance.channel_port
        return np.lexsort((-self.net, ports, -self._waited[ports])).astype(np.int64)

    def decide(self, slot: SelectionSlot, /) -> Ints:
        decision = super().decide(slot)
        served = np.zeros(self._waited.shape, dtype=bool)
        served[self.problem.instance.channel_port[decision > 0]] = True
        self._waited = np.where(served, 0, self._waited + (slot.arrivals > 0))
        return decision
