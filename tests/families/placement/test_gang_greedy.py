"""Greedy placement of gangs, against the plain twin, the single-task kernel, and on workloads."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import UnsupportedProblem
from berth.families.placement.policies.gang_runs import run_gangs
from berth.families.placement.policies.greedy import Greedy
from berth.families.placement.policies.ordered import OrderedPolicy
from berth.families.placement.policies.rule import Rule
from berth.families.placement.problem import PlacementDecision, PlacementProblem, PlacementSlot, Tasks
from berth.families.placement.rule_runs import run_rule
from berth.families.placement.world import Failure, PlacementWorld
from berth.model import Floats
from berth.scenario import load_scenario
from berth.simulation import simulate
from tests.families.placement.test_gathering import Case, chosen, moments
from tests.families.placement.training.small import small_world
from tests.harness.examples import examples
from tests.reference.placement import place_gangs_twin


class Given(OrderedPolicy):
    """Greedy in a given order."""

    ranks: Floats

    def rank(self, slot: PlacementSlot) -> Floats:
        return self.ranks[: len(slot.ids)]


def costly(case: Case, draw: st.DrawFn) -> tuple[PlacementProblem, PlacementSlot]:
    """The same moment with unequal speeds, costs, values and deadlines; servers off or down. All numbers are dyadic."""
    servers, size = len(case.problem.speed), len(case.slot.ids)

    def some(count: int, *choices: float) -> Floats:
        return np.array([draw(st.sampled_from(choices)) for _ in range(count)])

    problem = case.problem.replace(
        speed=some(servers, 1.0, 2.0, 4.0), launch=some(servers, 0.0, 1.0, 4.0), rate=some(servers, 0.0, 0.25, 0.5)
    )
    tasks = case.slot.tasks
    tasks = Tasks(
        tasks.arrival, tasks.demand, tasks.work, some(size, 1.0, 8.0, 64.0), some(size, 0.0, 0.5, 2.0),
        some(size, 2.0, 16.0), tasks.pieces, tasks.port,
    )  # fmt: skip
    up = np.array([draw(st.booleans()) or r == 0 for r in range(servers)])
    on_until = some(servers, -np.inf, np.inf)
    return problem, dataclasses.replace(case.slot, tasks=tasks, up=up, on_until=on_until)


@pytest.mark.parametrize("devices", [False, True])
@examples(150)
@given(data=st.data())
def test_the_kernel_is_the_plain_twin(devices: bool, data: st.DataObject) -> None:
    problem, slot = data.draw(st.composite(lambda draw: costly(draw(moments(devices=devices)), draw))())
    beta, price = data.draw(st.sampled_from([0.0, 0.25, 1.0])), data.draw(st.sampled_from([0.0, 0.5]))
    forced = data.draw(st.booleans())
    policy = Given(problem, beta=beta, price=price, forced=forced)
    policy.ranks = -np.array(data.draw(st.permutations(range(len(slot.ids)))), dtype=np.float64)
    order = np.argsort(-policy.ranks, kind="stable")
    decision = policy.decide(slot)
    assert not problem.violations(slot, decision)
    expected = place_gangs_twin(problem, slot, order, beta, price, forced)
    found = chosen(decision)
    if devices:  # shares that find no device in order of arrival wait
        assert all(expected[i] == places for i, places in found.items())
    else:
        assert found == expected


def one_piece(problem: PlacementProblem) -> PlacementProblem:
    """The same problem, for the kernel of gangs."""
    return problem.replace(gangs=True)


@pytest.mark.parametrize("settings", [{}, {"beta": 0.0}, {"price": 0.2}, {"forced": True}])
def test_gangs_of_one_piece_are_placed_as_single_tasks(settings: dict[str, Any]) -> None:
    for seed in range(5):
        plain = small_world(seed)
        whole = PlacementWorld(one_piece(plain.problem), plain.tasks, plain.horizon)
        for world in (plain, whole):
            world.failures = (Failure(1.5, 0, 3.0),)
        totals = [simulate(w, Rule(w.problem, **settings), infeasible="raise").reward for w in (plain, whole)]
        assert totals[0] == pytest.approx(totals[1], rel=1e-12)  # the world sums gangs in another order


@pytest.mark.parametrize("name", ["openb", "philly", "sdsc-sp2", "google-2011"])
@pytest.mark.parametrize("policy", [Rule, Greedy])
def test_workloads_run_without_a_broken_constraint(name: str, policy: Any) -> None:
    scenario = load_scenario(
        f"trace-{name}-placement", {"horizon": 10, "failures": {"transient": {"up": 8, "down": 2}}}
    )
    world = scenario.build(0)
    result = simulate(world, policy(world.problem, np.random.default_rng(0)), infeasible="raise")
    assert result.total > 0


def test_a_gang_takes_fast_servers_unless_slow_ones_pay_more() -> None:
    """Two fast servers that must be launched, two slow ones that are on: the deadline decides."""
    problem = PlacementProblem.of_servers(np.full((4, 1), 1.0), [4, 4, 1, 1], [3, 3, 0, 0], np.zeros(4)).replace(
        gangs=True
    )
    for deadline, expected in ((2.0, [0, 1]), (9.0, [2, 3])):
        work, value, decay, late = np.array([[4.0], [10.0], [0.0], [deadline]])
        tasks = Tasks(np.zeros(1), np.ones((1, 1)), work, value, decay, late, np.array([2]))
        world = PlacementWorld(problem, tasks, 1)
        slot = next(iter(world))
        decision: PlacementDecision = Rule(problem, beta=1.0).decide(slot)
        assert sorted(decision.gangs[0].tolist()) == expected


def test_only_a_queue_serves_gangs() -> None:
    problem = one_piece(small_world(0).problem)
    assert Greedy(problem, np.random.default_rng(0)).waiting == "queue"
    for waiting in ("commit-immediate", "commit-any"):
        with pytest.raises(UnsupportedProblem, match="gangs"):
            Greedy(problem, np.random.default_rng(0), waiting=waiting)


@pytest.mark.parametrize("name", ["openb", "philly", "sdsc-sp2", "google-2011"])
def test_whole_runs_in_a_kernel_earn_what_the_policy_earns(name: str) -> None:
    world = load_scenario(f"trace-{name}-placement", {"horizon": 20}).build(3)
    total = simulate(world, Rule(world.problem, price=0.01), infeasible="raise").total
    run = run_gangs(world.problem, world.tasks, runs=world.runs, price=0.01)
    assert run.gain == pytest.approx(total, rel=1e-3 if world.problem.devices is not None else 1e-9)


def test_whole_runs_in_a_kernel_start_tasks_when_the_policy_does() -> None:
    for seed in range(4):
        world = small_world(seed)
        ranks = Rule.ranks(world.tasks, world.problem.weight, 1.0)
        run = run_gangs(world.problem, world.tasks, ranks, beta=0.3)
        single = run_rule(world.problem, world.tasks, ranks, beta=0.3)
        placed = np.isfinite(run.start)
        assert np.array_equal(placed, single.server >= 0)
        assert np.array_equal(run.start[placed], single.start[placed])
        assert run.gain == pytest.approx(single.gain, abs=1e-9)
