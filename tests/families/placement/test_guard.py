"""Never worse than the rule: the guard, bounded networks for gangs, and random problems."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.drl_workloads import random_world, ratio
from berth.errors import InvalidInput
from berth.families.placement.kernels.gang_network import GANG_CLUSTER, GANG_TASK
from berth.families.placement.policies.gang_runs import run_gangs
from berth.families.placement.policies.guard import CHECKS, Guard
from berth.families.placement.policies.learned import Learned
from berth.families.placement.policies.network import FORMAT, GANG_FORMAT, Network
from berth.families.placement.policies.rule import Rule
from berth.families.placement.problem import Tasks
from berth.families.placement.world import PlacementWorld
from berth.random import stream
from berth.scenario import load_scenario
from berth.simulation import simulate
from tests.families.placement.training.small import poor_network, small_world


def total(world: PlacementWorld, **settings: object) -> float:
    policy = Learned(world.problem, stream(0, "policy"), **settings)  # type: ignore[arg-type]
    return simulate(world, policy, infeasible="raise").total


def test_one_job_that_holds_most_of_the_value_is_not_refused() -> None:
    """Seed 7700 of Google 2011: without a guard the network for single tasks asks a price that the job does not pay."""
    world = load_scenario("trace-google-2011-placement").build(7700)
    rule = simulate(world, Rule(world.problem)).total
    assert total(world, guard=0) < 0.6 * rule
    assert total(world) > 0.98 * rule


@pytest.mark.parametrize("name", ["drl-scarce", "drl-default", "drl-launch"])
def test_in_the_papers_scenarios_the_network_keeps_its_place(name: str) -> None:
    world = load_scenario(name, {"horizon": 25}).build(11)
    assert total(world) == total(world, guard=0)


def test_a_bad_network_loses_its_place(tmp_path: object) -> None:
    world = load_scenario("drl-scarce", {"horizon": 40}).build(0)
    file = f"{tmp_path}/poor.json"
    with open(file, "w", encoding="utf-8") as out:
        out.write(poor_network().text())
    rule = simulate(world, Rule(world.problem)).total
    assert total(world, file=file, guard=0) < 0.98 * rule
    assert total(world, file=file) > 0.985 * rule


def test_the_guard_switches_a_bounded_number_of_times() -> None:
    rng, world = stream(0, "guard"), small_world(0)
    network = Network.fresh(rng, 4, gangs=True)
    network = network.replace(network.weights + 0.3 * rng.standard_normal(network.weights.size))
    guard, up = Guard(world.problem, network, recent=32), np.ones(3, dtype=bool)
    seen, batches = 0, 60
    for batch in range(batches):
        tasks = small_world(batch).tasks
        new = tasks.take(np.arange(4))
        shifted = Tasks(new.arrival + batch, new.demand, new.work, new.value, new.decay, new.deadline + batch)
        guard.trusts(shifted, up)
        seen += len(new)
    assert 2 * (seen * CHECKS // 32 + 1) >= guard.switches
    assert guard._size == 32


def test_numbers_beyond_those_of_training_count_as_the_nearest() -> None:
    world = load_scenario("trace-philly-contended", {"horizon": 10}).build(0)
    fresh = Network.fresh(stream(0, "net"), 4, gangs=True)
    fresh = fresh.replace(fresh.weights + 0.2 * stream(1, "net").standard_normal(fresh.weights.size))
    met = run_gangs(world.problem, world.tasks, fresh, watched=True).bounds
    assert met.shape == (2, GANG_CLUSTER + GANG_TASK + 2)
    inside = Network(fresh.weights, 4, 0, met, gangs=True)
    again = run_gangs(world.problem, world.tasks, inside, watched=True)
    assert np.array_equal(again.bounds, met)
    dear = world.tasks.value * np.where(np.arange(len(world.tasks)) % 7 == 0, 1e6, 1.0)
    tasks = world.tasks
    tasks = Tasks(
        tasks.arrival, tasks.demand, tasks.work, dear, tasks.decay, tasks.deadline, tasks.pieces, tasks.port
    )  # fmt: skip
    beyond = run_gangs(world.problem, tasks, inside, watched=True).bounds
    assert (beyond[0] >= met[0]).all()
    assert (beyond[1] <= met[1]).all()
    assert (run_gangs(world.problem, tasks, fresh, watched=True).bounds[1] > met[1]).any()


def test_a_network_for_gangs_is_written_and_read() -> None:
    network = Network.fresh(stream(0, "net"), 4, gangs=True)
    body = json.loads(network.text())
    assert body["format"] == GANG_FORMAT
    again = Network.parse(network.text())
    assert again.gangs
    assert np.array_equal(again.weights, network.weights)
    with pytest.raises(InvalidInput, match="finite weights"):
        Network.parse(json.dumps({**body, "format": FORMAT}))
    with pytest.raises(InvalidInput, match="seen"):
        Network.parse(json.dumps({**body, "seen": [[0.0], [1.0]]}))


def test_random_problems_lose_at_most_two_per_cent_against_the_rule() -> None:
    found = [share for seed in range(8) if (share := ratio(seed)) is not None]
    assert min(found) >= 0.98


def test_random_problems_have_everything() -> None:
    problems = [random_world(seed).problem for seed in range(40)]
    assert {problem.beyond_single for problem in problems} >= {"gangs", "ports that do not reach every server"}
    assert any(problem.devices is not None for problem in problems)
