"""Decisions: patience, refusals, empty clusters, the change of policies, warming."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from berth.errors import BerthError
from berth.files.quantities import amounts
from berth.live.core.dispatcher import FALLBACK, Dispatcher
from berth.live.core.drivers import selection
from berth.live.core.drivers.selection import SelectionDriver
from berth.live.core.events import Event, Finished, PolicyChanged, ServerChanged, ServerJoined, ServerLost, Submitted
from berth.live.core.explain import explain
from berth.live.core.jobs import Role, Server
from berth.live.core.queues import Queues
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from berth.live.simulation import play
from tests.live.core.builders import begin, dispatcher, innermost, job, places, server, started

POLICIES = ("best-fit", "fcfs", "easy", "tetris", "drl-greedy", "escb-v", "cucb", "cts", "ogasched-aware", "fairness")
BROKEN = "tests.testing.broken.placement:"


@pytest.mark.parametrize("policy", [FALLBACK, "best-fit", "escb-v", "fairness"])
def test_a_large_gang_starts_though_small_jobs_never_stop_coming(policy: str) -> None:
    servers = [server(f"n{i}", cpu=4) for i in range(3)]
    given: list[Event] = [Submitted(5.0, job("gang", cpu=4, count=3, work=5.0))]
    given += [Submitted(3.0 * i, job(f"s{i}", cpu=1, work=40.0)) for i in range(300)]
    made = Dispatcher(policy, queues=Queues(patience=200.0, aging=0.0))
    played = play(made, SimulatedCluster(servers), given)
    gang = played.ended["gang"]
    assert gang.started is not None
    assert 205.0 < gang.started <= 245.0
    assert {record.phase for record in played.ended.values()} == {"finished"}


def test_without_patience_the_same_gang_starves() -> None:
    servers = [server(f"n{i}", cpu=4) for i in range(3)]
    given: list[Event] = [Submitted(5.0, job("gang", cpu=4, count=3, work=5.0))]
    given += [Submitted(3.0 * i, job(f"s{i}", cpu=1, work=40.0)) for i in range(300)]
    made = Dispatcher(queues=Queues(patience=1e9, aging=0.0))
    gang = play(made, SimulatedCluster(servers), given).ended["gang"]
    assert gang.started is not None
    assert gang.started > 890.0


def test_servers_are_kept_until_the_gang_fits_and_the_others_use_the_rest() -> None:
    made = dispatcher(*(server(f"n{i}") for i in range(3)), queues=Queues(patience=10.0))
    begin(made, 0.0, job("x", cpu=3), job("y", cpu=3), job("gang", cpu=4, count=2))
    decided = begin(made, 20.0)
    assert decided is not None
    kept = set(decided.reserved)
    assert len(kept) == 2
    assert set(decided.reserved.values()) == {"gang"}
    begin(made, 21.0, job("z", cpu=4), job("zz", cpu=1))
    assert "z" not in places_of_all(made) or not kept & set(places(made, "z"))
    assert made.decide(22.0) is None  # nothing new to say
    for name in ("x", "y", "z"):
        if made.state.jobs[name].places:
            made.handle(Finished(30.0, name, 1))
    assert "gang" in started(begin(made, 30.0))
    assert not made.state.reserved


def places_of_all(made: Dispatcher) -> set[str]:
    return {name for name, record in made.state.jobs.items() if record.places}


def test_kept_servers_that_are_lost_are_replaced() -> None:
    made = dispatcher(server("a"), server("b"), server("c"), queues=Queues(patience=10.0))
    begin(made, 0.0, job("x", cpu=1), job("y", cpu=4), job("z", cpu=4), job("gang", cpu=4))
    begin(made, 20.0)
    assert list(made.state.reserved) == places_list(made, "x")
    made.handle(ServerLost(21.0, places_list(made, "x")[0]))
    begin(made, 22.0)
    assert set(made.state.reserved.values()) == {"gang"}
    assert list(made.state.reserved) != places_list(made, "x")


def places_list(made: Dispatcher, name: str) -> list[str]:
    return list(places(made, name))


def test_a_gang_whose_roles_need_the_hardest_first_starts() -> None:
    made = dispatcher(server("small", cpu=1, gpu=1), server("large", cpu=8))
    roles = (Role("lead", 1, {"cpu": 1000}), Role("rest", 1, {"cpu": 1000, "gpu": 1000}))
    assert started(begin(made, 0.0, job("j", roles=roles))) == ["j"]
    assert places(made, "j") == {"large": 1, "small": 1}


@pytest.mark.parametrize("policy", [FALLBACK, *POLICIES])
def test_tasks_that_must_not_share_a_server_do_not_whoever_decides(policy: str) -> None:
    made = dispatcher(*(server(f"n{i}", cpu=8) for i in range(4)), policy=policy)
    apart = (Role("node", 3, amounts({"cpu": 2}), per_server=1),)
    decided = begin(made, 0.0, job("j", roles=apart), job("k", roles=apart), job("plain", cpu=1, count=4))
    assert decided is not None
    assert decided.refused is None
    assert set(started(decided)) >= {"j", "k"}
    assert sorted(places(made, "j").values()) == sorted(places(made, "k").values()) == [1, 1, 1]


def test_with_fewer_servers_than_tasks_that_must_not_share_one_it_waits_and_says_so() -> None:
    made = dispatcher(server("n0", cpu=8), server("n1", cpu=8))
    made.handle(Submitted(0.0, job("j", roles=(Role("node", 3, amounts({"cpu": 1}), per_server=1),))))
    assert made.decide(0.0) is None
    assert "with 2 tasks of node instead of 3" in str(explain(made.state, "j", 0.0))


def test_nothing_new_starts_on_a_server_that_its_engine_closed_and_what_runs_there_goes_on() -> None:
    made = dispatcher(server("n0", cpu=2))
    begin(made, 0.0, job("first"))
    made.handle(ServerChanged(1.0, replace(server("n0", cpu=2), closed="maintenance")))
    begin(made, 1.0, job("second"))
    assert made.state.jobs["first"].phase == "running"
    assert made.state.jobs["second"].phase == "waiting"
    assert "closed: maintenance" in str(explain(made.state, "second", 1.0))
    made.handle(ServerChanged(2.0, server("n0", cpu=2)))
    assert started(begin(made, 2.0)) == ["second"]


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        (f"{BROKEN}Overcommits", "infeasible"),
        (f"{BROKEN}NamesNoServer", "raised"),
        (f"{BROKEN}DecidesArrays", "raised"),
        ("tests.testing.broken.allocation:Overfills", None),
        ("tests.testing.broken.allocation:GoesNegative", None),
    ],
)
def test_what_a_broken_policy_decides_is_refused_counted_and_decided_by_the_fallback(
    policy: str, kind: str | None
) -> None:
    made = dispatcher(server("a"), server("b"), policy=policy)
    jobs = [job(f"j{i}", cpu=3) for i in range(3)]
    decided = begin(made, 0.0, *jobs)
    assert decided is not None
    if kind is None:  # whole tasks in what it was given are feasible, whatever it gave
        assert decided.refused is None
        return
    assert decided.by == FALLBACK
    assert decided.refused is not None
    assert decided.refused.startswith(kind)
    assert made.refusals == {kind: 1}
    assert started(decided) == ["j0", "j1"]
    assert made.state.policy == policy


def test_a_late_decision_is_refused() -> None:
    clock = itertools.count(0.0, 10.0)
    made = dispatcher(server("a"), policy="best-fit", stopwatch=lambda: next(clock))
    decided = begin(made, 0.0, job("j"))
    assert decided is not None
    assert (decided.by, made.refusals) == (FALLBACK, {"late": 1})
    assert decided.refused == "late: took 10.000 s, may take 1 s"
    assert decided.seconds == 20.0
    assert started(decided) == ["j"]


def test_refusals_are_the_same_after_a_replay() -> None:
    made = dispatcher(server("a"), policy=f"{BROKEN}DecidesArrays")
    decided = begin(made, 0.0, job("j"))
    assert decided is not None
    again = dispatcher(server("a"))
    again.replay([Submitted(0.0, job("j")), decided])
    assert again.refusals == made.refusals == {"raised": 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_without_servers_there_is_nothing_to_say(policy: str) -> None:
    made = dispatcher(policy=policy)
    assert begin(made, 0.0, job("j")) is None
    made.handle(ServerJoined(1.0, server("a")))
    made.handle(ServerLost(1.0, "a"))
    assert begin(made, 1.0) is None
    made.handle(ServerJoined(2.0, server("a")))
    assert started(begin(made, 2.0)) == ["j"]
    assert not made.refusals


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_take_over_in_the_middle_and_serve_every_shape(policy: str) -> None:
    made = dispatcher(*(server(f"n{i}", cpu=8, gpu=2, zone="xy"[i % 2]) for i in range(4)))
    pair = (Role("ps", 1, {"cpu": 1000}), Role("w", 2, {"cpu": 1000, "gpu": 1000}, 1))
    jobs = [
        job("one"),
        job("gang", count=3),
        job("pair", roles=pair),
        job("zone", needs={"zone": "x"}),
        job("some", cpu=2, count=4, minimum=1),
    ]
    begin(made, 0.0, job("old", gpu=1))
    made.handle(PolicyChanged(1.0, policy, "ada", "to see"))
    assert sorted(started(begin(made, 1.0, *jobs))) == sorted(each.id for each in jobs)
    assert not made.refusals
    assert set(places(made, "zone")) <= {"n0", "n2"}
    made.handle(Finished(5.0, "pair", 1))
    assert started(begin(made, 6.0, job("next"))) == ["next"]


def test_an_unknown_policy_changes_nothing() -> None:
    made = dispatcher(server("a"), policy="best-fit")
    driver = made.driver
    with pytest.raises(BerthError):
        made.handle(PolicyChanged(0.0, "no-such-policy"))
    assert made.state.policy == "best-fit"
    assert made.driver is driver


@pytest.mark.parametrize("policy", [FALLBACK, *POLICIES])
def test_warming_changes_nothing(policy: str) -> None:
    made = dispatcher(server("a"), server("b"), policy=policy)
    made.handle(Submitted(0.0, job("j")))
    made.warm()
    cold = dispatcher(server("a"), server("b"), policy=policy)
    cold.handle(Submitted(0.0, job("j")))
    assert made.decide(0.0) == cold.decide(0.0)
    assert not made.memory
    Dispatcher(policy).warm()


def test_a_learning_policy_finds_the_faster_server() -> None:
    servers = [server("slow", speed=1.0), server("quick", speed=1.0)]

    class Two(Truth):
        def speed(self, type_: str, server: Server) -> float:
            return 0.5 if server.name == "slow" else 2.0

    given = [Submitted(100.0 * i, job(f"j{i}", cpu=4, work=20.0)) for i in range(60)]
    made = Dispatcher("cucb")
    play(made, SimulatedCluster(servers, Two()), given)
    runs = {name: speed.runs for _, name, speed in made.state.learned}
    assert runs["quick"] > 45
    assert runs["slow"] >= 1


def test_kinds_that_are_long_gone_are_forgotten() -> None:
    for policy in ("cucb", "fairness"):
        made = dispatcher(server("a", cpu=64), policy=policy)
        for i in range(80):
            begin(made, float(i), job(f"j{i}", type=f"t{i}"))
            made.handle(Finished(i + 0.5, f"j{i}", 1))
        assert len(innermost(made.driver)._kinds) == 65


@pytest.mark.parametrize("policy", ["escb-v", "fairness"])
def test_a_policy_that_has_thought_for_long_keeps_what_it_decided_and_is_not_late(policy: str) -> None:
    seconds = itertools.count(0.0, 0.02)
    made = dispatcher(server("n0", cpu=64), policy=policy, budget=1.0, stopwatch=lambda: next(seconds))
    decided = begin(made, 0.0, *(job(f"j{i}") for i in range(40)))
    assert decided is not None
    assert (decided.by, decided.refused) == (policy, None)
    assert 0 < len(decided.starts) < 40
    rounds = 0
    while made.state.table.waiting:
        rounds += 1
        begin(made, float(rounds))
    assert rounds < 40


def test_a_selection_policy_is_asked_about_few_kinds_and_the_others_are_placed_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selection, "CHANNELS", 4)
    made = dispatcher(server("n0", cpu=64), server("n1", cpu=64), policy="escb-v")
    decided = begin(made, 0.0, *(job(f"j{i}", cpu=1 + i) for i in range(6)))
    assert decided is not None
    assert (decided.by, decided.refused) == ("escb-v", None)
    assert sorted(started(decided)) == [f"j{i}" for i in range(6)]
    driver = innermost(made.driver)
    assert isinstance(driver, SelectionDriver)
    assert len(driver._kinds) == 2
