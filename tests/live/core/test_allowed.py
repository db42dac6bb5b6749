"""One question a decision: each job has the servers on which it may start now."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.live.core.dispatcher import FALLBACK
from berth.live.core.events import Decided, Failed, Submitted
from berth.live.core.jobs import Place
from berth.live.core.order import make_view
from berth.live.core.queues import Queues
from berth.live.core.windows import Windows
from tests.harness.examples import examples
from tests.live.core.builders import begin, begun, dispatcher, job, places, server, started

POLICIES = [FALLBACK, "completion", "easy", "best-fit", "greedy", "escb-v", "ogasched"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_gang_may_use_servers_that_close_at_different_times(policy: str) -> None:
    closing = [replace(server(f"n{i}"), until=1000.0 * i) for i in (1, 2)]
    made = dispatcher(server("n0"), *closing, policy=policy, queues=Queues(aging=0.0))
    gang, long = job("gang", cpu=4, count=3, limit=500.0), job("long", cpu=4, limit=5000.0)
    assert started(begin(made, 1.0, gang)) == ["gang"]
    assert set(places(made, "gang")) == {"n0", "n1", "n2"}
    assert not made.refusals
    begin(made, 2.0, long)
    assert made.state.jobs["long"].phase == "waiting"


@pytest.mark.parametrize("policy", [FALLBACK, "completion", "best-fit"])
def test_a_short_job_behind_thousands_of_long_ones_starts_before_maintenance(policy: str) -> None:
    made = dispatcher(replace(server("n0"), until=3600.0), policy=policy)
    for i in range(2000):
        made.handle(Submitted(0.0, job(f"long{i}", limit=7200.0)))
    assert started(begin(made, 1.0, job("short", limit=600.0))) == ["short"]
    assert not made.refusals


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_starts_a_job_where_it_may_not_start(policy: str) -> None:
    """Reserved servers, refusals and closing servers at once, for jobs of one shape and many time limits."""
    servers = [server(f"n{i}", speed=1.0 + i % 2) for i in range(3)]
    servers += [replace(server(f"n{i}"), until=500.0 * i) for i in (3, 4, 5)]
    made = dispatcher(*servers, policy=policy, queues=Queues(patience=50.0, aging=0.0))
    begin(made, 0.0, job("hog", cpu=3, limit=900.0), job("wide", cpu=4, count=3))
    made.handle(Submitted(90.0, job("refused")))
    begun(made, "refused", Place("n5", "main", 1), time=90.0)
    made.handle(Failed(91.0, "refused", 1, "no", "server", refused_by=("n5",)))
    jobs = [job(f"j{i}", limit=limit) for i, limit in enumerate((100.0, 3000.0, 1200.0, 1500.0, 300.0, 9000.0))]
    decided = begin(made, 92.0, *jobs)
    assert decided is not None
    assert set(decided.reserved.values()) == {"wide"}
    assert not made.refusals
    windows = Windows(made.state, 92.0, decided.reserved)
    for start in decided.starts:
        there = windows.allows(made.state.jobs[start.job])
        assert all(there[made.state.servers[place.server].index] for place in start.places)


@examples(60)
@given(
    st.lists(st.one_of(st.none(), st.floats(1.0, 400.0)), min_size=1, max_size=5),
    st.lists(st.tuples(st.one_of(st.none(), st.floats(1.0, 500.0)), st.booleans(), st.booleans()), max_size=8),
    st.sets(st.integers(0, 4)),
    st.sets(st.integers(0, 4)),
)
def test_the_servers_of_all_jobs_are_those_of_each_by_itself(
    untils: list[float | None],
    jobs: list[tuple[float | None, bool, bool]],
    reserved: set[int],
    refusing: set[int],
) -> None:
    made = dispatcher(
        *(replace(server(f"n{i}", kind="ab"[i % 2]), until=until) for i, until in enumerate(untils)),
    )
    there = [f"n{i}" for i in range(len(untils))]
    made.handle(Submitted(0.0, job("late", cpu=2)))
    made.handle(Submitted(0.0, job("first")))
    begun(made, "first", Place("n0", "main", 1))
    by = tuple(there[i] for i in refusing if i < len(there))
    made.handle(Failed(1.0, "first", 1, "no", "server", refused_by=by))
    for i, (limit, stated, labelled) in enumerate(jobs):
        needs = {"kind": "a"} if labelled else {}
        made.handle(Submitted(1.0, job(f"j{i}", limit=limit, work=30.0 if stated else None, needs=needs)))
    made.handle(Decided(1.0, "", (), reserved={there[i]: "late" for i in reserved if i < len(there)}))
    windows, view = Windows(made.state, 2.0), make_view(made.state, 2.0)
    allowed = windows.allowed(view)
    asked: dict[int, tuple[int, bytes]] = {}
    for i, record in enumerate(view.records):
        reach = view.reach[view.gangs.reach[i]] & windows.allows(record)
        mine = allowed.reach[allowed.gangs.reach[i]]
        np.testing.assert_array_equal(mine, reach)
        question = int(view.gangs.shape[i]), np.packbits(windows.allows(record)).tobytes()
        assert asked.setdefault(int(allowed.gangs.shape[i]), question) == question
