"""Oracles: y* and the per-slot optimum against HiGHS, and their certificates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from berth.errors import UnsupportedProblem
from berth.model import Floats
from berth.oracles import best_stationary, slot_optima
from berth.problems.allocation import AllocationProblem
from berth.testing import example_problem
from berth.worlds.allocation import AllocationWorld, bernoulli_arrivals


def referee(problem: AllocationProblem, weights: Floats, free: Floats, cuts: int = 400) -> float:
    """The optimum by linear programming (HiGHS): every utility as the minimum of many tangents, an upper bound."""
    channels, resources = problem.cap.shape
    n, jobs = channels * resources, problem.jobs
    graph = problem.instance
    # variables: y (n), gain of each element (n), overhead of each job (jobs)
    rows, right = [], []
    for e in range(channels):
        r, job = int(graph.channel_server[e]), int(problem.channel_job[e])
        for k in range(resources):
            place = e * resources + k
            top = min(float(problem.cap[e, k]), float(free[r, k]))
            for y in np.linspace(0.0, top, cuts) if weights[job] > 0 else [0.0]:
                value, slope = _utility(problem, r, k, float(y))
                row = np.zeros(2 * n + jobs)
                row[n + place], row[place] = 1.0, -slope
                rows.append(row)
                right.append(value - slope * y)
    for r in range(len(free)):
        for k in range(resources):
            row = np.zeros(2 * n + jobs)
            for e in np.flatnonzero(graph.channel_server == r):
                row[e * resources + k] = 1.0
            rows.append(row)
            right.append(float(free[r, k]))
    for job in range(jobs):
        for k in range(resources):
            row = np.zeros(2 * n + jobs)
            for e in np.flatnonzero(problem.channel_job == job):
                row[e * resources + k] = problem.overhead[job, k]
            row[2 * n + job] = -1.0
            rows.append(row)
            right.append(0.0)
    cost = np.zeros(2 * n + jobs)
    cost[n : 2 * n] = -np.repeat(weights[problem.channel_job], resources)
    cost[2 * n :] = weights
    bounds = [(0.0, float(a)) for a in problem.cap.reshape(-1)] + [(None, 1e6)] * n + [(0.0, None)] * jobs
    answer = linprog(cost, A_ub=np.array(rows), b_ub=np.array(right), bounds=bounds, method="highs")
    assert answer.success, answer.message
    return float(-answer.fun)


def _utility(problem: AllocationProblem, r: int, k: int, y: float) -> tuple[float, float]:
    kind = problem.utilities.kinds[problem.utilities.choice[r, k]]
    alpha = float(problem.utilities.alpha[r, k])
    values = {
        "linear": (alpha * y, alpha),
        "log": (alpha * np.log1p(y), alpha / (1 + y)),
        "reciprocal": (1 / alpha - 1 / (y + alpha), (y + alpha) ** -2),
        "poly": (alpha * np.sqrt(y + 1) - alpha, 0.5 * alpha / np.sqrt(y + 1)),
    }
    return values[str(kind)]


@pytest.mark.parametrize("seed", range(4))
def test_slot_optimum_is_the_referees(seed: int) -> None:
    problem = example_problem()
    arrivals = bernoulli_arrivals(np.random.default_rng(seed), 4, np.full(problem.jobs, 0.6))
    world = AllocationWorld(problem, arrivals)
    optima = slot_optima(world, gap=1e-6)
    for t in range(len(world)):
        exact = referee(problem, arrivals[t], world.free(t))
        assert optima.reward[t] <= exact + 1e-6
        assert optima.reward[t] == pytest.approx(exact, rel=1e-4, abs=1e-6)  # tangents overestimate a little
        assert optima.bound[t] >= optima.reward[t] - 1e-9
        assert optima.bound[t] - optima.reward[t] <= 1e-6 * max(1.0, optima.bound[t])


def test_stationary_optimum_is_the_referees_and_below_the_slot_optima() -> None:
    problem = example_problem()
    arrivals = bernoulli_arrivals(np.random.default_rng(3), 200, np.full(problem.jobs, 0.5))
    world = AllocationWorld(problem, arrivals)
    stationary, slots = best_stationary(world, gap=1e-6), slot_optima(world)
    exact = referee(problem, arrivals.mean(axis=0), problem.instance.capacity)
    assert stationary.reward.mean() == pytest.approx(exact, rel=1e-4)
    assert stationary.reward.sum() <= stationary.bound
    assert stationary.reward.sum() <= slots.bound.sum()
    assert not problem.violations(next(iter(world)), stationary.decision)


def test_lost_servers_lower_the_slot_optimum_and_leave_no_stationary_one() -> None:
    problem = example_problem()
    servers = len(problem.instance.cluster.servers)
    up = np.ones((2, servers), dtype=bool)
    up[1, 0] = False
    world = AllocationWorld(problem, np.ones((2, problem.jobs)), up)
    optima = slot_optima(world)
    assert optima.reward[1] < optima.reward[0]
    with pytest.raises(UnsupportedProblem, match="come and go"):
        best_stationary(world)
