"""What is learned of speed: runs that were cut off do not spoil it, and servers that are alike may learn together."""

from __future__ import annotations

import numpy as np
import pytest

from berth.live.core.events import Cancelled, Failed, Finished, ServerJoined
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.speeds import Learned
from tests.live.core.builders import begin, dispatcher, job, places, server

TYPE = Job("j", "t", (Role("w", 1, {"cpu": 1000}),), work=100.0)


def test_where_slow_runs_are_cut_off_the_speed_is_nearer_the_truth_than_without_them_or_with_them_as_ends() -> None:
    rng = np.random.default_rng(0)
    seconds = 100.0 / 0.8 * np.exp(0.5 * rng.standard_normal(4000))
    limit = rng.exponential(150.0, 4000)
    truth = 0.8  # of logarithms
    counted, ignored, taken_for_ends = Learned(), Learned(), Learned()
    for ran, most in zip(seconds.tolist(), limit.tolist(), strict=True):
        if ran <= most:
            for learned in (counted, ignored, taken_for_ends):
                learned.add(TYPE, ["n1"], ran)
        else:
            counted.add_cut(TYPE, ["n1"], most)
            taken_for_ends.add(TYPE, ["n1"], most)

    def error(learned: Learned) -> float:
        return abs(learned.speed("t", "n1").mean - truth)

    assert error(counted) < 0.6 * error(ignored)
    assert error(counted) < 0.1 * error(taken_for_ends)
    found = counted.speed("t", "n1")
    assert 0 < found.cut < found.runs


def test_a_job_that_fails_at_once_says_nothing_about_speed() -> None:
    made = dispatcher(server("n0"))
    for i in range(5):
        begin(made, 10.0 * i, job(f"j{i}", work=100.0))
        made.handle(Failed(10.0 * i + 1.0, f"j{i}", 1, "exit 1"))
    assert not list(made.state.learned)
    assert not made.memory


@pytest.mark.parametrize(
    ("fault", "seen"), [("job", True), ("server", True), ("cancelled", True), ("engine", False)], ids=lambda x: str(x)
)
def test_a_job_that_ran_too_long_before_it_was_cut_off_says_that_it_is_slow_there(fault: str, seen: bool) -> None:
    made = dispatcher(server("n0"))
    begin(made, 0.0, job("j", work=100.0))
    made.handle(Failed(400.0, "j", 1, "gone", fault))  # type: ignore[arg-type]
    found = made.state.learned.speed("t", "n0")
    assert (found.runs, found.cut) == ((1, 1) if seen else (0, 0))
    assert (found.mean < 0.5) == seen
    if seen:
        assert [(outcome.speed, outcome.cut) for outcome in made.memory] == [(0.25, True)]


def test_a_run_that_its_owner_cancelled_counts_as_cut_off_and_not_as_an_end() -> None:
    made = dispatcher(server("n0"))
    begin(made, 0.0, job("slow", work=100.0), job("quick", work=100.0))
    for name, time in (("quick", 10.0), ("slow", 200.0)):
        made.handle(Cancelled(time, name))
        made.handle(Failed(time, name, 1, "cancelled", "cancelled"))
    found = made.state.learned.speed("t", "n0")
    assert found.runs == found.cut == 1
    assert 0.5 < found.mean < 0.7


def test_a_dump_of_before_cut_runs_were_counted_is_read() -> None:
    learned = Learned.load({"channels": [["t", "n1", 2, 1.5, 0.5]], "reference": {"t": 3.0}})
    found = learned.speed("t", "n1")
    assert (found.runs, found.cut) == (2, 0)
    assert 1.2 < found.mean < 1.5
    assert Learned.load(learned.dump()).dump() == learned.dump()


def test_servers_of_one_class_learn_together() -> None:
    made = dispatcher(policy="escb-v", learn_by="class")
    for name, kind in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("plain", "")):
        made.handle(ServerJoined(0.0, Server(name, {"cpu": 1000}, {"class": kind} if kind else {})))
    begin(made, 0.0, *(job(f"j{i}", work=10.0) for i in range(4)))
    for record in list(made.state.jobs.values()):
        on = record.places[0].server
        made.handle(Finished({"a": 5.0, "b": 20.0}.get(on[0], 10.0), record.job.id, 1))
    found = {name: speed for _, name, speed in made.state.learned}
    assert {name: speed.runs for name, speed in found.items()} == {"a1": 1, "a2": 1, "b1": 1, "plain": 1}
    assert found["a1"].mean == pytest.approx(found["a2"].mean, rel=0.01)
    assert found["b1"].mean < found["plain"].mean < found["a1"].mean
    assert all(set(outcome.alike) == {outcome.places[0].server} for outcome in made.memory)


def test_a_policy_hears_of_all_servers_of_a_class_what_one_of_them_showed() -> None:
    together, alone = (dispatcher(policy="escb-v", learn_by=label) for label in ("class", None))
    for made in (together, alone):
        for i in range(6):
            made.handle(ServerJoined(0.0, Server(f"n{i}", {"cpu": 1000}, {"class": "fast" if i < 3 else "slow"})))
        for i in range(12):
            begin(made, 100.0 * i, job(f"j{i}", work=10.0))
            (record,) = made.state.jobs.values()
            fast = record.places[0].server in ("n0", "n1", "n2")
            made.handle(Finished(100.0 * i + (5.0 if fast else 40.0), record.job.id, 1))
    slow = {"n3", "n4", "n5"}
    tried = [sum(o.places[0].server in slow for o in made.memory) for made in (together, alone)]
    assert tried[0] < tried[1]


def test_what_a_job_shows_serves_jobs_of_its_type_with_more_tasks() -> None:
    made = dispatcher(policy="escb-v")
    for i in range(4):
        made.handle(ServerJoined(0.0, Server(f"n{i}", {"cpu": 4000}, {})))
    for i in range(24):
        begin(made, 100.0 * i, job(f"j{i}", work=10.0))
        (record,) = made.state.jobs.values()
        fast = record.places[0].server == "n2"
        made.handle(Finished(100.0 * i + (5.0 if fast else 40.0), record.job.id, 1))
    begin(made, 1e4, job("large", count=4, work=10.0))
    assert places(made, "large") == {"n2": 4}
