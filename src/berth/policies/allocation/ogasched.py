"""OGASched with the exact projection and steps that need no tuning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.errors import InvalidInput, UnsupportedProblem
from berth.kernels import allocation as kernel
from berth.kernels.capacity import scale_to_fit
from berth.kernels.lanes import limits, unpack
from berth.kernels.mirror import mirror_step
from berth.model import Floats
from berth.policies.allocation.requests import no_gangs
from berth.problems.allocation import AllocationOutcome, AllocationProblem, AllocationSlot

__all__ = ["OGASched"]

MEMORY = 50  # slots over which gradient="ewma" averages arrivals
LEAST = 1e-4  # share of its cap below which mirror ascent lets no entry fall, so that it can come back


class OGASched:
    """Online gradient ascent on the reward, eq. (31), projected exactly onto the feasible set.

    Settings:

    * `step`: `"adagrad"` (D / √Σ‖g‖²: scale-free, needs no horizon), `"horizon"` (eq. (50): D / (‖g‖√T)), or a
      number for a constant step;
    * `gradient`: `"slot"` takes the gradient at the arrivals of the last slot, as the papers do; `"ewma"` at
      arrival rates averaged over the last slots, which has less noise and follows drift;
    * `geometry`: `"euclidean"`, or `"mirror"` for multiplicative steps;
    * `optimistic`: expect the next gradient to be like the last and lean into it.

    It plays the same y whether or not a slot reveals its arrivals.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> policy = OGASched(problem)
    >>> policy.decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    family = "allocation"
    reference = "OGASched, section 3.2, with the projection of section 'The exact projection' in the documentation"

    def __init__(
        self,
        problem: AllocationProblem,
        rng: Any = None,
        *,
        step: str | float = "adagrad",
        gradient: str = "slot",
        geometry: str = "euclidean",
        optimistic: bool = False,
    ) -> None:
        self.problem = no_gangs(problem, self)
        if isinstance(step, str) and step not in ("adagrad", "horizon"):
            raise InvalidInput("'adagrad', 'horizon' or a number > 0", value=step, key="step")
        if not isinstance(step, str) and not (math.isfinite(step) and step > 0):
            raise InvalidInput("'adagrad', 'horizon' or a number > 0", value=step, key="step")
        if step == "horizon" and problem.horizon is None:
            raise UnsupportedProblem("step='horizon' needs a problem whose horizon is known")
        if gradient not in ("slot", "ewma"):
            raise InvalidInput("'slot' or 'ewma'", value=gradient, key="gradient")
        if geometry not in ("euclidean", "mirror"):
            raise InvalidInput("'euclidean' or 'mirror'", value=geometry, key="geometry")
        self.step, self.gradient, self.geometry, self.optimistic = step, gradient, geometry, optimistic
        lanes = problem.lanes()
        self._free = problem.instance.capacity
        self._limit = limits(lanes, self._free)
        self._y = np.zeros(lanes.cap.shape)  # the iterate, feasible for the whole cluster
        self._g = np.zeros(lanes.cap.shape)
        self._tau = np.zeros(self._limit.shape)
        self._beta = np.array(problem.overhead)
        self._rates = np.ones(problem.jobs)
        self._squares = 0.0
        self._norm = 0.0
        self._seen = 0
        self._diameter = _diameter(problem)
        # begin where every port is expected to have a job: half of each request, projected
        kernel.project(lanes, self._limit, 0.5 * lanes.cap, self._tau, self._y)

    def decide(self, slot: AllocationSlot, /) -> Floats:
        lanes = self.problem.lanes()
        played = self._y
        if self.optimistic and self._seen:
            played = self._moved(self._y, self._eta())
        if slot.free is not self._free and not np.array_equal(slot.free, self._free):
            lost = np.empty_like(played)
            kernel.project(lanes, limits(lanes, slot.free), played, np.zeros_like(self._tau), lost)
            played = lost
        decision = np.zeros(self.problem.cap.shape)
        unpack(lanes.element, played, decision)
        # a step many orders of magnitude longer than a capacity leaves rounding that outweighs that capacity
        scale_to_fit(self.problem.instance.server_start, slot.free, decision)
        return decision

    def observe(self, outcome: AllocationOutcome, /) -> None:
        lanes = self.problem.lanes()
        weight = outcome.arrivals
        if self.gradient == "ewma":
            self._rates += (outcome.arrivals - self._rates) / min(self._seen + 2, MEMORY)
            weight = self._rates
        sums = np.empty(self._beta.size + 1)
        price = np.empty((self._beta.size + 1, 2))
        kernel.cell_sums(lanes.cell, self._y, sums)
        kernel.dominant_prices(weight, self._beta, sums, price)
        square = kernel.gradient(lanes, self._y, price, self._g)
        self._seen += 1
        self._norm = math.sqrt(square)
        self._squares += square
        self._y = self._moved(self._y, self._eta())

    def _eta(self) -> float:
        """The step size for the present gradient."""
        if not isinstance(self.step, str):
            return self.step
        if self.step == "horizon":
            return self._diameter / (self._norm * math.sqrt(self.problem.horizon or 1)) if self._norm > 0 else 0.0
        return self._diameter / math.sqrt(self._squares) if self._squares > 0 else 0.0

    def _moved(self, y: Floats, eta: float) -> Floats:
        lanes = self.problem.lanes()
        out = np.empty_like(y)
        if self.geometry == "mirror":
            mirror_step(lanes, self._limit, y, self._g, eta, LEAST, out)
            return out
        out[:] = y
        scratch = np.empty((kernel.scratch_rows(lanes), y.shape[1]))
        kernel.ascent_step(lanes, self._limit, self._g, eta, scratch, self._tau, out)
        return out


def _diameter(problem: AllocationProblem) -> float:
    """An upper bound on the distance of two feasible decisions, eq. (48), counting only what channels can take."""
    graph = problem.instance
    most = np.zeros(graph.capacity.shape)
    np.maximum.at(most, graph.channel_server, problem.cap)
    total = np.zeros(graph.capacity.shape)
    np.add.at(total, graph.channel_server, problem.cap)
    return math.sqrt(2.0 * float((most * np.minimum(graph.capacity, total)).sum()))
