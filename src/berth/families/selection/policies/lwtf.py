"""LWTF: longest-waiting port first."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.families.selection.policies.baseline import Baseline
from berth.families.selection.problem import SelectionProblem, SelectionSlot
from berth.model import Ints

__all__ = ["LWTF"]


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
