"""The checks catch every policy that is broken on purpose, and pass those that are sound; what they try policies on."""

from __future__ import annotations

import importlib
import random
import sys
from itertools import product
from typing import Any

import numpy as np
import pytest

import berth.testing
from berth.errors import InvalidInput, MissingExtra, UnknownName
from berth.families import BUILTIN, FAMILIES, PRIORITIES
from berth.families.allocation.checks import ALLOCATION, RandomGangs
from berth.families.allocation.policies.fairness import Fairness
from berth.families.placement.checks import PLACEMENT
from berth.families.placement.checks import malformed as malformed_placement
from berth.families.placement.policies.greedy import ORDERS
from berth.families.placement.policies.ordered import WAITING
from berth.families.placement.problem import PlacementDecision
from berth.families.placement.world import PlacementWorld
from berth.families.selection.checks import SELECTION
from berth.families.selection.checks import malformed as malformed_selection
from berth.families.selection.problem import SelectionProblem
from berth.registry import PolicySpec
from berth.simulation import simulate
from berth.testing import CHECKS, CheckResult, check_policy
from tests.testing.broken.allocation import BROKEN, GivesNothing
from tests.testing.broken.placement import BROKEN as BROKEN_PLACEMENT
from tests.testing.broken.placement import PlacesNothing
from tests.testing.broken.selection import BROKEN as BROKEN_SELECTION
from tests.testing.broken.selection import OpensNothing
from tests.testing.harness import FEASIBILITY, GLOBAL_LUCK, PLAYING, failed_checks

ALL_BROKEN = {"allocation": BROKEN, "selection": BROKEN_SELECTION, "placement": BROKEN_PLACEMENT}

SEVERAL = {
    **{
        f"{family}-{each.__name__}": FEASIBILITY
        for family, broken in ALL_BROKEN.items()
        for each in broken["feasible-on-random-instances"]
    },
    "allocation-BreaksGangs": FEASIBILITY | {"beats-random"},
    "allocation-DecidesNaN": PLAYING | {"beats-random"},
    "allocation-DecidesIntegers": PLAYING,
    "allocation-DecidesTransposed": PLAYING | {"beats-random"},
    "selection-BreaksGangs": FEASIBILITY | {"beats-random"},
    "selection-DecidesFloats": PLAYING,
    "selection-DecidesIndices": PLAYING | {"beats-random"},
    "placement-ForgetsLostServers": FEASIBILITY,
    # ordinary instances, whose outcomes come in any order, have no gangs
    "placement-ForgetsPieces": FEASIBILITY - {"outcomes-in-any-order"},
    "placement-BreaksGangs": FEASIBILITY - {"outcomes-in-any-order"},
    # what never starts earns nothing
    "placement-StartsInThePast": FEASIBILITY | {"beats-random"},
    "placement-DecidesArrays": PLAYING | {"beats-random"},
    "placement-DecidesFloats": PLAYING,
    "placement-LeavesTasksOut": PLAYING,
    "placement-WritesTheSlot": {"inputs-untouched", "pickling-resumes"},
    **{f"{family}-UsesGlobalRandom": GLOBAL_LUCK for family in ALL_BROKEN},
}
"""Broken policies whose fault shows in more than one check; each of the others is caught by its own alone."""


@pytest.mark.parametrize("family", ALL_BROKEN)
def test_every_check_has_a_broken_policy(family: str) -> None:
    assert list(ALL_BROKEN[family]) == list(CHECKS)
    assert all(ALL_BROKEN[family].values())
    assert list(FAMILIES) == list(ALL_BROKEN)


EACH_BROKEN = pytest.mark.parametrize(
    ("check", "policy", "failing"),
    [
        pytest.param(
            check, policy, SEVERAL.get(f"{family}-{policy.__name__}", {check}), id=f"{family}-{policy.__name__}"
        )
        for family, broken in ALL_BROKEN.items()
        for check, policies in broken.items()
        for policy in policies
    ],
)


@EACH_BROKEN
def test_broken_policy_is_caught(check: str, policy: type[Any], failing: set[str]) -> None:
    failed, message = failed_checks(policy, skip=[name for name in CHECKS if name not in failing])
    # what draws from the global random state may slip through a check
    assert failed == failing or (failing is GLOBAL_LUCK and check in failed and failed < failing)
    line = next(line for line in message.splitlines() if line.startswith(f"{check}: "))
    assert "expected" in line
    assert line.endswith(f"({policy.__name__}, seed=0)") or "more (" in line


@pytest.mark.slow
@EACH_BROKEN
def test_broken_policy_passes_the_other_checks(check: str, policy: type[Any], failing: set[str]) -> None:
    assert failed_checks(policy, skip=failing) == (set(), "")


def test_every_check_states_its_promise() -> None:
    for name, check in CHECKS.items():
        assert check.__doc__, name
        assert check.__name__.replace("_", "-") == name


