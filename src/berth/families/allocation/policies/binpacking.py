"""BINPACKING: each job prefers the fullest servers."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.families.allocation.kernels.baselines import by_utilisation
from berth.families.allocation.policies.requests import Baseline, requested
from berth.families.allocation.problem import AllocationProblem, AllocationSlot
from berth.model import Floats

__all__ = ["BinPacking"]


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
