"""Scenario files of the placement family: what they mean, what a seed draws, and how every mistake in them is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from berth.families.placement.world import Failure, PlacementWorld
from berth.scenario import load_scenario
from tests.harness.examples import examples

SEED = st.integers(0, 2**32)
DRAWN = """\
family: placement
cluster:
  resources: [cores, memory]
  servers:
    - {name: fast, count: 2, capacity: {cores: 8, memory: 4}, speed: 2}
    - {name: slow, capacity: {cores: 4, memory: 4}}
tasks: {demand: {cores: {integers: [1, 4]}}}
"""
GIVEN = """\
family: placement
period: 0.5
cluster:
  resources: [cores]
  servers: [{name: a, capacity: {cores: 4}}]
tasks:
  - {batch: 3, demand: {cores: 2}, work: 2, value: 5, sensitivity: 1, deadline: 4}
  - {demand: {cores: 1}, work: 1, value: 3, deadline: 2}
"""


def build(seed: int = 1, text: str = DRAWN, **overrides: Any) -> PlacementWorld:
    """The world of these settings (dots written as __)."""
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    world: PlacementWorld = load_scenario(yaml.safe_load(text), changes).build(seed)
    return world


def parts(world: PlacementWorld) -> dict[str, Any]:
    """All that a scenario says or draws."""
    problem, tasks = world.problem, world.tasks
    return {
        "capacity": problem.instance.capacity,
        "speed": problem.speed,
        "launch": problem.launch,
        "rate": problem.rate,
        "weight": problem.weight,
        "idle": np.array([problem.idle]),
        "period": np.array([world.period]),
        "arrival": tasks.arrival,
        "demand": tasks.demand,
        "work": tasks.work,
        "value": tasks.value,
        "decay": tasks.decay,
        "allowed": tasks.deadline - tasks.arrival,
        "failures": np.array(world.failures).reshape(-1, 3),
    }


def changed(before: PlacementWorld, after: PlacementWorld) -> set[str]:
    one, other = parts(before), parts(after)
    return {
        name
        for name in one
        if one[name].shape != other[name].shape or not np.allclose(one[name], other[name], rtol=0, atol=1e-12)
    }


# --- named scenarios


def test_the_papers_servers_and_costs() -> None:
    problem = load_scenario("drl-default").build(0).problem
    kinds = [(32.0, 32.0, 4.0, 1.6, 0.08)] * 30 + [(16.0, 32.0, 3.2, 0.96, 0.064)] * 30
    kinds += [(16.0, 32.0, 2.2, 0.96, 0.044)] * 40
    columns = [problem.instance.capacity, problem.speed[:, None], problem.launch[:, None], problem.rate[:, None]]
    assert np.allclose(np.hstack(columns), kinds, rtol=1e-12)
    assert problem.weight.tolist() == [1.0, 0.25]
    assert (problem.idle, len(set(problem.kind.tolist()))) == (0.0, 3)
    dear = load_scenario("drl-launch").build(0).problem
    assert np.allclose(dear.launch, 5 * problem.launch)
    few = load_scenario("drl-scarce").build(0).problem
    assert few.speed.tolist() == [4.0] * 3 + [3.2] * 3 + [2.2] * 4
    cubed = load_scenario("drl-default", {"execution_cost.clock_power": 3}).build(0).problem
    assert np.allclose(cubed.rate, 0.02 * problem.speed**3)


def test_the_papers_tasks() -> None:
    world = load_scenario("drl-default", {"horizon": 3000}).build(5)
    tasks = world.tasks
    sizes = np.bincount(tasks.arrival.astype(int), minlength=3000)
    assert abs(sizes.mean() - 10) < 0.25
    assert abs(sizes.var() / sizes.mean() - 1) < 0.1
    assert np.unique(tasks.demand[:, 0]).tolist() == list(range(1, 9))
    assert abs(tasks.demand[:, 0].mean() - 4.5) < 0.05
    assert 0.5 <= tasks.demand[:, 1].min() < 0.51
    assert 1.99 < tasks.demand[:, 1].max() <= 2
    assert np.array_equal(tasks.work, tasks.value)
    assert [abs((tasks.decay == s).mean() - 1 / 3) < 0.02 for s in (0.5, 1, 2)] == [True] * 3
    stretch = (tasks.deadline - tasks.arrival) * 2.2 / tasks.work
    assert 1 <= stretch.min() < 1.01
    assert 2.99 < stretch.max() < 3 + 1e-6


def test_values_are_those_of_drawing_again() -> None:
    """As many values fall below each decile as of normal numbers that were really drawn again below a tenth of η."""
    drawn = load_scenario("drl-default", {"horizon": 3000}).build(5).tasks.value
    again = np.random.default_rng(1).normal(6, np.sqrt(12), 200_000)
    again = again[again >= 0.6]
    assert drawn.min() >= 0.6
    for share in np.arange(0.1, 1, 0.1):
        assert abs((drawn < np.quantile(again, share)).mean() - share) < 0.015
    fixed = build(tasks__value={"mean": 4, "variance": 0}).tasks.value
    assert set(fixed.tolist()) == {4.0}


def test_failures_of_the_named_scenarios() -> None:
    for name, sound, servers, length in (
        ("drl-failures", "drl-default", 100, 100),
        ("drl-scarce-failures", "drl-scarce", 10, 50),
    ):
        world = load_scenario(name).build(3)
        assert len({f.server for f in world.failures}) == len(world.failures) == servers // 5
        assert all(0 <= f.time < length and np.isinf(f.until) for f in world.failures)
        assert changed(world, load_scenario(sound).build(3)) == {"failures"}
    at_once = load_scenario("drl-failures", {"failures.permanent": {"probability": 0.2, "time": 40}}).build(3)
    assert {f.time for f in at_once.failures} == {40.0}
    spells = load_scenario("drl-transient", {"horizon": 4000}).build(0).failures
    down = np.array([f.until - f.time for f in spells])
    assert abs(down.mean() - 2) < 0.15
    assert abs(down.sum() / (10 * 4000) - 2 / 22) < 0.01


def test_the_application() -> None:
    world = load_scenario("drl-application").build(0)
    kinds = np.unique(world.problem.instance.capacity, axis=0, return_counts=True)
    assert kinds[0].tolist() == [[2, 4, 0], [8, 8, 0], [8, 16, 0], [16, 32, 1]]
    assert kinds[1].tolist() == [30, 12, 12, 6]
    assert abs(len(world.tasks) - 3000) < 200
    gpu = world.tasks.demand[:, 2]
    assert abs((gpu > 0).mean() - 0.1) < 0.02
    assert np.unique(gpu).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert np.allclose(world.tasks.demand[:, 1], 0.2 * world.tasks.work)
    for count in (20, 45, 100):
        assert len(load_scenario("drl-application", {"cluster.count": count}).build(0).problem.speed) == count


# --- draws


@examples(15)
@given(SEED)
def test_same_seed_same_world(seed: int) -> None:
    scenario = load_scenario("drl-small", {"failures": {"transient": {"up": 5, "down": 1}}})
    assert changed(scenario.build(seed, True), scenario.build(seed, False)) == set()
    assert len(changed(scenario.build(seed), scenario.build(seed + 1))) >= 5


@pytest.mark.parametrize(
    ("overrides", "differs"),
    [
        ({"launch_cost__factor": 0.2}, {"launch"}),
        ({"launch_cost__weights": {"cores": 1}}, {"launch"}),
        ({"execution_cost__clock_power": 3}, {"rate"}),
        ({"execution_cost__weights": {"cores": 1}}, {"weight"}),
        ({"idle": 2}, {"idle"}),
        ({"idle": "never"}, {"idle"}),
        ({"period": 2}, {"period", "arrival"}),
        ({"tasks__demand": {"memory": {"uniform": [1, 2]}}}, {"demand"}),
        ({"tasks__demand": {"cores": 2}}, {"demand"}),
        ({"tasks__sensitivity": [3]}, {"decay"}),
        ({"tasks__deadline": {"stretch": [2, 2]}}, {"allowed"}),
        ({"tasks__deadline": {"speed": 2}}, {"allowed"}),
        ({"tasks__work": {"uniform": [1, 2]}}, {"work", "allowed"}),
        ({"tasks__value": {"mean": 12}}, {"value", "work", "allowed"}),
        ({"failures": {"given": [{"server": "slow", "time": 3, "until": 4}]}}, {"failures"}),
        ({"failures": {"transient": {"up": 5, "down": 1}}}, {"failures"}),
        ({"seeds": 9, "policies": ["greedy:order=shortest"]}, set()),
    ],
)
def test_one_setting_shifts_no_other_draw(overrides: dict[str, Any], differs: set[str]) -> None:
    assert changed(build(5), build(5, **overrides)) == differs


@examples(15)
@given(SEED, st.integers(1, 30), st.integers(1, 20))
def test_longer_runs_and_more_servers_only_add(seed: int, horizon: int, more: int) -> None:
    failing: dict[str, Any] = {
        "failures": {"permanent": {"probability": 0.5, "time": 1}, "transient": {"up": 3, "down": 1}}
    }
    small = build(seed, horizon=horizon, **failing)
    kinds = [{"name": "x", "count": 3 + more, "capacity": {}}]
    large = build(seed, horizon=horizon + more, cluster__servers=kinds, **failing)
    size = len(small.tasks)
    for name in ("arrival", "demand", "work", "value", "decay", "deadline"):
        assert np.array_equal(getattr(small.tasks, name), getattr(large.tasks, name)[:size]), name
    assert set(small.failures) <= set(large.failures)


def test_demands_in_every_form() -> None:
    def drawn(form: Any) -> Any:
        return build(tasks__demand={"cores": form}, arrivals={"mean": 50}).tasks.demand[:, 0]

    assert set(drawn(3).tolist()) == {3.0}
    assert set(drawn({"integers": [2, 4]}).tolist()) == {2.0, 3.0, 4.0}
    assert 1 <= drawn({"uniform": [1, 2]}).min() < drawn({"uniform": [1, 2]}).max() < 2
    assert set(drawn({"choices": [1, 8]}).tolist()) == {1.0, 8.0}
    tasks = build(tasks__work={"per_value": 2}, tasks__demand={"cores": {"per_work": 0.5}, "memory": {"per_value": 3}})
    assert np.allclose(tasks.tasks.demand[:, 0], tasks.tasks.value)
    assert np.allclose(tasks.tasks.demand[:, 1], 3 * tasks.tasks.value)
    some = drawn({"integers": [2, 2], "probability": 0.25})
    assert abs((some == 2).mean() - 0.25) < 0.03
    assert set(some.tolist()) == {0.0, 2.0}


def test_given_sizes_and_shares() -> None:
    scenario = load_scenario(yaml.safe_load(DRAWN), {"arrivals": {"process": "given", "sizes": [2, 0, 3]}})
    assert scenario.horizon == 3
    assert scenario.build(0).tasks.arrival.tolist() == [0, 0, 2, 2, 2]
    shares = (("a", 0.5, 1), ("b", 0.3, 2), ("c", 0.2, 3))
    kinds = [{"name": name, "share": share, "capacity": {"cores": cores}} for name, share, cores in shares]
    for count, expected in ((10, [5, 3, 2]), (3, [1, 1, 1]), (1, [1, 0, 0]), (7, [4, 2, 1])):
        problem = build(cluster={"count": count, "resources": ["cores"], "servers": kinds}).problem
        found = problem.instance.capacity[:, 0].astype(int)
        assert np.bincount(found, minlength=4)[1:].tolist() == expected


def test_given_tasks() -> None:
    scenario = load_scenario(yaml.safe_load(GIVEN))
    assert scenario.horizon == 4
    world = scenario.build(0)
    assert world.tasks.arrival.tolist() == [0.0, 1.5]
    assert world.tasks.demand.tolist() == [[1], [2]]
    assert world.tasks.deadline.tolist() == [2, 4]
    empty = load_scenario({**yaml.safe_load(GIVEN), "tasks": []})
    assert (empty.horizon, len(empty.build(0).tasks)) == (1, 0)


def test_given_costs_and_failures() -> None:
    problem = build(
        cluster__servers=[
            {"name": "a", "count": 2, "capacity": {"cores": 2, "memory": 8}, "launch": 7, "rate": 0.5},
            {"name": "b", "capacity": {"cores": 2, "memory": 8}, "speed": 3},
        ]
    ).problem
    assert problem.launch.tolist() == pytest.approx([7, 7, 0.4])
    assert problem.rate.tolist() == pytest.approx([0.5, 0.5, 0.06])
    given = [{"server": "slow", "time": 3}, {"server": "fast-1", "time": 1, "until": 2}]
    assert build(failures={"given": given}).failures == (Failure(1, 1, 2), Failure(3, 2, np.inf))
    assert build(idle=float("inf")).problem.idle == np.inf
    assert load_scenario(yaml.safe_load(DRAWN), {"idle": float("inf")}).dump()["idle"] == "never"


def test_a_draw_given_anew_replaces_the_one_below() -> None:
    changes = {"tasks.demand": {"cores": {"uniform": [1, 2]}}, "tasks.work": {"choices": [3]}}
    dumped = load_scenario("drl-default", changes).dump()["tasks"]
    assert dumped["demand"]["cores"] == {"uniform": [1.0, 2.0], "probability": 1.0}
    assert dumped["demand"]["memory"] == {"uniform": [0.5, 2.0], "probability": 1.0}
    assert dumped["work"] == {"choices": [3.0], "probability": 1.0}
