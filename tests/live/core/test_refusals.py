"""Refusals: servers that would not take a job are left out for a while, by every policy, and no job fails for them."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.files.quantities import amounts
from berth.live.core import refusals
from berth.live.core.dispatcher import Dispatcher, read_dump, write_dump
from berth.live.core.events import (
    Event,
    Failed,
    Finished,
    ServerChanged,
    ServerJoined,
    ServerLost,
    ServerResumed,
    Started,
    Submitted,
    read_event,
    write_event,
)
from berth.live.core.explain import explain
from berth.live.core.jobs import Place
from berth.live.core.queues import Queues
from berth.live.core.reasons import waiting_in_order
from berth.live.core.refusals import ANYWHERE, EACH, FIRST, FORGET, LONGEST, LONGEST_REST, Refusals
from tests.live.core.builders import begun, dispatcher, job, server, snapshot

POLICIES = (
    "in-order-best-fit",
    "completion",
    "best-fit",
    "fcfs",
    "easy",
    "escb-v",
    "cucb",
    "ogasched",
    "drf",
    "spreading",
)


def decide(made: Dispatcher, time: float) -> dict[str, set[str]]:
    """Decide, take the decision, and say which servers each job that starts has."""
    decided = made.decide(time)
    if decided is None:
        return {}
    assert decided.refused is None
    made.handle(decided)
    return {start.job: {place.server for place in start.places} for start in decided.starts}


def refuse(made: Dispatcher, time: float, name: str, by: tuple[str, ...] | None = None) -> None:
    """The latest attempt of a job is refused before it begins."""
    made.handle(Failed(time, name, made.state.jobs[name].attempt, "no volume here", "server", refused_by=by))


def refused_at(made: Dispatcher, time: float, name: str, *servers: str) -> None:
    """A job starts there, and is refused at once."""
    begun(
        made, name, *(Place(each, "main", 1) for each in servers), attempt=made.state.jobs[name].attempt + 1, time=time
    )
    refuse(made, time, name)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_takes_another_server_and_then_waits(policy: str) -> None:
    made = dispatcher(server("a"), server("b"), policy=policy)
    made.handle(Submitted(0.0, job("j")))
    ((first,),) = decide(made, 1.0).values()
    refuse(made, 2.0, "j")
    ((second,),) = decide(made, 2.0).values()
    assert {first, second} == {"a", "b"}
    refuse(made, 3.0, "j")
    until = 3.0 + FIRST + 2.0
    assert decide(made, until - 0.1) == {}
    assert decide(made, until).keys() == {"j"}


@pytest.mark.parametrize("policy", POLICIES)
def test_other_kinds_use_the_server_and_nothing_is_given_twice(policy: str) -> None:
    made = dispatcher(server("a", cpu=2), server("b", cpu=2), policy=policy)
    made.handle(Submitted(0.0, job("j", cpu=2)))
    refused_at(made, 1.0, "j", "a")
    made.handle(Submitted(2.0, job("same", cpu=2)))
    made.handle(Submitted(2.0, job("else", cpu=2, user="other")))
    found = decide(made, 2.0)
    assert len(found) == 2
    assert found["else"] == {"a"}
    assert next(where for name, where in found.items() if name != "else") == {"b"}


def test_a_higher_level_is_still_decided_first() -> None:
    made = dispatcher(server("a", cpu=2), server("b", cpu=2))
    made.handle(Submitted(0.0, job("late", cpu=2, priority=1)))
    refused_at(made, 1.0, "late", "a")
    made.handle(Submitted(2.0, job("low-1", cpu=2, user="other")))
    made.handle(Submitted(2.0, job("low-2", cpu=2, user="other")))
    assert decide(made, 2.0) == {"late": {"b"}, "low-1": {"a"}}


def test_a_gang_is_left_out_where_it_was_refused_and_only_there() -> None:
    made = dispatcher(*(server(name, cpu=1) for name in "abcd"))
    made.handle(Submitted(0.0, job("j", count=2)))
    begun(made, "j", Place("a", "main", 1), Place("b", "main", 1))
    refuse(made, 1.0, "j", ("b",))
    assert decide(made, 1.0) == {"j": {"a", "c"}}


def test_a_job_is_not_failed_however_often_it_is_refused() -> None:
    made = dispatcher(server("a"))
    made.handle(Submitted(0.0, job("j")))
    time, tries = 0.0, 0
    while time < 86400.0:
        if decide(made, time):
            tries += 1
            refuse(made, time, "j")
        time = made.state.refusals.next_end(time)
    record = made.state.jobs["j"]
    assert (record.phase, record.failures, record.unlucky) == ("waiting", 0, tries)
    assert 24 <= tries <= 24 + math.log2(LONGEST / FIRST) + 1  # at last once in an hour
    assert decide(made, time) == {"j": {"a"}}


def test_a_server_is_left_out_twice_as_long_each_time_and_a_start_clears_it() -> None:
    made = dispatcher(server("a"))
    made.handle(Submitted(0.0, job("j")))
    time, pauses = 0.0, []
    for _ in range(12):
        assert decide(made, time) == {"j": {"a"}}
        refuse(made, time, "j")
        (known,) = made.state.refusals.known.values()
        pauses.append(known["a"].until - time)
        time = known["a"].until
    assert pauses == [min(FIRST * 2**n, LONGEST) for n in range(12)]
    decide(made, time)
    made.handle(Started(time, "j", 13))
    assert known.keys() == {ANYWHERE}
    made.handle(Finished(time + 5.0, "j", 13))
    assert made.state.refusals == Refusals()


def test_jobs_that_are_refused_together_count_once() -> None:
    made = dispatcher(server("a", cpu=8))
    for name in ("j", "k", "l"):
        made.handle(Submitted(0.0, job(name)))
        begun(made, name, Place("a", "main", 1), time=1.0)
    for at, name in enumerate(("j", "k", "l"), 2):
        refuse(made, float(at), name)
    (known,) = made.state.refusals.known.values()
    assert (known["a"].count, known["a"].until) == (1, 4.0 + FIRST + 2.0 * 3.0)


def test_the_cluster_as_a_whole_makes_a_kind_rest_ever_longer() -> None:
    """For example because a quota of Slurm's is full: no server is to blame."""
    made = dispatcher(server("a"), server("b"))
    made.handle(Submitted(0.0, job("j")))
    time, pauses = 0.0, []
    for _ in range(14):
        assert decide(made, time)
        refuse(made, time, "j", ())
        (known,) = made.state.refusals.known.values()
        assert known.keys() == {ANYWHERE}
        pauses.append(known[ANYWHERE].until - time)
        assert not pauses[-1] or not decide(made, time)
        time = known[ANYWHERE].until
    assert pauses == [0.0, *(min(2.0**n, LONGEST_REST) for n in range(13))]


