"""Gangs: the solver against enumeration of every way to seat the components."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from berth.families.allocation.policies.gang import GangSolver, OGASchedGang
from berth.families.allocation.problem import AllocationProblem, Gang
from berth.families.allocation.programme import Programme
from berth.families.allocation.utility import Utilities
from berth.families.allocation.world import AllocationWorld
from berth.model import Floats, Instance
from berth.simulation import simulate


def gang_problem(seed: int, share: float = 0.5, known: bool = True) -> AllocationProblem:
    """Two jobs of two components each on two servers with two resources, scarce enough to matter."""
    rng = np.random.default_rng(seed)
    graph = Instance.from_arrays(
        rng.uniform(1.0, 4.0, (2, 2)), rng.uniform(1.0, 4.0, (4, 2)), [(p, r) for p in range(4) for r in range(2)]
    )
    utilities = Utilities(("log", "poly", "linear"), rng.integers(0, 3, (2, 2)), rng.uniform(1.0, 1.5, (2, 2)))
    gang = Gang(np.array([0, 0, 1, 1]), rng.integers(1, 3, 2), share=share)
    return AllocationProblem(graph, utilities, rng.uniform(0.3, 0.6, 2), arrivals_known=known, gang=gang)


def best_by_enumeration(problem: AllocationProblem, weights: Floats) -> float:
    """The optimum: every set of running jobs, every choice of seats for at least the minimum of components."""
    gang, graph = problem.gang, problem.instance
    assert gang is not None
    best = 0.0
    for running in itertools.product([False, True], repeat=problem.jobs):
        present = np.array(running) & (weights > 0)
        options = []
        for port in range(len(graph.ports)):
            if present[gang.job_of_port[port]]:
                options.append([-1, *np.flatnonzero(graph.channel_port == port).tolist()])
            else:
                options.append([-1])
        for seats in itertools.product(*options):
            taken = [e for e in seats if e >= 0]
            counts = np.bincount(problem.channel_job[taken], minlength=problem.jobs) if taken else np.zeros(2)
            # seats beyond the minimum only restrict: exactly the minimum loses nothing
            if (counts != np.where(present, gang.minimum, 0)).any():
                continue
            floor = np.zeros_like(problem.cap)
            floor[taken] = gang.share * problem.cap[taken]
            used = np.zeros_like(graph.capacity)
            np.add.at(used, graph.channel_server, floor)
            if (used > graph.capacity).any():
                continue
            solution = Programme(problem).solve(np.where(present, weights, 0.0), 1e-6, floor=floor)
            best = max(best, solution.value)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_value_and_bound_enclose_the_enumerated_optimum(seed: int) -> None:
    problem = gang_problem(seed)
    weights = np.array([1.0, 0.7])
    solution = GangSolver(problem).solve(weights, iterations=400)
    exact = best_by_enumeration(problem, weights)
    assert solution.value <= exact + 1e-5
    assert exact <= solution.bound + 1e-5
    assert solution.value >= 0.8 * exact


def test_rounding_is_nearly_optimal_on_average() -> None:
    found = exact = 0.0
    for seed in range(30, 50):
        problem = gang_problem(seed)
        found += GangSolver(problem).solve(np.ones(2), iterations=400).value
        exact += best_by_enumeration(problem, np.ones(2))
    assert found >= 0.95 * exact


def test_share_zero_binds_nothing() -> None:
    """The paper's constraint, any positive amount, is met by arbitrarily small amounts: the relaxation is reached."""
    for seed in range(5):
        problem = gang_problem(seed, share=0.0)
        relaxed = Programme(problem).solve(np.ones(2), 1e-6)
        solution = GangSolver(problem).solve(np.ones(2), iterations=2000)
        assert solution.value == pytest.approx(relaxed.value, rel=1e-3)


@pytest.mark.parametrize("known", [False, True])
def test_policy_is_feasible_and_earns_what_it_says(known: bool) -> None:
    problem = gang_problem(3, known=known)
    arrivals = (np.random.default_rng(0).random((40, 2)) < 0.7).astype(float)
    policy = OGASchedGang(problem)
    promised = []
    result = simulate(
        AllocationWorld(problem, arrivals),
        policy,
        infeasible="raise",
        observers=[lambda slot, decision, outcome: promised.append(policy.last)],
    )
    assert result.total > 0
    if known:
        assert np.allclose(result.reward, [p.value for p in promised if p is not None])
        assert all(p is not None and p.value <= p.bound + 1e-9 for p in promised)
