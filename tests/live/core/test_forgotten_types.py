"""Types that ran once and never again do not stay for ever; what they told of servers does."""

from __future__ import annotations

import json

import pytest

from berth.live.core import speeds
from berth.live.core.jobs import Server
from berth.live.core.records import ServerRecord
from berth.live.core.speeds import Learned
from tests.live.core.builders import job

SERVERS = {name: ServerRecord(Server(name, {"cpu": 4000}), i) for i, name in enumerate(("fast", "slow"))}


def test_types_that_ran_once_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speeds, "MOST_TYPES", 40, raising=False)
    learned = Learned(SERVERS)
    sizes = []
    for i in range(400):
        for name, seconds in (("fast", 5.0), ("slow", 20.0)):
            learned.add(job(f"j{i}", type=f"once/{i}", work=10.0), [name], seconds)
        if i % 10 == 0:
            learned.add(job(f"k{i}", type="again"), ["fast"], 8.0)
        sizes.append(len(learned.types))
    assert max(sizes) <= 40
    assert "again" in learned.types
    assert learned.knows("again")
    assert {f"once/{i}" for i in range(380, 400)} <= set(learned.types)
    assert len(json.dumps(learned.dump())) < 40_000
    new = learned.speed("never-seen", "fast").mean / learned.speed("never-seen", "slow").mean
    assert new == pytest.approx(4.0, rel=0.2)
    again = Learned.load(learned.dump()).over(SERVERS)
    assert again.dump() == learned.dump()
    for one in (learned, again):
        one.add(job("last", type="last", work=10.0), ["slow"], 20.0)
    assert again.dump() == learned.dump()


def test_a_dump_of_an_older_version_is_read() -> None:
    learned = Learned(SERVERS)
    learned.add(job("a", type="a"), ["fast"], 5.0)
    older = {name: value for name, value in learned.dump().items() if name != "latest"}
    again = Learned.load(older).over(SERVERS)
    again.add(job("b", type="b"), ["fast"], 5.0)
    assert again.types == ["a", "b"]
