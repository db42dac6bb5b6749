"""What is counted as it changes is what a walk over all jobs counts; and nothing walks over all of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import ServerLost, Submitted
from berth.live.core.records import HOLDING
from berth.live.core.state import State
from berth.live.service.metrics import Metrics
from tests.harness.examples import examples
from tests.live.core.builders import begin, dispatcher, job, server
from tests.live.core.plays import moves, play


def check(state: State) -> None:
    assert state.phases == Counter((record.job.queue, record.phase) for record in state.jobs.values())
    there = {(place.server, name) for name, record in state.jobs.items() for place in record.places}
    assert {(name, job) for name, jobs in state.on.items() for job in jobs} == there
    waits = [record.submitted for record in state.jobs.values() if record.phase not in HOLDING]
    assert (state.whole == state.capacity.sum(axis=0)).all()
    ends = [record.server.until for record in state.servers.values()]
    assert state.until.tolist() == [float("inf") if end is None else end for end in ends]
    assert state.closes == any(end is not None for end in ends)
    free = np.where(state.usable[:, None], np.maximum(state.capacity - state.used, 0), 0)
    assert (state.free() == free).all()
    for needs in ({}, {"class": "a"}, {"class": "a|b", "zone": "z"}):
        fit = [record.usable and record.server.has(needs) for record in state.servers.values()]
        assert state.reachable(tuple(needs.items())).tolist() == fit
    assert state.table.oldest == min(waits, default=float("inf"))
    assert len(state.learned) == len({cell[:2] for cell in state.learned._row})


@examples(60)
@given(st.lists(moves, max_size=30))
def test_counts_are_those_of_a_walk(chosen: list[tuple[str, Any]]) -> None:
    lived = Dispatcher()
    for _ in play(lived, chosen):
        check(lived.state)
    check(lived.state.copied())
    check(State.load(lived.state.dump()))


class Unwalked(dict[str, Any]):
    """Jobs that nobody goes through."""

    def values(self) -> Any:
        raise AssertionError("all jobs were gone through")

    items = __iter__ = values


def test_metrics_and_lost_servers_go_through_no_jobs() -> None:
    made = dispatcher(server("n1"), server("n2"))
    begin(made, 1.0, *(job(f"j{i}", cpu=2) for i in range(4)))
    made.handle(Submitted(3.0, job("waits")))
    made.state.jobs = Unwalked(made.state.jobs)
    metrics = Metrics(made.state)
    text = metrics.render()[0].decode()
    assert 'berth_jobs{phase="running",queue="default"} 4.0' in text
    assert 'berth_jobs{phase="waiting",queue="default"} 1.0' in text
    lost = made.handle(ServerLost(4.0, "n2"))
    assert [record.job.id for record in lost.changed] == ["j2", "j3"]
    assert made.handle(ServerLost(5.0, "n2")).changed == ()
