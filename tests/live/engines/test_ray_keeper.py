"""Whom the keeper of gangs on a Ray cluster serves: on a clock of its own, with a dictionary as the cluster's store."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from berth.live.engines.ray import keeper
from berth.live.engines.ray.keeper import AWAY, Keeper

FIRST, SECOND = ["aa", "first.db"], ["bb", "second.db"]
REFUSED = "this Ray cluster belongs to another berth service, with the store first.db: "


class Remembering(Keeper):
    """A keeper whose store is a dictionary."""

    def __init__(self, memory: dict[bytes, bytes]) -> None:
        self.memory = memory
        super().__init__("", 10.0)

    def _store(self, what: str, *given: Any) -> Any:
        if what == "_internal_kv_get":
            return self.memory.get(given[0])
        if what == "_internal_kv_list":
            return [name for name in self.memory if name.startswith(given[0])]
        if what == "_internal_kv_del":
            return self.memory.pop(given[0], None)
        name, value, overwrite = given
        there = name in self.memory
        if overwrite or not there:
            self.memory[name] = value
        return there


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(keeper, "time", SimpleNamespace(monotonic=clock.monotonic, time=clock.monotonic))
    return clock


def test_another_service_waits_until_the_first_is_away_and_its_gangs_are_over(clock: Clock) -> None:
    there = Remembering({})
    assert there._claim(FIRST) is None
    clock.now += AWAY - 0.1
    assert there._claim(SECOND) == f"{REFUSED}it is being served"
    assert there._write(("same", 1), [], None, new=True)
    clock.now += 100 * AWAY  # nobody has asked for long, but what runs is still the first one's
    assert there._claim(SECOND) == f"{REFUSED}1 of its gangs run, such as same"
    there._end(("same", 1), "cancelled", "cancelled")
    assert there._claim(SECOND) is None
    assert there._snapshot()["attempts"] == []
    assert there._claim(FIRST) is not None
    assert there._write(("same", 1), [], None, new=True), "a job of the second service with the name of the first one's"


def test_the_next_keeper_knows_the_owner_and_its_attempts(clock: Clock) -> None:
    before = Remembering({})
    before._claim(FIRST)
    before._write(("job", 1), [], None, new=True)
    there = Remembering(before.memory)
    assert there._claim(SECOND) == f"{REFUSED}1 of its gangs run, such as job"
    assert there._claim(FIRST) is None
    assert not there._write(("job", 1), [], None, new=True)
    assert [(one["job"], one["end"]) for one in there._snapshot()["attempts"]] == [("job", None)]
    there._begin = lambda: None  # type: ignore[method-assign]
    assert json.loads(asyncio.run(there.ask('{"do": "recalled"}'))) == {"recalled": ["job"]}


def test_a_request_without_an_owner_is_answered_and_takes_nothing(clock: Clock) -> None:
    there = Remembering({})
    there._claim(FIRST)
    assert there._claim([]) is None
    clock.now += AWAY + 0.1
    assert there._claim(SECOND) is None
