"""The checks catch every policy that is broken on purpose, and pass those that are sound."""

from __future__ import annotations

import importlib
import random
import sys
from typing import Any

import numpy as np
import pytest

import berth.testing
from berth.errors import InvalidInput, MissingExtra, UnknownName
from berth.families import BUILTIN
from berth.families.allocation.checks import ALLOCATION, RandomGangs
from berth.families.allocation.policies.fairness import Fairness
from berth.testing import CHECKS, CheckResult, check_policy
from berth.testing.broken.allocation import BROKEN, GivesNothing
from tests.testing.harness import FEASIBILITY, GLOBAL_LUCK, PLAYING, failed_checks

CASES = [(check, policy) for check, policies in BROKEN.items() for policy in policies]


SEVERAL = {
    "Overfills": FEASIBILITY,
    "IgnoresRequests": FEASIBILITY,
    "GoesNegative": FEASIBILITY,
    "BreaksGangs": FEASIBILITY | {"beats-random"},
    "DecidesNaN": PLAYING | {"beats-random"},
    "DecidesIntegers": PLAYING,
    "DecidesTransposed": PLAYING | {"beats-random"},
    "UsesGlobalRandom": GLOBAL_LUCK,
}
"""Broken policies whose fault shows in more than one check; each of the others is caught by its own alone."""


def test_every_check_has_a_broken_policy() -> None:
    assert list(BROKEN) == list(CHECKS)
    assert all(BROKEN.values())


def test_every_check_states_its_promise() -> None:
    for name, check in CHECKS.items():
        assert check.__doc__, name
        assert check.__name__.replace("_", "-") == name


@pytest.mark.parametrize(("check", "policy"), CASES, ids=[policy.__name__ for _, policy in CASES])
def test_broken_policy_is_caught(check: str, policy: type[Any]) -> None:
    failed, message = failed_checks(policy)
    assert failed == SEVERAL.get(policy.__name__, {check})
    line = next(line for line in message.splitlines() if line.startswith(f"{check}: "))
    assert "expected" in line
    assert line.endswith(f"({policy.__name__}, seed=0)") or "more (" in line


@pytest.mark.parametrize("name", [name for name in BUILTIN if not name.endswith("-printed")])
def test_builtin_policy_keeps_every_promise(name: str) -> None:
    assert [result.check for result in check_policy(name)] == list(CHECKS)


def test_printed_ogasched_breaks_feasibility_and_nothing_else() -> None:
    """The papers' own projection leaves the feasible set; apart from that the algorithm is a sound policy."""
    failed, _ = failed_checks("ogasched-printed")
    assert failed == FEASIBILITY


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_seeds_make_other_instances(seed: int) -> None:
    for case, same, other in zip(
        ALLOCATION.random_cases(seed), ALLOCATION.random_cases(seed), ALLOCATION.random_cases(seed + 10), strict=True
    ):
        ours, again, theirs = case.make().problem, same.make().problem, other.make().problem
        assert np.array_equal(ours.instance.capacity, again.instance.capacity)
        if ours.instance.capacity.any():
            assert not np.array_equal(ours.instance.capacity, theirs.instance.capacity)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sound_policies_pass_whatever_the_seed(seed: int) -> None:
    for name in ("fairness", "drf", "binpacking", "spreading"):
        check_policy(name, seed=seed)


def test_the_floor_with_gangs_keeps_every_promise() -> None:
    check_policy(RandomGangs)


def test_several_hundred_slots_over_more_than_a_dozen_instances() -> None:
    worlds = [case.make() for case in ALLOCATION.random_cases(0)]
    assert len(worlds) >= 30
    assert sum(1 for world in worlds for _ in world) >= 500
    kinds = set(np.concatenate([world.problem.utilities.kind.ravel() for world in worlds]).tolist())  # type: ignore[attr-defined]
    assert kinds >= {0, 1, 2, 3, 4}


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


def test_messages_say_check_instance_seen_expected_and_seed() -> None:
    _, message = failed_checks(GivesNothing, seed=5)
    head, line = message.splitlines()
    assert head == "GivesNothing broke 1 of 10 promises:"
    assert line.startswith("beats-random: on easy instance (arrivals hidden): a mean reward of 0; expected more than ")
    assert line.endswith("which random earns; and on 1 more (GivesNothing, seed=5)")
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
    with pytest.raises(MissingExtra, match=r"berth.testing.strategies needs .* pip install 'berth\[test\]'"):
        importlib.import_module("berth.testing.strategies")
    with pytest.raises(MissingExtra):
        _ = berth.testing.allocation_problems
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = berth.testing.nothing
