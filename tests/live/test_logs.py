"""The plain loop: whole logs under the live core start and end as they do in the lab, whose results are frozen."""

from __future__ import annotations

import pytest

from berth.live.core.drivers.rules import rule_of
from berth.registry import PolicySpec
from tests.frozen.logs import LOGS
from tests.frozen.policies import QUEUE
from tests.frozen.schedules import SETTINGS
from tests.frozen.tables import Key, Outcome, differences, read_table, row_of
from tests.live.logs import starts_and_ends

FAST = ("fcfs:fit=first", "easy:fit=best", "conservative:fit=first", "tetris", "drf-placement", "wfp3:backfill=easy")


def excepted(key: Key) -> str:
    """Why a schedule of the lab is not that of the live core; empty where it is."""
    rule = rule_of(PolicySpec.parse(key.policy))
    if rule is None or rule.backfill == "shadow":
        return "only the lab has the policy"
    if key.log.startswith("pods"):
        return "servers have no devices in the live core"
    if key.setting == "outages":
        return "jobs that lose their servers rest before they start again"
    if key.log.startswith("equal") and "size" in rule.score and not rule.fixed:
        return "on a pool of equal pieces, the lab gives scores the number of pieces as size"
    if key.log.startswith("fractions") and (rule.fit != "first" or "size" in rule.score):
        return "amounts that floats round, in the lab, decide which of two servers or scores is less"
    return ""


def keys() -> list[Key]:
    """All frozen schedules of queue policies that the live core is held to."""
    played = [key for key, row in read_table("schedules").items() if row.rows and key.policy in QUEUE]
    return [key for key in played if not excepted(key)]


def compared(chosen: list[Key]) -> list[str]:
    """What differs from the frozen schedules."""
    found = []
    for key in chosen:
        start, end = starts_and_ends(LOGS[key.log](), key.policy, **SETTINGS[key.setting])
        lines = [f"{s!r} {e!r}" for s, e in zip(start.tolist(), end.tolist(), strict=True)]
        found.append((key, row_of(Outcome(lines))))
    assert found
    return list(differences(read_table("schedules"), found))


@pytest.mark.parametrize("log", ["pool-short", "speeds-short"])
def test_short_logs_start_and_end_as_in_the_lab(log: str) -> None:
    assert compared([key for key in keys() if key.log == log and key.policy in FAST and not key.setting]) == []


@pytest.mark.slow
@pytest.mark.limit(3600)
@pytest.mark.parametrize("log", sorted({key.log for key in keys()}))
def test_all_logs_start_and_end_as_in_the_lab(log: str) -> None:
    assert compared([key for key in keys() if key.log == log]) == []
