"""Rules of queues on the live view: the placing of the lab's policy at a moment, and what the lab does not know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth import InOrder, replay
from berth.files.quantities import amounts
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.drivers.deferral import Waits
from berth.live.core.drivers.placement import PlacementDriver
from berth.live.core.drivers.promises import rule_driver
from berth.live.core.drivers.rules import rule_of
from berth.live.core.events import Decided, Finished, ServerDrained, ServerJoined, Started, Submitted
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.order import view_within_limits
from berth.live.core.queues import Queues
from berth.live.core.view import Placing, View, violations
from berth.registry import PolicySpec
from berth.traces.trace import Trace
from tests.frozen.policies import QUEUE
from tests.harness.examples import examples
from tests.live.core.builders import begin, dispatcher, job, places, server, started

SPECS = [
    spec
    for spec in map(PolicySpec.parse, (*QUEUE, "first-fit"))
    if (rule := rule_of(spec)) is not None and rule.backfill != "shadow"
]
ONE_LEVEL = Queues(aging=0.0, fairness=0.0, patience=1e9)
Moments = list[tuple[list[Job], list[int]]]


def rigid(number: int, draw: st.DrawFn) -> Job:
    """A job of one role with a fixed number of tasks, as the lab has them."""
    demand = {"cpu": draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])), "memory": draw(st.sampled_from([0.0, 1.0, 3.0]))}
    role = Role("main", draw(st.integers(1, 5)), amounts(demand))
    said = st.one_of(st.none(), st.sampled_from([1.0, 2.0, 4.0, 9.0, 30.0]))
    needs = draw(st.sampled_from([{}, {}, {"kind": "a"}]))
    return Job(f"j{number}", "t", (role,), estimate=draw(said), limit=draw(said), needs=needs)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Server], Moments]:
    """Servers, and for some moments the jobs that come, and which of the running jobs end."""
    servers = [
        Server(
            f"n{i}",
            amounts({"cpu": draw(st.integers(0, 4)), "memory": draw(st.integers(1, 6))}),
            {"kind": draw(st.sampled_from("ab"))},
            draw(st.sampled_from([1.0, 1.0, 2.0])),
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    moments: Moments = []
    for _ in range(draw(st.integers(1, 4))):
        known = sum(len(jobs) for jobs, _ in moments)
        jobs = [rigid(known + i, draw) for i in range(draw(st.integers(0, 6)))]
        moments.append((jobs, draw(st.lists(st.integers(0, 5), max_size=2))))
    return servers, moments


def listed(placing: Placing) -> list[tuple[int, ...]]:
    columns = (placing.job, placing.role, placing.server, placing.count)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def play(servers: list[Server], moments: Moments, decide: Any) -> None:
    """Play these moments; `decide` gets each view, and what it gives starts."""
    made = Dispatcher(queues=ONE_LEVEL)
    for each in servers:
        made.handle(ServerJoined(0.0, each))
    for i, (jobs, ends) in enumerate(moments):
        now = 2.0 * i + 1.0
        running = [record for record in made.state.jobs.values() if record.phase == "running"]
        for place in {place for place in ends if place < len(running)}:
            record = running[place]
            made.handle(Finished(now, record.job.id, record.attempt, now - (record.started or 0.0)))
        for one in jobs:
            made.handle(Submitted(now, one))
        view = view_within_limits(made.state, now)
        starts = view.starts(decide(view))
        made.handle(Decided(now, "test", starts, len(view.records)))
        for start in starts:
            made.handle(Started(now, start.job, start.attempt))


@pytest.mark.parametrize("spec", SPECS, ids=str)
@examples(15)
@given(streams())
def test_a_rule_places_jobs_as_the_policy_of_the_lab_does(
    spec: PolicySpec, stream: tuple[list[Server], Moments]
) -> None:
    ours, theirs = rule_driver(spec, Waits()), PlacementDriver(spec, 0, (), Waits())
    assert ours is not None

    def decide(view: View) -> Placing:
        if not len(view.records):
            return Placing.nothing()
        placing = ours.propose(view)
        assert not violations(view, placing)
        assert listed(placing) == listed(theirs.propose(view))
        return placing

    play(*stream, decide)


def wide_behind_a_long_one(policy: str) -> Dispatcher:
    """A job runs until 100 on the only server; one of two roles needs all of it."""
    made = dispatcher(server("n0", cpu=4), policy=policy, queues=ONE_LEVEL, bare=True)
    assert started(begin(made, 0.0, job("first", cpu=3, estimate=100.0))) == ["first"]
    roles = (Role("lead", 1, {"cpu": 1000}), Role("rest", 3, {"cpu": 1000}))
    assert started(begin(made, 1.0, job("wide", roles=roles, estimate=10.0))) == []
    return made


@pytest.mark.parametrize("policy", ["easy", "conservative", "wfp3:backfill=easy"])
def test_a_job_of_several_roles_keeps_its_place_in_the_queue(policy: str) -> None:
    made = wide_behind_a_long_one(policy)
    assert started(begin(made, 2.0, job("long", cpu=1, estimate=1000.0))) == []
    assert started(begin(made, 3.0, job("short", cpu=1, estimate=50.0))) == ["short"]


@pytest.mark.parametrize("policy", ["fcfs", "sjf"])
def test_a_strict_queue_is_strict_about_jobs_of_several_roles(policy: str) -> None:
    made = wide_behind_a_long_one(policy)
    assert started(begin(made, 2.0, job("late", cpu=1, estimate=11.0))) == []


@pytest.mark.parametrize("policy", ["fcfs", "best-fit", "tetris", "drf-placement", "conservative"])
def test_a_job_gets_as_many_tasks_as_there_is_room_for(policy: str) -> None:
    made = dispatcher(server("n0", cpu=4), server("n1", cpu=3), policy=policy, queues=ONE_LEVEL, bare=True)
    assert started(begin(made, 0.0, job("elastic", count=9, minimum=2, estimate=10.0))) == ["elastic"]
    assert places(made, "elastic") == {"n0": 4, "n1": 3}


def test_no_reservation_counts_on_a_server_that_drains() -> None:
    made = dispatcher(server("n0", cpu=4), server("n1", cpu=4), policy="easy", queues=ONE_LEVEL, bare=True)
    begin(made, 0.0, job("soon", cpu=4, estimate=10.0), job("later", cpu=2, estimate=100.0))
    made.handle(ServerDrained(1.0, "n0"))
    assert started(begin(made, 2.0, job("head", cpu=3, estimate=10.0))) == []  # at 100 on n1, and not at 10 on n0
    assert started(begin(made, 3.0, job("long", cpu=2, estimate=1000.0))) == []
    assert started(begin(made, 4.0, job("short", cpu=2, estimate=50.0))) == ["short"]


def test_the_first_of_a_strict_queue_holds_back_others_only_where_it_may_start() -> None:
    """The first may not use the server that closes; the second may, the third may not start before the first there."""
    made = dispatcher(
        server("n0", cpu=4), replace(server("n1", cpu=4), until=60.0), policy="fcfs", queues=ONE_LEVEL, bare=True
    )
    begin(made, 0.0, job("running", cpu=3, limit=500.0))
    jobs = job("head", cpu=2, limit=500.0), job("short", cpu=3, limit=30.0), job("small", cpu=1, limit=500.0)
    assert started(begin(made, 1.0, *jobs)) == ["short"]
    assert places(made, "short") == {"n1": 1}


def test_owners_take_turns_by_what_their_own_jobs_hold() -> None:
    """Ann holds two of four processors and bob one. Bob submitted first, ann waits first."""
    made = dispatcher(server("n0", cpu=4), policy="drf-placement", queues=ONE_LEVEL, bare=True)
    before = job("b0", user="bob"), job("a0", user="ann"), job("a1", user="ann")
    assert started(begin(made, 0.0, *before)) == ["b0", "a0", "a1"]
    assert started(begin(made, 1.0, job("a2", user="ann"), job("b1", user="bob"))) == ["b1"]


class Widest(InOrder):
    """The jobs with most processors first."""

    rule = "-size"


def test_a_rule_of_ones_own_decides_live_and_in_a_replay() -> None:
    name = f"{__name__}:Widest"
    made = dispatcher(server("n0", cpu=4), policy=name, queues=ONE_LEVEL, bare=True)
    begin(made, 0.0, job("first", cpu=4, estimate=10.0))
    begin(made, 1.0, job("narrow", cpu=1, estimate=10.0))
    begin(made, 2.0, job("wide", cpu=4, estimate=10.0))
    made.handle(Finished(10.0, "first", 1))
    assert started(begin(made, 10.0)) == ["wide"]
    times = {"submit_s": [0.0, 1.0, 2.0], "run_s": [10.0] * 3, "estimate_s": [10.0] * 3}
    log = Trace.of({**times, "cpu": [4.0, 1.0, 4.0]}, {"machine": ["n0"], "count": [1.0], "cpu": [4.0]})
    assert replay(log, [name]).jobs["start_s"].to_list() == [0.0, 20.0, 10.0]


def test_the_order_of_earlier_versions_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"^Widest.key: .* define `rule`, the order as a score"):
        type("Widest", (InOrder,), {"key": lambda self, tasks: -tasks.work})
