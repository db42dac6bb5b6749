"""Forecasts that the service makes by itself, to see how they hold."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from berth.live.core.events import Foretold
from berth.live.core.jobs import Job, Role
from berth.live.service import forecasting
from berth.live.service.forecasting import forecast_on, forecast_one
from berth.live.service.scheduler import Scheduler
from berth.live.service.settings import ServiceSettings
from tests.harness.waiting import DEADLINE, eventually_async


def test_who_waits_is_foretold_and_what_came_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasting, "SHARE", 1.0)
    given = ServiceSettings(store=str(tmp_path / "berth.db"), tick=0.05, soon=0.0, budget=60.0)
    roles = (Role("w", 2, {"cpu": 1000}),)  # of which 96 fit

    async def main() -> None:
        scheduler = await Scheduler.open(given)
        known = scheduler.dispatcher.state.foresight
        try:
            rng = random.Random(0)
            assert await forecast_one(scheduler.think, scheduler.note, rng) is None  # nobody waits
            await scheduler.submit([Job(f"j{i}", "x", roles, work=1e6) for i in range(150)])
            async with asyncio.timeout(DEADLINE):
                while (
                    found := await forecast_one(scheduler.think, scheduler.note, rng)
                ) is None or found.job not in known.pending:
                    pass
                assert 0 <= found.low <= found.middle <= found.high
                async for one in scheduler.subscribe(0):
                    if isinstance(one.event, Foretold):  # on paper
                        break
                task = asyncio.create_task(forecast_on(scheduler.think, scheduler.note, 0, every=0.05))
                await eventually_async(lambda: len(known.pending), lambda pending: pending >= 3)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                foretold = len(known.pending)
                for record in [r for r in scheduler.dispatcher.state.jobs.values() if r.phase != "waiting"]:
                    await scheduler.cancel(record.job.id)
                await eventually_async(lambda: known.pending, lambda pending: not pending)
                assert known.checked >= foretold
        finally:
            await scheduler.close()
        before = known.dump()
        scheduler = await Scheduler.open(given)
        try:
            assert scheduler.dispatcher.state.foresight.dump() == before
        finally:
            await scheduler.close()

    asyncio.run(main())
