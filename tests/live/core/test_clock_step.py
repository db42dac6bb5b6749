"""When the system clock is set, times move and durations do not: a history with a step is the same history."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import (
    ClockStepped,
    Event,
    Failed,
    Finished,
    Foretold,
    Started,
    Submitted,
    read_event,
    write_event,
)
from berth.live.core.queues import Queues
from berth.live.core.records import JobRecord
from berth.live.engines.simulated.cluster import SimulatedCluster
from berth.live.service.tokens import Caller, Visibility
from berth.live.service.views import job_view
from berth.live.simulation import play
from tests.live.core.builders import begin, dispatcher, job, server
from tests.live.core.test_shadow import SERVERS, Halves

HOURS = 36000.0


@cache
def history() -> list[Event]:
    """Jobs of two teams on servers of unknown speeds, with time limits that some jobs reach, and forecasts."""
    given: list[Event] = []
    for i in range(60):
        limit = 25.0 if i % 5 == 0 else None
        given.append(Submitted(10.0 * i, job(f"j{i}", cpu=4, work=30.0, team=f"t{i % 2}", limit=limit)))
        if i % 3 == 0:
            given.append(Foretold(10.0 * i + 1.0, f"j{i}", 1.0, 5.0, 20.0))
    played = play(Dispatcher(queues=Queues(half_life=100.0)), SimulatedCluster(SERVERS, Halves(noise=0.2)), given)
    assert {"overran", "finished", "failed", "foretold"} <= {event.kind for event in played.events}
    return played.events


def replayed(events: list[Event]) -> tuple[Dispatcher, dict[str, JobRecord]]:
    made, last = Dispatcher(queues=Queues(half_life=100.0)), dict[str, JobRecord]()
    for event in events:
        last.update((record.job.id, record) for record in made.handle(event).changed)
    return made, last


@pytest.mark.parametrize("seconds", [HOURS, -HOURS])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.7])
def test_a_history_with_a_step_is_the_same(share: float, seconds: float) -> None:
    events = history()[: int(0.9 * len(history()))]
    at = int(share * len(events))
    later = [replace(event, time=event.time + seconds) for event in events[at:]]
    plain, before = replayed(events)
    moved, after = replayed([*events[:at], ClockStepped(events[at - 1].time, seconds), *later])
    now = plain.state.time
    assert moved.state.time == now + seconds
    for server_ in SERVERS:
        known, wanted_speed = (made.state.learned.speed("t", server_.name) for made in (moved, plain))
        assert known.mean == pytest.approx(wanted_speed.mean)
        assert known.runs == wanted_speed.runs
    assert durations(after) == pytest.approx(durations(before))
    assert moved.state.table.next_limit == pytest.approx(plain.state.table.next_limit + seconds)
    for team in ("t0", "t1"):
        assert moved.state.usage(team, now + seconds) == pytest.approx(plain.state.usage(team, now))
    off, expected = ([*made.state.foresight.dump()["off"]] for made in (moved, plain))
    assert [list(one) for one in off] == [pytest.approx(list(one)) for one in expected]
    assert len(moved.memory) == len(plain.memory)
    for one, other in zip(moved.memory, plain.memory, strict=True):
        assert one.speed == pytest.approx(other.speed)
    decided, wanted = moved.decide(now + seconds), plain.decide(now)
    assert (decided and decided.starts) == (wanted and wanted.starts)


def durations(records: dict[str, JobRecord]) -> dict[str, float]:
    found = {}
    for name, record in records.items():
        for end in ("started", "ended", "since"):
            value = getattr(record, end)
            if value is not None:
                found[f"{name} {end}"] = value - record.submitted
    return found


@pytest.mark.parametrize("seconds", [HOURS, -500.0])
def test_a_time_limit_is_a_duration(seconds: float) -> None:
    made = dispatcher(server("n1"))
    begin(made, 1000.0, job("a", limit=3600.0))
    made.handle(ClockStepped(1600.0, seconds))
    assert not made.state.overdue(1600.0 + seconds)
    assert not made.state.overdue(1600.0 + seconds + 2999.0)
    assert [one.job for one in made.state.overdue(1600.0 + seconds + 3000.0)] == ["a"]


def test_moments_are_those_of_the_clock_of_their_time() -> None:
    made = dispatcher(server("n1"))
    made.handle(Submitted(0.0, job("a")))
    made.handle(ClockStepped(100.0, HOURS))
    decided = made.decide(100.0 + HOURS)
    assert decided is not None
    made.handle(decided)
    made.handle(Started(110.0 + HOURS, "a", 1))
    made.handle(ClockStepped(120.0 + HOURS, HOURS))
    record = made.state.jobs["a"]
    assert made.state.time - record.submitted == 120.0
    assert (record.started or 0.0) - record.submitted == 110.0
    view = job_view(record, Visibility(Caller("ann", "operate")))
    assert (view.submitted, view.started) == ("1970-01-01T00:00:00.000Z", "1970-01-01T10:01:50.000Z")


def test_a_run_that_the_engine_measured_by_a_clock_that_was_set_counts_as_long_as_it_took() -> None:
    made = dispatcher(server("n1"))
    begin(made, 0.0, job("a", work=100.0))
    made.handle(ClockStepped(50.0, HOURS))
    handled = made.handle(Finished(100.0 + HOURS, "a", 1, seconds=100.0 + HOURS))
    assert handled.outcome is not None
    assert handled.outcome.speed == pytest.approx(1.0)


def test_a_new_attempt_counts_from_its_own_start() -> None:
    made = dispatcher(server("n1"))
    begin(made, 0.0, job("a", retries=1))
    made.handle(ClockStepped(50.0, HOURS))
    made.handle(Failed(60.0 + HOURS, "a", 1))
    begin(made, 70.0 + HOURS)
    record = made.state.jobs["a"]
    assert (record.started, record.started_moved, record.submitted_moved) == (70.0 + HOURS, 0.0, HOURS)


def test_the_event_comes_back() -> None:
    event = ClockStepped(3.0, -5.0)
    assert read_event(write_event(event)) == event


def test_a_step_may_be_prepared_unless_something_else_comes_first() -> None:
    events = history()[:100]
    (plain, _), (ready, _), (late, _) = (replayed(events) for _ in range(3))
    step = ClockStepped(plain.state.time, HOURS)
    ready.state.prepare_step(HOURS)
    late.state.prepare_step(HOURS)
    for made in (plain, late):
        made.handle(Submitted(plain.state.time, job("new")))
    for made in (plain, ready, late):
        made.handle(step)
    assert late.dump() == plain.dump()
    kept = {name: record for name, record in plain.state.jobs.items() if name != "new"}
    assert ready.state.jobs == kept
    rows = list(ready.state.table._row.values())
    assert {record.job.id: record for record in ready.state.table.records(np.array(rows))} == kept
