"""With a retention, old jobs are deleted from the store, but none that the engine could still name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from berth.errors import BerthError
from berth.live.core import shadow
from berth.live.core.events import Cancel, ServerJoined
from berth.live.core.jobs import Job, Place, Role, Server
from berth.live.core.records import JobRecord, Outcome
from berth.live.core.shadow import Shadow
from berth.live.engines.clock import Clock
from berth.live.engines.simulated import cluster as simulated
from berth.live.engines.simulated import engine as engine_module
from berth.live.engines.simulated.engine import SimulatedEngine, example_cluster
from berth.live.service import scheduler as scheduler_module
from berth.live.service import store as store_module
from berth.live.service.scheduler import Scheduler
from berth.live.service.settings import ServiceSettings
from berth.live.service.store import KEY_SECONDS, Batch, Store
from tests.harness.waiting import eventually_async

NOW = 100 * KEY_SECONDS
LONG_AGO = NOW - 2 * KEY_SECONDS


def job(name: str, **changes: Any) -> Job:
    """A small job."""
    return Job(name, "x", (Role("w", 1, {"cpu": 1000}),), **changes)


def filled(where: str, ends: dict[str, float | None]) -> Store:
    """A store whose jobs ended at these times; those with None wait."""
    store, batch = Store(where), Batch(1, [ServerJoined(1.0, Server("n", {}))])
    for number, (name, ended) in enumerate(ends.items()):
        phase: Any = "waiting" if ended is None else "finished"
        batch.records[name] = JobRecord(job(name), number, 1.0, phase, ended=ended)
    store.write(batch)
    return store


def left(store: Store, recalled: Collection[str] | None, retention: float | None = KEY_SECONDS) -> set[str]:
    """The jobs of a store after a snapshot."""
    store.write_snapshot(1, NOW, b"", retention, recalled)
    return {record.job.id for record in store.list_jobs({})}


def test_jobs_that_ended_before_the_retention_are_deleted(where: str) -> None:
    store = filled(where, {"old": LONG_AGO, "young": NOW - 5.0, "waits": None, "known": LONG_AGO})
    assert left(store, ["known"]) == {"young", "waits", "known"}
    assert left(store, []) == {"young", "waits"}
    assert store.taken(["old", "young"]) == {"young"}
    store.close()


def test_jobs_stay_without_a_retention_or_an_answer_of_the_engine(where: str) -> None:
    store = filled(where, {"old": LONG_AGO})
    assert left(store, [], retention=None) == {"old"}
    assert left(store, None) == {"old"}
    store.close()


def test_jobs_stay_while_an_idempotency_key_may_name_them(where: str) -> None:
    store = filled(where, {"old": NOW - KEY_SECONDS - 1.0, "young": NOW - KEY_SECONDS + 1.0})
    assert left(store, [], retention=1.0) == {"young"}
    store.close()


def test_few_are_deleted_at_a_time_and_all_in_the_end(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MOST_DROPPED", 3)
    monkeypatch.setattr(store_module, "MANY", 2)
    store = filled(where, {f"j{i}": LONG_AGO + i for i in range(8)})
    assert left(store, ["j0", "j1"]) == {"j0", "j1", "j5", "j6", "j7"}
    assert left(store, ["j0", "j1"]) == {"j0", "j1"}
    store.close()


def test_ends_of_jobs_of_an_older_store_are_known(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.live.service.schema.PAGE", 2)
    store = filled(where, {"old": LONG_AGO, "young": NOW, "waits": None, "odd": LONG_AGO, "other": LONG_AGO})

    def age(connection: sa.Connection) -> None:
        connection.execute(sa.text("DROP INDEX jobs_ended"))
        connection.execute(sa.text("ALTER TABLE jobs DROP COLUMN ended"))
        connection.execute(sa.text("UPDATE meta SET value = '2' WHERE name = 'schema'"))

    store._database.write(age)
    store.close()
    newer = Store(where)
    assert left(newer, []) == {"young", "waits"}
    newer.close()


class Forgetful(SimulatedEngine):
    """A simulated engine that says what a test wants it to say."""

    known: Collection[str] | None = ()

    async def recalled(self) -> Collection[str]:
        if self.known is None:
            raise BerthError("no answer")
        return self.known


def test_the_service_asks_its_engine_and_then_takes_the_name_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Forgetful(example_cluster(), Clock(1000.0))
    monkeypatch.setattr(scheduler_module, "make_engine", lambda *_: engine)
    monkeypatch.setattr(store_module, "KEY_SECONDS", 0.0)
    given = ServiceSettings(
        store=str(tmp_path / "db"), faster=1000.0, tick=0.05, soon=0.0, retention=0.0, snapshot_every=1
    )

    async def run() -> None:
        scheduler = await Scheduler.open(given)

        async def there(*names: str) -> set[str]:
            return {name for name in names if await scheduler.get(name) is not None}

        async def over() -> bool:
            records = [scheduler.store.record(name) for name in ("a", "b")]
            return all(record is not None and record.phase == "finished" for record in records)

        async def push() -> set[str]:
            """What is left of the first two after another snapshot."""
            await scheduler.drain("cpu-0")
            await scheduler.resume("cpu-0")
            return await there("a", "b")

        try:
            engine.known = None
            await scheduler.submit([job("a", work=1.0), job("b", work=1.0)])
            await eventually_async(over, what="both end")
            assert await push() == {"a", "b"}
            engine.known = {"b"}
            await eventually_async(push, lambda found: found == {"b"}, "the first is deleted")
            await scheduler.submit([job("a", work=1.0)])
        finally:
            await scheduler.close()

    asyncio.run(run())


def test_the_file_of_a_simulated_engine_is_compacted_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulated, "REMEMBERED", 5)
    monkeypatch.setattr(engine_module, "FEW", 10)
    path, parse, parsed = tmp_path / "state", json.loads, list[str]()

    def noted(line: str) -> Any:
        parsed.append(line)
        return parse(line)

    monkeypatch.setattr(json, "loads", noted)

    async def run() -> None:
        engine = SimulatedEngine(example_cluster(), Clock(start=1000.0), path)
        longest = 0
        for i in range(100):
            await engine.execute(Cancel(f"j{i}", 1), None)
            longest = max(longest, len(path.read_text().splitlines()))
        assert longest <= 2 * 5 + 10 + 1
        assert not parsed  # that would take long on the event loop
        assert await engine.recalled() == {f"j{i}" for i in range(95, 100)}
        known = (await engine.snapshot()).attempts
        await engine.close()
        again = SimulatedEngine(example_cluster(), Clock(start=1000.0), path)
        assert (await again.snapshot()).attempts == known
        await again.close()

    asyncio.run(run())
    assert [json.loads(line)["cancel"]["job"] for line in path.read_text().splitlines()] == [
        f"j{i}" for i in range(95, 100)
    ]


def test_a_shadow_forgets_the_types_that_ran_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow, "MOST_TYPES", 3)
    watching = Shadow("best-fit")
    watching._means = {}
    for type_ in ("a", "b", "c", "a", "d"):
        watching.learn(Outcome(0, job("j").replace(type=type_), (Place("n", "w", 1),), 2.0))
    assert watching._means == {"c": (2.0, 1), "a": (2.0, 2), "d": (2.0, 1)}
