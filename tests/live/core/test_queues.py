"""Who comes first, and who may not start: levels, aging, fair shares, quotas, limits, paused queues."""

from __future__ import annotations

import pytest

from berth.errors import InvalidInput
from berth.live.core.events import Cancelled, Finished, QueuesChanged, ServerJoined, Submitted
from berth.live.core.jobs import Role
from berth.live.core.limits import blocked_by_limits
from berth.live.core.order import ordered
from berth.live.core.queues import Queue, Queues
from tests.live.core.builders import begin, dispatcher, job, server, started

PLAIN = Queues(aging=0.0, fairness=0.0)


def test_higher_levels_first_then_the_earlier() -> None:
    queues = Queues({"default": Queue(), "fast": Queue(priority=5)}, aging=0.0, fairness=0.0)
    made = dispatcher(server("a", cpu=1), queues=queues)
    for name, queue, priority in (("a", "default", 0), ("b", "default", 6), ("c", "fast", 0), ("d", "fast", -5)):
        made.handle(Submitted(0.0, job(name, queue=queue, priority=priority)))
    assert [(level, r.job.id) for level, r in ordered(made.state, 0.0)] == [(6, "b"), (5, "c"), (0, "a"), (0, "d")]
    assert started(begin(made, 0.0)) == ["b"]


@pytest.mark.parametrize("policy", ["in-order-best-fit", "best-fit", "escb-v", "fairness"])
def test_no_policy_starts_a_lower_level_where_a_higher_fits(policy: str) -> None:
    made = dispatcher(server("a", cpu=2), policy=policy, queues=PLAIN)
    jobs = [job("low", cpu=2), job("high", cpu=2, priority=3), job("middle", cpu=2, priority=1)]
    assert started(begin(made, 0.0, *jobs)) == ["high"]
    made.handle(Finished(5.0, "high", 1))
    assert started(begin(made, 5.0)) == ["middle"]


def test_waiting_makes_older_jobs_overtake() -> None:
    made = dispatcher(server("a", cpu=1), queues=Queues(aging=1.0, fairness=0.0))
    made.handle(Submitted(0.0, job("old")))
    made.handle(Submitted(7200.0, job("new", priority=2)))
    assert [r.job.id for _, r in ordered(made.state, 7200.0)] == ["old", "new"]
    made.handle(Submitted(7200.0, job("urgent", priority=3)))
    assert [r.job.id for _, r in ordered(made.state, 7200.0)] == ["urgent", "old", "new"]


def test_the_team_that_used_more_than_its_share_comes_later() -> None:
    made = dispatcher(server("a", cpu=2), queues=Queues(aging=0.0, shares={"x": 3.0}))
    begin(made, 0.0, job("x1", team="x"), job("y1", team="y"))
    made.handle(Finished(100.0, "x1", 1))
    made.handle(Finished(100.0, "y1", 1))
    made.handle(Submitted(100.0, job("y2", team="y")))
    made.handle(Submitted(100.0, job("x2", team="x")))
    assert [r.job.id for _, r in ordered(made.state, 100.0)] == ["x2", "y2"]
    assert made.state.usage("x", 100.0) == 50.0
    assert made.state.usage("x", 100.0 + made.state.queues.half_life) == 25.0


def test_usage_is_forgotten_once_whatever_the_order_of_ends() -> None:
    made = dispatcher(server("a", cpu=2), queues=Queues(half_life=10.0))
    begin(made, 0.0, job("x"), job("y"))
    made.handle(Finished(20.0, "x", 1))
    before = made.state.usage("default", 20.0)
    made.handle(Finished(10.0, "y", 1))  # told late
    assert made.state.usage("default", 20.0) >= before


def test_a_paused_queue_starts_nothing_and_a_closed_one_takes_nothing() -> None:
    queues = Queues({"default": Queue(), "p": Queue(starts=False), "c": Queue(accepts=False)})
    made = dispatcher(server("a"), queues=queues)
    assert started(begin(made, 0.0, job("j", queue="p"), job("k"))) == ["k"]
    with pytest.raises(InvalidInput, match="default, p"):
        made.handle(Submitted(0.0, job("l", queue="c")))
    made.handle(QueuesChanged(1.0, Queues({"default": Queue(), "p": Queue()})))
    assert started(begin(made, 1.0)) == ["j"]