@pytest.mark.parametrize("fault", ["server", "engine"])
def test_who_refused_by_default(fault: str) -> None:
    made = dispatcher(server("a"), server("b"))
    made.handle(Submitted(0.0, job("j", count=2)))
    begun(made, "j", Place("a", "main", 1), Place("b", "main", 1))
    made.handle(Failed(7200.0, "j", 1, "no answer", fault))  # type: ignore[arg-type]
    (known,) = made.state.refusals.known.values()
    assert known.keys() == ({"a", "b", ANYWHERE} if fault == "server" else {ANYWHERE})
    assert max(one.until for one in known.values()) <= 7200.0 + FIRST + 120.0


@pytest.mark.parametrize(
    "change",
    [
        lambda: (ServerChanged(3.0, server("a", cpu=5)),),
        lambda: (ServerLost(3.0, "a"), ServerJoined(3.0, server("a"))),
        lambda: (ServerResumed(3.0, "a"),),
    ],
)
def test_a_server_that_changes_is_tried_again(change: object) -> None:
    made = dispatcher(server("a"))
    made.handle(Submitted(0.0, job("j")))
    refused_at(made, 1.0, "j", "a")
    assert decide(made, 2.0) == {}
    events: tuple[Event, ...] = change()  # type: ignore[operator]
    for event in events:
        made.handle(event)
    assert decide(made, 3.0) == {"j": {"a"}}


