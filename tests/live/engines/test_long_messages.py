"""Snapshots of any length arrive: a message that is too long for a line comes in parts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from berth.live.core.events import Start
from berth.live.core.jobs import Job, Place, Role, Server
from berth.live.engines import remote, wire
from berth.live.engines.clock import Clock
from berth.live.engines.ray.keeper import Keeper
from berth.live.engines.remote import RemoteEngine
from berth.live.engines.simulated import server as serving
from berth.live.engines.simulated.cluster import SimulatedCluster
from berth.live.engines.simulated.engine import SimulatedEngine
from berth.live.engines.simulated.server import SimulatedServer
from tests.harness.waiting import eventually_async

SERVERS = 400


def test_a_snapshot_longer_than_a_line_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "LINE", 2**14)
    monkeypatch.setattr(serving, "LINE", 2**14)
    monkeypatch.setattr(wire, "PART", 2**12, raising=False)
    socket = tmp_path / "socket"

    async def run() -> None:
        names = [f'näme-"{i}"' if i % 7 == 0 else f"n{i}" for i in range(SERVERS)]
        cluster = SimulatedCluster([Server(f"n{i}", {"cpu": 4000}, labels={"l": names[i]}) for i in range(SERVERS)])
        engine = SimulatedEngine(cluster, Clock())
        served = asyncio.create_task(SimulatedServer(engine).serve(socket))
        await eventually_async(socket.exists, bool, "the socket")
        there = RemoteEngine(socket)
        try:
            found = await there.snapshot()
            assert len(json.dumps(wire.write_snapshot(found))) > 2 * 2**14
            assert found == await engine.snapshot()
            place = tuple(Place(f"n{i}", "w", 1) for i in range(10))
            await there.execute(Start("j", 1, place), Job("j", "t", (Role("w", 10, {"cpu": 1000}),)))
            events = there.events()
            assert (await anext(events)).kind == "started"
            await events.aclose()  # type: ignore[attr-defined]
        finally:
            await there.close()
            served.cancel()
            await asyncio.gather(served, return_exceptions=True)

    asyncio.run(run())


@pytest.mark.parametrize("length", [0, 10, 11, 12, 13, 100, 1000])
def test_messages_come_back(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(wire, "PART", 13)
    message, messages = {"t": '"\\é' * length}, wire.Messages()
    lines = wire.write_message(message).splitlines()
    read = [messages.read(line.encode()) for line in lines]
    assert read[-1] == message
    assert read[:-1] == [None] * (len(lines) - 1)
    assert messages.read(b'{"id": 1}') == {"id": 1}


def test_the_keeper_of_gangs_tells_no_places_of_attempts_that_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 ended gangs of a thousand tasks are half a gigabyte of places that no one reads."""
    stored: dict[bytes, bytes] = {}

    def store(self: Keeper, what: str, name: bytes, value: bytes = b"", over: bool = True) -> Any:
        if what == "_internal_kv_put":
            return (name in stored, stored.update({name: value}))[0]
        return stored.get(name) if what == "_internal_kv_get" else []

    monkeypatch.setattr(Keeper, "_store", store)

    async def run() -> None:
        keeper = Keeper("", 5.0)
        places = [{"server": f"n{i}", "role": "w", "count": 1} for i in range(1000)]
        for name in ("runs", "over"):
            keeper._write((name, 1), places, None, new=True)
        keeper._end(("over", 1), "why", "job")
        told = {one["job"]: one for one in keeper._snapshot()["attempts"]}
        assert told["runs"]["places"] == places
        assert told["over"]["places"] == []
        assert told["over"]["end"]["reason"] == "why"
        assert len(stored[b"attempt/over/1"]) < 500

    asyncio.run(run())
