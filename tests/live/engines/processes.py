"""An engine that runs payloads as processes of this machine, on servers that are names: the least that really runs.

What runs belongs to `Processes`, which stays when a driver is closed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from berth.live.core.events import Command, Event, Failed, Finished, Start, Started
from berth.live.core.jobs import Job, Role, Server
from berth.live.engines import Attempt, Engine, Snapshot
from berth.testing import Ledger, Script, Sighting, Site

Key = tuple[str, int]


@dataclass
class Running:
    """An attempt and its processes."""

    start: Start
    job: Job | None = None
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    began: float = field(default_factory=time.time)
    end: Finished | Failed | None = None


class Processes:
    """Servers that are names, and what runs on them."""

    shell = False
    """Whether commands go through a shell, which breaks them."""

    def __init__(self, servers: int = 4) -> None:
        self.servers = [Server(f"s{i}", {"cpu": 4000}) for i in range(servers)]
        self.attempts: dict[Key, Running] = {}
        self.told: list[Event] = []

    def begin(self, start: Start, job: Job) -> None:
        """Start it whole, or fail it."""
        demands = {role.name: role.demand["cpu"] for role in job.roles}
        free = {server.name: server.capacity["cpu"] for server in self.servers}
        for other in [*(r for r in self.attempts.values() if r.end is None), Running(start, job)]:
            for place in other.start.places:
                cpu = demands[place.role] if other.job is job else other.job.roles[0].demand["cpu"]  # type: ignore[union-attr]
                free[place.server] = free.get(place.server, 0) - place.count * cpu
        run = self.attempts[start.job, start.attempt] = Running(start, job)
        if min(free.values()) < 0:
            self.end(run, Failed(time.time(), start.job, start.attempt, "does not fit", "engine"))
            return
        for place in start.places:
            known = {"JOB": start.job, "ATTEMPT": str(start.attempt), "ROLE": place.role, "SERVER": place.server}
            environment = {**os.environ, **job.payload["environment"], **{f"BERTH_{k}": v for k, v in known.items()}}
            command: Any = " ".join(job.payload["command"]) if self.shell else job.payload["command"]
            for _ in range(place.count):
                run.processes.append(subprocess.Popen(command, env=environment, shell=self.shell))
        self.told.append(Started(time.time(), start.job, start.attempt))

    def end(self, run: Running, end: Finished | Failed) -> None:
        """End all that is left of it."""
        for process in run.processes:
            process.kill()
            process.wait()
        run.end = end
        self.told.append(end)

    def look(self) -> None:
        """See what has ended."""
        for (job, attempt), run in self.attempts.items():
            if run.end is None:
                codes, now = [process.poll() for process in run.processes], time.time()
                bad = [code for code in codes if code]
                if bad:
                    self.end(run, Failed(now, job, attempt, f"ended with {bad[0]}"))
                elif None not in codes:
                    self.end(run, Finished(now, job, attempt, now - run.began))

    def close(self) -> None:
        """End everything."""
        for run in self.attempts.values():
            for process in run.processes:
                process.kill()
                process.wait()


class ProcessEngine:
    """A driver."""

    def __init__(self, there: Processes) -> None:
        self._there, self._heard = there, 0

    async def snapshot(self) -> Snapshot:
        self._there.look()
        self._heard = len(self._there.told)
        known = [Attempt(*key, run.start.places, run.end) for key, run in self._there.attempts.items()]
        return Snapshot(tuple(self._there.servers), tuple(known))

    async def events(self) -> AsyncIterator[Event]:
        while True:
            self._there.look()
            while self._heard < len(self._there.told):
                self._heard += 1
                yield self._there.told[self._heard - 1]
            await asyncio.sleep(0.02)

    async def execute(self, command: Command, job: Job | None, /) -> None:
        key = command.job, command.attempt
        known = self._there.attempts.get(key)
        if isinstance(command, Start):
            if known is None and job is not None:
                self._there.begin(command, job)
        elif known is None or known.end is None:
            run = self._there.attempts.setdefault(key, Running(Start(*key, ())))
            self._there.end(run, Failed(time.time(), *key, "cancelled", "cancelled"))

    async def close(self) -> None:
        """Nothing to let go of."""


class ProcessSite(Site):
    """Processes that write into a folder."""

    short = 0.5

    def __init__(self, folder: Path, there: Processes) -> None:
        self.there, self.ledger = there, Ledger(folder)

    async def engine(self) -> Engine:
        return ProcessEngine(self.there)

    def job(self, id: str, roles: tuple[Role, ...], script: Script) -> Job:
        return self.ledger.job(id, roles, script)

    async def begun(self) -> Sequence[Sighting]:
        return self.ledger.begun()

    async def cancel_behind(self, job: str, attempt: int) -> None:
        for process in self.there.attempts[job, attempt].processes:
            process.kill()
