"""Oracles: y* and the per-slot optimum against HiGHS, and their certificates."""

from __future__ import annotations

import numpy as np
import pytest

from berth.errors import UnsupportedProblem
from berth.families.allocation.oracle import best_stationary, slot_optima
from berth.families.allocation.problem import AllocationProblem
from berth.families.allocation.world import AllocationWorld
from berth.families.arrivals import bernoulli_arrivals
from berth.model import Floats
from berth.testing import example_problem
from tests.reference.allocation import Graph
from tests.reference.ascent import best_allocation


def referee(problem: AllocationProblem, weights: Floats) -> float:
    """The optimum by linear programming with tangent cuts (HiGHS)."""
    graph = Graph(
        problem.instance.server_start,
        problem.channel_job,
        problem.cap,
        problem.instance.capacity,
        problem.utilities.kind,
        problem.utilities.alpha,
        problem.overhead,
    )
    _, value, bound = best_allocation(graph, weights, np.zeros(problem.cap.shape), problem.utilities.tables)
    assert bound - value <= 1e-6 * max(1.0, bound)
    return value


@pytest.mark.parametrize("seed", range(4))
def test_slot_optimum_is_the_referees(seed: int) -> None:
    problem = example_problem()
    arrivals = bernoulli_arrivals(np.random.default_rng(seed), 4, np.full(problem.jobs, 0.6))
    world = AllocationWorld(problem, arrivals)
    optima = slot_optima(world, gap=1e-6)
    for t in range(len(world)):
        exact = referee(problem, arrivals[t])
        assert optima.reward[t] <= exact + 1e-5
        assert optima.reward[t] == pytest.approx(exact, rel=1e-5, abs=1e-6)
        assert optima.bound[t] >= optima.reward[t] - 1e-9
        assert optima.bound[t] - optima.reward[t] <= 1e-6 * max(1.0, optima.bound[t])


def test_stationary_optimum_is_the_referees_and_below_the_slot_optima() -> None:
    problem = example_problem()
    arrivals = bernoulli_arrivals(np.random.default_rng(3), 200, np.full(problem.jobs, 0.5))
    world = AllocationWorld(problem, arrivals)
    stationary, slots = best_stationary(world, gap=1e-6), slot_optima(world)
    exact = referee(problem, arrivals.mean(axis=0))
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
