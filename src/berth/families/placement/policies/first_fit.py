"""First-Fit, a baseline of the DRL-Greedy paper."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from berth.errors import UnsupportedProblem
from berth.families.placement.policies.preferred import PreferredPolicy
from berth.families.placement.policies.queue_rule import QueueRule
from berth.families.placement.policies.rules import FCFS
from berth.families.placement.problem import PlacementDecision, PlacementProblem, PlacementSlot
from berth.model import Floats

__all__ = ["FirstFit"]


class FirstFit(PreferredPolicy):
    """Each task in order of arrival goes to the earliest opened server with room, else to the next new one.

    New servers come from a list that is shuffled once. Beyond the paper: a server that goes off loses its place and may
    be opened again, gains are ignored (`paying` false), and a task that fits nowhere waits.

    The paper has single tasks. If tasks are gangs, may use only some servers or share devices, every waiting task that
    fits starts, in order of arrival, on the first servers with room, those that are on before others.

    >>> from berth.testing import example_placement
    >>> FirstFit(example_placement(), np.random.default_rng(0)).waiting
    'queue'
    """

    reference = "Yang & Shen, DRL Enhanced Greedy Optimization for Online Scheduling of Batched Tasks, section 7.2"

    fit = "first"

    def __init__(
        self, problem: PlacementProblem, rng: np.random.Generator, *, waiting: str = "queue", paying: bool = False
    ) -> None:
        self._queue: FCFS | None = None
        if problem.beyond_single:
            if waiting != "queue" or paying:
                raise UnsupportedProblem(f"first-fit with waiting=queue alone serves {problem.beyond_single}")
            self.problem, self._queue = problem, FCFS(problem, rng, backfill="any", fit="first")
            return
        super().__init__(problem, waiting=waiting, paying=paying)
        self._list = rng.permutation(len(problem.speed)).astype(np.float64)
        self._opened = np.full(len(problem.speed), np.inf)  # order of opening

    @property
    def queue_rule(self) -> QueueRule | None:
        """The policy as data, where it is a queue."""
        return None if self._queue is None else self._queue.queue_rule

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        return super().decide(slot) if self._queue is None else self._queue.decide(slot)

    def rank(self, slot: PlacementSlot) -> Floats:
        return np.zeros(len(slot.ids))

    def keys(self, slot: PlacementSlot, on: NDArray[np.bool_]) -> tuple[Floats, Floats, float]:
        self._opened[~on] = np.inf
        known = np.isfinite(self._opened)
        fresh = np.flatnonzero(on & ~known)  # on before this policy started, or by a repaired decision
        latest = float(self._opened[known].max(initial=-1.0)) + 1.0
        self._opened[fresh] = latest + np.arange(len(fresh))
        return self._opened, self._list, latest + len(fresh)
