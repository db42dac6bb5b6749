"""Brute force ≤ the exact optimum = brute force ≤ the bound, and nothing that any policy plays is above it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from berth.errors import UnsupportedProblem
from berth.families.placement.oracle import placement_bound, placement_optimum
from berth.families.placement.policies.baselines import HMAO, OSSA, OptRA
from berth.families.placement.policies.first_fit import FirstFit
from berth.families.placement.policies.greedy import ORDERS, Greedy
from berth.families.placement.policies.random import RandomPlacement
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.families.placement.rule_runs import audit
from berth.families.placement.world import Failure, PlacementWorld
from berth.simulation import simulate
from tests.families.placement.test_event_engine import servers, tasks_for
from tests.reference.placement import Held, earliest_twin, tasks_of


def best_by_force(problem: PlacementProblem, tasks: Tasks) -> float:
    """The best of all subsets, orders and servers, each task in turn as early as it can be."""
    best = 0.0
    for places in itertools.product(range(-1, len(problem.speed)), repeat=len(tasks)):
        placed = [i for i in range(len(tasks)) if places[i] >= 0]
        for order in itertools.permutations(placed):
            held: list[Held] = [[] for _ in problem.speed]
            start = np.zeros(len(tasks))
            for i in order:
                r = places[i]
                time = float(tasks.work[i] / problem.speed[r])
                capacity = problem.instance.capacity[r]
                start[i] = earliest_twin(tasks.demand[i], time, capacity, float(tasks.arrival[i]), held[r])
                held[r].append((start[i], start[i] + time, tasks.demand[i]))
            if np.isfinite(start).all():
                found = audit(problem, tasks, places, start)
                assert found.broken == ()
                best = max(best, found.gain)
    return best


def small(rng: np.random.Generator, one_moment: bool) -> tuple[PlacementProblem, Tasks]:
    """Up to four tasks on one or two servers, in a case that the optimum is known for."""
    size, count = int(rng.integers(1, 5)), int(rng.integers(1, 3))
    capacity = rng.integers(2, 5, (count, 2)).astype(float)
    launch = rng.choice([0.0, 0.5, 2.0], count)
    idle = 0.0 if one_moment else np.inf
    problem = PlacementProblem.of_servers(
        capacity, rng.choice([1.0, 1.3], count), launch, np.full(count, 0.1), idle=idle
    )
    arrival = np.zeros(size) if one_moment else np.sort(rng.integers(0, 3, size)).astype(float)
    work = rng.choice([1.0, 1.5, 2.2], size)
    deadline = arrival + rng.choice([2.0, 4.0, 9.0], size)
    demand = rng.integers(1, 4, (size, 2)).astype(float)
    return problem, Tasks(
        arrival, demand, work, rng.choice([2.0, 5.0], size), rng.choice([0.0, 0.3, 1.0], size), deadline
    )


@pytest.mark.parametrize("one_moment", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_the_optimum_is_what_brute_force_finds(seed: int, one_moment: bool) -> None:
    problem, tasks = small(np.random.default_rng(seed), one_moment)
    world = PlacementWorld(problem, tasks, 3)
    best, forced = placement_optimum(world), best_by_force(problem, tasks)
    assert best.gain == pytest.approx(forced, abs=1e-7)
    found = audit(problem, tasks, best.server, best.start)
    assert found.broken == ()
    assert found.gain == pytest.approx(best.gain, abs=1e-7)
    for step in (1.0, 0.25):
        bound = placement_bound(world, step)
        assert bound.gain >= forced - 1e-9
        assert bound.gain == pytest.approx(bound.solved, abs=1e-6)


def test_waiting_for_a_server_to_go_on_is_left_to_those_who_know() -> None:
    """Launches cost 3 and servers go off at once: a task that waits from 0 until 1 saves the next its launch."""
    problem = PlacementProblem.of_servers([[1.0]], [1.0], [3.0], [0.0])
    tasks = tasks_of([0, 2], [[1], [1]], [1, 1], [4, 4], [0.1, 0.1], [9, 9])
    waits = audit(problem, tasks, [0, 0], [1.0, 2.0]).gain
    assert waits > audit(problem, tasks, [0, 0], [0.0, 2.0]).gain
    world = PlacementWorld(problem, tasks, 3)
    with pytest.raises(UnsupportedProblem, match="waiting may pay"):
        placement_optimum(world)
    assert placement_bound(world).gain >= waits
    with pytest.raises(UnsupportedProblem, match="failures"):
        placement_optimum(PlacementWorld(problem, tasks, 3, failures=[Failure(1.0, 0)]))


def test_nothing_to_gain() -> None:
    problem = PlacementProblem.of_servers([[1.0]], [1.0], [3.0], [0.0])
    for tasks in (tasks_of([], np.zeros((0, 1)), [], [], [], []), tasks_of([0], [[1]], [9], [1], [1], [3])):
        world = PlacementWorld(problem, tasks, 1)
        assert placement_bound(world).gain == 0.0
        assert placement_optimum(world).gain == 0.0


@pytest.mark.parametrize("idle", [0.0, 0.7, np.inf])
@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 8))])
def test_no_policy_is_above_the_bound(seed: int, idle: float) -> None:
    rng = np.random.default_rng(seed)
    problem = servers(rng, 3, 3, 2, whole=seed % 2 == 0).replace(idle=idle)
    tasks = tasks_for(rng, 40, 2, seed % 2 == 0, 6.0)
    horizon = int(tasks.arrival.max()) + 1
    bounds = [placement_bound(PlacementWorld(problem, tasks, horizon), step).gain for step in (1.0, 0.5, 0.125)]
    players: list[Any] = [
        Greedy(problem, rng, order=order, waiting=waiting, beta=beta)
        for order in ORDERS
        for waiting in ("queue", "commit-immediate", "commit-any")
        for beta in (0.3, 1.0)
    ]
    others: list[Any] = [
        FirstFit(problem, rng),
        OptRA(problem, rng),
        OSSA(problem, rng),
        HMAO(problem, rng),
        RandomPlacement(problem, rng),
    ]
    for policy in [*players, *others]:
        world = PlacementWorld(problem, tasks, horizon)
        assert simulate(world, policy, infeasible="raise").total <= min(bounds) + 1e-9
        failing = PlacementWorld(problem, tasks, horizon, failures=[Failure(1.5, 0, 4.0)])
        assert simulate(failing, policy, infeasible="raise").total <= min(bounds) + 1e-9
