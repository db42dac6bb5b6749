"""Jobs that wait at the engine and that no queue takes: they are told why, and offered again when queues change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from berth.live.core.events import Cancelled, Event, Submitted
from berth.live.core.jobs import Job, Role
from berth.live.core.queues import Queue, Queues
from berth.live.engines import Snapshot
from berth.live.engines.clock import Clock
from berth.live.engines.simulated.engine import SimulatedEngine, example_cluster
from berth.live.service import scheduler as module
from berth.live.service.scheduler import Scheduler
from berth.live.service.settings import ServiceSettings
from tests.harness.waiting import eventually_async

OPEN = Queues({"default": Queue()})
CLOSED = Queues({"default": Queue(accepts=False)})


class Shared(SimulatedEngine):
    """An engine to which others submit jobs too."""

    def __init__(self) -> None:
        super().__init__(example_cluster(), Clock(200.0))
        self.news: asyncio.Queue[Event] = asyncio.Queue()
        self.notes: list[tuple[str, str]] = []
        self.snapshots = 0

    async def snapshot(self) -> Snapshot:
        self.snapshots += 1
        return await super().snapshot()

    async def events(self) -> AsyncIterator[Event]:
        inner = super().events()
        asked = [asyncio.ensure_future(anext(inner)), asyncio.ensure_future(self.news.get())]
        while True:
            await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            for place, one in enumerate(asked):
                if one.done():
                    yield one.result()
                    asked[place] = asyncio.ensure_future(self.news.get() if place else anext(inner))

    async def note(self, job: str, text: str, /) -> None:
        self.notes.append((job, text))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Shared:
    made = Shared()
    monkeypatch.setattr(module, "make_engine", lambda *_: made)
    return made


def theirs(name: str) -> Job:
    return Job(name, "x", (Role("w", 1, {"cpu": 1000}),), work=10.0, origin="there")


@pytest.mark.parametrize("queues", [CLOSED, Queues({"other": Queue()})], ids=["closed", "missing"])
def test_a_job_is_offered_again_when_its_queue_opens_or_is_made(tmp_path: Path, engine: Shared, queues: Queues) -> None:
    async def run() -> None:
        given = ServiceSettings(store=str(tmp_path / "db"), faster=200.0, tick=0.05, soon=0.0, budget=60.0)
        scheduler = await Scheduler.open(given)
        try:
            await scheduler.change_queues(queues)
            for name in ("early", "gone"):
                engine.news.put_nowait(Submitted(0.0, theirs(name)))
            said = await eventually_async(lambda: list(engine.notes), lambda said: len(said) >= 2, "both are told why")
            assert {name for name, _ in said} == {"early", "gone"}
            assert all("a queue that takes jobs" in text for _, text in said)
            engine.news.put_nowait(Cancelled(0.0, "gone", "there"))
            engine.news.put_nowait(Submitted(0.0, theirs("last")))
            await eventually_async(lambda: "last" in dict(engine.notes), what="all before it was heard")
            assert not (await scheduler.list_jobs()).records
            await scheduler.change_queues(OPEN)

            async def phases() -> dict[str, str]:
                return {record.job.id: record.phase for record in (await scheduler.list_jobs()).records}

            def taken(found: dict[str, str]) -> bool:
                return found == {"early": "finished", "last": "finished"}

            await eventually_async(phases, taken, "those that still wait are taken")
            assert engine.snapshots == 1  # the engine was not connected to again
            assert len(engine.notes) == 3
        finally:
            await scheduler.close()

    asyncio.run(run())
