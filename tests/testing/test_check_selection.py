"""The checks catch every selection policy that is broken on purpose; what they try policies on; strategies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.families import FAMILIES
from berth.families.selection.checks import SELECTION, ShrinkingSelection, malformed, random_problem
from berth.families.selection.problem import SelectionProblem
from berth.protocols import Environment
from berth.simulation import simulate
from berth.testing import CHECKS, check_policy
from berth.testing.broken.selection import BROKEN_SELECTION, OpensNothing
from berth.testing.strategies import selection_decisions, selection_problems, selection_worlds
from tests.testing.harness import FEASIBILITY, GLOBAL_LUCK, PLAYING, draws, failed_checks

CASES = [(check, policy) for check, policies in BROKEN_SELECTION.items() for policy in policies]

SEVERAL = {
    "OpensAbsentPorts": FEASIBILITY,
    "Overcommits": FEASIBILITY,
    "AddsUpServers": FEASIBILITY,
    "OpensTwice": FEASIBILITY,
    "BreaksGangs": FEASIBILITY | {"beats-random"},
    "DecidesFloats": PLAYING,
    "DecidesIndices": PLAYING | {"beats-random"},
    "UsesGlobalRandom": GLOBAL_LUCK,
}
"""Broken policies whose fault shows in more than one check; each of the others is caught by its own alone."""


def test_every_check_has_a_broken_policy() -> None:
    assert list(BROKEN_SELECTION) == list(CHECKS)
    assert all(BROKEN_SELECTION.values())
    assert FAMILIES["selection"].checks is SELECTION


@pytest.mark.parametrize(("check", "policy"), CASES, ids=[policy.__name__ for _, policy in CASES])
def test_broken_policy_is_caught(check: str, policy: type[Any]) -> None:
    failed, message = failed_checks(policy)
    assert check in failed
    # not always all of them: what draws from global luck may slip through one
    assert failed <= SEVERAL.get(policy.__name__, {check})
    assert any(line.startswith(f"{check}: on ") and "expected" in line for line in message.splitlines())


def test_printed_esdp_breaks_feasibility_and_nothing_else() -> None:
    """The papers know one capacity for the whole cluster, and no server that is lost."""
    failed, message = failed_checks("esdp-printed")
    assert failed == FEASIBILITY
    assert "constraints broken, first capacity of server-" in message


def test_printed_esdp_is_feasible_where_capacity_is_one_pool() -> None:
    for case in SELECTION.random_cases(0):
        if "one pool" in case.name and "gangs" not in case.name:
            world = case.make()
            policy = check_world(world, "esdp-printed")
            assert policy is not None


def check_world(world: Environment, name: str) -> Any:
    """Run a policy that must be feasible in every slot."""
    from berth.registry import PolicySpec

    policy = PolicySpec.parse(name).build(world.problem, np.random.default_rng(0))
    simulate(world, policy, infeasible="raise")
    return policy


@pytest.mark.parametrize("seed", [1, 2])
def test_sound_policies_pass_whatever_the_seed(seed: int) -> None:
    for name in ("hauf:misfit=skip", "lwtf", "random-selection"):
        check_policy(name, seed=seed)


def test_messages_say_check_instance_seen_expected_and_seed() -> None:
    _, message = failed_checks(OpensNothing, seed=5)
    head, line = message.splitlines()
    assert head == "OpensNothing broke 1 of 10 promises:"
    assert line.startswith("beats-random: on easy instance: a mean reward of 0; expected more than ")
    assert line.endswith("which random earns (OpensNothing, seed=5)")


def test_instances_are_many_and_other_seeds_make_others() -> None:
    worlds = [case.make() for case in SELECTION.random_cases(0)]
    assert len(worlds) >= 15
    assert sum(1 for world in worlds for _ in world) >= 300
    problems = [world.problem for world in worlds]
    assert all(isinstance(problem, SelectionProblem) for problem in problems)
    assert {p.pool is None for p in problems if isinstance(p, SelectionProblem)} == {True, False}
    for case, same, other in zip(*(SELECTION.random_cases(seed) for seed in (3, 3, 4)), strict=True):
        ours, again, theirs = (c.make().problem for c in (case, same, other))
        assert isinstance(ours, SelectionProblem)
        assert isinstance(again, SelectionProblem)
        assert isinstance(theirs, SelectionProblem)
        assert np.array_equal(ours.takes, again.takes)
        assert np.array_equal(ours.cost, again.cost)
        if len(ours.cost):
            assert not np.array_equal(ours.cost, theirs.cost)
    for case in SELECTION.plain_cases(0):
        assert sum(1 for _ in case.make()) >= 300
    assert random_problem.__doc__


def test_what_is_no_decision() -> None:
    problem = next(iter(SELECTION.plain_cases(0))).make().problem
    assert isinstance(problem, SelectionProblem)
    right = np.zeros(len(problem.cost), dtype=np.int64)
    assert malformed(problem, right) is None
    assert malformed(problem, right.astype(np.float64)) == "an array of float64"
    assert malformed(problem, right[1:]) == f"an array of shape ({len(right) - 1},), not ({len(right)},)"
    assert malformed(problem, right.tolist()) == "a list"


@given(selection_worlds(gangs=None), st.data())
def test_decisions_are_feasible_when_asked_to_be(world: ShrinkingSelection, data: st.DataObject) -> None:
    for slot in world:
        decision = data.draw(selection_decisions(world.problem, slot))
        assert world.problem.violations(slot, decision) == []
        wild = data.draw(selection_decisions(world.problem, slot, feasible=False))
        assert world.problem.violations(slot, world.problem.repaired(slot, wild)) == []


def test_the_corners_are_drawn() -> None:
    assert draws(selection_problems(), lambda p: len(p.instance.ports) > 1 and len(p.cost) == 0)
    assert draws(selection_problems(), lambda p: p.pool is not None and not p.pool.any())
    assert draws(
        selection_problems(gangs=None),
        lambda p: p.roles is not None and bool((p.roles.minimum == 0).any()),
    )
    assert draws(selection_worlds(), lambda w: not w.all_free[-1].any() and bool(w.problem.limits.any()))
