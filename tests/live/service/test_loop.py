"""The event loop: how long it stalls is measured from inside, and slow readers do not hold up each other."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Command, ServerJoined, Start, Submitted
from berth.live.core.jobs import Job
from berth.live.core.speeds import Learned
from berth.live.core.state import State
from berth.live.service.engine_link import PARALLEL, Commander
from berth.live.service.metrics import LOOK_SECONDS, Metrics
from berth.live.service.rounds import in_parts
from berth.live.service.store import Store
from berth.live.service.views import server_view, servers_json
from tests.harness.waiting import eventually_async
from tests.live.core.builders import begin, dispatcher, job, server
from tests.live.service.test_scheduler import opened, settings


def value(metrics: Metrics, name: str) -> float:
    found = metrics.registry.get_sample_value(f"berth_loop_stall_seconds_{name}")
    assert found is not None
    return found


def test_a_stall_is_measured() -> None:
    metrics = Metrics(State())

    async def run() -> None:
        watching = asyncio.create_task(metrics.watch_loop())
        await eventually_async(lambda: value(metrics, "count"), lambda count: count >= 1)
        before = value(metrics, "sum")
        time.sleep(0.5 + LOOK_SECONDS)
        count = value(metrics, "count")
        await eventually_async(lambda: value(metrics, "count"), lambda now: now > count)
        assert value(metrics, "sum") - before >= 0.5
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(run())
    text, _ = metrics.render()
    assert b"berth_loop_stall_seconds_bucket" in text


def test_a_few_slow_readers_hold_up_nobody(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(settings(tmp_path / "db")) as scheduler:
            release = threading.Event()
            slow = [asyncio.create_task(scheduler._journal.read(release.wait, 240.0)) for _ in range(6)]
            await asyncio.sleep(0)
            assert await scheduler.get("none") is None
            assert not any(task.done() for task in slow)
            release.set()
            await asyncio.gather(*slow)

    asyncio.run(run())


def test_long_rounds_give_others_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.live.service.journal_loop.TURN", 0.0)

    async def run() -> None:
        async with opened(settings(tmp_path / "db")) as scheduler:
            state, seen = scheduler.dispatcher.state, set[int]()

            async def look() -> None:
                while True:
                    seen.add(len(state.jobs))
                    await asyncio.sleep(0)

            looking = asyncio.create_task(look())
            await scheduler.submit([job(f"j{i}") for i in range(300)])
            looking.cancel()
            assert len(seen) > 250

    asyncio.run(run())


def test_estimates_are_computed_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitting, real = list[int](), Learned._fit

    def noted(self: Learned) -> None:
        fitting.append(threading.get_ident())
        real(self)

    monkeypatch.setattr(Learned, "_fit", noted)

    async def run() -> None:
        where = str(tmp_path / "db")
        async with opened(settings(tmp_path / "db", faster=1000.0)) as scheduler:
            await scheduler.submit([job(f"j{i}", work=20.0) for i in range(40)])
            state = scheduler.dispatcher.state
            await eventually_async(lambda: not state.jobs)
            assert fitting
            assert threading.get_ident() not in fitting
            lived = scheduler.dispatcher.dump().state
        store, replayed = Store(where), Dispatcher()
        replayed.replay(event for _, event in store.events())
        store.close()
        assert replayed.dump().state == lived

    asyncio.run(run())


def test_a_decision_with_many_starts_is_noted_in_parts() -> None:
    made = dispatcher(*(server(f"n{i}") for i in range(400)))
    for i in range(1_300):
        made.handle(Submitted(1.0, job(f"j{i}")))
    decided = made.decide(2.0)
    assert decided is not None
    parts = list(in_parts(replace(decided, seconds=0.5, refused="late")))
    assert [len(part.starts) for part in parts] == [500, 500, 300]
    assert [(part.seconds, part.refused) for part in parts] == [(0.5, "late"), (0.0, None), (0.0, None)]
    whole = Dispatcher().load(made.dump())
    for part in parts:
        made.handle(replace(part, refused=None))
    whole.handle(decided)
    assert made.dump() == whole.dump()
    assert [*in_parts(replace(decided, starts=()))] == [replace(decided, starts=())]


def test_many_servers_are_written_beside_the_loop_as_they_were_then() -> None:
    made = dispatcher(*(server(f"n{i}", zone="a") for i in range(60)))
    begin(made, 1.0, job("j", cpu=3))
    records, state = tuple(made.state.servers.values()), made.state.with_own_tables()
    expected = [server_view(record, made.state) for record in records]
    made.handle(ServerJoined(2.0, server("new", gpu=3)))
    begin(made, 3.0, *(job(f"k{i}", cpu=4) for i in range(60)))
    assert json.loads(servers_json(records, state)) == [view.model_dump(mode="json") for view in expected]
    assert sum(view.free["cpu"] == "1" for view in expected) == 1


def test_an_engine_that_answers_at_once_does_not_keep_others_waiting() -> None:
    class Quick:
        taken = 0

        async def execute(self, command: Command, job: Job | None, /) -> None:
            self.taken += 1

    async def run() -> None:
        engine, seen = Quick(), set[int]()
        made = Commander(engine, lambda command: (True, None))  # type: ignore[arg-type]
        made.want(Start(f"j{i}", 1, ()) for i in range(PARALLEL * 20))
        made.go_on()
        while engine.taken < PARALLEL * 20:
            seen.add(engine.taken)
            await asyncio.sleep(0)
        assert len(seen) >= 20
        await made.close()

    asyncio.run(run())
