"""What another policy would have made of a history: where the truth is known, the answer is the truth."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from berth.errors import InvalidInput
from berth.live.core.dispatcher import FALLBACK, Dispatcher
from berth.live.core.events import (
    Cancelled,
    Event,
    Finished,
    ServerDrained,
    ServerLost,
    ServerResumed,
    Start,
    Submitted,
)
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from berth.live.simulation import Played, play
from berth.live.whatif import Measured, what_if
from tests.live.core.builders import job
from tests.live.core.test_shadow import SERVERS, Halves


def submissions(jobs: int = 300) -> list[Event]:
    at = np.cumsum(np.random.default_rng(5).exponential(25.0, jobs)).tolist()
    return [Submitted(time, job(f"j{i}", cpu=4, work=30.0, decay=0.001)) for i, time in enumerate(at)]


@cache
def history(policy: str) -> Played:
    """A cluster whose servers of even number are four times as fast, with some luck."""
    return play(Dispatcher(policy), SimulatedCluster(SERVERS, Halves(noise=0.1)), submissions())


def hours(played: Played) -> float:
    """Hours of run time of all tasks."""
    return sum((r.ended or 0.0) - (r.started or 0.0) for r in played.ended.values()) / 3600.0


def turnaround(played: Played) -> float:
    return float(np.mean([r.ended - r.submitted for r in played.ended.values() if r.ended is not None]))


def test_the_advantage_of_learning_is_found_and_is_the_true_one() -> None:
    found = what_if(history("first-fit").events, "cucb", actual="first-fit")
    assert (found.jobs, found.left_out) == (300, 0)
    assert found.turnaround.high is not None
    assert found.turnaround.high < 0.0
    truly = turnaround(history("cucb")) - turnaround(history("first-fit"))
    assert found.turnaround.mean == pytest.approx(truly, rel=0.15)
    assert found.other.value > found.actual.value
    assert 0.0 < found.actual.utilisation <= 1.0
    assert "cucb instead of first-fit" in str(found)
    json.dumps(found.as_dict(), allow_nan=False)


@pytest.mark.parametrize("policy", ["completion", "cucb"])
def test_what_learning_has_saved_is_found(policy: str) -> None:
    found = what_if(history(policy).events, FALLBACK, actual=policy)
    truly = hours(history(FALLBACK)) - hours(history(policy))
    assert truly > 0.0
    assert 0.6 * truly < found.run.mean * found.jobs / 3600.0 < 1.1 * truly  # slow servers were rarely seen
    assert found.run.low is not None
    assert found.run.low > 0.0
    assert "task-hours would be" in str(found)


def test_the_same_policy_makes_no_difference_and_the_model_gives_the_history_back() -> None:
    past = history("first-fit")
    found = what_if(past.events, "first-fit", actual="first-fit")
    assert (found.wait.mean, found.turnaround.mean, found.value.mean) == (0.0, 0.0, 0.0)
    assert found.actual.turnaround == pytest.approx(turnaround(past), rel=1e-9)


def test_from_some_time_on() -> None:
    past = history("first-fit")
    middle = past.events[len(past.events) // 2].time
    found = what_if(past.events, "cucb", actual="first-fit", since=middle)
    assert 100 < found.jobs < 200
    assert found.turnaround.high is not None
    assert found.turnaround.high < 0.0


def test_servers_that_go_and_jobs_that_are_cancelled_are_part_of_it() -> None:
    given = submissions(120)
    given += [ServerDrained(500.0, "n1"), ServerResumed(900.0, "n1"), Cancelled(1000.0, "j30"), Cancelled(1.0, "j119")]
    cluster = SimulatedCluster(SERVERS, Truth(2, spread=0.5, noise=0.2, faults=0.1))
    past = play(Dispatcher("best-fit"), cluster, [*given, ServerLost(1500.0, "n2")])
    assert "server-lost" in {event.kind for event in past.events}
    found = what_if(past.events, "easy", actual="best-fit")
    assert found.jobs + found.left_out == 120
    assert found.jobs > 60


def test_measured_speeds() -> None:
    past = history("first-fit")
    truth = Measured.of(past.events)
    finished = [event for event in past.events if isinstance(event, Finished)]
    record = past.ended[finished[0].job]
    where = next(each for each in SERVERS if each.name == record.places[0].server)
    start = Start(record.job.id, 7, record.places)
    assert truth.seconds(record.job, start, [where]) == pytest.approx(finished[0].seconds)
    unknown = job("new", type="unknown", work=12.0)
    assert truth.seconds(unknown, start, [where]) == 12.0
    assert truth.speed("t", SERVERS[1]) == pytest.approx(2.0, rel=0.05)


def test_an_empty_history_is_refused() -> None:
    with pytest.raises(InvalidInput, match="jobs that finish"):
        what_if([], "cucb")
