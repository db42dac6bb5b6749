"""The placement world: what is charged and paid, launches, failures, reservations, slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.families.placement.policies.greedy import ORDERS, Greedy
from berth.families.placement.policies.ordered import WAITING
from berth.families.placement.policies.random import RandomPlacement
from berth.families.placement.problem import (
    REJECT,
    WAIT,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
    Tasks,
)
from berth.families.placement.rule_runs import audit, run_rule
from berth.families.placement.world import Failure, PlacementWorld
from berth.scenario import load_scenario
from berth.simulation import simulate
from berth.testing.strategies import placement_decisions, placement_worlds
from tests.harness.examples import examples


def tasks(
    arrival: list[float],
    demand: list[float],
    work: list[float],
    value: float = 10.0,
    decay: float = 1.0,
    wait: float = 50.0,
) -> Tasks:
    """Tasks of one resource that are all worth the same."""
    size = len(arrival)
    times = np.array(arrival, dtype=np.float64)
    return Tasks(
        times,
        np.array(demand, dtype=np.float64).reshape(size, 1),
        np.array(work, dtype=np.float64),
        np.full(size, value),
        np.full(size, decay),
        times + wait,
    )


def one_server(**changes: Any) -> PlacementProblem:
    """Capacity 4, speed 2, launch cost 1, a tenth for each unit and time."""
    return PlacementProblem.of_servers([[4.0]], [2.0], [1.0], [0.1]).replace(**changes)


class Scripted:
    """Places each task as told: {task: (server, start)}, start None for now; all others wait."""

    def __init__(self, told: dict[int, tuple[int, float | None]]) -> None:
        self.told = told
        self.slots: list[PlacementSlot] = []
        self.outcomes: list[PlacementOutcome] = []

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        self.slots.append(slot)
        found = [self.told.get(int(task), (WAIT, None)) for task in slot.ids]
        return PlacementDecision(
            np.array([server for server, _ in found], dtype=np.int64),
            np.array([slot.time if start is None else start for _, start in found], dtype=np.float64),
        )

    def observe(self, outcome: PlacementOutcome, /) -> None:
        self.outcomes.append(outcome)


def played(world: PlacementWorld, told: dict[int, tuple[int, float | None]]) -> Scripted:
    policy = Scripted(told)
    simulate(world, policy, infeasible="raise")
    return policy


class Recorder:
    """Where and when each task last began; what that is worth does not matter here."""

    def __init__(self, world: PlacementWorld) -> None:
        self.world = world
        self.server = np.full(len(world.tasks), -1)
        self.start = np.zeros(len(world.tasks))
        self.rewards: list[float] = []
        self.lost: list[int] = []
        self.started: list[int] = []

    def __call__(self, slot: PlacementSlot, decision: PlacementDecision, outcome: PlacementOutcome, /) -> None:
        new = self.world.problem.placed(slot, decision)
        self.server[new.task], self.start[new.task] = new.server, new.start
        self.rewards.append(outcome.reward)
        self.lost.extend(outcome.lost.tolist())
        self.started.extend(outcome.started.tolist())


# --- accounts


@pytest.mark.parametrize("waiting", WAITING)
@pytest.mark.parametrize("name", ["drl-small", "drl-scarce-30"])
@pytest.mark.parametrize("idle", [0.0, 0.4, np.inf])
def test_the_total_is_that_of_an_audit(name: str, waiting: str, idle: float) -> None:
    for seed, order in enumerate(ORDERS):
        built = load_scenario(name, {"horizon": 10, "idle": idle}).build(seed)
        watch = Recorder(built)
        policy = Greedy(built.problem, np.random.default_rng(seed), order=order, waiting=waiting)
        result = simulate(built, policy, observers=[watch], infeasible="raise")
        checked = audit(built.problem, built.tasks, watch.server, watch.start)
        assert checked.broken == ()
        assert result.total == pytest.approx(checked.gain, rel=1e-9)
        assert result.measures["gain"].sum() == pytest.approx(checked.value, rel=1e-9)
        assert result.measures["cost"].sum() == pytest.approx(checked.execution + checked.launch, rel=1e-9)
        assert result.measures["execution"].sum() == pytest.approx(checked.execution, rel=1e-9)
        assert result.measures["launch"].sum() == pytest.approx(checked.launch, rel=1e-9)
        assert sorted(watch.started) == np.flatnonzero(watch.server >= 0).tolist()
        assert result.measures["started"].sum() + result.measures["dropped"].sum() == len(built.tasks)


@given(placement_worlds(failures=False), st.data())
def test_any_decisions_are_accounted_for(world: PlacementWorld, data: st.DataObject) -> None:
    watch = Recorder(world)
    dropped = 0.0
    for slot in world:
        decision = data.draw(placement_decisions(world.problem, slot))
        expected = world.score(decision)
        outcome = world.step(decision)
        if decision.start is None:  # what starts later is only paid for then
            assert outcome.reward == pytest.approx(expected, rel=1e-9, abs=1e-9)
        watch(slot, decision, outcome)
        dropped += world.measured(outcome)[3]
    checked = audit(world.problem, world.tasks, watch.server, watch.start)
    assert checked.broken == ()
    assert sum(watch.rewards) == pytest.approx(checked.gain, rel=1e-9, abs=1e-9)
    assert len(watch.started) + dropped == len(world.tasks)


@examples(40)
@given(placement_worlds(failures=False), st.sampled_from(ORDERS[:-1]))
def test_asking_at_every_event_is_the_rule_run_at_once(world: PlacementWorld, order: str) -> None:
    policy = Greedy(world.problem, np.random.default_rng(0), order=order, waiting="queue")
    whole = PlacementSlot(
        0,
        0.0,
        np.arange(len(world.tasks)),
        world.tasks,
        world.problem.instance.capacity,
        np.full(len(world.problem.speed), -np.inf),
        np.ones(len(world.problem.speed), dtype=bool),
        next(iter(world)).berths,
    )
    fast = run_rule(world.problem, world.tasks, policy.rank(whole))
    assert simulate(world, policy).total == pytest.approx(fast.gain, rel=1e-9, abs=1e-9)


@given(placement_worlds(failures=True))
def test_with_failures_nothing_is_lost_sight_of(world: PlacementWorld) -> None:
    watch = Recorder(world)
    policy = RandomPlacement(world.problem, np.random.default_rng(0))
    result = simulate(world, policy, observers=[watch], infeasible="raise")
    finished = result.measures["started"].sum() - len(watch.lost)
    assert finished + result.measures["dropped"].sum() == len(world.tasks)
    assert result.reward == pytest.approx(result.measures["gain"] - result.measures["cost"])


# --- launches


@pytest.mark.parametrize(
    ("idle", "launches"),
    [(0.0, 3), (0.5, 3), (1.0, 2), (1.5, 2), (2.0, 1), (np.inf, 1)],
)
def test_a_busy_period_pays_once(idle: float, launches: int) -> None:
    """Tasks run from 0 to 1, 2 to 3 (two of them, which share a launch), and 5 to 6."""
    world = PlacementWorld(one_server(idle=idle), tasks([0, 2, 2, 5], [1] * 4, [2] * 4), 6)
    policy = played(world, dict.fromkeys(range(4), (0, None)))
    assert sum(outcome.launch for outcome in policy.outcomes) == launches


def test_a_task_that_starts_as_another_ends_needs_no_launch() -> None:
    world = PlacementWorld(one_server(), tasks([0, 1], [4, 4], [2, 2]), 2)
    policy = played(world, {0: (0, None), 1: (0, None)})
    assert [outcome.launch for outcome in policy.outcomes] == [1, 0, 0]
    assert policy.slots[1].free.tolist() == [[4]]
    assert policy.slots[1].on_until.tolist() == [1.0]


def test_gain_of_one_task_by_hand() -> None:
    """Work 6 at speed 2 takes 3, from its arrival at 1 on: 10 − 1·3 of value, .1·2·3 of cost, a launch of 1."""
    world = PlacementWorld(one_server(weight=np.array([0.5])), tasks([1], [4], [6]), 3)
    policy = played(world, {0: (0, None)})
    (outcome,) = [outcome for outcome in policy.outcomes if len(outcome.started)]
    assert (outcome.value, outcome.launch) == (7.0, 1.0)
    assert outcome.execution == pytest.approx(0.6)
    assert outcome.reward == pytest.approx(5.4)
    late = PlacementWorld(one_server(), tasks([0], [4], [6], wait=2.9), 1)
    assert played(late, {0: (0, None)}).outcomes[0].value == 0.0


# --- reservations


def test_a_reserved_task_starts_when_it_was_told_to() -> None:
    world = PlacementWorld(one_server(), tasks([0, 0], [4, 4], [2, 2]), 3)
    policy = played(world, {0: (0, None), 1: (0, 1.5)})
    assert [outcome.started.tolist() for outcome in policy.outcomes] == [[0], [], [1], []]
    assert [slot.time for slot in policy.slots] == [0, 1, 2, 2.5]
    assert [outcome.launch for outcome in policy.outcomes] == [1, 0, 1, 0]  # off from 1 to 1.5
    assert policy.slots[1].berths.task.tolist() == [1]
    assert policy.slots[1].free.tolist() == [[4]]  # a reservation takes nothing before it starts
    assert policy.slots[2].free.tolist() == [[0]]
    assert policy.outcomes[2].value == 10 - 2.5


def test_reservations_of_a_lost_server_wait_again() -> None:
    world = PlacementWorld(one_server(), tasks([0, 0], [4, 4], [2, 2]), 1, failures=[Failure(0.5, 0, 3.0)])
    policy = Scripted({0: (0, None), 1: (0, 1.0)})
    rewards = []
    for slot in world:
        if slot.time > 0:
            policy.told = {0: (0, None), 1: (0, 4.0)} if slot.up[0] else {}
        decision = policy.decide(slot)
        outcome = world.step(decision)
        policy.observe(outcome)
        rewards.append(outcome.reward)
    assert [slot.time for slot in policy.slots] == [0, 0.5, 3, 5]
    assert [slot.ids.tolist() for slot in policy.slots] == [[0, 1], [0, 1], [0, 1], []]
    assert [outcome.lost.tolist() for outcome in policy.outcomes] == [[], [0], [], []]  # task 1 had not started
    # launches and half a unit of running are sunk; later both end, at 4 and 5
    assert rewards[0] == pytest.approx(9 - 0.4 - 1)
    assert rewards[1] == pytest.approx(-9 + 0.2)
    assert sum(rewards) == pytest.approx(-1 - 0.2 + (6 - 0.4 - 1) + (5 - 0.4))


# --- failures


def test_a_lost_task_takes_its_value_back_and_what_was_spent_is_gone() -> None:
    problem = PlacementProblem.of_servers([[4.0], [4.0]], [1.0, 1.0], [1.0, 1.0], [0.1, 0.1])
    world = PlacementWorld(problem, tasks([0], [2], [4]), 2, failures=[Failure(1.5, 0)])
    policy = Scripted({0: (0, None)})
    for slot in world:
        policy.told = {0: (0 if slot.up[0] else 1, None)}
        policy.observe(world.step(policy.decide(slot)))
    first, _, second, last = policy.outcomes
    assert (first.value, first.launch) == (6, 1)
    assert first.execution == pytest.approx(0.8)
    # lost at 1.5 and started again elsewhere at once, done at 5.5
    assert second.lost.tolist() == second.started.tolist() == [0]
    assert second.value == pytest.approx(-6 + 4.5)
    assert second.execution == pytest.approx(-0.2 * 2.5 + 0.8)
    assert second.launch == 1
    assert last.ended.tolist() == [0]
    assert policy.slots[2].up.tolist() == [False, True]
    assert policy.slots[2].free.tolist() == [[0], [4]]


def test_a_server_that_comes_back_is_asked_for_and_launched_again() -> None:
    world = PlacementWorld(one_server(idle=np.inf), tasks([0], [1], [2]), 1, failures=[Failure(0.5, 0, 2.0)])
    policy = played(world, {})
    assert [slot.time for slot in policy.slots] == [0, 0.5, 2]
    world = PlacementWorld(one_server(idle=np.inf), tasks([0, 3], [1, 1], [2, 2]), 4, failures=[Failure(1.5, 0, 2.0)])
    policy = played(world, {0: (0, None), 1: (0, None)})
    assert [outcome.launch for outcome in policy.outcomes] == [1, 0, 0, 1, 0]
    assert policy.slots[2].on_until.tolist() == [-np.inf]


def test_failures_that_overlap() -> None:
    failures = [Failure(0.5, 0, 2.0), Failure(1.0, 0, 3.0)]
    world = PlacementWorld(one_server(), tasks([0], [1], [2]), 1, failures=failures)
    up = {slot.time: bool(slot.up[0]) for slot in played(world, {}).slots}
    assert up == {0.0: True, 0.5: False, 1.0: False, 2.0: False, 3.0: True}


def test_a_task_that_ends_as_its_server_fails_has_ended() -> None:
    world = PlacementWorld(one_server(), tasks([0, 0], [1, 1], [2, 4]), 1, failures=[Failure(1.0, 0)])
    policy = Scripted({0: (0, None), 1: (0, None)})
    simulate(world, policy)  # the second decision goes where nothing is up any more, and waits
    assert policy.outcomes[1].ended.tolist() == [0]
    assert policy.outcomes[1].lost.tolist() == [1]
    assert policy.outcomes[1].started.tolist() == []


def test_a_task_that_arrives_while_all_is_down_waits_or_is_dropped() -> None:
    world = PlacementWorld(one_server(), tasks([0], [1], [2], wait=3), 2, failures=[Failure(0.0, 0)])
    result = simulate(world, Greedy(world.problem, np.random.default_rng(0), waiting="queue"))
    assert result.measures["dropped"].tolist() == [0, 1]
    assert result.total == 0


# --- slots


@pytest.mark.parametrize("period", [1.0, 0.01, 0.1, 0.3, 1 / 3, 7.7])
def test_slots_are_numbered_by_batches(period: float) -> None:
    arrival = (period * np.repeat(np.arange(120), 2)).tolist()
    world = PlacementWorld(one_server(), tasks(arrival, [1] * 240, [1.3 * period] * 240), 120, period)
    seen: list[tuple[int, float]] = [(slot.index, slot.time) for slot in world]
    assert [index for index, _ in seen] == list(range(120))
    policy = Greedy(world.problem, np.random.default_rng(0), waiting="queue")
    result = simulate(world, policy)
    assert len(result.reward) == 120
    times: dict[int, list[float]] = {}
    simulate(world, policy, observers=[lambda slot, d, o: times.setdefault(slot.index, []).append(slot.time)])
    assert list(times) == list(range(120))
    for index, moments in times.items():
        assert moments[0] == index * period
        assert moments == sorted(set(moments))
        assert index == 119 or moments[-1] < (index + 1) * period


def test_empty_batches_are_slots_too() -> None:
    world = PlacementWorld(one_server(), tasks([2], [1], [2]), 4)
    slots = list(world)
    assert [(slot.index, len(slot.ids)) for slot in slots] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    nothing = PlacementWorld(one_server(), tasks([], [], []), 3)
    result = simulate(nothing, Greedy(nothing.problem, np.random.default_rng(0)))
    assert result.reward.tolist() == [0, 0, 0]


def test_a_rejected_task_never_comes_again() -> None:
    world = PlacementWorld(one_server(), tasks([0, 1], [1, 1], [2, 2]), 3)
    seen = []
    for slot in world:
        seen.append(slot.ids.tolist())
        world.step(PlacementDecision(np.full(len(slot.ids), REJECT, dtype=np.int64)))
    assert seen == [[0], [1], []]


def test_worthless_tasks_are_dropped_before_the_policy_sees_them() -> None:
    world = PlacementWorld(one_server(), tasks([0, 1], [1, 1], [2, 2], wait=1.5), 4)
    policy = played(world, {})
    assert [slot.ids.tolist() for slot in policy.slots] == [[0], [0, 1], [1], []]


def test_a_world_runs_the_same_again() -> None:
    world = load_scenario("drl-transient", {"horizon": 8}).build(0)
    first, second = (
        simulate(world, Greedy(world.problem, np.random.default_rng(0), waiting="queue")) for _ in range(2)
    )
    assert first.reward.tolist() == second.reward.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, "horizon: got 0, expected at least 1 batch"),
        ({"period": 0.0}, "period: got 0.0, expected a time > 0"),
        ({"horizon": 1}, r"arrival\[1\]: got 1.0, expected one of 1 moments 1 apart"),
        ({"period": 0.7}, r"arrival\[1\]: got 1.0, expected one of 2 moments 0.7 apart"),
        ({"failures": [Failure(0.0, 3)]}, r"failures\[0\].server: got 3, expected a server of the cluster"),
        ({"failures": [Failure(2.0, 0, 2.0)]}, r"failures\[0\].time: got 2.0, expected 0 ≤ time < until"),
    ],
)
def test_wrong_worlds_are_refused(changes: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"horizon": 2, **changes}
    with pytest.raises(InvalidInput, match=message):
        PlacementWorld(one_server(), tasks([0, 1], [1, 1], [2, 2]), **settings)
    with pytest.raises(InvalidInput, match="a demand for each resource"):
        PlacementWorld(PlacementProblem.of_servers([[1.0, 1.0]], [1], [0], [0]), tasks([0], [1], [1]), 1)
    with pytest.raises(InvalidInput, match="iterate over the world before playing in it"):
        PlacementWorld(one_server(), tasks([0], [1], [1]), 1).step(PlacementDecision(np.zeros(0, dtype=np.int64)))
