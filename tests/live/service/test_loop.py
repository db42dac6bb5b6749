"""The event loop: how long it stalls is measured from inside, and slow readers do not hold up each other."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

from berth.live.core.state import State
from berth.live.service.metrics import LOOK_SECONDS, Metrics
from tests.harness.waiting import eventually_async
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