RULES = [name.lower() for name in PRIORITIES if name != "Priority"]
"""Policies that are `priority` with another score."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in RULES else ())
        for name in BUILTIN
        if not name.endswith(("-printed", "-authors"))
    ],
)
def test_builtin_policy_keeps_every_promise(name: str) -> None:
    assert [result.check for result in check_policy(name)] == list(CHECKS)


@pytest.mark.parametrize("name", RULES)
def test_scores_keep_promises_where_numbers_are_extreme(name: str) -> None:
    tried = ("feasible-on-edge-instances", "outcomes-in-any-order", "refuses-clearly")
    assert len(check_policy(name, skip=[check for check in CHECKS if check not in tried])) == len(tried)


# every order, and every way of waiting; the slow tests have all pairs
PAIRED = {(order, WAITING[i % len(WAITING)]) for i, order in enumerate(ORDERS)}


@pytest.mark.parametrize(
    ("order", "waiting"),
    [pytest.param(*pair, marks=() if pair in PAIRED else pytest.mark.slow) for pair in product(ORDERS, WAITING)],
)
def test_greedy_keeps_every_promise(order: str, waiting: str) -> None:
    check_policy("greedy", settings={"order": order, "waiting": waiting})


@pytest.mark.parametrize("waiting", WAITING)
@pytest.mark.parametrize("forced", [False, True])
def test_greedy_keeps_every_promise_with_prices(waiting: str, forced: bool) -> None:
    check_policy("greedy", settings={"waiting": waiting, "beta": 0.3, "price": 0.05, "forced": forced}, seed=1)


@pytest.mark.parametrize("name", ["ogasched-printed", "ogasched-authors"])
def test_printed_ogasched_breaks_feasibility_and_nothing_else(name: str) -> None:
    """The papers' own projection leaves the feasible set; apart from that the algorithm is a sound policy."""
    failed, _ = failed_checks(name)
    assert failed == FEASIBILITY


def test_printed_esdp_breaks_feasibility_and_nothing_else() -> None:
    """The papers know one capacity for the whole cluster, and no server that is lost."""
    failed, message = failed_checks("esdp-printed")
    assert failed == FEASIBILITY
    assert "constraints broken, first capacity of server-" in message


def test_printed_esdp_is_feasible_where_capacity_is_one_pool() -> None:
    cases = [case for case in SELECTION.random_cases(0) if "one pool" in case.name and "gangs" not in case.name]
    assert cases
    for case in cases:
        world = case.make()
        policy = PolicySpec.parse("esdp-printed").build(world.problem, np.random.default_rng(0))
        assert not simulate(world, policy, infeasible="raise").violations.any()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_sound_policies_pass_whatever_the_seed(seed: int) -> None:
    for name in ("fairness", "drf", "binpacking", "spreading"):
        check_policy(name, seed=seed)
    if seed < 3:
        for name in ("hauf:misfit=skip", "lwtf", "random-selection", "random-placement"):
            check_policy(name, seed=seed)


def test_the_floor_with_gangs_keeps_every_promise() -> None:
    check_policy(RandomGangs)


def test_a_class_a_factory_a_spec_and_settings() -> None:
    skip = [name for name in CHECKS if name != "beats-random"]
    for policy in (Fairness, lambda problem, rng: Fairness(problem, rng), "fairness", "binpacking:quota=0.9"):
        assert check_policy(policy, skip=skip)[0].passed
    assert check_policy("binpacking", settings={"quota": 0.9}, skip=skip)[0].passed
    failed, message = failed_checks("binpacking", settings={"quota": 9.0})
    assert failed == {"refuses-clearly"}
    assert "its constructor raised InvalidInput: quota: got 9.0, expected a share in (0, 1]" in message


def test_skipped_checks_are_not_run() -> None:
    results = check_policy(GivesNothing, skip=["beats-random"])
    assert "beats-random" not in [result.check for result in results]


def test_wrong_questions() -> None:
    with pytest.raises(UnknownName, match="unknown check 'beat-random'; did you mean 'beats-random'"):
        check_policy("fairness", skip=["beat-random"])
    with pytest.raises(UnknownName, match="unknown policy 'farness'"):
        check_policy("farness")
    with pytest.raises(InvalidInput, match="got 3, expected a policy's name, its class, or a factory"):
        check_policy(3)

    class Homeless:
        """A class that does not say its family."""

    with pytest.raises(UnknownName, match="unknown family of Homeless 'None'"):
        check_policy(Homeless)


@pytest.mark.parametrize(
    ("policy", "instance", "more"),
    [
        (GivesNothing, "easy instance (arrivals hidden)", "; and on 1 more"),
        (OpensNothing, "easy instance", ""),
        (PlacesNothing, "easy instance", "; and on 1 more"),
    ],
)
def test_messages_say_check_instance_seen_expected_and_seed(policy: type[Any], instance: str, more: str) -> None:
    name = policy.__name__
    _, message = failed_checks(policy, seed=5)
    head, line = message.splitlines()
    assert head == f"{name} broke 1 of 10 promises:"
    assert line.startswith(f"beats-random: on {instance}: a mean reward of 0; expected more than ")
    assert line.endswith(f"which random earns{more} ({name}, seed=5)")
    assert str(CheckResult("beats-random", "fairness", 0)) == "beats-random: passed"


