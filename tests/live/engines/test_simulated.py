"""Simulated engines: in this process, resumed from their file, and in another process behind a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from berth.errors import InvalidInput
from berth.live.core.events import Cancel, Event, Failed, Finished, Start, Started
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines import Engine, EngineError, Recalling
from berth.live.engines.clock import Clock
from berth.live.engines.registry import make_engine
from berth.live.engines.remote import RemoteEngine
from berth.live.engines.simulated.cluster import REMEMBERED
from berth.live.engines.simulated.engine import SimulatedEngine, example_cluster, read_cluster
from berth.live.engines.simulated.server import SimulatedServer
from tests.harness.waiting import DEADLINE, eventually_async

JOB = Job("j", "x", (Role("w", 1, {"cpu": 1000}),), work=100.0)
START = Start("j", 1, (Place("cpu-0", "w", 1),))


async def heard(engine: Engine, count: int, found: list[Event] | None = None) -> list[Event]:
    """The next events, which are added to a list as they come."""
    found = [] if found is None else found
    async for event in engine.events():
        found.append(event)
        if len(found) == count:
            break
    return found


@asynccontextmanager
async def engines(kind: str, folder: Path) -> AsyncIterator[Engine]:
    """An engine whose clock runs a thousand times as fast."""
    inside = SimulatedEngine(example_cluster(), Clock(1000.0))
    if kind == "here":
        yield inside
        return
    socket = folder / "s"
    serving = asyncio.create_task(SimulatedServer(inside).serve(socket))
    while not socket.exists():
        await asyncio.sleep(0.01)
    remote = RemoteEngine(socket)
    try:
        yield remote
    finally:
        await remote.close()
        serving.cancel()


@pytest.mark.parametrize("kind", ["here", "there"])
def test_attempts_begin_once_and_end(kind: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with engines(kind, tmp_path) as engine:
            assert len((await engine.snapshot()).servers) == 8
            for _ in range(3):
                await engine.execute(START, JOB)
            await engine.execute(Cancel("k", 4), None)
            first, second, third = sorted(await asyncio.wait_for(heard(engine, 3), DEADLINE), key=lambda e: e.kind)
            assert isinstance(first, Failed)
            assert (first.job, first.attempt, first.fault) == ("k", 4, "cancelled")
            assert isinstance(second, Finished)
            assert isinstance(third, Started)
            assert second.job == third.job == "j"
            await engine.execute(START, JOB)
            await engine.execute(Start("k", 4, START.places), JOB)
            known = {(a.job, a.attempt): a for a in (await engine.snapshot()).attempts}
            assert known["j", 1].end == second
            assert known["j", 1].places == START.places
            assert known["k", 4].end == first
            assert isinstance(engine, Recalling)
            assert await engine.recalled() == {"j", "k"}

    asyncio.run(run())


def test_engine_that_is_gone(tmp_path: Path) -> None:
    async def run() -> None:
        async with engines("there", tmp_path) as engine:
            await engine.snapshot()
            found: list[Event] = []
            listening = asyncio.create_task(heard(engine, 3, found))
            await engine.execute(Cancel("k", 4), None)
            await eventually_async(lambda: found, what="it listens")
        with pytest.raises(EngineError, match="is gone"):
            await asyncio.wait_for(listening, DEADLINE)
        with pytest.raises(EngineError, match="not connected"):
            await engine.execute(START, JOB)
        with pytest.raises(EngineError, match="no engine at"):
            await RemoteEngine(tmp_path / "none").snapshot()

    asyncio.run(run())


def test_resumed_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "state"

    async def run() -> None:
        first = SimulatedEngine(example_cluster(), Clock(start=1000.0), path)
        await first.execute(START, JOB)
        await first.execute(Start("slow", 1, START.places), JOB.replace(id="slow", work=1e6))
        await first.execute(Cancel("c", 2), None)
        known = (await first.snapshot()).attempts
        await first.close()
        with path.open("a") as file:
            file.write('{"time": 1001.0, "start": {"jo')
        second = SimulatedEngine(example_cluster(), Clock(start=1000.0), path)
        assert (await second.snapshot()).attempts == known
        await second.close()
        later = SimulatedEngine(example_cluster(), Clock(start=5000.0), path)
        ends = {a.job: a.end for a in (await later.snapshot()).attempts}
        assert isinstance(ends["j"], Finished)
        assert ends["slow"] is None
        assert isinstance(ends["c"], Failed)
        await later.close()

    asyncio.run(run())
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "nonsense", *lines[1:]]))
    with pytest.raises(InvalidInput, match="state:2: got nonsense"):
        SimulatedEngine(example_cluster(), Clock(start=5000.0), path)


def test_old_attempts_are_forgotten() -> None:
    cluster = example_cluster()
    for i in range(REMEMBERED + 100):
        cluster.execute(Start(f"j{i}", 1, START.places), JOB, 1e6 * i)
    cluster.due(1e12)
    known = cluster.snapshot().attempts
    assert len(known) == len(cluster.started) == REMEMBERED
    assert known[0].job == "j100"


def test_cluster_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("servers: [{name: a, count: 3, capacity: {cpu: 4}, labels: {rack: r1}}]\ntruth: {noise: 0.5}")
    cluster = read_cluster(path)
    assert list(cluster.servers) == ["a-0", "a-1", "a-2"]
    assert cluster.servers["a-0"].capacity == {"cpu": 4000}
    assert cluster.truth.noise == 0.5
    engine = make_engine(f"simulated:{path}", Clock())
    assert isinstance(engine, SimulatedEngine)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("servers: 3", "yaml:1: servers: got 3, expected a list"),
        ("[", "expected YAML"),
        ("servers:\n- {name: a, capacity: {cpu: 1}, sped: 2}", r"yaml:2: servers\[0\].sped: got an unknown .*'speed'"),
        ("truth: {}\ntruth: {}", "yaml:2: truth: got the same key again"),
        ("servers: [{name: a, capacity: {cpu: -1}}]", r"servers\[0\].capacity.cpu: got -1"),
        ("servers: [{name: a b, capacity: {cpu: 1}}]", r"servers\[0\].name: got 'a b'"),
        ("servers: [{name: a, capacity: {cpu: 1}, labels: {a: 1}}]", r"servers\[0\].labels"),
        ("servers: [{name: a, capacity: {}}, {name: a, capacity: {}}]", "each server once"),
        ("servers: [{name: a, capacity: {}, count: 0}]", "1 to 100000 servers"),
        ("servers: [{name: a, capacity: {}, speed: fast}]", r"servers\[0\].speed: got 'fast'"),
        ("servers: [{name: a, capacity: {}}]\ntruth: {noise: x}", "truth.noise: got 'x'"),
    ],
)
def test_bad_cluster_files(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=words):
        read_cluster(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        read_cluster(tmp_path / "none.yaml")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_bytes(b"servers: \xff\xfe")
    with pytest.raises(InvalidInput, match="got something else at byte 9, expected text in UTF-8"):
        read_cluster(path)
