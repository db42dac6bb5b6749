"""A service on a machine whose clock is set, or that is suspended: limits are durations, and it is told once."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import ClockStepped, Overran, Submitted
from berth.live.core.jobs import Job, Role
from berth.live.core.records import JobRecord
from berth.live.engines import registry
from berth.live.service.scheduler import Scheduler
from berth.live.service.settings import ServiceSettings
from berth.live.service.store import Store
from tests.harness.waiting import eventually, eventually_async
from tests.live.service import wall_engine
from tests.live.service.live import serving_process

HOURS = 36000.0


class Times:
    """Clocks that run as they do, and may be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = self.real = 0.0
        monkeypatch.setattr("berth.live.engines.clock.wall", lambda: time.time() + self.wall)
        monkeypatch.setattr("berth.live.engines.clock.elapsed", lambda: time.monotonic() + self.real)

    def suspend(self, seconds: float) -> None:
        self.wall += seconds
        self.real += seconds


def agree(where: str) -> None:
    """Check that the journal, the jobs and the latest snapshot tell the same."""
    store = Store(where)
    whole, records = Dispatcher(), dict[str, JobRecord]()
    for _, event in store.events():
        records.update({record.job.id: record for record in whole.note(event).changed})
    assert {record.job.id: record for record in store.list_jobs({}, limit=10**6)} == records
    snapshot = store.snapshot()
    assert snapshot is not None
    assert snapshot[1].state == whole.dump().state
    store.close()


def small(name: str, limit: float | None = None) -> Job:
    return Job(name, "x", (Role("w", 1, {"cpu": 1000}),), work=1e9, limit=limit)


async def submit(scheduler: Scheduler, name: str, limit: float | None = None) -> None:
    """Submit a job and wait until it runs: whatever was due before has then been decided."""
    await scheduler.submit([small(name, limit)])

    async def runs() -> bool:
        record = await scheduler.get(name)
        return record is not None and record.phase == "running"

    await eventually_async(runs, bool, f"{name} runs")


def test_limits_of_running_jobs_count_neither_a_step_of_the_clock_nor_less_than_a_suspend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(registry.BUILTIN, wall_engine.NAME, wall_engine.WHERE)
    times, where = Times(monkeypatch), str(tmp_path / "db")

    async def has_failed(scheduler: Scheduler, name: str) -> None:
        async def failed() -> bool:
            return await phase(scheduler, name) == "failed"

        await eventually_async(failed, bool, f"{name} has failed")

    async def phase(scheduler: Scheduler, name: str) -> str:
        record = await scheduler.get(name)
        assert record is not None
        return record.phase

    async def run() -> None:
        given = ServiceSettings(store=where, engine="wall", tick=0.05, soon=0.0, budget=60.0)
        scheduler = await Scheduler.open(given)
        try:
            await submit(scheduler, "a", limit=3600.0)
            times.wall += HOURS
            await submit(scheduler, "b", limit=3600.0)
            assert await phase(scheduler, "a") == "running"
            times.suspend(3000.0)
            await submit(scheduler, "c")
            assert await phase(scheduler, "a") == "running"
            times.wall -= HOURS / 2
            await submit(scheduler, "d")
            assert await phase(scheduler, "a") == "running"
            times.suspend(700.0)
            for name in ("a", "b"):
                await has_failed(scheduler, name)
            assert await phase(scheduler, "c") == "running"
        finally:
            await scheduler.close()

    asyncio.run(run())
    store = Store(where)
    events = [event for _, event in store.events()]
    steps = [event.seconds for event in events if isinstance(event, ClockStepped)]
    assert steps == [pytest.approx(HOURS, abs=60.0), pytest.approx(-HOURS / 2, abs=60.0)]
    submitted = {event.job.id: event.time for event in events if isinstance(event, Submitted)}
    assert submitted["b"] - submitted["a"] == pytest.approx(HOURS, abs=200.0)
    assert submitted["d"] - submitted["c"] == pytest.approx(-HOURS / 2, abs=200.0)
    assert [event.job for event in events if isinstance(event, Overran)] == ["a", "b"]
    store.close()
    told = [r.getMessage() for r in caplog.records if r.name == "berth.live.engines.clock"]
    words = ["the system clock was set", "the machine was suspended for"]
    told = list(dict.fromkeys(told))  # the engine of this test has a clock of its own, which was suspended too
    assert all(text.startswith(word) for text, word in zip(told, 2 * words, strict=True))
    agree(where)


@pytest.mark.slow
@pytest.mark.limit(600)
@pytest.mark.skipif(shutil.which("faketime") is None, reason="needs faketime (Debian: apt-get install faketime)")
def test_a_service_whose_system_clock_is_set_ahead(tmp_path: Path) -> None:
    """The real program under libfaketime, which shows it a clock that jumps ten hours ahead, and 40 minutes back."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    offset = tmp_path / "offset"
    offset.write_text("+0\n", encoding="ascii")
    root = str(Path(__file__).parents[3])
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with serving_process(tmp_path, "--engine", "wall", module=("tests.live.service.wall_engine",), env=env) as live:

        def submit_and_run(name: str, limit: float) -> None:
            spec = {"name": name, "resources": {"cpu": 1}, "command": ["true"], "work": 1e7, "limit": limit}
            live.ask("POST", "/v1/jobs", spec)
            live.wait_for(f"/v1/jobs/{name}", lambda job: job["phase"] == "running")

        submit_and_run("long", 3600.0)
        submit_and_run("short", 60.0)
        offset.write_text("+36000\n", encoding="ascii")
        submit_and_run("later", 3600.0)
        offset.write_text("+33600\n", encoding="ascii")
        live.wait_for("/v1/jobs/short", lambda job: job["phase"] == "failed")
        jobs = {name: live.ask("GET", f"/v1/jobs/{name}") for name in ("long", "short", "later")}
        assert [jobs[name]["phase"] for name in ("long", "later")] == ["running", "running"]
        assert jobs["short"]["reason"].endswith("it reached its time limit of 60 s")
        eventually(lambda: sum("was set" in line for line in live.lines), lambda seen: seen == 2, "two words of steps")
    store = Store(str(live.store))
    steps = [event.seconds for _, event in store.events() if isinstance(event, ClockStepped)]
    store.close()
    assert steps == [pytest.approx(HOURS, abs=30.0), pytest.approx(-2400.0, abs=30.0)], json.dumps(steps)