def test_what_others_take_is_no_change_of_a_server() -> None:
    made = dispatcher(server("a"))
    made.handle(Submitted(0.0, job("j")))
    refused_at(made, 1.0, "j", "a")
    given = server("a")
    made.handle(ServerChanged(2.0, type(given)("a", given.capacity, taken=amounts({"cpu": 1}))))
    assert decide(made, 2.0) == {}


def test_a_refused_job_keeps_no_server_and_no_quota_from_others() -> None:
    queues = Queues(quotas={"user:nobody": amounts({"cpu": 4})}, patience=10.0)
    made = dispatcher(server("a"), server("b", cpu=1), queues=queues)
    made.handle(Submitted(0.0, job("large", cpu=4)))
    refused_at(made, 0.0, "large", "a")
    time = 30.0
    refused_at(made, time, "large", "a")
    made.handle(Submitted(time, job("small", cpu=1)))
    decided = made.decide(time)
    assert decided is not None
    assert [start.job for start in decided.starts] == ["small"]
    assert not decided.reserved


def test_why_a_refused_job_waits() -> None:
    made = dispatcher(server("a"), server("b", gpu=1))
    made.handle(Submitted(0.0, job("j", gpu=1)))
    made.handle(Submitted(0.0, job("k")))
    refused_at(made, 1.0, "j", "b")
    told = explain(made.state, "j", 2.0)
    left = FIRST - 1.0
    assert f"1 server refused such jobs (b), the next try is in {left:g} s: no volume here" in told.blocks
    assert "it fits on no server that has not refused it" in told.blocks
    assert [group.text for group in told.servers if "b" in group.names] == [
        f"refused such jobs, and is left out for {left:g} s: no volume here"
    ]
    assert not told.changes
    assert told.eta is not None
    assert told.eta.middle == left
    _, waiting = waiting_in_order(made.state, 2.0)
    assert [line.why for line in waiting if line.record.job.id == "j"] == [told.blocks[0]]
    for time in (10.0, 20.0, 30.0):
        begun(made, "k", Place("a", "main", 1), attempt=made.state.jobs["k"].attempt + 1, time=time)
        refuse(made, time, "k", ())
    (block,) = explain(made.state, "k", 30.0).blocks
    assert block == "the cluster refused such jobs 3 times in a row, the next try is in 2 s: no volume here"


def test_an_attempt_that_ran_for_long_was_taken_and_one_that_ran_shortly_counts_for_no_server() -> None:
    made = dispatcher(server("a"))
    made.handle(Submitted(0.0, job("j")))
    for attempt in range(1, 4):
        time = 100.0 * attempt
        assert decide(made, time)
        made.handle(Started(time, "j", attempt))
        made.handle(Failed(time + 5.0, "j", attempt, "preempted", "server"))
        (known,) = made.state.refusals.known.values()
        assert {name: one.count for name, one in known.items()} == {ANYWHERE: attempt}
    decide(made, 400.0)
    made.handle(Started(400.0, "j", 4))
    made.handle(Failed(500.0, "j", 4, "preempted", "server"))
    assert made.state.refusals == Refusals()


def test_refusals_survive_a_snapshot_and_older_ones_load() -> None:
    made = dispatcher(server("a"))
    made.handle(Submitted(0.0, job("j")))
    refused_at(made, 1.0, "j", "a")
    text = write_dump(made.dump())
    again = Dispatcher().load(read_dump(text))
    again.replay(())
    assert snapshot(again.state) == snapshot(made.state)
    assert decide(again, 2.0) == {}
    older = json.loads(text)
    del older["state"]["refusals"]
    assert not Dispatcher().load(read_dump(json.dumps(older).encode())).state.refusals.known


