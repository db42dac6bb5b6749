"""An engine that takes no starts for a while: health and explanations say why, and the service stays ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from berth.live.core.events import Command
from berth.live.core.jobs import Job, Server
from berth.live.engines import Paused, Snapshot
from berth.live.service import scheduler as module
from berth.live.service.serving import Address, service
from berth.live.service.settings import ServiceSettings
from tests.harness.waiting import eventually_async

WHY = "submissions pause: No space left on device"


class Full:
    """An engine with one server that takes no starts until `paused` is None."""

    paused: str | None = WHY
    started = 0

    async def snapshot(self) -> Snapshot:
        return Snapshot((Server("n1", {"cpu": 1000}),))

    async def events(self) -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    async def execute(self, command: Command, job: Job | None, /) -> None:
        if self.paused:
            raise Paused(self.paused, 0.01)
        self.started += 1

    async def close(self) -> None:
        pass


def test_health_and_explanations_say_why_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Full()
    monkeypatch.setattr(module, "make_engine", lambda *_: engine)

    async def run() -> None:
        made = ServiceSettings(store=str(tmp_path / "berth.db"), tick=0.05)
        async with service(made, Address()) as (scheduler, app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642") as client:

                async def blocks(job: str) -> list[str]:
                    why = (await client.get(f"/v1/jobs/{job}/explain")).json()["why"]
                    return list(why["blocks"])

                spec = {"resources": {"cpu": "1"}}
                answer = await client.post("/v1/jobs", json=[{**spec, "name": "a"}, {**spec, "name": "b"}])
                assert answer.status_code == 201
                jobs = scheduler.dispatcher.state.jobs
                await eventually_async(lambda: jobs["a"].phase, lambda phase: phase == "starting")
                assert WHY in await blocks("a")
                assert WHY in await blocks("b")
                ready = await client.get("/readyz")
                assert (ready.status_code, ready.json()["ready"], ready.json()["paused"]) == (200, True, WHY)
                engine.paused = None
                await eventually_async(lambda: engine.started, lambda count: count > 0)
                assert (await client.get("/readyz")).json()["paused"] is None
                assert WHY not in await blocks("b")

    asyncio.run(run())
