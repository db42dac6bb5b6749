"""Every event in every phase of a job, and events that come late, twice, or out of order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from berth.errors import InfeasibleDecision, InvalidInput
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import (
    Cancel,
    Cancelled,
    Decided,
    Event,
    Failed,
    Finished,
    QueuesChanged,
    ServerChanged,
    ServerDrained,
    ServerJoined,
    ServerLost,
    ServerResumed,
    Start,
    Started,
    Submitted,
    read_event,
    write_event,
)
from berth.live.core.jobs import Place, Role
from berth.live.core.queues import Queue, Queues
from tests.live.core.builders import begin, begun, dispatcher, job, places, server, snapshot, started

PHASES = ("waiting", "starting", "running", "ending")


def in_phase(phase: str, **settings: int) -> Dispatcher:
    """A cluster of two servers with job j, of two tasks that need a server each, in this phase."""
    made = dispatcher(server("a"), server("b"))
    made.handle(Submitted(0.0, job("j", 3, 2, **settings)))
    if phase != "waiting":
        begun(made, "j", Place("a", "main", 1), Place("b", "main", 1), time=1.0)
    if phase in ("running", "ending"):
        made.handle(Started(2.0, "j", 1))
    if phase == "ending":
        made.handle(ServerLost(3.0, "b"))
    assert made.state.jobs["j"].phase == phase
    return made


@pytest.mark.parametrize("phase", PHASES)
def test_cancel_in_every_phase(phase: str) -> None:
    made = in_phase(phase)
    handled = made.handle(Cancelled(5.0, "j", "ada"))
    if phase == "waiting":
        assert handled.commands == ()
        assert "j" not in made.state.jobs
        assert handled.changed[0].phase == "cancelled"
        return
    assert handled.commands == (Cancel("j", 1),)
    assert made.state.used.sum() == 6000  # only the engine knows when the places are free
    assert made.handle(Cancelled(5.5, "j")) == made.handle(Cancelled(5.5, "other"))
    ended = made.handle(Failed(6.0, "j", 1, fault="cancelled"))
    assert ended.changed[0].phase == "cancelled"
    assert ended.changed[0].reason == "cancelled by ada"
    assert not made.state.used.any()
    assert not made.state.held
    assert not made.state.jobs


@pytest.mark.parametrize("phase", PHASES)
def test_finished_in_every_phase(phase: str) -> None:
    made = in_phase(phase)
    handled = made.handle(Finished(9.0, "j", 1))
    if phase == "waiting":
        assert not handled.changed  # nothing of it runs
        return
    assert handled.changed[0].phase == "finished"
    assert handled.outcome is not None
    assert not made.state.used.any()
    assert not made.state.jobs


def test_the_last_output_is_a_plain_line_whatever_the_engine_told() -> None:
    handled = in_phase("running").handle(Failed(9.0, "j", 1, last_output="epoch 3\n\x1b]0;title\x07no such file\n"))
    assert handled.changed[0].last_output == "]0;title no such file"


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("fault", ["job", "server", "engine", "cancelled"])
def test_failed_in_every_phase(phase: str, fault: str) -> None:
    made = in_phase(phase, retries=1)
    handled = made.handle(Failed(9.0, "j", 1, "it broke", fault))  # type: ignore[arg-type]
    if phase == "waiting":
        assert not handled.changed
        return
    assert not made.state.used.any()
    record = handled.changed[0]
    if fault == "cancelled" and phase != "ending":
        assert record.phase == "cancelled"
        return
    own = fault == "job" and phase != "ending"  # whose server was lost is not to blame
    assert (record.phase, record.failures, record.unlucky) == ("waiting", int(own), int(not own))
    assert ("b was lost" if phase == "ending" else "it broke") in record.reason
    assert made.state.jobs["j"].places == ()


@pytest.mark.parametrize("phase", PHASES)
def test_started_in_every_phase(phase: str) -> None:
    made = in_phase(phase)
    changed = made.handle(Started(4.0, "j", 1)).changed
    expected = {"waiting": "waiting", "starting": "running", "running": "running", "ending": "ending"}
    assert made.state.jobs["j"].phase == expected[phase]
    assert bool(changed) == (phase in ("starting", "ending"))


@pytest.mark.parametrize("phase", PHASES)
def test_a_lost_server_ends_its_gangs_everywhere_and_they_wait_again(phase: str) -> None:
    made = in_phase(phase)
    handled = made.handle(ServerLost(5.0, "a"))
    commands = {"starting": (Cancel("j", 1),), "running": (Cancel("j", 1),)}
    assert handled.commands == commands.get(phase, ())
    if phase == "waiting":
        return
    assert made.state.jobs["j"].phase == "ending"
    assert not made.handle(ServerLost(5.0, "a")).commands
    made.handle(Failed(6.0, "j", 1, fault="cancelled"))
    record = made.state.jobs["j"]
    assert (record.phase, record.unlucky, record.failures) == ("waiting", 1, 0)
    assert not made.state.used.any()
    made.handle(ServerJoined(7.0, server("a")))
    made.handle(ServerJoined(7.0, server("b")))
    assert begin(made, 8.0) is not None
    assert (made.state.jobs["j"].attempt, made.state.jobs["j"].phase) == (2, "running")


def test_a_cancelled_job_that_finished_first_has_finished() -> None:
    made = in_phase("running")
    made.handle(Cancelled(5.0, "j"))
    handled = made.handle(Finished(5.0, "j", 1))
    assert handled.changed[0].phase == "finished"


def test_own_faults_count_against_retries_and_others_never_do() -> None:
    made = dispatcher(server("a"))
    made.handle(Submitted(0.0, job("j", retries=2)))
    for attempt in range(1, 101):  # a month of preemptions
        begin(made, 1e4 * attempt)
        made.handle(Failed(1e4 * attempt + 600.0, "j", attempt, fault="server" if attempt % 2 else "engine"))
    record = made.state.jobs["j"]
    assert (record.phase, record.failures, record.unlucky) == ("waiting", 0, 100)
    for attempt in range(101, 104):
        begin(made, 1e4 * attempt)
        handled = made.handle(Failed(1e4 * attempt, "j", attempt, "exit 1"))
    assert handled.changed[0].phase == "failed"
    assert handled.changed[0].reason == "attempt 103: exit 1"


def test_failed_attempts_teach_nothing() -> None:
    made = in_phase("running", retries=1)
    assert made.handle(Failed(9.0, "j", 1)).outcome is None
    assert not list(made.state.learned)


def test_speed_is_work_by_the_second_and_the_first_of_a_type_says_its_work() -> None:
    made = dispatcher(server("a"))
    begin(made, 0.0, job("said", work=60.0))
    assert made.handle(Finished(30.0, "said", 1)).outcome.speed == 2.0  # type: ignore[union-attr]
    begin(made, 30.0, job("first", type="u"), job("second", type="u"))
    made.handle(Finished(50.0, "first", 1))
    before = made.state.learned.speed("u", "a").mean  # what was expected of the first is its speed
    second = made.handle(Finished(99.0, "second", 1, seconds=40.0)).outcome.speed  # type: ignore[union-attr]
    assert second == pytest.approx(0.5 * before, rel=0.05)
    speed = made.state.learned.speed("u", "a")
    assert speed.runs == 2
    assert second < speed.mean < before


@pytest.mark.parametrize(
    "late",
    [
        Started(9.0, "j", 1),
        Finished(9.0, "j", 1),
        Failed(9.0, "j", 1),
        Cancelled(9.0, "gone"),
        Started(9.0, "nobody", 1),
        Finished(9.0, "j", 7),
        Failed(9.0, "j", 0),
    ],
)
def test_late_events_of_earlier_attempts_change_nothing(late: Event) -> None:
    made = in_phase("running", retries=3)
    made.handle(Failed(4.0, "j", 1))
    begin(made, 5.0)
    assert made.state.jobs["j"].attempt == 2
    before = snapshot(made.state)
    handled = made.handle(late)
    assert snapshot(made.state) == before
    assert not handled.commands
    assert not handled.changed
    assert handled.outcome is None


def test_an_end_before_the_start_is_an_end() -> None:
    made = in_phase("starting")
    handled = made.handle(Finished(4.0, "j", 1, seconds=3.0))
    assert handled.changed[0].phase == "finished"
    assert made.handle(Started(4.0, "j", 1)).changed == ()
    assert not made.state.used.any()


def test_a_server_that_changes_while_it_is_away_stays_away() -> None:
    made = dispatcher(server("a"))
    made.handle(ServerLost(1.0, "a"))
    made.handle(ServerChanged(2.0, server("a", cpu=8)))
    assert started(begin(made, 3.0, job("j"))) == []
    made.handle(ServerJoined(4.0, server("a", cpu=8)))
    assert started(begin(made, 4.0)) == ["j"]


def test_a_drained_server_gets_nothing_new_and_keeps_what_it_has() -> None:
    made = dispatcher(server("a"))
    begin(made, 0.0, job("old"))
    made.handle(ServerDrained(1.0, "a"))
    assert started(begin(made, 1.0, job("new"))) == []
    assert made.state.jobs["old"].phase == "running"
    made.handle(ServerLost(2.0, "a"))
    made.handle(ServerJoined(3.0, server("a")))  # to come back is not to be resumed
    assert started(begin(made, 3.0)) == []
    made.handle(ServerResumed(4.0, "a"))
    made.handle(Failed(4.0, "old", 1, fault="server"))
    assert started(begin(made, 4.0)) == ["old", "new"]


def test_a_server_may_shrink_below_what_runs_there() -> None:
    made = dispatcher(server("a", cpu=4, gpu=1))
    begin(made, 0.0, job("old", cpu=4))
    made.handle(ServerChanged(1.0, server("a", cpu=2, gpu=1)))
    assert started(begin(made, 1.0, job("cpu", cpu=1), job("gpu", cpu=0, gpu=1))) == ["gpu"]
    made.handle(Finished(2.0, "old", 1))
    assert started(begin(made, 2.0)) == ["cpu"]


def test_unknown_servers_and_taken_ids_are_refused() -> None:
    made = in_phase("running")
    before = snapshot(made.state)
    time = made.state.time
    for wrong in (ServerLost(50.0, "x"), ServerDrained(50.0, "x"), Submitted(50.0, job("j"))):
        with pytest.raises(InvalidInput):
            made.handle(wrong)
    with pytest.raises(InvalidInput, match="queue that takes jobs: default"):
        made.handle(Submitted(50.0, job("k", queue="fast")))
    assert snapshot(made.state) == before
    assert made.state.time == time


MAIN = Place("a", "main", 1)
WRONG: dict[str, tuple[Callable[[], tuple[Start, ...]], str]] = {
    "nobody": (lambda: (Start("x", 1, (MAIN,)),), "not waiting"),
    "second attempt first": (lambda: (Start("k", 2, (MAIN,)),), "not waiting"),
    "twice": (lambda: (Start("k", 1, (MAIN,)), Start("k", 1, (MAIN,))), "twice"),
    "runs already": (lambda: (Start("k", 1, (MAIN,)), Start("j", 2, (MAIN, MAIN))), "not waiting"),
    "part of a gang": (lambda: (Start("k", 1, (MAIN,)), Start("g", 1, (MAIN,))), "whole gang"),
    "too many": (lambda: (Start("k", 1, (replace(MAIN, count=2),)),), "whole gang"),
    "another role": (lambda: (Start("k", 1, (MAIN, Place("a", "other", 1))),), "whole gang"),
    "no such server": (lambda: (Start("k", 1, (Place("x", "main", 1),)),), "may not be used"),
    "drained": (lambda: (Start("k", 1, (Place("d", "main", 1),)),), "may not be used"),
    "no room": (lambda: (Start("k", 1, (MAIN,)), Start("g", 1, (MAIN, Place("b", "main", 1)))), "more cpu than server"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_decision_is_refused_as_a_whole(name: str) -> None:
    made = in_phase("running")
    made.handle(ServerJoined(3.0, server("d")))
    made.handle(ServerDrained(3.0, "d"))
    made.handle(Submitted(3.0, job("k", 1)))
    made.handle(Submitted(3.0, job("g", 1, 2)))
    before = snapshot(made.state)
    starts, words = WRONG[name]
    with pytest.raises(InfeasibleDecision, match=words):
        made.handle(Decided(4.0, "somebody", starts()))
    assert snapshot(made.state) == before


def test_zero_of_what_nobody_has_is_nothing() -> None:
    made = dispatcher(server("a"))
    roles = (Role("main", 1, {"cpu": 1000, "npu": 0}),)
    assert started(begin(made, 0.0, job("j", roles=roles))) == ["j"]
    made.handle(Finished(5.0, "j", 1))
    assert not made.state.used.any()


def test_queues_may_go_while_jobs_wait_in_them() -> None:
    made = dispatcher(server("a"), queues=Queues({"default": Queue(), "old": Queue(starts=False)}))
    made.handle(Submitted(0.0, job("j", queue="old")))
    assert made.decide(0.0) is None
    made.handle(QueuesChanged(1.0, Queues()))
    assert started(begin(made, 1.0)) == ["j"]


def test_places_of_a_gang_that_grows_are_told_once_by_server() -> None:
    made = dispatcher(server("a", cpu=4))
    begin(made, 0.0, job("j", 1, 4, minimum=2))
    assert made.state.jobs["j"].places == (Place("a", "main", 4),)
    assert places(made, "j") == {"a": 4}


def test_events_survive_being_written() -> None:
    made = in_phase("waiting")
    decided = made.decide(1.0)
    assert decided is not None
    queues = Queues({"q": Queue(3, limit={"cpu": 5})}, {"x": 2.0}, {"team:x": {"cpu": 1}})
    for event in (
        decided,
        Submitted(0.0, job("j", 3, 2, gpu=0.5, needs={"zone": "x|y"}, work=3.0, payload={"argv": ["a"]})),
        QueuesChanged(1.0, queues, "ada"),
        Failed(1.0, "j", 2, "why", "engine"),
        Finished(1.0, "j", 2, 3.0, {"a": 0.5}),
        ServerJoined(0.0, server("a", 4, 1, zone="x")),
    ):
        assert read_event(write_event(event)) == event
