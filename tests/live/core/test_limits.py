"""Time limits of jobs, and limits of what owners hold: enforced, and spent only by what is held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.live.core.dispatcher import FALLBACK, Dispatcher, read_dump, write_dump
from berth.live.core.events import (
    Cancel,
    Cancelled,
    Event,
    Failed,
    Finished,
    Overran,
    Submitted,
    read_event,
    write_event,
)
from berth.live.core.explain import explain
from berth.live.core.limits import limits_of
from berth.live.core.queues import Queue, Queues
from berth.live.core.reasons import waiting_in_order
from berth.live.core.records import Handled
from berth.live.engines.simulated.cluster import SimulatedCluster
from berth.live.simulation import play
from tests.harness.examples import examples
from tests.live.core.builders import begin, dispatcher, job, server, snapshot, started


def test_a_job_that_reaches_its_time_limit_is_ended_and_has_failed() -> None:
    made = dispatcher(server("a"))
    begin(made, 0.0, job("j", work=14.0, limit=3.0))
    assert made.state.overdue(2.9) == ()
    (event,) = made.state.overdue(3.0)
    assert read_event(write_event(event)) == event == Overran(3.0, "j", 1)
    assert made.handle(event).commands == (Cancel("j", 1),)
    assert made.state.jobs["j"].phase == "ending"
    assert made.state.overdue(9.0) == ()
    assert made.handle(event).commands == ()
    (ended,) = made.handle(Failed(4.0, "j", 1, "cancelled", "cancelled")).changed
    assert (ended.phase, ended.failures) == ("failed", 1)
    assert "time limit of 3 s" in ended.reason


def test_a_limit_counts_as_a_failure_and_retries_begin_anew() -> None:
    jobs = [Submitted(0.0, job("j", work=50.0, limit=20.0, retries=2))]
    ended = play(Dispatcher(), SimulatedCluster([server("a")]), jobs)
    record = ended.ended["j"]
    assert (record.phase, record.failures, record.ended) == ("failed", 3, 60.0)
    assert sum(isinstance(event, Overran) for event in ended.events) == 3


def test_a_job_that_ends_in_time_is_left_alone_and_so_is_one_of_an_engine() -> None:
    given_: list[Event] = [Submitted(0.0, job("j", work=20.0, limit=20.0))]
    given_.append(Submitted(0.0, job("theirs", work=50.0, limit=20.0, origin="slurm")))
    ended = play(Dispatcher(), SimulatedCluster([server("a")]), given_).ended
    assert {name: record.phase for name, record in ended.items()} == {"j": "finished", "theirs": "finished"}


def test_a_cancelled_job_does_not_fail_by_its_limit_and_dumps_keep_limits() -> None:
    made = dispatcher(server("a"))
    begin(made, 0.0, job("j", work=14.0, limit=3.0), job("k", work=14.0, limit=3.0))
    made.handle(Overran(3.0, "j", 1))
    loaded = Dispatcher().load(read_dump(write_dump(made.dump())))
    assert snapshot(loaded.state) == snapshot(made.state)
    assert loaded.state.overdue(3.0) == (Overran(3.0, "k", 1),)
    made.handle(Cancelled(3.5, "j", "ann"))
    (ended,) = made.handle(Failed(4.0, "j", 1, "", "cancelled")).changed
    assert ended.phase == "cancelled"


def test_queues_have_default_and_longest_time_limits() -> None:
    queues = Queues({"default": Queue(default_time=60.0, max_time=600.0), "open": Queue(), "top": Queue(max_time=90.0)})
    made = dispatcher(server("a"), queues=queues)
    for name, queue, limit in (
        ("a", "default", None),
        ("b", "default", 600.0),
        ("c", "open", None),
        ("d", "top", None),
    ):
        made.handle(Submitted(0.0, job(name, queue=queue, limit=limit)))
    assert [made.state.jobs[name].job.limit for name in "abcd"] == [60.0, 600.0, None, 90.0]
    with pytest.raises(InvalidInput, match=r"limit: got '10.1 min', expected at most 10.0 min in queue default"):
        made.handle(Submitted(0.0, job("e", limit=605.0)))
    with pytest.raises(InvalidInput, match="default_time"):
        Queue(default_time=60.0, max_time=30.0)
    with pytest.raises(InvalidInput, match="max_time"):
        Queue(max_time=0.0)


def test_a_quota_is_not_spent_by_a_job_that_only_waits() -> None:
    queues = Queues(quotas={"team:x": {"gpu": 4000}})
    made = dispatcher(server("a", gpu=2), server("b", gpu=4, kind="new"), queues=queues)
    begin(made, 0.0, job("busy", gpu=4, needs={"kind": "new"}, team="y"))
    waits = job("waits", gpu=4, needs={"kind": "new"}, team="x")
    assert started(begin(made, 1.0, waits, job("small", gpu=2, team="x"))) == ["small"]
    found = {one.record.job.id: one.why for one in waiting_in_order(made.state, 2.0)[1]}
    assert found["waits"] == "limit of team:x/gpu reached"
    made.handle(Finished(3.0, "small", 1))
    found = {one.record.job.id: one.why for one in waiting_in_order(made.state, 3.0)[1]}
    assert found["waits"] == "room for 0 of 1 task"


def test_what_the_first_late_job_needs_of_a_quota_is_kept_for_it_and_said() -> None:
    queues = Queues(quotas={"team:x": {"cpu": 4000}}, patience=100.0)
    made = dispatcher(server("a", cpu=4), server("b", cpu=4), queues=queues)
    begin(made, 0.0, job("s0", cpu=2, team="x"), job("large", cpu=4, team="x"))
    assert started(begin(made, 50.0, job("s1", cpu=2, team="x"))) == ["s1"]
    made.handle(Finished(200.0, "s0", 1))
    assert started(begin(made, 200.0, job("s2", cpu=2, team="x"))) == []
    words = "the rest of team:x/cpu is reserved for job large, which waits longest"
    assert words in explain(made.state, "s2", 201.0).blocks
    made.handle(Finished(300.0, "s1", 1))
    assert started(begin(made, 300.0)) == ["large"]


@examples(60)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 4), st.integers(1, 2), st.sampled_from("xy"), st.sampled_from("uv"), st.floats(0, 500)
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from((FALLBACK, "best-fit", "easy", "cucb", "fairness")),
    st.integers(2, 8),
)
def test_limits_hold_whatever_the_policy_and_everybody_who_may_start_does(
    drawn: list[tuple[int, int, str, str, float]], policy: str, quota: int
) -> None:
    queues = Queues(
        {"default": Queue(limit={"cpu": 9000})}, quotas={"team:x": {"cpu": 1000 * quota}, "user:u": {"cpu": 5000}}
    )
    made = _Held(policy, queues=queues)
    jobs: list[Event] = [
        Submitted(at, job(f"j{i}", cpu=cpu, count=count, team=team, user=user, work=50.0))
        for i, (cpu, count, team, user, at) in enumerate(drawn)
    ]
    ended = play(made, SimulatedCluster([server("a"), server("b"), server("c")]), jobs).ended
    for i, (cpu, count, team, user, _) in enumerate(drawn):
        asked = cpu * count
        possible = asked <= 9 and (team != "x" or asked <= quota) and (user != "u" or asked <= 5)
        assert (f"j{i}" in ended) == possible


class _Held(Dispatcher):
    def handle(self, event: Event) -> Handled:
        handled = super().handle(event)
        for owner, limit in limits_of(self.state).items():
            for name, most in limit.items():
                assert self.state.held.get(owner, {}).get(name, 0) <= most
        return handled
