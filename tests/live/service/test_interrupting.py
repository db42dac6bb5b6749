"""Policies that interrupt jobs in the service: refused where the engine cannot, and played to the end where it can."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from berth.errors import BerthError
from berth.live.core.events import Failed, Interrupt, Start
from berth.live.core.jobs import Place
from berth.live.engines import EngineKind, registry
from berth.live.engines.clock import Clock
from berth.live.engines.simulated.engine import SimulatedEngine, example_cluster
from berth.live.service.tokens import ANYBODY, Visibility
from berth.live.service.views import decision_view, job_view
from tests.harness.waiting import eventually_async
from tests.live.service.test_scheduler import job, opened, settings

RESTLESS = "tests.live.core.test_interruption:Restless:chance=1,slice=4"


class Simple(SimulatedEngine):
    """A simulated engine that cannot interrupt."""

    interrupts = False


class Still(Clock):
    """A clock that the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


SIMPLE = EngineKind(lambda rest: rest, lambda given, clock, state, owner: Simple(example_cluster(), clock, state))


def test_jobs_are_interrupted_and_finish(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(settings(tmp_path / "berth.db", policy=RESTLESS)) as scheduler:
            await scheduler.submit([job(f"j{i}", 100.0) for i in range(6)])

            async def finished() -> bool:
                return len((await scheduler.list_jobs(phases=["finished"])).records) == 6

            await eventually_async(finished)
            records = (await scheduler.list_jobs(phases=["finished"])).records
        assert all(record.failures == record.unlucky == 0 for record in records)
        assert sum(record.interruptions for record in records) > 6

    asyncio.run(scenario())


def test_a_slice_ends_when_the_policy_says_so(tmp_path: Path) -> None:
    """Not at the next tick, which is long after the job."""

    async def scenario() -> None:
        async with opened(settings(tmp_path / "berth.db", policy=RESTLESS, tick=3600.0)) as scheduler:
            await scheduler.submit([job("j", 100.0)])

            async def finished() -> bool:
                return len((await scheduler.list_jobs(phases=["finished"])).records) == 1

            await eventually_async(finished)
            (record,) = (await scheduler.list_jobs(phases=["finished"])).records
            assert record.interruptions > 3
            assert job_view(record, Visibility(ANYBODY)).interruptions == record.interruptions
            made = [decision_view(*one) for one in await scheduler.decisions(limit=1000)]
            assert sum(len(decision.interrupts) for decision in made) == record.interruptions

    asyncio.run(scenario())


def test_an_engine_that_cannot_refuses_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setitem(registry.BUILTIN, "simple", f"{__name__}:SIMPLE")
        given = settings(tmp_path / "berth.db", engine="simple")
        async with opened(given) as scheduler:
            with pytest.raises(BerthError, match="engine simple cannot interrupt jobs yet, and the policy tests"):
                await scheduler.change_policy(RESTLESS)
            assert scheduler.dispatcher.state.policy != RESTLESS
        async with opened(settings(tmp_path / "other.db", policy=RESTLESS)):
            pass
        with pytest.raises(BerthError, match="engine simple cannot interrupt jobs yet"):
            async with opened(settings(tmp_path / "other.db", engine="simple")):
                pass

    asyncio.run(scenario())


def test_a_shadow_policy_cannot_interrupt(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(settings(tmp_path / "berth.db")) as scheduler:
            with pytest.raises(BerthError, match="a shadow policy, which decides nothing, cannot"):
                await scheduler.change_shadow(RESTLESS)

    asyncio.run(scenario())


def test_a_simulated_cluster_keeps_what_interrupted_jobs_did(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = Still()
        engine = SimulatedEngine(example_cluster(), clock, tmp_path / "state")
        one = job("j", 5000.0)
        places = (Place("cpu-0", "w", 2),)
        await engine.execute(Start("j", 1, places), one)
        clock.now = 1100.0
        await engine.execute(Interrupt("j", 1), one)
        (event,) = [event for event in engine.cluster.due(clock()) if isinstance(event, Failed)]
        await engine.close()
        again = SimulatedEngine(example_cluster(), clock, tmp_path / "state")
        assert again.cluster._done == engine.cluster._done == {"j": event.done}
        await again.close()

    asyncio.run(scenario())
