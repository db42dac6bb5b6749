"""Forecasts that the service makes by itself, to see how they hold."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from berth.dispatch.events import Foretold
from berth.dispatch.jobs import Job, Role
from berth.service import foretelling
from berth.service.foretelling import foretell, foretell_on
from berth.service.scheduler import Scheduler
from berth.service.settings import Settings


def test_who_waits_is_foretold_and_what_came_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foretelling, "SHARE", 1.0)
    given = Settings(str(tmp_path / "berth.db"), faster=200.0, tick=0.05, soon=0.0, budget=60.0)

    def jobs(count: int, prefix: str) -> list[Job]:
        roles = (Role("w", 2, {"cpu": 1000}),)
        return [Job(f"{prefix}{i}", "x", roles, work=20.0) for i in range(count)]

    async def main() -> None:
        scheduler = await Scheduler.open(given)
        try:
            rng = random.Random(0)
            assert await foretell(scheduler, rng) is None  # nobody waits
            await scheduler.submit(jobs(600, "a"))
            found = await foretell(scheduler, rng)
            assert found is not None
            assert 0 <= found.low <= found.middle <= found.high
            async for one in scheduler.subscribe(0):
                if isinstance(one.event, Foretold):  # on paper
                    assert one.event.job == found.job
                    break
            task = asyncio.create_task(foretell_on(scheduler, every=0.05))
            async with asyncio.timeout(120):
                while scheduler.dispatcher.state.foresight.checked < 3:
                    await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        finally:
            await scheduler.close()
        before = scheduler.dispatcher.state.foresight.dump()
        scheduler = await Scheduler.open(given)
        try:
            assert scheduler.dispatcher.state.foresight.checked >= len(before["off"])
        finally:
            await scheduler.close()

    asyncio.run(main())
