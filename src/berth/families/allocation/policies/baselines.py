"""Baselines of OGASched's papers, and a random allocation: none of them learns."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.families.allocation.kernels.baselines import by_utilisation, one_after_another, proportional
from berth.families.allocation.policies.requests import Baseline, dominant_share_order, requested
from berth.families.allocation.problem import AllocationProblem, AllocationSlot
from berth.model import Floats

__all__ = ["DRF", "BinPacking", "Fairness", "RandomAllocation", "Spreading"]


class DRF(Baseline):
    """Ports in ascending order of their dominant share take their full requests while capacity lasts.

    If arrivals are hidden, every port counts as present.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> DRF(problem).decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    reference = "OGASched, section 4, baseline DRF; Ghodsi et al., NSDI 2011"

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        super().__init__(problem)
        self._order = dominant_share_order(problem)

    def decide(self, slot: AllocationSlot, /) -> Floats:
        graph = self.problem.instance
        decision = np.zeros(self.problem.cap.shape)
        left = slot.free.copy()
        wanted = requested(self.problem, slot)
        one_after_another(self._order, *graph.port_channels, graph.channel_server, wanted, left, decision)
        return decision


class Fairness(Baseline):
    """Proportional shares: c·a_l / Σ a over the jobs present, never more than a job requests.

    If arrivals are hidden, every port counts as present.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> Fairness(problem).decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    reference = "OGASched, section 4, baseline FAIRNESS"

    def decide(self, slot: AllocationSlot, /) -> Floats:
        decision = np.empty(self.problem.cap.shape)
        proportional(self.problem.instance.server_start, requested(self.problem, slot), slot.free, decision)
        return decision


class BinPacking(Baseline):
    """Ports in turn fill the fullest servers first, with what they request on each.

    The papers' request is per channel, and so a job takes min(request, rest) on every server it reaches in any order:
    BINPACKING and SPREADING are the same greedy. They differ where a job has a quota for all servers together;
    `quota` is its share of the sum of the job's requests over its channels (1: no quota).

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> BinPacking(problem, quota=0.5).decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    reference = "OGASched, section 4, baseline BINPACKING (Kubernetes MostAllocated)"
    favour_full = True

    def __init__(self, problem: AllocationProblem, rng: Any = None, *, quota: float = 1.0) -> None:
        if not 0.0 < quota <= 1.0:
            raise InvalidInput("a share in (0, 1]", value=quota, key="quota")
        super().__init__(problem)
        self.quota = quota
        self._order = np.arange(len(problem.instance.ports))

    def decide(self, slot: AllocationSlot, /) -> Floats:
        graph = self.problem.instance
        decision = np.zeros(self.problem.cap.shape)
        by_utilisation(
            self._order,
            *graph.port_channels,
            graph.channel_server,
            requested(self.problem, slot),
            slot.free,
            self.quota,
            self.favour_full,
            slot.free.copy(),
            decision,
        )
        return decision


class Spreading(BinPacking):
    """Ports in turn fill the emptiest servers first, with what they request on each; see `BinPacking`.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> Spreading(problem).decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    reference = "OGASched, section 4, baseline SPREADING (Kubernetes LeastAllocated)"
    favour_full = False
    scatters = True


class RandomAllocation(Baseline):
    """Every channel takes a uniform random part of its request; overfull servers are shared in proportion.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> policy = RandomAllocation(problem, np.random.default_rng(0))
    >>> policy.decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    reference = "none: a floor for comparisons"
    scatters = True

    def __init__(self, problem: AllocationProblem, rng: np.random.Generator) -> None:
        super().__init__(problem)
        self.rng = rng

    def decide(self, slot: AllocationSlot, /) -> Floats:
        wanted = requested(self.problem, slot) * self.rng.random(self.problem.cap.shape)
        decision = np.empty(self.problem.cap.shape)
        proportional(self.problem.instance.server_start, wanted, slot.free, decision)
        return decision
