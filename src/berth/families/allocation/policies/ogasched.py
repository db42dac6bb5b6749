"""OGASched with the exact projection and tuning-free steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.allocation.kernels import slot as kernel
from berth.families.allocation.kernels.lanes import Lanes, limits, unpack
from berth.families.allocation.kernels.slot import mirror_step
from berth.families.allocation.kernels.threads import SlotThreads
from berth.families.allocation.policies.requests import no_gangs
from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.kernels.small import scale_to_fit
from berth.model import Floats

__all__ = ["OGASched"]

MEMORY = 50  # slots over which gradient="ewma" averages arrivals
LEAST = 1e-4  # lower bound of an entry in mirror ascent, as a share of its cap, so that it can recover


class OGASched:
    """Online gradient ascent on the reward, eq. (31), projected exactly onto the feasible set.

    Settings:

    * `step`: `"adagrad"` (D / √(G² + Σ‖g‖²), G the gradient at 0: scale-free, needs no horizon), `"horizon"`
      (eq. (50): D / (‖g‖√T)), or a number for a constant step;
    * `gradient`: `"slot"` takes the gradient at the arrivals of the last slot, as in the papers; `"ewma"` at arrival
      rates averaged over the last slots, which has less noise and follows drift;
    * `geometry`: `"euclidean"`, or `"mirror"` for multiplicative steps, each in units of the element's fair share;
    * `optimistic`: predict that the next gradient equals the last, and size steps by the error of that prediction.

    It plays the same y whether or not a slot reveals its arrivals. The gradient is taken at the latest y, which is the
    y played unless servers were lost or the outcome is late.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> policy = OGASched(problem)
    >>> policy.decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    family = "allocation"
    reference = "OGASched, section 3.2, with the exact projection of the documentation's OGASched page"

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
        usual = isinstance(step, str) and step in ("adagrad", "horizon")
        if not usual and (isinstance(step, str) or not (math.isfinite(step) and step > 0)):
            raise InvalidInput("'adagrad', 'horizon' or a number > 0", value=step, key="step")
        if step == "horizon" and problem.horizon is None:
            raise UnsupportedProblem("step='horizon' needs a problem whose horizon is known")
        if gradient not in ("slot", "ewma"):
            raise InvalidInput("'slot' or 'ewma'", value=gradient, key="gradient")
        if geometry not in ("euclidean", "mirror"):
            raise InvalidInput("'euclidean' or 'mirror'", value=geometry, key="geometry")
        self.step, self.gradient, self.geometry, self.optimistic = step, gradient, geometry, optimistic
        self._started = False

    def _start(self) -> None:
        """Lay out the problem and make the first decision; at the first slot, because it takes time and memory."""
        if self._started:
            return
        self._started, problem = True, self.problem
        lanes = problem.lanes()
        self._limit = limits(lanes, problem.instance.capacity)
        self._y = np.zeros(lanes.cap.shape)  # iterate, feasible for the whole cluster
        self._g = np.zeros(lanes.cap.shape)
        self._tau = np.zeros(self._limit.shape)
        self._beta = np.array(problem.overhead)
        self._rates = np.ones(problem.jobs)
        self._sums = np.zeros(self._beta.size + 1)
        self._scratch = np.empty((kernel.scratch_rows(lanes), lanes.cap.shape[1]))
        self._slot = SlotThreads(lanes, self._beta.size)
        self._share = _fair_share(lanes, self._limit)
        self._seen = 0
        # the gradient at 0 with all ports present is the largest there is; it starts the sum of squares
        self._squares = self._at(self._y, np.ones(problem.jobs))
        self._length = _diameter(problem) if self.geometry == "euclidean" else 1.0
        # start as if every port had a job: half of each request, projected
        kernel.project(lanes, self._limit, 0.5 * lanes.cap, self._tau, self._y)
        kernel.cell_sums(lanes.cell, self._y, self._sums)

    def decide(self, slot: AllocationSlot, /) -> Floats:
        self._start()
        lanes = self.problem.lanes()
        played = self._played()
        if not np.array_equal(slot.free, self.problem.instance.capacity):
            fitting = np.empty_like(played)
            kernel.project(lanes, limits(lanes, slot.free), played, np.zeros_like(self._tau), fitting)
            played = fitting
        decision = np.zeros(self.problem.cap.shape)
        unpack(lanes.element, played, decision)
        # a step many orders of magnitude longer than a capacity leaves rounding errors larger than that capacity
        scale_to_fit(self.problem.instance.server_start, slot.free, decision)
        return decision

    def observe(self, outcome: AllocationOutcome, /) -> None:
        self._start()
        weight = np.array(outcome.arrivals, dtype=np.float64)
        self._seen += 1
        if self.gradient == "ewma":
            self._rates += (weight - self._rates) / min(self._seen + 1.0, MEMORY)
            weight = self._rates.copy()
        if self.geometry == "euclidean" and self.step != "horizon" and not self.optimistic:
            # one fused pass: the step size is known before the gradient
            lanes, eta = self.problem.lanes(), self._eta(self._squares)
            _, _, square = self._slot.step(lanes, self._limit, weight, self._beta, eta, self._sums, self._tau, self._y)
            self._squares += square
            return
        expected = self._g.copy()
        square = self._at(self._played(), weight)
        error = self._g - expected if self.optimistic else self._g
        self._squares += self._square(error)
        self._y = self._moved(self._y, self._eta(square))

    def _played(self) -> Floats:
        """The iterate, or the point that the expected gradient leads to."""
        return self._moved(self._y, self._eta(self._squares)) if self.optimistic and self._seen else self._y

    def _at(self, y: Floats, weight: Floats) -> float:
        """Store the gradient at y in `_g`; return its squared norm."""
        lanes = self.problem.lanes()
        kernel.cell_sums(lanes.cell, y, self._sums)
        kernel.dominant_prices(weight, self._beta, self._sums, self._slot.price)
        kernel.gradient(lanes, y, self._slot.price, self._g)
        return self._square(self._g)

    def _square(self, g: Floats) -> float:
        """‖g‖²; for mirror ascent the mean square of the reward change by a fair share."""
        if self.geometry == "mirror":
            worth = g * self._share
            return float(np.vdot(worth, worth)) / max(1, int(np.count_nonzero(self._share)))
        return float(np.vdot(g, g))

    def _eta(self, square: float) -> float:
        """Step size; `square` is that of the current gradient, which only eq. (50) needs."""
        if not isinstance(self.step, str):
            return self.step
        if self.step == "horizon":
            return self._length / math.sqrt(square * (self.problem.horizon or 1)) if square > 0 else 3.0
        return self._length / math.sqrt(self._squares) if self._squares > 0 else 3.0

    def _moved(self, y: Floats, eta: float) -> Floats:
        """One step from y along `_g`."""
        lanes = self.problem.lanes()
        if self.geometry == "mirror":
            out = np.empty_like(y)
            mirror_step(lanes, self._limit, y, self._g * self._share, eta, LEAST, out)
            return out
        out = y.copy()
        kernel.ascent_step(lanes, self._limit, self._g, eta, self._scratch, self._tau, out)
        return out


def _fair_share(lanes: Lanes, limit: Floats) -> Floats:
    """Amount of each element if its server were shared evenly, (N, W): the natural unit of its amount."""
    share = np.zeros(lanes.cap.shape)
    for first, last, most in zip(lanes.start[:-1], lanes.start[1:], limit, strict=True):
        cap = lanes.cap[first:last]
        even = np.minimum(most, cap.sum(axis=0)) / np.maximum(np.count_nonzero(cap, axis=0), 1)
        share[first:last] = np.where(cap > 0, even, 0.0)
    return share


def _diameter(problem: AllocationProblem) -> float:
    """Upper bound on the distance of two feasible decisions, eq. (48), counting only what channels can take."""
    graph = problem.instance
    most = np.zeros(graph.capacity.shape)
    np.maximum.at(most, graph.channel_server, problem.cap)
    total = np.zeros(graph.capacity.shape)
    np.add.at(total, graph.channel_server, problem.cap)
    return math.sqrt(2.0 * float((most * np.minimum(graph.capacity, total)).sum()))
