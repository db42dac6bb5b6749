"""The simulated cluster as an engine: it has a clock, and may keep a file of its commands.

Without the file, a restart forgets what ran before. With it, the engine replays the commands, and every attempt ends
when it would have ended.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TextIO

from pydantic import Field

from berth.errors import BerthError, InvalidInput
from berth.files.quantities import amounts
from berth.files.wording import NAME, Amounts, Mistake, Part, checked, said
from berth.files.yaml_tree import read_file
from berth.live.core.events import Command, Event
from berth.live.core.jobs import Job, Server
from berth.live.engines import Engine, EngineKind, Owner, Snapshot
from berth.live.engines.clock import Clock
from berth.live.engines.remote import RemoteEngine
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from berth.live.engines.wire import read_order, write_order

__all__ = ["ENGINE", "ServerEntry", "SimulatedEngine", "doubled", "example_cluster", "read_cluster"]

LONGEST = 3600.0
"""The longest sleep, in seconds."""
FEW = 1_000
"""The most commands in a file of which none matters any more."""


class SimulatedEngine:
    """A simulated cluster whose time passes by itself."""

    interrupts = True

    def __init__(self, cluster: SimulatedCluster, clock: Clock | None = None, state_file: Path | None = None) -> None:
        self.cluster, self.clock = cluster, clock or Clock()
        self._changed = asyncio.Event()
        self._path = state_file
        self._file: TextIO | None = None
        self._written: list[tuple[str, int]] = []
        """The job and attempt of each line of the file."""
        self._compact_at = 0
        if state_file is not None:
            self._resume(state_file)
            self._file = self._compacted(state_file)

    def _resume(self, path: Path) -> None:
        """Replay a file of commands."""
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for number, line in enumerate(lines, 1):
            try:
                time, command, job = read_order(json.loads(line))
            except (ValueError, BerthError):
                if number == len(lines):  # the line was cut off when the process was killed
                    break
                raise InvalidInput("a command", found=line[:80], file=path, line=number) from None
            self.cluster.execute(command, job, time)
            self._written.append((command.job, command.attempt))
        self.cluster.due(self.clock())

    def _compacted(self, path: Path) -> TextIO:
        """Write the file anew, with only the commands that still matter; returns it, open for more."""
        there = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        written = zip(there, self._written, strict=False)  # the last line may have been cut off
        kept = [(line, key) for line, key in written if self.cluster.remembers(*key)]
        beside = path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)
        with open(beside, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.writelines(f"{line}\n" for line, _ in kept)
        beside.replace(path)  # private to this user: it has the commands and environments of jobs
        self._written, self._compact_at = [key for _, key in kept], 2 * len(kept) + FEW
        return path.open("a", encoding="utf-8")

    async def snapshot(self) -> Snapshot:
        """The current state."""
        return self.cluster.snapshot()

    async def events(self) -> AsyncIterator[Event]:
        """Events, when they happen."""
        while True:
            self._changed.clear()
            for event in self.cluster.due(self.clock()):
                yield event
            asleep = self.clock.wait(self.cluster.next_end)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(asleep, LONGEST)):
                    await self._changed.wait()

    async def execute(self, command: Command, job: Job | None, /) -> None:
        """Execute a command."""
        time = self.clock()
        if self.cluster.execute(command, job, time) and self._file is not None:
            self._file.write(json.dumps(write_order(time, command, job)) + "\n")
            self._file.flush()
            self._written.append((command.job, command.attempt))
            self._compact()
        self.look()

    def _compact(self) -> None:
        """Write the file anew if most of its commands may have lost their use."""
        if self._path is not None and self._file is not None and len(self._written) > self._compact_at:
            before, self._file = self._file, self._compacted(self._path)
            before.close()

    async def recalled(self) -> Collection[str]:
        """The jobs of remembered attempts."""
        return self.cluster.jobs

    def look(self) -> None:
        """Check the cluster now, after a change from outside."""
        self._changed.set()

    async def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def example_cluster() -> SimulatedCluster:
    """A small example cluster: four servers without and four with accelerators, some faster than others."""
    plain = [Server(f"cpu-{i}", amounts({"cpu": 16, "memory": "64Gi"}), {"class": "cpu"}) for i in range(4)]
    with_gpu = [
        Server(f"gpu-{i}", amounts({"cpu": 32, "memory": "128Gi", "gpu": 4}), {"class": "gpu"}) for i in range(4)
    ]
    return SimulatedCluster([*plain, *with_gpu], Truth(spread=0.3, noise=0.1))


def read_cluster(path: Path) -> SimulatedCluster:
    """A cluster from a YAML file: `servers`, each with `name`, `capacity`, `labels`, `speed`, `count`; and `truth`."""
    file = checked(read_file(path, "cluster"), _ClusterFile, lambda file: doubled(file.servers))
    return SimulatedCluster(file.there(), Truth(**dict(file.truth or _TruthEntry())))


class ServerEntry(Part):
    """A server, or `count` of them, called name-0, name-1, …"""

    name: Annotated[str, Field(pattern=NAME)]
    capacity: Amounts
    labels: dict[str, str] | None = None
    speed: Annotated[float, Field(gt=0)] = 1.0
    count: Annotated[int, Field(ge=1, le=100_000), said("1 to 100000 servers")] | None = None

    def there(self) -> list[Server]:
        names = [self.name] if self.count is None else [f"{self.name}-{i}" for i in range(self.count)]
        return [Server(name, amounts(self.capacity), self.labels or {}, self.speed) for name in names]


class _TruthEntry(Part):
    seed: Annotated[int, Field(ge=0)] = 0
    spread: Annotated[float, Field(ge=0)] = 0.0
    noise: Annotated[float, Field(ge=0)] = 0.0
    faults: Annotated[float, Field(ge=0)] = 0.0
    restart: Annotated[float, Field(ge=0)] = 0.0


class _ClusterFile(Part):
    servers: Annotated[list[ServerEntry], Field(min_length=1)]
    truth: _TruthEntry | None = None

    def there(self) -> list[Server]:
        return [server for entry in self.servers for server in entry.there()]


def doubled(servers: Sequence[ServerEntry]) -> Iterator[Mistake]:
    """Servers that a file names twice."""
    known: set[str] = set()
    for i, entry in enumerate(servers):
        names = {server.name for server in entry.there()}
        if both := sorted(names & known):
            yield Mistake(("servers", i, "name"), "each server once", both[0])
        known |= names


def _settings(rest: str) -> SimulatedCluster | Path:
    """A cluster in this process, or the socket of one in another."""
    if rest.startswith("unix:"):
        return Path(rest.removeprefix("unix:"))
    return read_cluster(Path(rest)) if rest else example_cluster()


def _make(settings: SimulatedCluster | Path, clock: Clock, state_file: Path | None, _: Owner | None) -> Engine:
    if isinstance(settings, Path):
        return RemoteEngine(settings)
    return SimulatedEngine(settings, clock, state_file)


ENGINE = EngineKind(_settings, _make, reads_file=True)
