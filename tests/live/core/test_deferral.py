"""Jobs that wait for faster servers, and for how long."""

from __future__ import annotations

import pytest

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Finished, ServerJoined, Submitted
from berth.live.core.explain import explain
from tests.live.core.builders import begin, dispatcher, job, places, server, started


def learned(policy: str = "escb-v", runs: int = 6) -> Dispatcher:
    """Two servers of one cpu: jobs of type t have run at speed 2 on the one and .25 on the other."""
    made = dispatcher(policy=policy)
    for name in ("fast", "slow"):
        made.handle(ServerJoined(0.0, server(name, cpu=1)))
    for i in range(runs):
        begin(made, 100.0 * i, job(f"a{i}", work=10.0), job(f"b{i}", work=10.0))
        for record in list(made.state.jobs.values()):
            fast = record.places[0].server == "fast"
            made.handle(Finished(100.0 * i + (5.0 if fast else 40.0), record.job.id, 1))
    assert not made.state.jobs
    return made


def test_a_job_waits_for_a_faster_server_that_is_expected_to_be_free_soon() -> None:
    made = learned()
    begin(made, 1000.0, job("first", work=10.0))
    assert places(made, "first") == {"fast": 1}
    assert started(begin(made, 1001.0, job("second", work=10.0))) == []  # 4 s more and 5 s there, or 40 s here
    told = explain(made.state, "second", 1001.0)
    assert told.blocks == (
        "it could start now, and waits for faster servers, expected in 4 s, where it is to end sooner",
    )
    made.handle(Finished(1005.0, "first", 1))
    assert started(begin(made, 1005.0)) == ["second"]
    assert places(made, "second") == {"fast": 1}


def test_it_does_not_wait_longer_than_it_could_gain() -> None:
    made = learned()
    begin(made, 1000.0, job("first", work=10.0))
    made.handle(Submitted(1000.0, job("second", work=10.0)))
    time = 1000.0  # the first runs on and on, and is always expected to end soon
    while not started(begin(made, time)):
        time += 1.0
    assert 1020.0 < time <= 1040.0
    assert places(made, "second") == {"slow": 1}


def test_it_does_not_wait_where_waiting_takes_longer() -> None:
    made = learned()
    begin(made, 1000.0, job("first", work=200.0))
    assert started(begin(made, 1000.0, job("second", work=10.0))) == ["second"]  # 40 s now, or 100 s and 5 s later
    assert places(made, "second") == {"slow": 1}


def test_nobody_waits_for_what_is_not_known() -> None:
    made = learned(runs=0)
    assert started(begin(made, 0.0, job("x", work=10.0), job("y", work=10.0))) == ["x", "y"]


@pytest.mark.parametrize("policy", ["best-fit", "in-order-best-fit"])
def test_policies_that_do_not_learn_speeds_do_not_wait_for_any(policy: str) -> None:
    made = learned(policy)
    begin(made, 1000.0, job("first", work=10.0))
    assert started(begin(made, 1001.0, job("second", work=10.0))) == ["second"]
