"""The checks of policies that run live pass those that are sound, and catch each that is broken on purpose."""

from __future__ import annotations

import math

import numpy as np
import pytest

from berth.errors import PolicyCheckFailed, UnknownName
from berth.live.policies import Placing, View
from berth.testing import LIVE_CHECKS, check_policy
from tests.live.core.test_interruption import Quiet, Restless


class Shy(Restless):
    """Starts nothing after a while."""

    interrupts = False

    def decide(self, view: View, /) -> Placing:
        return Placing.nothing() if view.time > 50.0 else super().decide(view)


class Crowds(Restless):
    """Places all tasks on one server."""

    def decide(self, view: View, /) -> Placing:
        placing = super().decide(view)
        return Placing(placing.job, placing.role, np.zeros_like(placing.server), placing.count, placing.interrupt)


class Lucky(Restless):
    """Draws from the global generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(np.random.default_rng(np.random.randint(1 << 30)))  # noqa: NPY002


class Spoils(Restless):
    """Takes what it has placed off the view that it was shown."""

    def decide(self, view: View, /) -> Placing:
        placing = super().decide(view)
        np.subtract.at(view.free, placing.server, 1)
        return placing


class Late(Restless):
    """Wants to be asked at once."""

    def decide(self, view: View, /) -> Placing:
        placing = super().decide(view)
        self.next_look = view.time if len(view.rows) else math.inf
        return placing


def failed(policy: object) -> set[str]:
    with pytest.raises(PolicyCheckFailed) as caught:
        check_policy(policy)
    return {result.check for result in caught.value.results if not result.passed}


@pytest.mark.parametrize("policy", [Restless, "in-order-best-fit", "completion"])
def test_sound_policies_pass(policy: object) -> None:
    results = check_policy(policy)
    assert [result.check for result in results] == list(LIVE_CHECKS)
    assert all(result.passed for result in results)


def test_settings_are_passed_on() -> None:
    (result,) = check_policy(Restless, settings={"chance": 0.2}, skip=list(LIVE_CHECKS)[1:])
    assert result.policy.endswith("Restless:chance=0.2")
    with pytest.raises(UnknownName, match="unknown check 'jobs-ends'; did you mean 'jobs-end'"):
        check_policy(Restless, skip=["jobs-ends"])


@pytest.mark.parametrize(
    ("policy", "checks"),
    [
        (Quiet, {"decisions-accepted"}),
        (Crowds, {"decisions-accepted"}),
        (Shy, {"jobs-end"}),
        (Lucky, {"same-seed-same-events"}),
        (Spoils, {"view-untouched"}),
        (Late, {"view-untouched"}),
    ],
)
def test_broken_policies_are_caught(policy: type[object], checks: set[str]) -> None:
    assert checks <= failed(policy)
