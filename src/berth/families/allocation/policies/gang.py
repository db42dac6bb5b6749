"""All-or-nothing jobs (section 3.5): relax, round, repair, with an upper bound."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from berth.capacity import TOLERANCE
from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.allocation.kernels.seating import seat_components
from berth.families.allocation.policies.rates import ArrivalRates
from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.families.allocation.programme import Programme, Solution
from berth.model import Floats, Ints

__all__ = ["GangSolver", "OGASchedGang"]


TRIALS = 3  # orders tried besides the first: this many with a job promoted, this many with one left out


class GangSolver:
    """Decisions for problems with gangs, each with its value and an upper bound on the optimum.

    1. *Relax*: solve without the all-or-nothing constraint, leaving out jobs that could not run even in an empty
       cluster. The dual bound of the relaxation holds for gangs too.
    2. *Round*: jobs in order of their value in the relaxation seat their components, each on the server where the
       relaxation gave it most and where its share still fits. A job that cannot seat its minimum is dropped.
    3. *Repair*: solve again with the seats as lower bounds; drop jobs that cost more than they earn and solve again.
       Then try a few other orders, with an unseated job first or without the least valuable one, and keep the best.

    >>> from berth.testing import example_problem
    >>> from berth.families.allocation.problem import Gang
    >>> problem = example_problem()
    >>> ports = len(problem.instance.ports)
    >>> gangs = problem.replace(gang=Gang(np.zeros(ports, dtype=int), [ports], share=0.5), overhead=[0.2, 0.2])
    >>> solution = GangSolver(gangs).solve(np.ones(1), iterations=50)
    >>> 0 < solution.value <= solution.bound + 1e-9
    True
    """

    def __init__(self, problem: AllocationProblem) -> None:
        if problem.gang is None:
            raise UnsupportedProblem("ogasched-gang needs a problem with gangs; use ogasched-aware or ogasched-rates")
        self.problem = problem
        self.gang = problem.gang
        self._relaxed = Programme(problem)
        self._seated = Programme(problem)

    def solve(self, weights: Floats, iterations: int, free: Floats | None = None) -> Solution:
        """Feasible decision (E, K) for these weights (J,), its value and a certified upper bound."""
        problem = self.problem
        free = problem.instance.capacity if free is None else free
        weights = np.where(self._possible(free), weights, 0.0)
        relaxed = self._relaxed.improve(weights, iterations, free)
        bound = self._relaxed.bound(weights, free)
        worth = self._job_values(weights, relaxed)
        order = [int(job) for job in np.argsort(-worth, kind="stable") if worth[job] > 0]
        worthless = [int(job) for job in np.flatnonzero((weights > 0) & (worth <= 0))]
        best, left_out = self._fill(weights, order, relaxed, iterations, free)
        # an unseated job may be worth more than those with seats: let it choose first;
        # a seated one may be worth less than the room it holds: leave it out
        others = [[job, *(other for other in order if other != job)] for job in [*left_out, *worthless][:TRIALS]]
        others += [[other for other in order if other != job] for job in order[::-1][:TRIALS] if job not in left_out]
        for changed in others:
            tried, _ = self._fill(weights, changed, relaxed, iterations, free)
            best = max(best, tried, key=lambda solution: solution.value)
        return Solution(best.decision, best.value, bound)

    def _fill(
        self, weights: Floats, order: list[int], wish: Floats, iterations: int, free: Floats
    ) -> tuple[Solution, list[int]]:
        """Seat jobs in this order and solve; repeat without jobs that lose; also return the jobs left out."""
        decision, value = np.zeros_like(wish), 0.0
        left_out: list[int] = []
        while order:
            floor, seated = self._seats(np.array(order), wish, free)
            left_out = left_out or [job for job in order if not seated[job]]
            if not seated.any():
                break
            tried = self._seated.improve(np.where(seated, weights, 0.0), iterations, free, floor)
            earned = np.where(seated, self._job_values(weights, tried), 0.0)
            if earned.sum() > value:
                decision, value = tried, float(earned.sum())
            losing = set(np.flatnonzero(seated & (earned <= 0)).tolist())
            if not losing:
                break
            order = [job for job in order if job not in losing]
        return Solution(decision, value, np.inf), left_out

    def _possible(self, free: Floats) -> NDArray[np.bool_]:
        """Jobs (J,) with enough components that fit in an empty cluster; the others can never run."""
        graph, cap = self.problem.instance, self.problem.cap
        room = free[graph.channel_server] + TOLERANCE * (1.0 + cap)
        fits = (room >= self.gang.share * cap).all(axis=1) & (cap > 0).any(axis=1)
        seatable = np.zeros(len(graph.ports))
        seatable[graph.channel_port[fits]] = 1.0
        return np.bincount(self.gang.job_of_port, seatable, minlength=self.problem.jobs) >= self.gang.minimum

    def _seats(self, order: Ints, wish: Floats, free: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        graph, gang = self.problem.instance, self.gang
        floor = np.zeros_like(self.problem.cap)
        seated = np.zeros(self.problem.jobs, dtype=np.bool_)
        port_start, port_channel = graph.port_channels
        seat_components(
            order,
            gang.job_of_port,
            gang.minimum,
            # any positive amount seats a component when the share is 0
            max(gang.share, 1e-6),
            port_start,
            port_channel,
            graph.channel_server,
            self.problem.cap,
            wish,
            np.array(free),
            floor,
            seated,
        )
        return floor, seated

    def _job_values(self, weights: Floats, decision: Floats) -> Floats:
        """Weighted reward of each job, (J,)."""
        jobs = self.problem.jobs
        values = np.empty(jobs)
        for job in np.flatnonzero(weights > 0):
            only = np.zeros(jobs)
            only[job] = 1.0
            gain, overhead = self.problem.reward(only, decision)
            values[job] = weights[job] * (gain - overhead)
        values[weights <= 0] = 0.0
        return values


class OGASchedGang:
    """Gangs by relax, round and repair on the slot's arrivals, or on learned rates if arrivals are hidden.

    `last` holds the value and the certified bound of the last decision.

    >>> from berth.testing import example_problem
    >>> from berth.families.allocation.policies.gang import OGASchedGang
    >>> OGASchedGang(example_problem())
    Traceback (most recent call last):
    berth.errors.UnsupportedProblem: ogasched-gang needs a problem with gangs; use ogasched-aware or ogasched-rates
    """

    family = "allocation"
    reference = "OGASched, section 3.5; the method is on this documentation's OGASched page"

    def __init__(self, problem: AllocationProblem, rng: Any = None, *, iterations: int = 20) -> None:
        if iterations < 1:
            raise InvalidInput("at least 1", value=iterations, key="iterations")
        self.problem = problem
        self.iterations = iterations
        self.rates = ArrivalRates(problem.jobs)
        self.last: Solution | None = None
        self._solver = GangSolver(problem)

    def decide(self, slot: AllocationSlot, /) -> Floats:
        weights = self.rates.mean if slot.arrivals is None else slot.arrivals
        self.last = self._solver.solve(weights, self.iterations, slot.free)
        return self.last.decision.copy()

    def observe(self, outcome: AllocationOutcome, /) -> None:
        self.rates.observe(outcome.arrivals)
