"""A dispatcher that was dumped and loaded goes on as if nothing had happened."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from berth.errors import InvalidInput
from berth.live.core import dumped
from berth.live.core.dispatcher import Dispatcher, read_dump, write_dump
from berth.live.core.events import (
    Cancelled,
    Decided,
    Failed,
    Finished,
    ServerJoined,
    ServerLost,
    Submitted,
    read_event,
    write_event,
)
from berth.live.core.jobs import Job, Role
from berth.live.core.order import ordered
from berth.live.core.state import State
from tests.harness.examples import examples
from tests.live.core.builders import dispatcher, job, server, snapshot
from tests.live.core.plays import SERVERS, moves, play


@examples(60)
@given(st.lists(moves, max_size=30), st.integers(0, 200))
def test_loaded_goes_on_the_same(chosen: list[tuple[str, Any]], cut: int) -> None:
    lived = Dispatcher()
    events = []
    loaded: Dispatcher | None = None
    for number, (event, handled) in enumerate(play(lived, chosen)):
        events.append(event)
        if loaded is not None:
            if isinstance(event, Decided) and event.by == "in-order-best-fit" and event.refused is None:
                decided = loaded.decide(event.time)
                assert decided is not None
                assert decided == event
            assert loaded.handle(event) == handled
        if number == cut:
            text = write_dump(lived.dump())
            loaded = Dispatcher().load(read_dump(text))
            loaded.replay([])
            assert write_dump(loaded.dump()) == text
            assert (loaded.state.used == lived.state.used).all()
            assert loaded.state.held == lived.state.held
    replayed = Dispatcher()
    replayed.replay(read_event(write_event(event)) for event in events)
    replayed.refusals = lived.refusals
    assert replayed.dump() == lived.dump()
    if loaded is not None:
        assert loaded.dump().state == lived.dump().state
        assert (loaded.state.capacity == lived.state.capacity).all()


@examples(30)
@given(st.lists(moves, max_size=25), st.integers(0, 100))
def test_a_copy_of_a_state_stays_as_it_is(chosen: list[tuple[str, Any]], cut: int) -> None:
    lived = Dispatcher()
    copied: State | None = None
    before: dict[str, object] = {}
    for number, (event, _) in enumerate(play(lived, chosen)):
        if number == cut:
            copied, before = lived.state.copied(), snapshot(lived.state)
            dumped, later = lived.dump(), lived.dump_later()
            waiting = [record.job.id for _, record in ordered(lived.state, event.time)]
            time = event.time
    if copied is not None:
        assert later() == dumped
        assert snapshot(copied) == before
        assert [record.job.id for _, record in ordered(copied, time)] == waiting
        for name in waiting:
            copied.handle(Cancelled(1e9, name))
        assert copied.table.waiting == 0


def test_what_is_not_a_dump() -> None:
    with pytest.raises(InvalidInput, match="expected a dump of a dispatcher"):
        read_dump(b'{"state": 1}')


def test_attempt_ended_after_its_server_was_lost_is_tried_again() -> None:
    """The cancellation is the scheduler's own wish there, not that of the owner."""
    dispatcher = Dispatcher()
    job = Job("j", "x", (Role("w", 1, {"cpu": 1000}),))
    dispatcher.replay([*(ServerJoined(0.0, server) for server in SERVERS), Submitted(0.0, job)])
    decided = dispatcher.decide(1.0)
    assert decided is not None
    dispatcher.handle(decided)
    dispatcher.handle(ServerLost(2.0, decided.starts[0].places[0].server))
    dispatcher.handle(Failed(3.0, "j", 1, "cancelled", "cancelled"))
    assert dispatcher.state.jobs["j"].phase == "waiting"


def test_a_snapshot_is_written_in_parts_and_as_a_whole_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made = dispatcher(*(server(f"n{i}") for i in range(250)))
    for i in range(1000):
        made.handle(Submitted(1.0, job(f"j{i}", type=f"t{i % 7}", work=9.0)))
    started = made.decide(2.0)
    assert started is not None
    made.handle(started)
    for start in started.starts:
        made.handle(Finished(3.0 + len(start.job), start.job, start.attempt, 1.5))
    taken, parts = made.dump(), list[int]()

    def counted(value: Any, **how: Any) -> bytes:
        parts.append(len(value) if isinstance(value, dict | list | tuple) else 1)
        return to_json(value, **how)

    monkeypatch.setattr(dumped, "to_json", counted)
    assert write_dump(taken) == dumped._DUMPED.dump_json(taken)
    assert len(taken.memory) == len(started.starts) > dumped.MANY
    assert max(parts) == dumped.MANY


def test_a_snapshot_is_of_the_moment_at_which_it_was_asked_for() -> None:
    made = dispatcher(server("n1"))
    made.handle(Submitted(1.0, job("j1")))
    before, later = made.dump(), made.dump_later()
    made.handle(Submitted(2.0, job("j2")))
    made.handle(ServerLost(3.0, "n1"))
    assert later() == before != made.dump()
