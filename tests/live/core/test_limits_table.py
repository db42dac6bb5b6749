"""Limits as tables of owners and resources: the same answers as one job after another."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from berth.files.quantities import Amounts
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import ServerJoined, Submitted
from berth.live.core.limits import Headroom, blocked_by_limits, held_back
from berth.live.core.order import make_view
from berth.live.core.queues import Queue, Queues
from berth.live.core.view import Placing
from tests.harness.examples import examples
from tests.live.core.builders import begin, job, server
from tests.live.core.plain_limits import Room, blocked, kept_within

amounts = st.dictionaries(st.sampled_from(["cpu", "gpu", "licence"]), st.sampled_from([0, 1000, 3000, 8000]))
jobs = st.tuples(
    st.integers(0, 3), st.integers(0, 2), st.integers(1, 3), *(st.integers(0, 2) for _ in range(3)), st.integers(0, 40)
).filter(lambda drawn: drawn[0] + drawn[1] > 0)


@examples(150)
@given(
    st.lists(jobs, max_size=12),
    st.lists(jobs, max_size=4),
    st.tuples(*(amounts for _ in range(5))),
    st.lists(st.integers(0, 11), max_size=12),
)
def test_limits_hold_back_the_same_jobs_as_one_after_another(
    waiting: list[tuple[int, ...]], running: list[tuple[int, ...]], most: tuple[Amounts, ...], starts: list[int]
) -> None:
    names = ("queue:q0", "team:t1", "team:t2", "user:u1", "user:u0")
    queues = {f"q{i}": Queue() for i in range(3)}
    made = Dispatcher(queues=Queues(queues, patience=20.0, aging=0.0, fairness=0.0))
    for i in range(3):
        made.handle(ServerJoined(0.0, server(f"n{i}", cpu=8, gpu=4)))

    def drawn(name: str, one: tuple[int, ...]) -> Submitted:
        cpu, gpu, count, queue, team, user, at = one
        asked = job(name, cpu=cpu, gpu=gpu, count=count, queue=f"q{queue}", team=f"t{team}", user=f"u{user}")
        return Submitted(float(at), asked)

    for i, one in enumerate(running):
        begin(made, 0.0, drawn(f"r{i}", one).job)
    for i, one in enumerate(waiting):
        made.handle(drawn(f"w{i}", one))
    state = made.state
    queues["q0"] = Queue(limit=most[0])
    state.queues = Queues(queues, quotas=dict(zip(names[1:], most[1:], strict=True)), patience=20.0)
    view = make_view(state, 40.0)
    twin = blocked(state, view.records, 40.0)
    assert blocked_by_limits(state, view.records, 40.0) == twin
    assert {view.records[i].job.id for i in np.flatnonzero(held_back(state, view.rows, 40.0))} == twin.keys()
    chosen = np.unique(np.array([i for i in starts if i < len(view.records)], dtype=np.int64))
    none = np.zeros(len(chosen), dtype=np.int64)
    kept = Headroom(state).keep_within(view, Placing(chosen, none, none, none + 1))
    expected = kept_within(Room(state), [view.records[i].job for i in chosen.tolist()])
    assert [view.records[i].job.id for i in kept.job.tolist()] == expected
