"""The table of jobs says the same as their records, read one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import ClockStepped, Finished, ServerJoined, Submitted
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.order import first_in_order, make_view, ordered
from berth.live.core.queues import Queue
from berth.live.core.records import JobRecord
from berth.live.core.state import State
from berth.live.core.table import SPARE
from berth.live.core.view import View
from tests.harness.examples import examples
from tests.live.core.builders import begin, dispatcher, job, server
from tests.live.core.plays import moves, play


def in_order(state: State, time: float) -> list[tuple[int, JobRecord]]:
    """Everybody who waits, with their level, as the queues' description says it."""
    shares, queues = state.queues.shares, state.queues
    used = {team: state.usage(team, time) for team in state.teams}
    whole, total = sum(used.values()), sum(shares.get(team, 1.0) for team in used) or 1.0
    found = []
    for record in state.jobs.values():
        queue = queues.queues.get(record.job.queue) or Queue(accepts=False)
        if record.phase == "waiting" and queue.starts:
            team = record.job.team
            over = used[team] / whole - shares.get(team, 1.0) / total if whole > 0 and team in used else 0.0
            aged = queues.aging * (time - record.submitted) / 3600.0
            standing = queue.priority + record.job.priority + aged - queues.fairness * over
            found.append((math.floor(standing), record))
    return sorted(found, key=lambda pair: (-pair[0], pair[1].number))


def check_view(view: View, state: State) -> None:
    """What the arrays say of each job is what its record says."""
    for i, record in enumerate(view.records):
        rows = range(view.gangs.start[i], view.gangs.start[i + 1])
        assert len(rows) == len(record.job.roles)
        for row, role in zip(rows, record.job.roles, strict=True):
            assert (view.gangs.minimum[row], view.gangs.most[row]) == (role.minimum, role.count)
            demand = dict(zip(view.resources, view.gangs.demand[row].tolist(), strict=True))
            assert {name: milli for name, milli in demand.items() if milli} == {
                k: v for k, v in role.demand.items() if v
            }
        reach = [server.usable and server.server.has(record.job.needs) for server in state.servers.values()]
        assert view.reach[view.gangs.reach[i]].tolist() == reach
    shapes: dict[int, Any] = {}
    for number, record in zip(view.gangs.shape.tolist(), view.records, strict=True):
        assert shapes.setdefault(number, record.job.shape) == record.job.shape
    assert len(set(shapes.values())) == len(shapes)


@examples(60)
@given(st.lists(moves, max_size=40), st.data())
def test_columns_and_records_agree(chosen: list[tuple[str, Any]], data: st.DataObject) -> None:
    made = Dispatcher()
    state = made.state
    for event, _ in play(made, chosen):
        assert ordered(state, event.time) == (expected := in_order(state, event.time))
        _, shown, _, levels = first_in_order(state, event.time, 3)
        assert [(levels[record.job.id], record) for record in shown if record.job.id in levels] == expected[:3]
        assert state.table.waiting == sum(record.phase == "waiting" for record in state.jobs.values())
    view = make_view(state, state.time)
    check_view(view, state)
    if view.records:
        some = data.draw(st.lists(st.integers(0, len(view.records) - 1), unique=True))
        chosen_view = view.only(some)
        assert [r.job.id for r in chosen_view.records] == [view.records[i].job.id for i in some]
        check_view(chosen_view, state)


def check_running(state: State) -> None:
    """The columns of jobs that hold places are those that their records give."""
    table, running = state.table, state.table.running
    records = [record for record in state.jobs.values() if record.places]
    assert [*table.records(running.rows)] == records
    places = [(i, place, record.job) for i, record in enumerate(records) for place in record.places]
    assert running.job.tolist() == [i for i, _, _ in places]
    assert running.server.tolist() == [state.servers[place.server].index for _, place, _ in places]
    assert running.count.tolist() == [place.count for _, place, _ in places]
    for row, (_, place, asked) in enumerate(places):
        demand = next(role.demand for role in asked.roles if role.name == place.role)
        assert running.amount[row].tolist() == [place.count * demand.get(name, 0) for name in state.resources]
    assert [*table.told] == [record for record in records if record.phase != "running"]
    assert running.began.tolist() == [r.since if r.started is None else r.started for r in records]
    assert running.started.tolist() == [r.started is not None for r in records]
    limited = {
        record.job.id: record.started + record.job.limit
        for record in records
        if record.phase == "running" and record.started is not None and record.job.limit and not record.job.origin
    }
    assert table.next_limit == min(limited.values(), default=math.inf)
    for time in (-math.inf, *limited.values()):
        assert {r.job.id for r in table.over_limit(time)} == {name for name, ends in limited.items() if ends <= time}
    used = state.taken.copy()
    np.add.at(used, running.server, running.amount)
    assert used.tolist() == state.used.tolist()
    for i, part in enumerate(map(running.only, np.arange(len(records))[:, None])):
        assert part.server.tolist() == running.server[running.job == i].tolist()
        assert (part.rows, part.began, part.job.max()) == (running.rows[i], running.began[i], 0)


@examples(60)
@given(st.lists(moves, max_size=40), st.floats(-100.0, 100.0))
def test_running_jobs_and_records_agree(chosen: list[tuple[str, Any]], seconds: float) -> None:
    made = Dispatcher()
    state = made.state
    for _ in play(made, chosen):
        check_running(state)
    copied = state.copied()
    made.handle(ServerJoined(state.time, Server("new", {"cpu": 1, "licence": 2})))
    made.handle(ClockStepped(state.time, seconds))
    check_running(state)
    check_running(copied)
    check_running(State.load(state.dump()))


def test_places_that_were_given_back_are_removed() -> None:
    made = dispatcher(server("n1"), server("n2"))
    for i in range(2 * SPARE):
        begin(made, float(i), job("last" if i == SPARE else f"j{i}"))
        check_running(made.state)
        if i != SPARE:
            made.handle(Finished(float(i), f"j{i}", 1))
    assert len(made.state.table._server) < 2 * SPARE
    assert [record.job.id for record in made.state.table.records(made.state.table.running.rows)] == ["last"]


def test_shapes_are_forgotten_and_resources_may_come_later() -> None:
    made = Dispatcher()
    state = made.state
    for i in range(3000):
        made.handle(Submitted(float(i), Job(f"j{i}", "x", (Role("w", 1, {"cpu": 1 + i}),), needs={"n": f"{i}"})))
        state.table.drop(f"j{i - 10}")
    assert state.table.waiting == 10
    assert len(state.table.shapes._demand) < 3000
    assert len(state.table.shapes._needs) < 3000
    assert not make_view(state, 0.0).records
    made.handle(ServerJoined(0.0, Server("n", {"gpu": 1, "cpu": 5000}, {"n": "2995"})))
    view = make_view(state, 0.0)
    assert [record.job.id for record in view.records] == ["j2995"]  # the others would not fit even if nothing ran
    assert view.gangs.demand[:, 1].tolist() == [2996]
    assert view.reach[view.gangs.reach].tolist() == [[True]]
