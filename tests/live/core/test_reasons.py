"""A few words of everybody who waits: in order, and never at odds with the whole explanation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from berth.files.quantities import amounts
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import QueuesChanged, ServerDrained, Submitted
from berth.live.core.explain import explain
from berth.live.core.jobs import Role
from berth.live.core.order import ordered
from berth.live.core.queues import Queue, Queues
from berth.live.core.reasons import out_of_reach, waiting_in_order
from tests.harness.examples import examples
from tests.live.core.builders import begin, dispatcher, job, server, snapshot


def said(made: Dispatcher, time: float = 10.0, limit: int = 200) -> dict[str, str]:
    before = snapshot(made.state)
    _, found = waiting_in_order(made.state, time, limit)
    assert snapshot(made.state) == before
    return {one.record.job.id: one.why for one in found}


def test_each_kind_of_obstacle_is_named() -> None:
    queues = Queues({"default": Queue(), "night": Queue(starts=False)}, quotas={"team:x": {"gpu": 1000}})
    made = dispatcher(server("a", cpu=8, gpu=2), server("b", cpu=8), queues=queues)
    begin(made, 0.0, job("r", cpu=6), job("s", cpu=6))
    pair = (Role("boss", 1, amounts({"cpu": 1})), Role("worker", 3, amounts({"cpu": 2})))
    for one in (
        job("gang", cpu=2, count=3),
        job("pair", roles=pair),
        job("huge", cpu=8, count=9),
        job("tpu", roles=(Role("main", 1, amounts({"tpu": 1})),)),
        job("label", needs={"zone": "x"}),
        job("quota", gpu=2, team="x"),
        job("night", queue="night"),
        job("next", cpu=2),
    ):
        made.handle(Submitted(1.0, one))
    assert said(made) == {
        "gang": "room for 2 of 3 tasks",
        "pair": "room for 2 of 3 tasks of worker",
        "huge": "it would not fit even if nothing ran",
        "tpu": "no server has tpu",
        "label": "no server has the label zone=x",
        "quota": "limit of team:x/gpu reached",
        "next": "it may start with the next decision",
        "night": "queue night is paused",
    }
    assert list(said(made))[-1] == "night"
    count, first = waiting_in_order(made.state, 10.0, 2)
    assert (count, len(first)) == (8, 2)


def test_servers_that_are_kept_are_said() -> None:
    made = dispatcher(server("a", cpu=4), queues=Queues(patience=5.0))
    begin(made, 0.0, job("r", cpu=2))
    made.handle(Submitted(1.0, job("late", cpu=4)))
    decided = made.decide(20.0)
    assert decided is not None
    made.handle(decided)
    made.handle(Submitted(21.0, job("other", cpu=2)))
    assert said(made, 21.0) == {"late": "servers are reserved for it: a", "other": "room is reserved for job late"}


def test_what_no_server_could_run_is_said_once_for_all_jobs_alike() -> None:
    made = dispatcher(server("a", cpu=4, zone="x"))
    begin(made, 0.0, job("r", cpu=4))
    for i in range(5):
        made.handle(Submitted(1.0, job(f"t{i}", roles=(Role("main", 1, amounts({"tpu": 1})),))))
    for one in (job("l", needs={"zone": "y"}), job("big", cpu=5), job("waits", cpu=4)):
        made.handle(Submitted(1.0, one))
    records = [record for record in made.state.jobs.values() if record.phase == "waiting"]
    assert out_of_reach(made.state, records) == [
        "t0, t1, t2 and 2 more: no server has tpu",
        "l: no server has the label zone=y",
        "big: it would not fit even if nothing ran",
    ]
    made.handle(QueuesChanged(1.0, Queues(quotas={"team:default": {"cpu": 4000}})))
    assert out_of_reach(made.state, records[-2:]) == [
        "big: it would not fit even if nothing ran",
        "big: it asks for more than the quota team:default/cpu ever allows",
    ]
    made.handle(QueuesChanged(1.0, Queues()))
    made.handle(ServerDrained(2.0, "a"))
    assert out_of_reach(made.state, records[-1:]) == ["waits: no usable server"]


def test_what_is_computed_from_servers_that_have_changed_is_not_kept() -> None:
    made = dispatcher(server("a", cpu=4), server("b", cpu=8))
    for name in ("one", "other"):
        made.handle(Submitted(1.0, job(name, cpu=8 if name == "one" else 7)))
    records, before = list(made.state.jobs.values()), made.state.with_own_tables()
    made.handle(ServerDrained(2.0, "b"))
    assert out_of_reach(before, records) == []
    assert out_of_reach(made.state, records) == ["one, other: it would not fit even if nothing ran"]


JOBS = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2), st.sampled_from(["", "x", "y"]), st.booleans()),
    min_size=1,
    max_size=12,
)


@examples(40)
@given(JOBS, JOBS, st.sets(st.integers(0, 3), max_size=3), st.booleans())
def test_it_agrees_with_the_whole_explanation(
    first: list[tuple[int, int, int, str, bool]],
    later: list[tuple[int, int, int, str, bool]],
    drained: set[int],
    limited: bool,
) -> None:
    made = dispatcher(*(server(f"n{i}", cpu=8, gpu=i % 2, zone="xy"[i % 2]) for i in range(4)))
    if limited:
        quotas = {"team:a": {"cpu": 9000}}
        made.handle(QueuesChanged(0.0, Queues({"default": Queue(), "q": Queue(starts=False)}, quotas=quotas)))

    def jobs(prefix: str, given: list[tuple[int, int, int, str, bool]]) -> list[object]:
        return [
            job(
                f"{prefix}{i}",
                cpu=cpu,
                count=count,
                gpu=gpu,
                needs={"zone": zone} if zone else {},
                team="a" if paused else "b",
                queue="q" if limited and paused and i % 3 == 0 else "default",
            )
            for i, (cpu, count, gpu, zone, paused) in enumerate(given)
        ]

    begin(made, 0.0, *jobs("r", first))  # type: ignore[arg-type]
    for i in drained:
        made.handle(ServerDrained(1.0, f"n{i}"))
    for one in jobs("w", later):
        made.handle(Submitted(2.0, one))  # type: ignore[arg-type]
    found = said(made)
    assert set(found) == {name for name, record in made.state.jobs.items() if record.phase == "waiting"}
    in_order = [record.job.id for _, record in ordered(made.state, 10.0)]
    assert list(found)[: len(in_order)] == in_order
    for name, why in found.items():
        whole = explain(made.state, name, 10.0)
        if why.startswith("room for"):
            assert any(block.startswith(f"there is {why} of main") for block in whole.blocks)
        elif why.startswith("limit of "):
            assert any(block.startswith(why.split()[2]) for block in whole.blocks)
        elif why.startswith("it may start") and not limited:
            assert whole.blocks == ("nothing holds it back: it may start with the next decision",)
        elif why.startswith("free room goes"):
            assert limited or any("not its turn" in block for block in whole.blocks)
        elif why.startswith(("queue", "it would not fit")):
            assert why in str(whole) or "it would not fit" in str(whole)
