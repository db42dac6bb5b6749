"""Commands of one attempt run one after another, and an attempt whose tending failed is tended again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from berth.live.core.events import Start
from berth.live.core.jobs import Job, Role
from berth.live.engines.kubernetes import attempts as module
from berth.live.engines.kubernetes.attempts import Attempts
from berth.live.engines.kubernetes.settings import KubernetesSettings
from berth.live.engines.kubernetes.state import State
from berth.live.engines.locks import Locks
from berth.live.engines.slurm import SlurmEngine, SlurmSettings
from tests.harness.waiting import eventually_async
from tests.live.engines.slurm_in_memory import SlurmInMemory

JOB = Job("a", "t", (Role("w", 1, {"cpu": 1000}),))


def test_a_lock_is_dropped_only_when_nothing_waits_for_it() -> None:
    async def run() -> None:
        locks, inside, order = Locks[str](), 0, list[str]()

        async def work(name: str, after: asyncio.Task[None] | None = None) -> None:
            nonlocal inside
            if after is not None:
                await after
            async with locks.of("k"):
                inside += 1
                assert inside == 1
                for _ in range(5):
                    await asyncio.sleep(0)
                order.append(name)
                inside -= 1

        first = asyncio.create_task(work("first"))
        await asyncio.gather(first, work("second"), work("third", first))
        assert (order, len(locks)) == (["first", "second", "third"], 0)

    asyncio.run(run())


def test_commands_of_an_attempt_never_run_at_the_same_time(tmp_path: Path) -> None:
    async def run() -> None:
        class Watched(SlurmEngine):
            inside = calls = 0

            async def _start(self, start: Start, job: Job) -> None:
                self.inside += 1
                assert self.inside == 1
                for _ in range(5):
                    await asyncio.sleep(0)
                self.inside, self.calls = self.inside - 1, self.calls + 1

        engine, start = Watched(SlurmSettings(spool=tmp_path), SlurmInMemory()), Start("a", 1, ())

        async def after(first: asyncio.Task[None]) -> None:
            await first
            await engine.execute(start, JOB)

        first = asyncio.create_task(engine.execute(start, JOB))
        await asyncio.gather(first, engine.execute(start, JOB), after(first))
        assert engine.calls == 3
        await engine.close()

    asyncio.run(run())


def test_an_attempt_is_tended_again_after_any_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY", 0.001)

    async def run() -> None:
        class Broken(Attempts):
            calls = 0

            async def _tend(self, key: Any) -> None:
                self.calls += 1
                if self.calls < 3:
                    raise KeyError("metadata")

        settings = KubernetesSettings()
        attempts = Broken(None, settings, State(settings, "n", "s"), lambda event: None)  # type: ignore[arg-type]
        attempts.tend_soon(("a", 1))
        await eventually_async(lambda: attempts.calls, lambda calls: calls == 3, "it is tended three times")
        await attempts.pause()

    asyncio.run(run())
    assert [record.exc_info is not None for record in caplog.records] == [True, True]