def test_an_event_of_an_older_version_has_no_refusing_servers() -> None:
    text = '{"time":3.0,"job":"j","attempt":1,"reason":"x","fault":"server","seconds":null,"last_output":""}'
    text = text.replace("}", ',"kind":"failed"}')
    event = read_event(text)
    assert event == Failed(3.0, "j", 1, "x", "server")
    assert read_event(write_event(Failed(3.0, "j", 1, refused_by=("a",)))) == Failed(3.0, "j", 1, refused_by=("a",))


# ------------------------------------------------------------------ properties

events = st.lists(
    st.tuples(
        st.sampled_from(("note", "took", "changed")),
        st.integers(0, 3),  # a job
        st.sets(st.sampled_from("abcd")),
        st.floats(0.0, 5000.0),  # seconds since the event before
        st.floats(0.0, 100.0),  # for how long the attempt was under way
    ),
    max_size=60,
)


@given(events)
def test_refusals_are_bounded_and_decay(given: list[tuple[str, int, set[str], float, float]]) -> None:
    known, now = Refusals(), 0.0
    for what, number, servers, passed, under_way in given:
        now += passed
        made = job("j", user=f"u{number}")
        if what == "note":
            known.note(made, sorted(servers), now - under_way, now, "r")
        elif what == "took":
            known.took(made, sorted(servers))
        else:
            for each in sorted(servers):
                known.changed(each)
        pauses = [one.until - now for mine in known.known.values() for one in mine.values()]
        assert max(pauses, default=0.0) <= max(LONGEST, EACH * 4)
        assert sum(map(len, known.known.values())) <= 4 * 5
        if what == "took":
            assert not servers & known.of(made, now).keys()
    later = now + LONGEST + FORGET + 1.0
    assert all(not known.of(job("j", user=f"u{number}"), later) for number in range(4))
    known.note(job("k", user="last"), ("a",), later, later, "")
    assert {kind.split()[0] for kind in known.known} == {"last"}


def test_there_are_never_too_many_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MOST", 10)
    known = Refusals()
    for number in range(100):
        known.note(job("j", user=f"u{number}"), ("a", "b", "c"), float(number), float(number), "")
        assert sum(map(len, known.known.values())) <= 10
    assert "a" in known.of(job("j", user="u99"), 99.0)


@given(st.integers(1, 8), st.data())
def test_no_job_starves_that_another_server_would_take(count: int, data: st.DataObject) -> None:
    """Whatever servers a policy prefers, and however many refuse: each is tried once before the one that takes it."""
    names = [f"n{i}" for i in range(count)]
    willing = data.draw(st.sampled_from(names))
    seconds = data.draw(st.floats(0.0, 60.0))  # until an engine says that an attempt is refused
    made = dispatcher(*(server(name, cpu=1 + data.draw(st.integers(0, 3))) for name in names))
    made.handle(Submitted(0.0, job("j")))
    time, tried = 0.0, list[str]()
    while True:
        time += data.draw(st.floats(0.0, 0.9))  # until the next decision
        for (server_,) in decide(made, time).values():
            tried.append(server_)
            time += seconds
            refuse(made, time, "j")
        if tried[-1] == willing:
            break
    assert len(set(tried)) == len(tried)


@pytest.mark.parametrize("seconds", [36000.0, -36000.0])
def test_a_step_of_the_system_clock_leaves_a_server_out_no_longer(seconds: float) -> None:
    known = Refusals()
    known.note(job("a"), ["n0"], 100.0, 100.0, "no")
    (before,) = (one.until - 100.0 for name, one in known.of(job("a"), 100.0).items() if name == "n0")
    known.move(seconds)
    assert known.of(job("a"), 100.0 + seconds)["n0"].until - (100.0 + seconds) == before
    assert known.of(job("a"), 101.0 + seconds + before) == {}
