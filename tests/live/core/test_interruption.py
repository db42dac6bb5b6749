"""Policies that interrupt jobs: no work is lost or done twice, and each continuation costs what the cluster says."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InfeasibleDecision
from berth.live.core.decisions import may_be_interrupted
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.drivers import interrupting, make_driver
from berth.live.core.events import (
    Cancel,
    Cancelled,
    Decided,
    Failed,
    Finished,
    Interrupt,
    Overran,
    Start,
    Started,
    Submitted,
    read_event,
    write_event,
)
from berth.live.core.jobs import Place
from berth.live.core.queues import Queues
from berth.live.core.records import Outcome
from berth.live.core.view import Placing, View, placed_in_order
from berth.live.engines.simulated.cluster import Latency, SimulatedCluster, Truth
from berth.live.simulation import Played, play
from tests.live.core.builders import begun, dispatcher, job, server, snapshot

HERE = "tests.live.core.test_interruption"
SERVERS = [server("a", cpu=4), server("b", cpu=2, speed=2.0), server("c", cpu=1, speed=0.5)]


class Restless:
    """Interrupts each running job with some chance at the end of each slice, and starts waiting jobs in some order."""

    family = "live"
    reference = "none"
    interrupts = True

    def __init__(self, rng: np.random.Generator, *, slice: float = 10.0, chance: float = 0.5) -> None:
        self._rng, self._slice, self._chance, self._end = rng, slice, chance, -math.inf
        self.next_look = math.inf

    def decide(self, view: View, /) -> Placing:
        records = view.state.table.by_row
        running = view.running.rows[[may_be_interrupted(records[row], view.time) for row in view.running.rows.tolist()]]
        if view.time >= self._end:
            self.next_look = self._end = view.time + self._slice
            stop = running[self._rng.random(len(running)) < self._chance]
            if len(stop):
                return Placing(*(stop[:0],) * 4, stop)
        order = self._rng.permutation(len(view.rows))
        return view.whole(order, placed_in_order(view.only(order))) if len(order) else Placing.nothing()

    def observe(self, outcome: Outcome, /) -> None:
        return None


class Quiet(Restless):
    """Interrupts without saying so."""

    interrupts = False


class Hasty(Restless):
    """Interrupts whatever runs, even jobs that it has just started."""

    def decide(self, view: View, /) -> Placing:
        if len(view.rows):
            return placed_in_order(view)
        rows = view.running.rows
        return Placing(*(rows[:0],) * 4, rows)


def services(played: Played) -> dict[str, list[float]]:
    """How long each attempt of each job ran."""
    began: dict[tuple[str, int], float] = {}
    ran: dict[str, list[float]] = {}
    for event in played.events:
        if isinstance(event, Started):
            assert (event.job, event.attempt) not in began
            began[event.job, event.attempt] = event.time
        elif isinstance(event, Finished | Failed):
            ran.setdefault(event.job, []).append(event.time - began[event.job, event.attempt])
    return ran


JOBS = st.lists(
    st.tuples(st.floats(0.0, 50.0), st.floats(0.5, 100.0), st.sampled_from([0.5, 1, 2]), st.integers(1, 2)),
    min_size=1,
    max_size=8,
)


@given(JOBS, st.integers(0, 9), st.sampled_from([0.0, 3.0, 10.0, 15.0]), st.sampled_from([0.0, 1.5]))
def test_no_work_is_lost_or_done_twice(
    jobs: list[tuple[float, float, float, int]], seed: int, restart: float, latency: float
) -> None:
    cluster = SimulatedCluster(SERVERS, Truth(restart=restart), Latency(start=latency))
    made = Dispatcher(f"{HERE}:Restless", seed=seed, queues=Queues(patience=1e9))
    given = [Submitted(at, job(f"j{i}", cpu, tasks, work=work)) for i, (at, work, cpu, tasks) in enumerate(jobs)]
    played = play(made, cluster, given, until=1e6)
    assert not made.refusals
    ends = Counter(event.job for event in played.events if isinstance(event, Finished))
    assert ends == {f"j{i}": 1 for i in range(len(jobs))}
    assert all(event.fault == "interrupted" for event in played.events if isinstance(event, Failed))
    ran, speed = services(played), {one.name: one.speed for one in SERVERS}
    places = {
        (start.job, start.attempt): [speed[place.server] for place in start.places]
        for event in played.events
        if isinstance(event, Decided)
        for start in event.starts
    }
    for i, (_, work, _, _) in enumerate(jobs):
        seconds = ran[f"j{i}"]
        lost = [min(restart, one) if number else 0.0 for number, one in enumerate(seconds)]
        did = [
            (one - less) * min(places[f"j{i}", number + 1])
            for number, (one, less) in enumerate(zip(seconds, lost, strict=True))
        ]
        assert sum(did) == pytest.approx(work, rel=1e-9)
        record = played.ended[f"j{i}"]
        assert record.interruptions == len(seconds) - 1
        assert record.ran == pytest.approx(sum(seconds[:-1]) - sum(lost[:-1]), abs=1e-9)
        assert record.done == pytest.approx(sum(did[:-1]) / work, abs=1e-9)


def test_interrupting_k_times_costs_k_restarts() -> None:
    made = Dispatcher(f"{HERE}:Restless:chance=1,slice=10")
    played = play(made, SimulatedCluster([server("a")], Truth(restart=2.0)), [Submitted(0.0, job("j", work=52.0))])
    record = played.ended["j"]
    assert record.interruptions == 6  # 10 seconds of work, then 8 in each of five slices, and 2 in the last
    assert record.ended == 52.0 + 6 * 2.0


def test_a_policy_must_say_that_it_interrupts() -> None:
    made = Dispatcher(f"{HERE}:Quiet:chance=1")
    given = [Submitted(0.0, job(name, cpu=4, work=35.0)) for name in "jk"]
    played = play(made, SimulatedCluster([server("a")]), given)
    assert made.refusals == {"infeasible": 3}
    assert played.ended["j"].interruptions == 0


def test_what_began_at_this_moment_is_not_interrupted() -> None:
    made = Dispatcher(f"{HERE}:Hasty")
    played = play(made, SimulatedCluster([server("a")]), [Submitted(0.0, job("j", work=5.0))], until=100.0)
    assert played.ended["j"].interruptions == 0
    other = dispatcher(server("a"))
    other.handle(Submitted(0.0, job("j")))
    begun(other, "j", Place("a", "main", 1))
    other.handle(Started(1.0, "j", 1))
    with pytest.raises(InfeasibleDecision, match="does not run attempt 1 since an earlier moment"):
        other.handle(Decided(1.0, "x", (), interrupts=(Interrupt("j", 1),)))


def test_a_journal_replays_to_the_same_state() -> None:
    given = [Submitted(float(i), job(f"j{i}", cpu=3, work=30.0 + i)) for i in range(5)]
    made = Dispatcher(f"{HERE}:Restless:chance=1")
    played = play(made, SimulatedCluster(SERVERS, Truth(restart=1.0)), given, until=45.0)
    assert sum(record.interruptions for record in made.state.jobs.values()) > 3
    again = Dispatcher(f"{HERE}:Restless:chance=1")
    again.replay(read_event(write_event(event)) for event in played.events)
    assert snapshot(again.state) == snapshot(made.state)
    assert again.state.dump() == made.state.dump()


def running(limit: float | None = None) -> Dispatcher:
    """A job that runs since 10 s and is to be interrupted at 20 s."""
    made = dispatcher(server("a"))
    made.handle(Submitted(0.0, job("j", work=100.0, limit=limit)))
    begun(made, "j", Place("a", "main", 1), time=10.0)
    made.handle(Started(10.0, "j", 1))
    handled = made.handle(Decided(20.0, "x", (), interrupts=(Interrupt("j", 1),)))
    assert handled.commands == (Interrupt("j", 1),)
    return made


def test_a_job_may_end_while_it_is_interrupted() -> None:
    made = running()
    made.handle(Finished(20.5, "j", 1))
    assert not made.state.jobs


def test_a_user_may_cancel_while_it_is_interrupted() -> None:
    made = running()
    assert made.handle(Cancelled(20.1, "j")).commands == (Cancel("j", 1),)
    (record,) = made.handle(Failed(20.5, "j", 1, "", "interrupted")).changed
    assert record.phase == "cancelled"


def test_an_engine_that_cannot_keep_the_work_cancels() -> None:
    made = running()
    (record,) = made.handle(Failed(20.5, "j", 1, "", "cancelled")).changed
    assert (record.phase, record.interruptions, record.done, record.failures) == ("waiting", 0, 0.0, 0)


def test_what_is_left_counts_in_expectations_and_limits() -> None:
    made = running(limit=50.0)
    (record,) = made.handle(Failed(20.5, "j", 1, "", "interrupted", 10.0, done=0.1)).changed
    assert (record.phase, record.ran, record.done, record.places) == ("waiting", 10.0, 0.1, ())
    rows = made.state.table.rows([record])
    assert [column.tolist() for column in made.state.table.said(rows)] == [[90.0], [0.0], [40.0]]
    begun(made, "j", Place("a", "main", 1), attempt=2, time=30.0)
    made.handle(Started(30.0, "j", 2))
    assert made.state.table.next_limit == 70.0
    made.handle(made.state.overdue(70.0)[0])
    (record,) = made.handle(Failed(71.0, "j", 2, "", "cancelled")).changed
    assert record.phase == "failed"


def test_a_failure_of_its_own_begins_anew() -> None:
    made = dispatcher(server("a"))
    made.handle(Submitted(0.0, job("j", work=100.0, retries=1)))
    begun(made, "j", Place("a", "main", 1))
    made.handle(Started(0.0, "j", 1))
    made.handle(Decided(20.0, "x", (), interrupts=(Interrupt("j", 1),)))
    made.handle(Failed(20.0, "j", 1, "", "interrupted", done=0.2))
    begun(made, "j", Place("a", "main", 1), attempt=2, time=30.0)
    made.handle(Started(30.0, "j", 2))
    (record,) = made.handle(Failed(31.0, "j", 2, "", "job")).changed
    assert (record.phase, record.ran, record.done, record.interruptions) == ("waiting", 0.0, 0.0, 1)


def test_a_failure_of_its_own_begins_anew_in_the_cluster() -> None:
    cluster = SimulatedCluster([server("a")], Truth(restart=5.0))
    one = job("j", work=100.0)
    for attempt, (begin, command) in enumerate([(0.0, Interrupt), (50.0, Cancel), (60.0, None)], start=1):
        cluster.execute(Start("j", attempt, (Place("a", "main", 1),)), one, begin)
        if command is not None:
            cluster.execute(command("j", attempt), None, begin + 8.0)
    ends = [event for event in cluster.due(1e3) if isinstance(event, Failed | Finished)]
    assert ends == [
        Failed(8.0, "j", 1, "interrupted", "interrupted", 8.0, done=0.08),
        Failed(58.0, "j", 2, "cancelled", "cancelled"),
        Finished(160.0, "j", 3, 100.0),
    ]


def test_interruptions_are_idempotent() -> None:
    cluster = SimulatedCluster([server("a")])
    cluster.execute(Start("j", 1, (Place("a", "main", 1),)), job("j", work=10.0), 0.0)
    assert cluster.execute(Interrupt("j", 1), None, 4.0)
    assert not cluster.execute(Interrupt("j", 1), None, 5.0)
    assert not cluster.execute(Start("j", 1, (Place("a", "main", 1),)), job("j", work=10.0), 5.0)
    assert len([event for event in cluster.due(9.0) if isinstance(event, Failed)]) == 1
    assert cluster.jobs == {"j"}
    assert cluster.remembers("j", 1)


def test_who_says_that_it_interrupts() -> None:
    assert interrupting(f"{HERE}:Restless")
    assert not interrupting(f"{HERE}:Quiet")
    assert not interrupting("easy")
    assert str(make_driver(f"{HERE}:Restless:slice=3", 0, [])) == f"{HERE}:Restless:slice=3"


def test_an_overrun_is_not_undone_by_an_interruption() -> None:
    made = running()
    assert made.handle(Overran(20.1, "j", 1)).commands == ()
