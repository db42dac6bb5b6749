"""Ends of attempts are remembered until the journal has them, however old and however many they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from berth.live.core.events import Command, Event, Finished, Start
from berth.live.core.jobs import Job, Place, Role, Server
from berth.live.engines import Attempt, EngineError, Snapshot
from berth.live.engines.kubernetes import engine as kubernetes
from berth.live.engines.kubernetes.attempts import Attempts
from berth.live.engines.kubernetes.record import Record
from berth.live.engines.kubernetes.settings import KubernetesSettings
from berth.live.engines.kubernetes.state import State
from berth.live.engines.slurm.spool import Spool
from berth.live.service import scheduler as module
from berth.live.service.scheduler import Scheduler
from berth.live.service.settings import ServiceSettings
from tests.harness.waiting import eventually_async


def finished(job: str) -> Finished:
    return Finished(5.0, job, 1, 1.0)


def test_the_spool_forgets_only_what_the_journal_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.live.engines.slurm.spool.REMEMBERED", 2)
    spool = Spool(tmp_path)
    for i in range(20):
        spool.ended(spool.asked((f"j{i}", 1), (Place("n1", "w", 1),)), finished(f"j{i}"))
    assert len(spool.records) == 20
    spool.close()
    again = Spool(tmp_path)
    assert len(again.records) == 20
    again.settled([(f"j{i}", 1) for i in range(10)] + [("unknown", 1)])
    again.ended(again.asked(("last", 1), ()), finished("last"))
    assert set(again.records) == {*((f"j{i}", 1) for i in range(10, 20)), ("last", 1)}
    again.close()


def test_records_in_kubernetes_are_removed_only_when_the_journal_has_their_ends() -> None:
    removed: list[str] = []

    class Removing(Attempts):
        async def ask(self, method: str, what: str, body: object = None) -> Any:
            removed.append(what)

    settings = KubernetesSettings()
    state = State(settings, "n", "s")
    attempts = Removing(None, settings, state, lambda event: None)  # type: ignore[arg-type]
    for name, settled in (("a", False), ("b", True)):
        state.records[name, 1] = Record((name, 1), f"record-{name}", (), end=finished(name), settled=settled)
    asyncio.run(attempts.sweep())
    assert removed == ["configmaps/record-b"]


def test_kubernetes_recalls_attempts_and_groups_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "connect", lambda *_: SimpleNamespace(namespace="n"))
    engine: Any = kubernetes.KubernetesEngine(KubernetesSettings())
    engine._state.records["a", 2] = Record(("a", 2), "record-a", (), end=finished("a"))
    engine._companion.waiting["b"] = None
    with pytest.raises(EngineError, match="not connected"):
        asyncio.run(engine.recalled())
    engine._watching = SimpleNamespace()
    assert asyncio.run(engine.recalled()) == {"a", "b"}


class Engine:
    """An engine on which every job finishes at once, and that knows an attempt of an earlier time."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[Event] = asyncio.Queue()
        self.ends: list[tuple[str, int]] = []
        self.look: Any = None
        self.seen: list[object] = []

    async def snapshot(self) -> Snapshot:
        return Snapshot((Server("n1", {"cpu": 1000}),), (Attempt("old", 3, (), finished("old")), Attempt("new", 1)))

    async def events(self) -> AsyncIterator[Event]:
        while True:
            yield await self.told.get()

    async def execute(self, command: Command, job: Job | None, /) -> None:
        if isinstance(command, Start):
            self.told.put_nowait(finished(command.job))

    def settled(self, ended: Iterable[tuple[str, int]], /) -> None:
        self.ends.extend(ended)
        self.seen.append(self.look())

    async def close(self) -> None:
        pass


def test_the_engine_is_told_when_an_end_is_in_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.look = lambda: None
    monkeypatch.setattr(module, "make_engine", lambda *_: engine)

    async def run() -> None:
        scheduler = await Scheduler.open(ServiceSettings(store=str(tmp_path / "db"), tick=0.05))
        try:
            assert engine.ends == [("old", 3)]
            engine.look = lambda: scheduler.store.record("a")
            await scheduler.submit([Job("a", "t", (Role("w", 1, {"cpu": 1000}),))])
            await eventually_async(lambda: engine.ends, lambda ends: ("a", 1) in ends, "the end is settled")
            assert getattr(engine.seen[-1], "phase", None) == "finished"
        finally:
            await scheduler.close()

    asyncio.run(run())