@pytest.mark.parametrize(
    "queues",
    [
        Queues(quotas={"team:x": {"cpu": 3000}}),
        Queues(quotas={"user:u": {"cpu": 3000}}),
        Queues({"default": Queue(limit={"cpu": 3000})}),
    ],
)
def test_limits_hold_and_let_go(queues: Queues) -> None:
    made = dispatcher(server("a", cpu=8), queues=queues)
    jobs = [job(name, cpu=2, team="x", user="u") for name in "abc"]
    assert started(begin(made, 0.0, *jobs)) == ["a"]
    assert made.decide(1.0) is None
    made.handle(Finished(2.0, "a", 1))
    assert started(begin(made, 2.0)) == ["b"]
    assert next(iter(blocked_by_limits(made.state, [made.state.jobs["c"]], 2.0).values())).endswith("/cpu reached")


def test_other_owners_are_not_held_back() -> None:
    made = dispatcher(server("a", cpu=8), queues=Queues(quotas={"team:x": {"cpu": 1000}}))
    jobs = [job("x1", team="x"), job("x2", team="x"), job("y1", team="y", cpu=5)]
    assert started(begin(made, 0.0, *jobs)) == ["x1", "y1"]


def test_a_quota_of_one_resource_says_nothing_about_others() -> None:
    made = dispatcher(server("a", cpu=8, gpu=1), queues=Queues(quotas={"team:default": {"gpu": 0}}))
    assert started(begin(made, 0.0, job("cpu"), job("gpu", gpu=1))) == ["cpu"]


def test_a_job_that_can_never_start_takes_nobodys_quota() -> None:
    made = dispatcher(server("a", cpu=4), queues=Queues(quotas={"team:default": {"cpu": 8000}}))
    nobody = Role("main", 1, {"cpu": 4000, "npu": 1000})
    jobs = [job("huge", cpu=8), job("npu", roles=(nobody,)), job("small", cpu=4)]
    assert started(begin(made, 0.0, *jobs)) == ["small"]
    made.handle(ServerJoined(1.0, server("b", cpu=8)))
    assert started(begin(made, 1.0)) == []  # now it is first in its team
    made.handle(Finished(2.0, "small", 1))
    assert started(begin(made, 2.0)) == ["huge"]


@pytest.mark.parametrize("policy", ["fcfs", "easy", "best-fit", "escb-v", "ogasched-aware"])
def test_a_job_that_can_never_start_stands_in_nobodys_way(policy: str) -> None:
    made = dispatcher(server("a", cpu=4), server("b", cpu=4), policy=policy)
    jobs = [job("huge", cpu=5), job("many", cpu=4, count=3), job("small", cpu=4)]
    assert started(begin(made, 0.0, *jobs)) == ["small"]
    assert not made.refusals


def test_small_jobs_of_a_team_do_not_keep_its_large_one_from_its_quota_for_ever() -> None:
    queues = Queues(quotas={"team:default": {"cpu": 4000}}, patience=100.0, aging=0.0)
    made = dispatcher(server("a", cpu=8), queues=queues)
    assert started(begin(made, 0.0, job("runs", cpu=2), job("big", cpu=4), job("small", cpu=2))) == ["runs", "small"]
    made.handle(Finished(50.0, "runs", 1))
    assert started(begin(made, 50.0, job("next", cpu=2, priority=1))) == ["next"]
    made.handle(Finished(101.0, "small", 1))
    assert started(begin(made, 101.0, job("last", cpu=2, priority=1))) == []
    made.handle(Cancelled(102.0, "last"))
    made.handle(Submitted(103.0, job("free", cpu=4, team="other")))
    assert started(begin(made, 103.0)) == ["free"]
    made.handle(Finished(110.0, "next", 1))
    assert started(begin(made, 110.0)) == ["big"]


def test_what_no_quota_will_ever_allow_keeps_nothing() -> None:
    queues = Queues(quotas={"team:default": {"cpu": 4000}}, patience=100.0, aging=0.0)
    made = dispatcher(server("a", cpu=8), queues=queues)
    begin(made, 0.0, job("huge", cpu=5))
    assert started(begin(made, 500.0, job("small", cpu=4))) == ["small"]