def test_global_random_states_are_put_back() -> None:
    random.seed(4)
    np.random.seed(4)  # noqa: NPY002
    expected = random.Random(4).random(), np.random.RandomState(4).random()
    check_policy("fairness", skip=[name for name in CHECKS if name != "same-seed-same-decisions"])
    assert (random.random(), np.random.random()) == expected  # noqa: NPY002


def test_strategies_need_the_test_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "berth.testing.strategies", raising=False)
    with pytest.raises(MissingExtra, match=r"berth.testing.strategies needs .* pip install 'berth-scheduler\[test\]'"):
        importlib.import_module("berth.testing.strategies")
    with pytest.raises(MissingExtra):
        _ = berth.testing.allocation_problems
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = berth.testing.nothing


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_seeds_make_other_allocations(seed: int) -> None:
    for case, same, other in zip(
        ALLOCATION.random_cases(seed), ALLOCATION.random_cases(seed), ALLOCATION.random_cases(seed + 10), strict=True
    ):
        ours, again, theirs = case.make().problem, same.make().problem, other.make().problem
        assert np.array_equal(ours.instance.capacity, again.instance.capacity)
        if ours.instance.capacity.any():
            assert not np.array_equal(ours.instance.capacity, theirs.instance.capacity)


def test_allocation_instances_are_many() -> None:
    worlds = [case.make() for case in ALLOCATION.random_cases(0)]
    assert len(worlds) >= 30
    assert sum(1 for world in worlds for _ in world) >= 500
    kinds = set(np.concatenate([world.problem.utilities.kind.ravel() for world in worlds]).tolist())  # type: ignore[attr-defined]
    assert kinds >= {0, 1, 2, 3, 4}


def test_selection_instances_are_many_and_other_seeds_make_others() -> None:
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


def placement_worlds(seed: int = 0) -> list[PlacementWorld]:
    made = [case.make() for case in PLACEMENT.random_cases(seed)]
    return [world for world in made if isinstance(world, PlacementWorld)]


def test_placement_instances_are_many_and_other_seeds_make_others() -> None:
    made = placement_worlds()
    assert len(made) >= 15
    assert sum(1 for world in made for _ in world) >= 300
    for ours, again, theirs in zip(placement_worlds(3), placement_worlds(3), placement_worlds(4), strict=True):
        assert np.array_equal(ours.tasks.value, again.tasks.value)
        assert not np.array_equal(ours.tasks.value, theirs.tasks.value)
        assert ours.failures == again.failures
    for case in PLACEMENT.plain_cases(0):
        assert len({slot.index for slot in case.make()}) == 300


def test_placement_edges_are_what_they_say() -> None:
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
    failing = list(PLACEMENT.plain_cases(0))[1].make()
    lost: list[int] = []
    policy = PolicySpec.parse("greedy:waiting=queue").build(failing.problem, None)
    simulate(failing, policy, observers=[lambda slot, decision, outcome: lost.extend(outcome.lost)])
    assert len(lost) > 10


def test_what_is_no_selection() -> None:
    problem = next(iter(SELECTION.plain_cases(0))).make().problem
    assert isinstance(problem, SelectionProblem)
    right = np.zeros(len(problem.cost), dtype=np.int64)
    assert malformed_selection(problem, right) is None
    assert malformed_selection(problem, right.astype(np.float64)) == "an array of float64"
    assert malformed_selection(problem, right[1:]) == f"an array of shape ({len(right) - 1},), not ({len(right)},)"
    assert malformed_selection(problem, right.tolist()) == "a list"


def test_what_is_no_placement() -> None:
    problem = placement_worlds()[0].problem
    right = np.zeros(3, dtype=np.int64)
    assert malformed_placement(problem, PlacementDecision(right)) is None
    assert malformed_placement(problem, PlacementDecision(right, np.zeros(3))) is None
    wrong: list[tuple[Any, str]] = [
        (right, "a ndarray"),
        (PlacementDecision([0]), "servers in a list"),  # type: ignore[arg-type]
        (PlacementDecision(np.zeros(3)), "servers in an array of float64"),  # type: ignore[arg-type]
        (PlacementDecision(right.reshape(1, 3)), "servers of shape (1, 3)"),
        (PlacementDecision(right, right), "starts that are no array of floats"),  # type: ignore[arg-type]
        (PlacementDecision(right, np.zeros(2)), "(2,) starts for (3,) servers"),
    ]
    for decision, words in wrong:
        assert malformed_placement(problem, decision) == words
