"""The checks catch every placement policy that is broken on purpose; what they try policies on; strategies."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.families import BUILTIN, FAMILIES
from berth.families.placement.checks import PLACEMENT, malformed
from berth.families.placement.policies.greedy import ORDERS
from berth.families.placement.policies.ordered import WAITING
from berth.families.placement.problem import PlacementDecision
from berth.families.placement.world import PlacementWorld
from berth.simulation import simulate
from berth.testing import CHECKS, check_policy
from berth.testing.broken.placement import BROKEN_PLACEMENT, PlacesNothing
from berth.testing.strategies import placement_decisions, placement_problems, placement_worlds
from tests.testing.harness import FEASIBILITY, GLOBAL_LUCK, PLAYING, draws, failed_checks

CASES = [(check, policy) for check, policies in BROKEN_PLACEMENT.items() for policy in policies]

SEVERAL = {
    **{policy.__name__: FEASIBILITY for policy in BROKEN_PLACEMENT["feasible-on-random-instances"]},
    "ForgetsLostServers": FEASIBILITY,
    # what never starts earns nothing
    "StartsInThePast": FEASIBILITY | {"beats-random"},
    "DecidesArrays": PLAYING | {"beats-random"},
    "DecidesFloats": PLAYING,
    "LeavesTasksOut": PLAYING,
    "UsesGlobalRandom": GLOBAL_LUCK,
    "WritesWhatIsFree": {"inputs-untouched", "pickling-resumes"},
}
"""Broken policies whose fault shows in more than one check; each of the others is caught by its own alone."""


def worlds(seed: int = 0) -> list[PlacementWorld]:
    made = [case.make() for case in PLACEMENT.random_cases(seed)]
    return [world for world in made if isinstance(world, PlacementWorld)]


def test_every_check_has_a_broken_policy() -> None:
    assert list(BROKEN_PLACEMENT) == list(CHECKS)
    assert all(BROKEN_PLACEMENT.values())
    assert FAMILIES["placement"].checks is PLACEMENT


@pytest.mark.parametrize(("check", "policy"), CASES, ids=[policy.__name__ for _, policy in CASES])
def test_broken_policy_is_caught(check: str, policy: type[Any]) -> None:
    failed, message = failed_checks(policy)
    assert check in failed
    assert failed <= SEVERAL.get(policy.__name__, {check})
    assert any(line.startswith(f"{check}: on ") and "expected" in line for line in message.splitlines())


@pytest.mark.parametrize(("order", "waiting"), list(product(ORDERS, WAITING)))
def test_greedy_keeps_every_promise(order: str, waiting: str) -> None:
    check_policy("greedy", settings={"order": order, "waiting": waiting})


@pytest.mark.parametrize("waiting", WAITING)
@pytest.mark.parametrize("forced", [False, True])
def test_greedy_keeps_every_promise_with_prices(waiting: str, forced: bool) -> None:
    check_policy("greedy", settings={"waiting": waiting, "beta": 0.3, "price": 0.05, "forced": forced}, seed=1)


@pytest.mark.parametrize("policy", [name for name, where in BUILTIN.items() if ".placement." in where])
def test_every_placement_policy_keeps_every_promise(policy: str) -> None:
    check_policy(policy)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_floor_itself_is_sound(seed: int) -> None:
    check_policy("random-placement", seed=seed)


def test_a_finding_says_what_and_where() -> None:
    _, message = failed_checks(PlacesNothing, seed=5)
    line = message.splitlines()[1]
    assert line.startswith("beats-random: on easy instance: a mean reward of 0; expected more than ")
    assert line.endswith("(PlacesNothing, seed=5)")


def test_instances_are_many_and_other_seeds_make_others() -> None:
    made = worlds()
    assert len(made) >= 15
    assert sum(1 for world in made for _ in world) >= 300
    for ours, again, theirs in zip(worlds(3), worlds(3), worlds(4), strict=True):
        assert np.array_equal(ours.tasks.value, again.tasks.value)
        assert not np.array_equal(ours.tasks.value, theirs.tasks.value)
        assert ours.failures == again.failures
    for case in PLACEMENT.plain_cases(0):
        assert len({slot.index for slot in case.make()}) == 300


def test_edges_are_what_they_say() -> None:
    cases = {case.name: case.make() for case in PLACEMENT.edge_cases(0)}
    found = {name: world for name, world in cases.items() if isinstance(world, PlacementWorld)}
    assert found.keys() == cases.keys()
    assert len(found["no tasks ever"].tasks) == 0
    assert found["nothing in the first batches"].tasks.arrival.min() >= 7
    for name in ("zero capacity everywhere", "tasks larger than any server"):
        world = found[name]
        assert len(world.tasks)
        demand, capacity = world.tasks.demand, world.problem.instance.capacity
        assert not (demand[:, None] <= capacity[None]).all(axis=2).any()
    assert not any(slot.up.any() for slot in found["all servers down from the start"])
    assert any(not slot.up.any() for slot in found["servers lost mid-run"])


def test_running_tasks_are_really_lost_in_plain_cases() -> None:
    from berth.registry import PolicySpec

    failing = list(PLACEMENT.plain_cases(0))[1].make()
    lost: list[int] = []
    policy = PolicySpec.parse("greedy:waiting=queue").build(failing.problem, None)
    simulate(failing, policy, observers=[lambda slot, decision, outcome: lost.extend(outcome.lost)])
    assert len(lost) > 10


def test_what_is_no_decision() -> None:
    problem = worlds()[0].problem
    right = np.zeros(3, dtype=np.int64)
    assert malformed(problem, PlacementDecision(right)) is None
    assert malformed(problem, PlacementDecision(right, np.zeros(3))) is None
    wrong: list[tuple[Any, str]] = [
        (right, "a ndarray"),
        (PlacementDecision([0]), "servers in a list"),  # type: ignore[arg-type]
        (PlacementDecision(np.zeros(3)), "servers in an array of float64"),  # type: ignore[arg-type]
        (PlacementDecision(right.reshape(1, 3)), "servers of shape (1, 3)"),
        (PlacementDecision(right, right), "starts that are no array of floats"),  # type: ignore[arg-type]
        (PlacementDecision(right, np.zeros(2)), "(2,) starts for (3,) servers"),
    ]
    for decision, words in wrong:
        assert malformed(problem, decision) == words


@given(placement_worlds(), st.data())
def test_decisions_are_feasible_when_asked_to_be(world: PlacementWorld, data: st.DataObject) -> None:
    for slot in world:
        decision = data.draw(placement_decisions(world.problem, slot))
        assert world.problem.violations(slot, decision) == []
        wild = data.draw(placement_decisions(world.problem, slot, feasible=False))
        assert world.problem.violations(slot, world.problem.repaired(slot, wild)) == []
        world.step(decision)


def test_the_corners_are_drawn() -> None:
    assert draws(placement_problems(), lambda p: not p.instance.capacity.any())
    assert draws(placement_problems(), lambda p: bool(np.isinf(p.idle)) and len(p.speed) > 1)
    assert draws(placement_worlds(), lambda w: len(w.tasks) == 0)
    assert draws(placement_worlds(), lambda w: any(np.isinf(f.until) for f in w.failures))
    assert draws(placement_worlds(failures=False), lambda w: len(w.tasks) > 3 and not w.failures)
