"""Why jobs wait, what would let them start, when they will; dry runs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from berth.errors import InvalidInput
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.dry_run import plan, spare_of
from berth.live.core.events import (
    Decided,
    Finished,
    PolicyChanged,
    QueuesChanged,
    ServerDrained,
    ServerJoined,
    ServerLost,
    ServerResumed,
    Start,
    Started,
    Submitted,
)
from berth.live.core.explain import Explanation, explain
from berth.live.core.forecast import played
from berth.live.core.jobs import Place, Role
from berth.live.core.learning import Range
from berth.live.core.order import ordered
from berth.live.core.queues import Queue, Queues
from tests.live.core.builders import begin, begun, dispatcher, innermost, job, server, snapshot, started


def why(made: Dispatcher, name: str = "j", time: float = 10.0) -> Explanation:
    before = snapshot(made.state)
    found = explain(made.state, name, time)
    assert snapshot(made.state) == before
    json.dumps(found.as_dict(), allow_nan=False)
    assert str(found).startswith(f"job {name} is ")
    return found


def steps(found: Explanation, kind: str) -> tuple[str, ...]:
    return next(change.steps for change in found.changes if change.kind == kind)


def test_servers_say_what_they_lack_in_groups() -> None:
    made = dispatcher(
        *(server(f"n{i}", cpu=4, zone="x") for i in range(5)), server("y", zone="y"), server("l"), server("d", zone="x")
    )
    made.handle(ServerLost(0.0, "l"))
    made.handle(ServerDrained(0.0, "d"))
    begin(made, 0.0, *(job(f"r{i}", cpu=3) for i in range(6)))
    made.handle(Submitted(1.0, job("j", cpu=2, needs={"zone": "x"})))
    found = why(made)
    assert [(group.servers, group.text) for group in found.servers] == [
        (5, "too little cpu (at most 1 free, 2 asked)"),
        (1, "has no label zone=x"),
        (1, "lost"),
        (1, "drained"),
    ]
    assert str(found.servers[0]) == "n0, n1, n2 and 2 more: too little cpu (at most 1 free, 2 asked)"
    assert found.blocks == ("there is room for 0 of 1 task of main",)


def test_the_smallest_changes_are_said_and_true() -> None:
    made = dispatcher(server("a", cpu=8), server("b", cpu=8), server("d", cpu=8))
    made.handle(ServerDrained(0.0, "d"))
    for name, cpu, where in (("r1", 6, "a"), ("r2", 2, "a"), ("r3", 3, "b"), ("r4", 3, "b")):
        made.handle(Submitted(0.0, job(name, cpu=cpu, work=100.0)))
        begun(made, name, Place(where, "main", 1))
    made.handle(Submitted(1.0, job("j", cpu=3, count=2)))
    found = why(made)
    assert steps(found, "end") == ("wait for the end of r1",)
    assert steps(found, "demand") == ("ask for 1 cpu instead of 3 for each task of main",)
    assert steps(found, "resume") == ("resume server d",)
    assert steps(found, "capacity") == ("add 4 more cpu to b",)
    again = dispatcher(server("a", cpu=8), server("b", cpu=12))  # with that it starts
    for name, cpu, where in (("r1", 6, "a"), ("r2", 2, "a"), ("r3", 3, "b"), ("r4", 3, "b")):
        again.handle(Submitted(0.0, job(name, cpu=cpu)))
        begun(again, name, Place(where, "main", 1))
    assert started(begin(again, 1.0, job("j", cpu=3, count=2))) == ["j"]
    made.handle(ServerResumed(2.0, "d"))
    assert started(made.decide(2.0)) == ["j"]
    made.handle(ServerDrained(3.0, "d"))
    made.handle(Finished(4.0, "r1", 1))
    assert started(made.decide(4.0)) == ["j"]


def test_fewer_tasks() -> None:
    made = dispatcher(server("a", cpu=4), server("b", cpu=4))
    begin(made, 0.0, job("r", cpu=2))
    made.handle(Submitted(1.0, job("j", cpu=2, count=4)))
    found = why(made)
    assert steps(found, "tasks") == ("run it with 3 tasks of main instead of 4",)
    assert found.blocks == ("there is room for 3 of 4 tasks of main",)


def test_a_quota_says_whose_it_is_and_how_much_is_missing() -> None:
    made = dispatcher(server("a", cpu=8), queues=Queues(quotas={"team:x": {"cpu": 4000}}))
    begin(made, 0.0, job("r", cpu=3, team="x", work=50.0))
    made.handle(Submitted(1.0, job("j", cpu=3, team="x")))
    found = why(made, time=1.0)
    assert found.blocks == ("team:x/cpu: holds 3, the job asks for 3, the limit is 4: 2 over",)
    assert [change.steps for change in found.changes] == [("raise quota team:x/cpu by 2",)]
    made.handle(QueuesChanged(2.0, Queues(quotas={"team:x": {"cpu": 6000}})))
    assert started(made.decide(2.0)) == ["j"]
    assert found.eta is not None
    assert found.eta.middle is not None
    assert found.eta.middle > 1.0  # it waits for r, which holds the quota
    made.handle(Submitted(2.0, job("k", cpu=7, team="x")))
    never = why(made, "k", 2.0)
    assert never.eta is not None
    assert never.eta.reason == "not before something changes"


def test_quota_and_room_together() -> None:
    made = dispatcher(server("a", cpu=4), queues=Queues(quotas={"team:x": {"cpu": 2000}}))
    begin(made, 0.0, job("r", cpu=2, team="x"), job("s", cpu=2))
    made.handle(Submitted(1.0, job("j", cpu=1, team="x")))
    assert steps(why(made), "end") == ("raise quota team:x/cpu by 1", "wait for the end of r")


def test_a_paused_queue() -> None:
    made = dispatcher(server("a"), queues=Queues({"default": Queue(), "p": Queue(starts=False)}))
    made.handle(Submitted(1.0, job("j", queue="p")))
    found = why(made)
    assert found.blocks == ("queue p is paused",)
    assert [change.steps for change in found.changes] == [("resume queue p",)]
    assert found.eta is not None
    assert (found.eta.middle, found.eta.reason) == (None, "not while queue p is paused")


def test_not_its_turn_and_nothing_in_the_way() -> None:
    made = dispatcher(server("a", cpu=4))
    made.handle(Submitted(0.0, job("i", cpu=3)))
    made.handle(Submitted(1.0, job("j", cpu=3)))
    found = why(made, time=1.0)
    assert found.blocks == ("it is not its turn: the job before it fits now and leaves no room",)
    assert [change.kind for change in found.changes] == ["priority"]
    assert why(made, "i", 1.0).blocks == ("nothing holds it back: it may start with the next decision",)


def test_what_can_never_start_says_why() -> None:
    made = dispatcher(server("a"))
    made.handle(Submitted(0.0, job("j", roles=(Role("main", 1, {"cpu": 1000, "npu": 1000}),))))
    assert why(made).blocks == ("no server has resource npu",)
    made.handle(Submitted(0.0, job("k", cpu=9)))
    found = why(made, "k")
    assert found.blocks == ("it would not fit even if nothing ran on the servers that may be used",)
    assert found.eta is not None
    assert found.eta.middle is None
    assert steps(found, "capacity") == ("add 5 more cpu to a",)
    assert explain(dispatcher_with("k").state, "k", 0.0).eta is not None  # without any server at all


def test_more_is_added_where_there_is_such_a_thing_or_a_server_is() -> None:
    made = dispatcher(server("plain", cpu=64), server("with", cpu=4, gpu=4))
    made.handle(Submitted(0.0, job("j", cpu=1, gpu=6)))
    assert steps(why(made), "capacity") == ("add 2 more gpu to with",)
    made.handle(ServerDrained(1.0, "with"))
    made.handle(Submitted(1.0, job("k", cpu=1, gpu=2, count=3)))
    assert steps(why(made, "k"), "capacity") == ("add 3 servers with 1 cpu and 2 gpu each",)
    made.handle(Submitted(1.0, job("n", roles=(Role("main", 1, {"cpu": 1000, "npu": 1000}),), needs={"zone": "x|y"})))
    assert steps(why(made, "n"), "capacity") == ("add a server with 1 cpu and 1 npu and the label zone=x",)
    pair = (Role("boss", 1, {"npu": 1000}), Role("rest", 4, {"npu": 2000}, 2))
    made.handle(Submitted(1.0, job("p", roles=pair)))
    assert steps(why(made, "p"), "capacity") == ("add a server with 5 npu",)


def test_a_label_that_is_missing_is_said_and_where_it_would_help() -> None:
    made = dispatcher(server("a", cpu=4), server("b", cpu=8), server("c", cpu=2, zone="y"))
    made.handle(Submitted(0.0, job("j", cpu=3, count=3, needs={"zone": "x|z"})))
    found = why(made)
    assert found.blocks == ("no server has the label zone=x|z",)
    assert steps(found, "label") == ("label b, a with zone=x",)
    assert found.eta is not None
    assert found.eta.reason == "not before something changes"
    again = dispatcher(server("a", cpu=4, zone="x"), server("b", cpu=8, zone="x"), server("c", cpu=2, zone="y"))
    assert started(begin(again, 1.0, job("j", cpu=3, count=3, needs={"zone": "x|z"}))) == ["j"]
    made.handle(Submitted(0.0, job("k", cpu=3, needs={"zone": "y"})))
    found = why(made, "k")
    assert found.blocks == ("it would not fit even if nothing ran on the servers that may be used",)
    assert steps(found, "label") == ("label b with zone=y",)
    assert steps(found, "capacity") == ("add 1 more cpu to c",)


def test_one_task_is_a_task_and_a_job_without_roles_has_tasks() -> None:
    made = dispatcher(server("a", cpu=4), server("b", cpu=4))
    begin(made, 0.0, job("r", cpu=3))
    made.handle(Submitted(1.0, job("j", roles=(Role("task", 6, {"cpu": 1000}),))))
    found = why(made)
    assert found.blocks == ("there is room for 5 of 6 tasks",)
    assert {group.text for group in found.servers} == {"room for 1 task", "room for 4 tasks"}
    assert steps(found, "tasks") == ("run it with 5 tasks instead of 6",)
    assert "1 task on b" in str(plan(spare_of(made), [job("k", roles=(Role("task", 1, {"cpu": 4000}),))], 1.0)[0])


def dispatcher_with(name: str) -> Dispatcher:
    made = dispatcher()
    made.handle(Submitted(0.0, job(name)))
    return made


def test_servers_kept_for_another() -> None:
    made = dispatcher(server("a", cpu=4), queues=Queues(patience=10.0))
    begin(made, 0.0, job("r", cpu=3), job("late", cpu=4))
    begin(made, 20.0, job("j", cpu=1))
    found = why(made, "j", 20.0)
    assert [group.text for group in found.servers] == ["reserved for job late"]


def test_running_jobs_say_who_put_them_there_and_what_is_known_of_elsewhere() -> None:
    made = dispatcher(server("a"), server("b"))
    for i, where in enumerate("abab"):
        made.handle(Submitted(0.0, job(f"r{i}", work=60.0)))
        begun(made, f"r{i}", Place(where, "main", 1))
        made.handle(Finished(30.0 if where == "a" else 60.0, f"r{i}", 1, seconds=30.0 if where == "a" else 60.0))
    made.handle(Submitted(100.0, job("j")))
    begun(made, "j", Place("b", "main", 1), time=100.0)
    lines = explain(made.state, "j", 100.0, by="cucb").blocks
    assert lines[:2] == ("it has 1 task of main on b", "decided by cucb")
    assert re.fullmatch(r"learned speed of t there: b 1\.0\d in 2 runs", lines[2])
    assert re.fullmatch(r"elsewhere: a 1\.[89]\d? in 2 runs", lines[3])
    with pytest.raises(InvalidInput, match="has not ended"):
        explain(made.state, "r0", 100.0)


def learned(runs: int, seconds: list[float]) -> Dispatcher:
    """A server on which jobs of type t took this long."""
    made = dispatcher(server("a", cpu=4))
    for i in range(runs):
        begin(made, 100.0 * i, job(f"r{i}", cpu=4, work=50.0))
        made.handle(Finished(100.0 * i + 99.0, f"r{i}", 1, seconds=seconds[i % len(seconds)]))
    return made


def as_played(made: Dispatcher, name: str, time: float) -> Range:
    """When a job starts as the queue is played, before anything is added for what such forecasts leave out."""
    found, _ = played(made.state, made.state.jobs[name], time, ordered(made.state, time))
    assert isinstance(found, Range)
    return found


def test_the_eta_is_what_is_left_of_what_was_learned() -> None:
    made = learned(20, [49.0, 50.0, 51.0])
    begin(made, 5000.0, job("now", cpu=4, work=50.0))
    made.handle(Submitted(5000.0, job("j", cpu=4, work=50.0)))
    made.handle(Submitted(5000.0, job("k", cpu=4, work=50.0)))
    first, second = as_played(made, "j", 5030.0), as_played(made, "k", 5030.0)
    assert 10.0 < first.low <= first.middle <= first.high < 30.0
    assert 50.0 < second.middle < 90.0
    told = why(made, "j", 5030.0).eta
    assert told is not None
    assert told.low is not None
    assert told.high is not None
    assert told.low < first.low <= first.high < told.high
    assert explain(made.state, "j", 5030.0).eta == told  # the same seed says the same
    over = why(made, "j", 5200.0).eta
    assert over is not None
    assert over.middle is not None
    assert over.middle > 0.0


def test_where_nothing_was_learned_the_eta_is_wide() -> None:
    made = dispatcher(server("a", cpu=4))
    begin(made, 0.0, job("now", cpu=4, work=50.0))
    made.handle(Submitted(0.0, job("j", cpu=4)))
    wide = as_played(made, "j", 1.0)
    sure = learned(20, [49.0, 50.0, 51.0])
    begin(sure, 5000.0, job("now", cpu=4, work=50.0))
    sure.handle(Submitted(5000.0, job("j", cpu=4)))
    narrow = as_played(sure, "j", 5001.0)
    assert wide.high - wide.low > 3.0 * (narrow.high - narrow.low)


def test_a_forecast_respects_what_is_reserved_for_a_higher_level() -> None:
    """More jobs are ahead than a forecast simulates."""
    made = learned(20, [49.0, 50.0, 51.0])
    made.handle(ServerJoined(5000.0, server("b", cpu=4)))
    begin(made, 5000.0, job("now", cpu=4, work=50.0))
    wide, others = (
        job("wide", cpu=4, count=2, work=50.0, priority=1),
        [job(f"o{i}", cpu=4, work=60.0) for i in range(40)],
    )
    assert started(begin(made, 5000.0, wide, job("low", cpu=4, work=100.0), *others)) == []
    wide_starts = as_played(made, "wide", 5000.0)
    assert 40.0 < wide_starts.low <= wide_starts.high < 60.0
    for name in ("low", "o39"):
        assert as_played(made, name, 5000.0).low > wide_starts.low + 40.0
    assert "the first of a higher level" in str(why(made, "low", 5000.0))


def test_a_plan_changes_nothing_and_comes_true() -> None:
    for policy in ("in-order-best-fit", "best-fit", "cucb", "fairness"):
        made = dispatcher(server("a"), server("b", cpu=2), policy=policy)
        begin(made, 0.0, job("r", cpu=3))
        before = snapshot(made.state)
        wanted = job("j", cpu=2)
        found = plan(spare_of(made), [wanted, job("big", cpu=4)], 1.0)
        assert snapshot(made.state) == before
        assert (found[0].fallback, found[0].note) == ((Place("b", "main", 1),), "")
        assert found[1].waits is not None
        assert "room for 0 of 1" in str(found[1])
        json.dumps([one.as_dict() for one in found], allow_nan=False)
        decided = begin(made, 1.0, wanted)
        assert decided is not None
        assert decided.starts[0].places == found[0].chosen
    with pytest.raises(InvalidInput):
        plan(spare_of(made), [wanted], 2.0)


def test_a_policy_that_cannot_be_copied_is_not_asked() -> None:
    made = dispatcher(server("a"), policy="best-fit")
    driver = innermost(made.driver)

    class Stubborn:
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("no")

    begin(made, 0.0, job("r"))
    driver._policy = Stubborn()
    found = plan(spare_of(made), [job("j")], 1.0)[0]
    assert re.search("cannot be asked without being changed: TypeError: no", found.note)
    assert found.fallback == (Place("a", "main", 1),)
    made.handle(PolicyChanged(2.0, "tests.testing.broken.placement:Overcommits"))
    many = [job(f"k{i}", cpu=3) for i in range(2)]
    assert plan(spare_of(made), many, 3.0)[0].note.startswith("infeasible")


def test_who_is_started_is_not_forgotten() -> None:
    made = dispatcher(server("a"))
    made.handle(Submitted(0.0, job("j")))
    made.handle(Decided(0.0, "x", (Start("j", 1, (Place("a", "main", 1),)),)))
    assert why(made).phase == "starting"
    made.handle(Started(1.0, "j", 1))
    assert why(made).phase == "running"
