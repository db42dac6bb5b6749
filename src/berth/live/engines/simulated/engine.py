"""The simulated cluster as an engine: it has a clock, and may keep a file of what it was told to do.

Without such a file nothing is known after a restart of what ran before. With it the same commands are played again, and
everything ends when it would have ended.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import yaml

from berth.errors import BerthError, InvalidInput
from berth.files.quantities import amounts
from berth.live.core.events import Command, Event
from berth.live.core.jobs import Job, Server
from berth.live.engines import Snapshot
from berth.live.engines.clock import Clock
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from berth.live.engines.wire import read_order, write_order

__all__ = ["SimulatedEngine", "example_cluster", "read_cluster"]

LONGEST = 3600.0
"""The longest sleep, in seconds."""


class SimulatedEngine:
    """A simulated cluster whose time passes by itself."""

    def __init__(self, cluster: SimulatedCluster, clock: Clock | None = None, state_file: Path | None = None) -> None:
        self.cluster, self.clock = cluster, clock or Clock()
        self._changed = asyncio.Event()
        self._file: TextIO | None = None
        if state_file is not None:
            self._file = self._resumed(state_file)

    def _resumed(self, path: Path) -> TextIO:
        """Play a file of commands again; the file, with only those that still matter, open for more."""
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        played: list[tuple[tuple[str, int], str]] = []
        for number, line in enumerate(lines, 1):
            try:
                time, command, job = read_order(json.loads(line))
            except (ValueError, BerthError):
                if number == len(lines):  # a line that was cut off when the process was killed
                    break
                raise InvalidInput("a command", found=line[:80], file=path, line=number) from None
            self.cluster.execute(command, job, time)
            played.append(((command.job, command.attempt), line))
        self.cluster.due(self.clock())
        known = {(attempt.job, attempt.attempt) for attempt in self.cluster.snapshot().attempts}
        beside = path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)
        with open(beside, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write("".join(f"{line}\n" for key, line in played if key in known))
        beside.replace(path)  # it has commands and environments of jobs, and is for this user alone
        return path.open("a", encoding="utf-8")

    async def snapshot(self) -> Snapshot:
        """What is there."""
        return self.cluster.snapshot()

    async def events(self) -> AsyncIterator[Event]:
        """What happens, when it does."""
        while True:
            self._changed.clear()
            for event in self.cluster.due(self.clock()):
                yield event
            asleep = self.clock.wait(self.cluster.next_end)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(asleep, LONGEST)):
                    await self._changed.wait()

    async def execute(self, command: Command, job: Job | None, /) -> None:
        """Do as told."""
        time = self.clock()
        if self.cluster.execute(command, job, time) and self._file is not None:
            self._file.write(json.dumps(write_order(time, command, job)) + "\n")
            self._file.flush()
        self.look()

    def look(self) -> None:
        """Look at the cluster now, which somebody has changed."""
        self._changed.set()

    async def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()


def example_cluster() -> SimulatedCluster:
    """A small cluster to begin with: four servers without and four with accelerators, some faster than others."""
    plain = [Server(f"cpu-{i}", amounts({"cpu": 16, "memory": "64Gi"}), {"class": "cpu"}) for i in range(4)]
    with_gpu = [
        Server(f"gpu-{i}", amounts({"cpu": 32, "memory": "128Gi", "gpu": 4}), {"class": "gpu"}) for i in range(4)
    ]
    return SimulatedCluster([*plain, *with_gpu], Truth(spread=0.3, noise=0.1))


def read_cluster(path: Path) -> SimulatedCluster:
    """A cluster from a YAML file: `servers`, each with `name`, `capacity`, `labels`, `speed`, `count`; and `truth`."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("a file that can be read", found=error.strerror or "nothing", file=path) from None
    except yaml.YAMLError as error:
        raise InvalidInput("YAML", found=" ".join(str(error).split())[:100], file=path) from None
    try:
        given = _fields(found, "the file", {"servers", "truth"})
        servers = given.get("servers")
        if not isinstance(servers, list) or not servers:
            raise InvalidInput("a list of servers", value=servers, key="servers")
        there = [server for i, one in enumerate(servers) for server in _servers(one, f"servers[{i}]")]
        names = [server.name for server in there]
        if len(set(names)) < len(names):
            raise InvalidInput("each server once", value=max(names, key=names.count), key="servers")
        truth = _fields(given.get("truth") or {}, "truth", {"seed", "spread", "noise", "faults"})
        for name, value in truth.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise InvalidInput("a number ≥ 0", value=value, key=f"truth.{name}")
        return SimulatedCluster(there, Truth(**truth))
    except InvalidInput as error:
        raise error.at(file=path) from None


def _fields(found: object, key: str, known: set[str]) -> dict[str, Any]:
    if not isinstance(found, Mapping) or not set(found) <= known:
        raise InvalidInput(f"a mapping with some of {', '.join(sorted(known))}", value=found, key=key)
    return dict(found)


def _servers(found: object, key: str) -> list[Server]:
    given = _fields(found, key, {"name", "capacity", "labels", "speed", "count"})
    count = given.get("count")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 100_000):
        raise InvalidInput("1 to 100000 servers", value=count, key=f"{key}.count")
    capacity, labels = given.get("capacity"), given.get("labels") or {}
    if not isinstance(capacity, Mapping):
        raise InvalidInput("amounts of resources", value=capacity, key=f"{key}.capacity")
    if not isinstance(labels, Mapping) or not all(isinstance(v, str) for pair in labels.items() for v in pair):
        raise InvalidInput("texts by name", value=labels, key=f"{key}.labels")
    name, speed = given.get("name"), given.get("speed", 1.0)
    if isinstance(speed, bool) or not isinstance(speed, int | float):
        raise InvalidInput("a finite number > 0", value=speed, key=f"{key}.speed")
    names = [name] if count is None else [f"{name}-{i}" for i in range(count)]
    try:
        there = amounts(capacity, "capacity")
        return [Server(one, there, dict(labels), float(speed)) for one in names]  # type: ignore[arg-type]
    except InvalidInput as error:
        raise error.at(key=key) from None
