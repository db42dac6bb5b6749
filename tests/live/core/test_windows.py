"""Backfill on reserved servers, servers that close at a time, and what is said of both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.live.core.dispatcher import FALLBACK, Dispatcher
from berth.live.core.events import Decided, Event, Finished, ServerChanged, Submitted
from berth.live.core.explain import explain
from berth.live.core.learning import ENOUGH, SURE, Calibration
from berth.live.core.queues import Queues
from berth.live.core.windows import Windows
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from berth.live.simulation import Played, play
from tests.harness.examples import examples
from tests.live.core.builders import begin, dispatcher, job, places, server, started

HOUR = 3600.0
POLICIES = (FALLBACK, "best-fit", "fcfs", "easy", "escb-v", "fairness")


def sixteen_gpus(policy: str, short: int) -> Played:
    """One job holds 4 of 16 GPUs for a day, one waits for all 16, and short ones keep coming."""
    given: list[Event] = [Submitted(0.0, job("day", gpu=4, work=24 * HOUR, type="day"))]
    given.append(Submitted(1.0, job("all", gpu=4, count=4, work=HOUR, type="all")))
    given += [Submitted(10.0 + 600.0 * i, job(f"s{i}", gpu=4, work=600.0, type="short")) for i in range(short)]
    made = Dispatcher(policy, queues=Queues(patience=HOUR))
    return play(made, SimulatedCluster([server(f"g{i}", cpu=8, gpu=4) for i in range(4)]), given)


@pytest.mark.parametrize("policy", POLICIES)
def test_short_jobs_run_on_reserved_servers_and_the_reservation_keeps_its_start(policy: str) -> None:
    alone, crowded = sixteen_gpus(policy, 0).ended, sixteen_gpus(policy, 100).ended
    assert {record.phase for record in crowded.values()} == {"finished"}
    first = alone["all"].started
    assert first == 24 * HOUR
    assert crowded["all"].started == first
    later = [record for name, record in crowded.items() if name.startswith("s") and record.submitted > HOUR + 600.0]
    assert len(later) > 80
    assert max(record.started - record.submitted for record in later if record.started is not None) <= 600.0


def test_a_job_that_would_reach_into_the_reservation_waits_and_is_told_so() -> None:
    made = dispatcher(*(server(f"g{i}", cpu=8, gpu=4) for i in range(4)), queues=Queues(patience=10.0))
    begin(made, 0.0, job("day", gpu=4, work=24 * HOUR, limit=24 * HOUR), job("all", gpu=4, count=4, work=HOUR))
    begin(made, 20.0)
    assert set(made.state.reserved.values()) == {"all"}
    long = job("long", gpu=2, work=30 * HOUR, type="long")
    unknown, short = job("unknown", gpu=2, type="new"), job("short", gpu=2, limit=600.0, type="new")
    assert started(begin(made, 30.0, long, unknown, short)) == ["short"]
    said = str(explain(made.state, "long", 40.0))
    assert "4 servers reserved for job all, which is expected to start in" in said
    assert "more gpu" not in said
    assert "it would start if you" not in said or "time limit of at most" in said
    said = str(explain(made.state, "unknown", 40.0))
    assert "its run time is unknown" in said
    assert "submit it with a time limit of at most" in said
    eta = explain(made.state, "unknown", 40.0).eta
    assert eta is not None
    assert eta.low is not None
    assert eta.low > HOUR  # not in seconds: the reservation comes first


def test_a_learned_run_time_is_enough_to_backfill() -> None:
    servers = [server(f"n{i}", cpu=4) for i in range(2)]
    given: list[Event] = [Submitted(60.0 * i, job(f"before{i}", cpu=1, type="short")) for i in range(5)]
    given += [Submitted(1000.0, job("day", cpu=4, work=HOUR, type="day", limit=HOUR))]
    given += [Submitted(1001.0, job("all", cpu=4, count=2, work=60.0, type="all"))]
    given += [Submitted(1200.0, job("short", cpu=1, type="short"))]
    made = Dispatcher(queues=Queues(patience=100.0))
    ended = play(made, SimulatedCluster(servers), given).ended
    assert ended["short"].started == 1200.0
    assert ended["all"].started == 1000.0 + HOUR


@pytest.mark.parametrize("learned", [False, True])
def test_limits_of_running_jobs_say_when_the_reservation_starts(learned: bool) -> None:
    """As EASY has it, also where jobs of the type were much shorter before."""
    made = dispatcher(*(server(f"n{i}") for i in range(4)), queues=Queues(patience=5.0))
    if learned:
        for i in range(5):
            begin(made, float(i), job(f"quick{i}", type="sleep"))
            made.handle(Finished(i + 0.5, f"quick{i}", 1, 0.5))
    hogs = [job("hog1", cpu=4, limit=120.0, type="sleep"), job("hog2", cpu=4, estimate=80.0, type="sleep")]
    begin(made, 10.0, *hogs, job("big", cpu=4, count=4, type="big"))
    begin(made, 20.0)
    assert set(made.state.reserved.values()) == {"big"}
    begin(made, 30.0, job("fits", cpu=4, limit=30.0, type="sleep"), job("long", cpu=4, limit=3000.0, type="new"))
    assert made.state.jobs["fits"].phase == "running"
    assert made.state.jobs["long"].phase == "waiting"
    said = str(explain(made.state, "big", 30.0))
    assert "4 servers reserved for it (n0, n1, n2, n3); it is expected to start in 100 s" in said


def test_the_servers_that_are_free_first_are_reserved() -> None:
    made = dispatcher(*(server(f"g{i}", gpu=4) for i in range(5)), queues=Queues(patience=10.0))
    running = [job(f"r{i}", gpu=4, work=hours * HOUR, type=f"r{i}") for i, hours in enumerate((40, 10, 20))]
    begin(made, 0.0, *running, job("wide", gpu=4, count=3, work=HOUR, type="wide"))
    begin(made, 20.0)
    assert made.state.reserved == dict.fromkeys(("g1", "g3", "g4"), "wide")
    assert Windows(made.state, 20.0).start == pytest.approx(10 * HOUR, rel=1e-6)
    assert started(begin(made, 30.0, job("long", gpu=4, work=11 * HOUR, limit=11 * HOUR, type="long"))) == []


def test_servers_that_close_take_only_jobs_whose_time_limit_ends_before() -> None:
    made = dispatcher(server("a", cpu=4), server("b", cpu=4))
    for name in "ab":
        made.handle(ServerChanged(1.0, replace(server(name, cpu=4), until=1000.0, until_reason="maintenance m1")))
    jobs = [job("fits", limit=900.0), job("long", limit=1200.0), job("unlimited"), job("guess", estimate=10.0)]
    assert started(begin(made, 10.0, *jobs)) == ["fits"]
    for name in ("long", "unlimited", "guess"):
        said = str(explain(made.state, name, 20.0))
        assert "2 servers must be free in 16.3 min (maintenance m1)" in said
        assert "submit it with a time limit of at most 16.3 min" in said
        assert "maintenance m1" in str(explain(made.state, name, 20.0).eta)
    made.handle(ServerChanged(1100.0, server("a", cpu=4)))
    assert set(started(begin(made, 1100.0))) == {"long", "unlimited", "guess"}
    assert set(places(made, "long")) == {"a"}


@examples(40)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 3), st.floats(10.0, 2000.0), st.booleans(), st.floats(0.0, 4000.0)),
        min_size=3,
        max_size=25,
    ),
    st.sampled_from(POLICIES[:4]),
)
def test_with_run_times_that_hold_backfill_never_delays_a_reservation(
    drawn: list[tuple[int, int, float, bool, float]], policy: str
) -> None:
    """At every decision, what starts on reserved servers has ended when these are likely to be free otherwise."""
    servers = [server(f"n{i}", cpu=4) for i in range(3)]
    given_ = [
        Submitted(at, job(f"j{i}", cpu=cpu, count=count, work=work, type=f"t{i}", limit=work if limited else None))
        for i, (cpu, count, work, limited, at) in enumerate(drawn)
    ]
    made = _Checked(policy, queues=Queues(patience=300.0, aging=0.0))
    played = play(made, SimulatedCluster(servers), given_)
    assert {record.phase for record in played.ended.values()} <= {"finished", "failed"}


class _Checked(Dispatcher):
    """Compares, at each decision, when the reserved servers are free with and without what is started on them."""

    checked = 0

    def decide(self, time: float) -> Decided | None:
        decided = super().decide(time)
        if decided is not None and decided.reserved:
            windows = Windows(self.state, time, decided.reserved)
            for start in decided.starts:
                if any(place.server in decided.reserved for place in start.places):
                    self.checked += 1
                    work = self.state.jobs[start.job].job.work or 0.0
                    assert time + work <= windows.start + 1e-6
        return decided


def test_bounds_are_calibrated() -> None:
    """Whatever the spread of run times really is, new ones stay below the bound as often as it says."""
    rng = np.random.default_rng(5)
    calibration, held = Calibration(), []
    for i in range(3000):
        seconds = float(100.0 * np.exp(0.5 * rng.standard_t(3)))
        if i > 200:
            held.append(seconds <= 100.0 * np.exp(0.1 * calibration.high))
        calibration.add((100.0, 0.1), seconds, cut=False)
    assert abs(np.mean(held) - SURE) < 0.02
    again = Calibration.load(calibration.dump())
    assert again.high == calibration.high
    assert len(calibration.dump()) > ENOUGH


def test_run_times_teach_the_calibration() -> None:
    made = Dispatcher()
    jobs: list[Event] = [Submitted(10.0 * i, job(f"j{i}", work=5.0)) for i in range(60)]
    play(made, SimulatedCluster([server("a", cpu=1)], Truth(seed=1, noise=0.5)), jobs)
    assert len(made.state.calibration.dump()) == 59  # the first run has nothing to compare with
