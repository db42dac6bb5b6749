"""OGASched as its authors' public code runs it, which is not what the papers print: a reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.allocation.kernels.baselines import proportional
from berth.families.allocation.kernels.printed import project_printed
from berth.families.allocation.policies.requests import no_gangs, requested
from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.model import Floats, Instance

__all__ = ["OGASchedAuthors"]


class OGASchedAuthors:
    """Algorithm 1 as its authors' code runs it; settings `step` and `decay`, with that code's defaults.

    It differs from what the papers print:

    * it sees the arrivals: the gradient is taken at this slot's jobs, and ports without a job get nothing;
    * it begins with FAIRNESS instead of 0;
    * the projection shares a server among all ports, also those that cannot reach it. What these get serves no job,
      and counts as overhead in the next gradient.

    The projection itself is the printed one. Amounts below 0 stay in the iterate; where the authors' code then takes
    the root of a negative number, and goes on with NaN, the slope is here that of an amount of 0.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem(arrivals_known=True)
    >>> OGASchedAuthors(problem).decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    family = "allocation"
    reference = "Zhao et al., Scheduling Multi-Server Jobs with Sublinear Regrets via Online Learning, published code"

    def __init__(
        self, problem: AllocationProblem, rng: Any = None, *, step: float = 0.999, decay: float = 0.99
    ) -> None:
        for key, value in (("step", step), ("decay", decay)):
            if not (math.isfinite(value) and value > 0):
                raise InvalidInput("a number > 0", value=value, key=key)
        if not problem.arrivals_known:
            raise UnsupportedProblem("ogasched-authors needs arrivals revealed before the decision")
        self.problem = no_gangs(problem, self)
        self.step, self.decay = step, decay
        graph = problem.instance
        servers, ports = len(graph.capacity), len(graph.ports)
        everywhere = [(port, server) for server in range(servers) for port in range(ports)]
        wide = Instance.from_arrays(graph.capacity, graph.demand, everywhere)
        self._wide = problem.replace(instance=wide)
        self._free = self._wide.replace(overhead=np.zeros(wide.capacity.shape[1]))
        place = np.zeros((ports, servers), dtype=np.int64)
        place[wide.channel_port, wide.channel_server] = np.arange(len(everywhere))
        self._own = place[graph.channel_port, graph.channel_server]  # our channels among all
        self._foreign = np.ones(len(everywhere), dtype=bool)
        self._foreign[self._own] = False
        self._y: Floats | None = None

    def decide(self, slot: AllocationSlot, /) -> Floats:
        if slot.arrivals is None:
            raise UnsupportedProblem(f"slot {slot.index} hides its arrivals; ogasched-authors needs them")
        wide = self._wide.instance
        if self._y is None:
            fair = np.zeros(self.problem.cap.shape)
            proportional(self.problem.instance.server_start, requested(self.problem, slot), slot.free, fair)
            self._y = np.zeros(self._wide.cap.shape)
            self._y[self._own] = fair
        else:
            target = self._y + self.step * self._gradient(slot.arrivals, self._y)
            project_printed(wide.server_start, target, self._wide.cap, slot.free, False, self._y)
            self._y *= slot.arrivals[wide.channel_port][:, None]
            self.step *= self.decay
        decision: Floats = self._y[self._own]
        return decision

    def _gradient(self, arrivals: Any, y: Floats) -> Floats:
        """The reward's gradient; a channel that does not exist gains nothing, and still has its overhead."""
        gain = np.where(self._foreign[:, None], self._free.gradient(arrivals, y), 0.0)
        gradient: Floats = self._wide.gradient(arrivals, y) - gain
        return gradient

    def observe(self, outcome: AllocationOutcome, /) -> None:
        """Learns when it decides."""
