"""What others hold of servers: nothing of ours goes there, and everybody who asks is told."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from berth.errors import InfeasibleDecision, InvalidInput
from berth.live.core.dispatcher import Dispatcher, read_dump, write_dump
from berth.live.core.events import (
    Finished,
    ServerChanged,
    ServerJoined,
    ServerLost,
    Submitted,
    read_event,
    write_event,
)
from berth.live.core.explain import explain
from berth.live.core.jobs import Place, Server
from berth.live.core.queues import Queues
from berth.live.core.reasons import out_of_reach, waiting_in_order
from tests.live.core.builders import begin, begun, dispatcher, job, places, server, snapshot, started


def take(made: Dispatcher, name: str, time: float = 1.0, **cpu_gpu: int) -> None:
    """Others hold so much of a server now, in whole units."""
    there = made.state.servers[name].server
    taken = {resource: 1000 * units for resource, units in cpu_gpu.items()}
    made.handle(ServerChanged(time, replace(there, taken=taken)))


def test_nothing_goes_where_others_are_until_they_leave() -> None:
    made = dispatcher(*(server(f"n{i}", cpu=4) for i in range(1, 5)))
    for name in ("n1", "n2", "n3"):
        take(made, name, cpu=4)
    begin(made, 2.0, job("gang", cpu=1, count=4))
    assert places(made, "gang") == {"n4": 4}
    assert started(begin(made, 3.0, job("next", cpu=4))) == []
    take(made, "n2", 4.0, cpu=0)
    assert started(begin(made, 4.0)) == ["next"]
    assert places(made, "next") == {"n2": 1}


def test_a_decision_is_refused_only_where_it_adds_something() -> None:
    made = dispatcher(server("a", cpu=4, gpu=1), server("b", cpu=4))
    begin(made, 0.0, job("r", cpu=4, gpu=1))
    take(made, "a", cpu=4, gpu=1)  # more than there is, as when somebody's job and ours start together
    assert made.state.used.tolist() == [[8000, 2000], [0, 0]]
    made.handle(Submitted(1.0, job("j", cpu=2)))
    with pytest.raises(InfeasibleDecision, match="more cpu than server a has"):
        begun(made, "j", Place("a", "main", 1))
    begun(made, "j", Place("b", "main", 1), time=1.0)
    made.handle(Finished(2.0, "r", 1))
    assert made.state.used.tolist() == [[4000, 1000], [2000, 0]]
    take(made, "a", 3.0)
    assert made.state.used.tolist() == [[0, 0], [2000, 0]]


def test_it_stays_with_its_server_however_that_changes() -> None:
    made = dispatcher(server("a", cpu=4))
    take(made, "a", cpu=3)
    more = Server("a", {"cpu": 8000, "disk": 5000}, {"zone": "x"}, taken={"cpu": 2000, "disk": 5000})
    made.handle(ServerChanged(2.0, more))
    made.handle(ServerJoined(3.0, server("b", cpu=1)))
    columns = list(made.state.resources)
    assert made.state.used[0].tolist() == [{"cpu": 2000, "disk": 5000}.get(name, 0) for name in columns]
    made.handle(ServerLost(4.0, "a"))
    made.handle(ServerJoined(5.0, replace(more, taken={})))
    assert not made.state.used.any()
    assert not made.state.taken.any()


def test_dumps_and_journals_keep_it_and_older_ones_have_none() -> None:
    made = dispatcher(server("a", cpu=4))
    take(made, "a", cpu=3)
    begin(made, 1.0, job("r", cpu=1))
    text = write_dump(made.dump())
    loaded = Dispatcher().load(read_dump(text))
    assert snapshot(loaded.state) == snapshot(made.state)
    assert loaded.state.used.tolist() == [[4000]]
    take(loaded, "a", 2.0)
    assert loaded.state.used.tolist() == [[1000]]
    older = text.replace(b',"taken":{"cpu":3000}', b"")
    assert older != text
    assert Dispatcher().load(read_dump(older)).state.used.tolist() == [[1000]]
    event = json.loads(write_event(ServerJoined(0.0, server("a"))))
    del event["server"]["taken"]
    assert read_event(json.dumps(event)) == ServerJoined(0.0, server("a"))


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        ({"cpu": -1}, "a.taken.cpu: got -1, expected an amount ≥ 0"),
        ({"gpu": 1}, "a.taken: got 'gpu', expected a resource of the server: cpu"),
    ],
)
def test_what_cannot_be_taken_is_refused(taken: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        Server("a", {"cpu": 1000}, taken=taken)
    assert str(error.value) == said


def test_others_are_named_as_the_reason() -> None:
    made = dispatcher(server("n1", cpu=4), server("n2", cpu=4), server("n3", cpu=4))
    take(made, "n1", cpu=4)
    take(made, "n2", cpu=3)
    begin(made, 1.0, job("r", cpu=4, work=100.0))
    assert places(made, "r") == {"n3": 1}
    made.handle(Submitted(2.0, job("j", cpu=2, count=4)))
    assert out_of_reach(made.state, [made.state.jobs["j"]]) == []  # it would fit if nothing ran
    found = explain(made.state, "j", 2.0)
    assert [str(group) for group in found.servers] == [
        "n1, n2: too little cpu (at most 1 free, 2 asked, 3 to 4 taken by others)",
        "n3: too little cpu (0 free, 2 asked)",
    ]
    assert str(found.eta) == "it has to wait for jobs outside berth, and it is not known when they end"
    _, (waiting,) = waiting_in_order(made.state, 2.0)
    assert waiting.why == "room for 0 of 4 tasks, others have taken the rest"
    made.handle(Submitted(2.0, job("k", cpu=4)))
    assert explain(made.state, "k", 2.0).eta.middle is not None  # type: ignore[union-attr]  # when r has ended


def test_what_has_to_start_where_others_came_first_says_so() -> None:
    made = dispatcher(server("n1", cpu=4))
    made.handle(Submitted(0.0, job("j", cpu=2)))
    begun(made, "j", Place("n1", "main", 1))
    assert not any("others" in block for block in explain(made.state, "j", 1.0).blocks)
    take(made, "n1", cpu=4)
    assert "n1: too little cpu, 4 taken by others" in explain(made.state, "j", 1.0).blocks


def test_what_would_help_counts_what_others_took_of_ours() -> None:
    """Where others took what our jobs hold, the end of these gives less back than they hold."""
    made = dispatcher(server("a", cpu=4))
    begin(made, 0.0, job("r", cpu=3), job("s", cpu=1))
    take(made, "a", cpu=2)
    made.handle(Submitted(1.0, job("one", cpu=1)))
    made.handle(Submitted(1.0, job("three", cpu=3)))
    ends = {name: [c for c in explain(made.state, name, 1.0).changes if c.kind == "end"] for name in ("one", "three")}
    assert [change.steps for change in ends["one"]] == [("wait for the end of r",)]
    assert ends["three"] == []


def test_servers_are_kept_where_others_are_not_in_the_way() -> None:
    made = dispatcher(server("a", cpu=4), server("b", cpu=4), queues=Queues(patience=5.0))
    take(made, "a", cpu=1)
    begin(made, 0.0, job("r", cpu=4))
    assert places(made, "r") == {"b": 1}
    made.handle(Submitted(1.0, job("late", cpu=4)))
    decided = begin(made, 20.0)
    assert decided is not None
    assert decided.reserved == {"b": "late"}  # busier than a, but only with what is ours
    take(made, "b", 21.0, cpu=1)
    begin(made, 21.0)
    assert made.state.reserved == {"b": "late"}  # wherever it goes, others have to leave first


def test_what_fits_is_not_looked_up_again_when_others_come_and_go() -> None:
    made = dispatcher(server("a", cpu=4))
    made.handle(Submitted(0.0, job("j", cpu=2)))
    waiting_in_order(made.state, 0.0)
    known = dict(made.state.fits)
    assert known
    take(made, "a", cpu=4)
    assert made.state.fits == known
    assert made.state.capacity.tolist() == [[4000]]
