"""Jobs that wait for faster servers, and for how long."""

from __future__ import annotations

import re

import pytest

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Finished, PolicyChanged, ServerJoined, Submitted
from berth.live.core.explain import explain
from berth.live.core.queues import Queues
from tests.live.core.builders import begin, dispatcher, job, places, server, started


def learned(policy: str = "escb-v", runs: int = 6) -> Dispatcher:
    """Two servers of one cpu: jobs of type t have run at speed 2 on the one and .25 on the other."""
    made = dispatcher()
    for name in ("fast", "slow"):
        made.handle(ServerJoined(0.0, server(name, cpu=1)))
    for i in range(runs):
        begin(made, 100.0 * i, job(f"a{i}", work=10.0), job(f"b{i}", work=10.0))
        for record in list(made.state.jobs.values()):
            fast = record.places[0].server == "fast"
            made.handle(Finished(100.0 * i + (5.0 if fast else 40.0), record.job.id, 1))
    assert not made.state.jobs
    made.handle(PolicyChanged(900.0, policy))
    return made


def test_a_job_waits_for_a_faster_server_that_is_expected_to_be_free_soon() -> None:
    made = learned()
    begin(made, 1000.0, job("first", work=10.0))
    assert places(made, "first") == {"fast": 1}
    assert started(begin(made, 1001.0, job("second", work=10.0))) == []  # 4 s more and 5 s there, or 40 s here
    told = explain(made.state, "second", 1001.0)
    words = r"it could start now, but waits for faster servers, expected in 4\.\d+ s, where it ends sooner"
    assert len(told.blocks) == 1
    assert re.fullmatch(words, told.blocks[0])
    made.handle(Finished(1005.0, "first", 1))
    assert started(begin(made, 1005.0)) == ["second"]
    assert places(made, "second") == {"fast": 1}


def test_the_longer_a_job_has_run_the_longer_it_may_take() -> None:
    made = learned()
    begin(made, 1000.0, job("first", work=10.0))
    made.handle(Submitted(1000.0, job("second", work=10.0)))
    time = 1000.0  # the first runs on and on
    while not started(begin(made, time)):
        time *= 1.0 + (time - 999.0) / time
    assert time > 1020.0
    assert places(made, "second") == {"slow": 1}


@pytest.mark.parametrize("policy", ["completion", "best-fit", "escb-v"])
def test_the_second_that_waits_gets_the_next_release(policy: str) -> None:
    made = learned(policy)
    begin(made, 1000.0, job("first", work=60.0))  # 30 s on the fast server
    waiting = [job("second", work=10.0), job("third", work=10.0)]  # 30 + 5 s there, or 40 s here; then 35 + 5 s
    assert started(begin(made, 1000.5, *waiting)) == ["third"]


def test_it_does_not_wait_where_waiting_takes_longer() -> None:
    made = learned()
    begin(made, 1000.0, job("first", work=200.0))
    assert started(begin(made, 1000.0, job("second", work=10.0))) == ["second"]  # 40 s now, or 100 s and 5 s later
    assert places(made, "second") == {"slow": 1}


def test_nobody_waits_where_nothing_is_known() -> None:
    made = learned(runs=0)
    assert started(begin(made, 0.0, job("x", work=10.0), job("y", work=10.0))) == ["x", "y"]


def test_the_fallback_waits_for_nothing() -> None:
    made = learned("in-order-best-fit")
    begin(made, 1000.0, job("first", work=10.0))
    assert started(begin(made, 1001.0, job("second", work=10.0))) == ["second"]


@pytest.mark.parametrize("policy", ["completion", "best-fit", "escb-v"])
def test_nothing_starves_longer_than_patience_and_the_runs_that_it_waits_for(policy: str) -> None:
    made = dispatcher(server("n0", cpu=4), policy=policy, queues=Queues(patience=100.0))
    begin(made, 0.0, job("s0", work=10.0))  # one small job or more runs at any time
    made.handle(Submitted(0.0, job("large", cpu=4, work=10.0)))
    time, ends = 0.0, [(10.0, "s0")]
    for i in range(1, 60):
        time = 5.0 * i
        for end, name in [one for one in ends if one[0] <= time]:
            made.handle(Finished(end, name, 1))
            ends.remove((end, name))
        ends += [(time + 10.0, name) for name in started(begin(made, time, job(f"s{i}", work=10.0)))]
        if made.state.jobs["large"].phase != "waiting":
            break
    assert time <= 100.0 + 10.0 + 5.0
