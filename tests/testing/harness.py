"""What the tests of `check_policy` share for all families."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import Phase, find, settings
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy

from berth.errors import PolicyCheckFailed
from berth.testing import CHECKS, check_policy

__all__ = ["FEASIBILITY", "GLOBAL_LUCK", "PLAYING", "draws", "failed_checks"]

FEASIBILITY = {"feasible-on-random-instances", "feasible-on-edge-instances", "outcomes-in-any-order"}
"""The checks that ask for feasible decisions."""

PLAYING = set(CHECKS) - {"refuses-clearly", "beats-random"}
"""What does not even look like a decision stops every check that plays one."""

GLOBAL_LUCK = {"same-seed-same-decisions", "decisions-are-fresh", "pickling-resumes"}
"""Two runs with one seed are how the last two find out about shared memory and lost state."""


def failed_checks(policy: Any, **options: Any) -> tuple[set[str], str]:
    """The names of the checks that a policy fails, and what is said about it."""
    try:
        check_policy(policy, **options)
    except PolicyCheckFailed as error:
        return {result.check for result in error.results if not result.passed}, str(error)
    return set(), ""


def draws(strategy: SearchStrategy[Any], wanted: Callable[[Any], bool]) -> bool:
    """Whether the strategy draws such an example at all; no smaller one is sought."""
    try:
        find(strategy, wanted, settings=settings(phases=[Phase.generate], max_examples=2000))
    except NoSuchExample:
        return False
    return True
