"""Levels: a lower one never delays a higher one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.files.quantities import amounts
from berth.live.core.dispatcher import FALLBACK, Dispatcher
from berth.live.core.events import Event, Finished, Submitted
from berth.live.core.explain import explain
from berth.live.core.forecast import played
from berth.live.core.jobs import Role
from berth.live.core.learning import Range
from berth.live.core.order import make_view, ordered
from berth.live.core.queues import Queues
from berth.live.core.reasons import waiting_in_order
from berth.live.core.reservations import Releases, Reservations, first_room, in_order
from berth.live.core.view import Placing, View, placed_in_order, view_of
from berth.live.engines.simulated.cluster import SimulatedCluster
from berth.live.simulation import Played, play
from tests.harness.examples import examples
from tests.live.core.builders import begin, dispatcher, job, places, server, started

POLICIES = [FALLBACK, "completion", "easy", "best-fit", "escb-v", "fairness"]
FOREVER = Queues(aging=0.0, fairness=0.0, patience=1e9)


def wide_above_narrow(policy: str, narrow: int) -> Played:
    """A job of a higher level needs all servers; those of a lower level keep coming."""
    given_: list[Event] = [
        Submitted(0.0, job(f"before{i}", cpu=4, limit=100.0 * i, work=100.0 * i, type=f"b{i}")) for i in (1, 2, 3, 4)
    ]
    given_.append(Submitted(5.0, job("wide", cpu=4, count=4, work=50.0, limit=50.0, priority=1, type="wide")))
    for i in range(narrow):
        seconds = (40.0, 350.0)[i % 2]
        given_.append(Submitted(10.0 * (i + 1), job(f"n{i}", cpu=4, work=seconds, limit=seconds, type=f"n{i % 2}")))
    cluster = SimulatedCluster([server(f"n{i}") for i in range(4)])
    return play(Dispatcher(policy, queues=FOREVER), cluster, given_)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stream_of_lower_jobs_delays_no_higher_one_and_uses_what_is_left_of_its_servers(policy: str) -> None:
    alone, crowded = wide_above_narrow(policy, 0).ended, wide_above_narrow(policy, 60).ended
    assert {record.phase for record in crowded.values()} == {"finished"}
    assert alone["wide"].started == 400.0
    assert crowded["wide"].started == 400.0
    before = [name for name, record in crowded.items() if name.startswith("n") and (record.started or 0.0) < 400.0]
    assert len(before) > 5


def test_every_level_above_keeps_its_servers() -> None:
    made = dispatcher(*(server(f"n{i}") for i in range(4)), queues=FOREVER)
    begin(made, 0.0, *(job(f"r{i}", cpu=4, limit=100.0 * (i + 1)) for i in range(3)))
    two = job("two", cpu=4, count=2, limit=10.0, priority=2)
    three = job("three", cpu=4, count=3, limit=10.0, priority=1)
    short, middle, long = (
        job(name, cpu=4, limit=limit) for name, limit in zip("sml", (90.0, 150.0, 250.0), strict=True)
    )
    assert started(begin(made, 1.0, two, three, long)) == []
    assert started(begin(made, 2.0, middle)) == []  # it would end after two starts, at 100
    assert started(begin(made, 3.0, short)) == ["s"]


def test_a_job_at_its_time_limit_is_expected_to_end_at_once_and_its_servers_are_kept() -> None:
    made = dispatcher(server("a"), server("b"), queues=FOREVER)
    begin(made, 0.0, job("r", cpu=4, limit=100.0))
    begin(made, 1.0, job("wide", cpu=4, count=2, priority=1))
    assert started(begin(made, 101.0, job("low", cpu=1, limit=5.0))) == []


def test_a_job_that_has_room_elsewhere_starts_there() -> None:
    made = dispatcher(server("a"), server("b"), server("c", kind="x"), queues=FOREVER)
    begin(made, 0.0, job("r", cpu=4, limit=100.0, needs={"kind": "x"}))
    high = job("high", cpu=4, priority=1, limit=10.0, needs={"kind": "x"})
    assert started(begin(made, 1.0, high, job("low", cpu=4))) == ["low"]
    assert set(places(made, "low")) <= {"a", "b"}


def test_a_job_that_waits_for_faster_servers_reserves_none_until_it_has_no_room() -> None:
    made = dispatcher(server("fast", cpu=8, speed=4.0), server("slow", kind="s"), policy="completion", queues=FOREVER)
    begin(made, 0.0, job("r", cpu=6, work=40.0))  # on fast, for 10 s
    high = job("high", cpu=4, work=400.0, priority=1)  # 400 s on slow, or 100 s on fast from 10 s on
    assert started(begin(made, 1.0, high, job("low", cpu=4, work=40.0, needs={"kind": "s"}))) == ["low"]
    assert places(made, "low") == {"slow": 1}
    assert started(begin(made, 2.0, job("long", cpu=2, work=4000.0))) == []
    assert "1 server reserved for job high" in str(explain(made.state, "long", 3.0))
    assert started(begin(made, 4.0, job("short", cpu=2, work=1.0, limit=5.0))) == ["short"]


@pytest.mark.parametrize("queues", [Queues(aging=1.0, fairness=0.0, patience=1e9), Queues(aging=0.0, patience=1e9)])
def test_ages_and_teams_make_levels_that_reserve_as_priorities_do(queues: Queues) -> None:
    made = dispatcher(server("a"), server("b"), queues=queues)
    for team, ended in (("modest", 1.0), ("greedy", 100.0)):
        begin(made, 0.0, job(team, cpu=4, team=team))
        made.handle(Finished(ended, team, 1, ended))
    begin(made, 100.0, job("r", cpu=4, limit=5000.0, team="greedy"))
    made.handle(Submitted(100.0, job("wide", cpu=4, count=2, limit=10.0, team="modest")))
    assert started(begin(made, 4000.0, job("long", cpu=4, limit=1e5, team="greedy", type="long"))) == []
    assert "reserved for job wide, the first of a higher level" in str(explain(made.state, "long", 4000.0))


def test_a_job_that_a_higher_level_holds_back_is_told_so() -> None:
    made = dispatcher(*(server(f"n{i}") for i in range(3)), queues=FOREVER)
    begin(made, 0.0, *(job(f"r{i}", cpu=4, limit=600.0) for i in range(2)))
    high, low = job("high", cpu=4, count=3, limit=60.0, priority=1), job("low", cpu=4, limit=3600.0)
    assert started(begin(made, 1.0, high, low)) == []
    said = str(explain(made.state, "low", 2.0))
    assert "3 servers reserved for job high, the first of a higher level, which is expected to start in" in said
    assert "n2: reserved for job high" in said or "n0, n1, n2: reserved for job high" in said
    assert "submit it with a time limit of at most" in said
    assert "reserved" not in str(explain(made.state, "high", 2.0))
    why = {one.record.job.id: one.why for one in waiting_in_order(made.state, 2.0)[1]}
    assert why["low"] == "room is reserved for a job of a higher level, or on servers that close too soon"
    assert why["high"] == "room for 1 of 3 tasks"
    assert started(begin(made, 3.0, job("short", cpu=4, limit=500.0))) == ["short"]


drawn = st.tuples(
    st.integers(1, 4), st.integers(1, 3), st.sampled_from([None, 30.0, 200.0]), st.integers(0, 2), st.booleans()
)


@examples(60)
@given(st.lists(drawn, min_size=1, max_size=12), st.lists(drawn, max_size=6), st.sampled_from(POLICIES))
def test_what_starts_of_higher_levels_does_not_depend_on_lower_ones(
    jobs: list[tuple[int, int, float | None, int, bool]],
    running: list[tuple[int, int, float | None, int, bool]],
    policy: str,
) -> None:
    servers = [server(f"n{i}", speed=1.0 + i % 2, kind="ab"[i % 2]) for i in range(4)]

    def decided(least: int) -> dict[str, object]:
        made = dispatcher(*servers, policy=policy, queues=FOREVER)
        for i, (cpu, count, limit, _, labelled) in enumerate(running):
            needs = {"kind": "a"} if labelled else {}
            begin(made, 0.0, job(f"r{i}", cpu=cpu, count=count, limit=limit, type=f"t{i % 2}", needs=needs, priority=5))
        for i, (cpu, count, limit, level, labelled) in enumerate(jobs):
            if level >= least:
                needs = {"kind": "a"} if labelled else {}
                one = job(f"j{i}", cpu=cpu, count=count, limit=limit, type=f"t{i % 2}", priority=level, needs=needs)
                made.handle(Submitted(1.0, one))
        found = made.decide(2.0)
        assert not made.refusals
        starts = {start.job: start.places for start in (found.starts if found else ())}
        levels = {record.job.id: record.job.priority for record in made.state.jobs.values()}
        return {name: where for name, where in starts.items() if levels[name] >= 1}

    assert decided(0) == decided(1)


def one_level_after_another(view: View) -> Placing:
    """`in_order` without shortcuts: every level is asked about all of its jobs, and reserves at once."""
    free, parts, found = view.free.copy(), list[Placing](), Reservations(view)
    for level in np.unique(view.level)[::-1]:
        mine = np.flatnonzero(view.level == level)
        part = found.respected(view.only(mine, free))
        placing = placed_in_order(part)
        np.subtract.at(free, placing.server, placing.count[:, None] * part.gangs.demand[placing.role])
        parts.append(view.whole(mine, placing))
        found.starts(part, placing)
        waiting = np.setdiff1d(mine, parts[-1].job)
        if len(waiting):
            found.reserve(view, int(waiting[0]), free)
    return Placing.joined(parts)


@examples(150)
@given(st.lists(drawn, min_size=1, max_size=16), st.lists(drawn, max_size=6), st.booleans())
def test_levels_without_room_are_skipped_and_nothing_else_changes(
    jobs: list[tuple[int, int, float | None, int, bool]],
    running: list[tuple[int, int, float | None, int, bool]],
    pairs: bool,
) -> None:
    servers = (server(f"n{i}", gpu=4, speed=1.0 + i % 2, kind="ab"[i % 2]) for i in range(4))
    made = dispatcher(*servers, queues=FOREVER)
    for i, (cpu, count, limit, gpu, _) in enumerate(running):
        begin(made, 0.0, job(f"r{i}", cpu=cpu, gpu=gpu, count=count, limit=limit, type=f"t{i % 2}", priority=5))
    for i, (cpu, count, limit, level, labelled) in enumerate(jobs):
        roles = (
            Role("main", count, amounts({"cpu": cpu, "gpu": 4 - cpu})),
            *[Role("more", 1, amounts({"cpu": 1}))] * pairs,
        )
        needs = {"kind": "a"} if labelled else {}
        made.handle(Submitted(1.0, job(f"j{i}", roles=roles, limit=limit, priority=level, needs=needs)))
    view = make_view(made.state, 2.0)
    assert view.starts(in_order(view)) == view.starts(one_level_after_another(view))


@examples(60)
@given(st.lists(drawn, min_size=1, max_size=8), st.lists(drawn, max_size=6))
def test_a_forecast_begins_with_what_the_next_decision_starts(
    jobs: list[tuple[int, int, float | None, int, bool]], running: list[tuple[int, int, float | None, int, bool]]
) -> None:
    made = dispatcher(*(server(f"n{i}", speed=1.0 + i % 2, kind="ab"[i % 2]) for i in range(4)), queues=FOREVER)
    for i, (cpu, count, limit, _, _) in enumerate(running):
        begin(made, 0.0, job(f"r{i}", cpu=cpu, count=count, limit=limit, type=f"t{i % 2}", priority=5))
    for i, (cpu, count, limit, level, labelled) in enumerate(jobs):
        needs = {"kind": "a"} if labelled else {}
        one = job(f"j{i}", cpu=cpu, count=count, limit=limit, type=f"t{i % 2}", priority=level, needs=needs)
        made.handle(Submitted(1.0, one))
    starts, order = started(made.decide(2.0)), ordered(made.state, 2.0)
    for _, record in order:
        found, left_out = played(made.state, record, 2.0, order, samples=3)
        assert not left_out
        at_once = isinstance(found, Range) and found.high == 0.0
        assert at_once == (record.job.id in starts)
        assert at_once or isinstance(found, str) or found.low > 0.0


@examples(60)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(1, 5)), max_size=10),
    st.integers(1, 4),
    st.integers(1, 4),
    st.booleans(),
)
def test_the_first_room_is_found(held: list[tuple[int, int, int]], cpu: int, count: int, labelled: bool) -> None:
    """As by giving back one place after another."""
    made = dispatcher(*(server(f"n{i}", cpu=6, kind="ab"[i % 2]) for i in range(4)))
    made.handle(
        Submitted(
            0.0, job("j", cpu=cpu, count=count, minimum=max(count - 1, 1), needs={"kind": "a"} if labelled else {})
        )
    )
    view = view_of(made.state, 0.0, list(made.state.jobs.values()))
    column = made.state.resources["cpu"]
    free, amount = view.capacity.copy(), np.zeros((len(held), len(view.resources)), dtype=np.int64)
    times = np.cumsum([float(after) for after, _, _ in held])
    where = np.array([row for _, row, _ in held], dtype=np.int64)
    amount[:, column] = [1000 * much for _, _, much in held]
    np.subtract.at(free, where, amount)
    found = first_room(view, free, Releases(times, where, amount))
    for after in range(len(held) + 1):
        left = free.copy()
        np.add.at(left, where[:after], amount[:after])
        if len(placed_in_order(view, np.maximum(left, 0)).job):
            assert found is not None
            assert found.after == after
            assert found.seconds == (times[after - 1] if after else 0.0)
            break
    else:
        assert found is None
