"""berth computes what it did when results were frozen: a sample at each change, everything in the slow tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.frozen.__main__ import PARTS
from tests.frozen.journals import SCENARIOS
from tests.frozen.policies import ASKED
from tests.frozen.tables import Case, Key, differences, read_table, row_of

EVERYWHERE = [part for part in PARTS if part != "public"]
SHORT = ("pool-short", "gangs-short", "pods-short")


def sampled(part: str, key: Key) -> bool:
    """Whether a case is quick, and one of few that show a change of its kind."""
    match part:
        case "schedules":
            short = key.log in SHORT and key.policy in ("easy:fit=best", "conservative:fit=first", "fgd", *ASKED[:2])
            return (short or (key.log in ("pool", "equal") and key.policy.endswith("=first"))) and not key.setting
        case "journals":
            return key.policy == "(its own)" or (key.log, key.policy) == ("failing", "completion")
        case "rehearsals":
            return (key.policy, key.setting) in [
                ("completion", "seed 9100"),
                ("ray", "seed 9100"),
            ] and key.log != "gavel"
        case "verdicts":
            return key.log == "drl-greedy/fig-8"
        case _:
            return True


def found(part: str, cases: Iterator[Case]) -> list[str]:
    """What differs from the frozen results."""
    computed = [(case.key, row_of(case.compute())) for case in cases]
    assert computed
    return list(differences(read_table(part), computed))


@pytest.mark.parametrize("part", EVERYWHERE)
def test_every_case_is_frozen_once(part: str) -> None:
    keys = [case.key for case in PARTS[part]()]
    assert sorted(keys) == sorted(read_table(part))


@pytest.mark.parametrize("part", EVERYWHERE)
def test_a_sample_is_as_frozen(part: str) -> None:
    assert found(part, (case for case in PARTS[part]() if sampled(part, case.key))) == []


def test_a_journal_with_one_level_and_no_window_leads_to_its_own_decisions() -> None:
    rows = read_table("journals")
    told = {name: rows[Key(name, "(its own)", "followed")].summary.split() for name in SCENARIOS}
    equal = {name for name, (same, _, there, *_) in told.items() if same == there}
    assert equal == {"deferral", "gathering", "late", "one-level", "one-level-easy"}  # README.md lists the others


def test_a_difference_is_told() -> None:
    key, row = next(iter(read_table("schedules").items()))
    assert list(differences({key: row}, [(key, row)])) == []
    assert list(differences({}, [(key, row)])) == [f"{key}: not frozen"]
    assert str(key) in next(differences({key: row}, [(key, row._replace(hash="0"))]))


@pytest.mark.slow
@pytest.mark.limit(3600)
@pytest.mark.parametrize("part", EVERYWHERE)
def test_everything_is_as_frozen(part: str) -> None:
    assert found(part, PARTS[part]()) == []


@pytest.mark.slow
@pytest.mark.limit(7200)
@pytest.mark.skipif(not os.environ.get("BERTH_TRACES"), reason="BERTH_TRACES is not set: the traces are not there")
def test_public_logs_are_as_frozen() -> None:
    assert found("public", PARTS["public"]()) == []
