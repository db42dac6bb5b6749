"""An engine that lives outside berth and is found by its entry point: jobs are processes of this machine.

`berth serve --engine local:4x2` schedules onto four servers of two cpus each. They are only names: every task is a
process group of this machine, its output is discarded, and nothing holds it to the cpus that it asked for. All jobs
end with the service.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from berth.errors import InvalidInput
from berth.live.engines import (
    Attempt,
    Cancel,
    Clock,
    Command,
    EngineError,
    EngineKind,
    Event,
    Failed,
    Finished,
    Job,
    Owner,
    Place,
    Server,
    Snapshot,
    Start,
    Started,
)

__all__ = ["ENGINE", "LocalEngine"]

Key = tuple[str, int]
Process = asyncio.subprocess.Process


class LocalEngine:
    """Runs each task as a process group of its own, on servers that are only names."""

    def __init__(self, servers: dict[str, Server], clock: Clock) -> None:
        self._servers, self._clock = servers, clock
        self._free = {name: dict(server.capacity) for name, server in servers.items()}
        self._attempts: dict[Key, Attempt] = {}  # all of them: a real engine forgets old ones that have ended
        self._cancelled: set[Key] = set()
        self._processes: dict[Key, list[Process]] = {}
        self._following: set[asyncio.Task[None]] = set()
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    async def snapshot(self) -> Snapshot:
        """All servers and attempts; events are told from here on."""
        self._events = asyncio.Queue()
        return Snapshot(tuple(self._servers.values()), tuple(self._attempts.values()))

    async def events(self) -> AsyncIterator[Event]:
        """Starts and ends as they happen."""
        events = self._events
        while True:
            yield await events.get()

    async def execute(self, command: Command, job: Job | None, /) -> None:
        """Start or cancel an attempt; a command that is given again changes nothing."""
        key = command.job, command.attempt
        known = self._attempts.get(key)
        if isinstance(command, Cancel):
            if known is None:  # it is never to begin: remember its end, and tell it
                self._ended(Attempt(*key), Failed(self._clock(), *key, "cancelled before it began", "cancelled"))
            elif known.end is None:
                self._cancelled.add(key)
                _kill(self._processes[key])
            return
        if known is not None:
            return
        if job is None:
            raise EngineError("a start comes with its job")
        attempt = Attempt(*key, command.places, began=False)
        if lacking := self._take(job, command.places):
            self._ended(attempt, Failed(self._clock(), *key, lacking, "server"))
            return
        self._attempts[key], self._processes[key] = attempt, []
        following = asyncio.create_task(self._follow(command, job))
        self._following.add(following)
        following.add_done_callback(self._following.discard)

    def _take(self, job: Job, places: tuple[Place, ...]) -> str:
        """Take what an attempt needs, all or nothing; what is lacking, in words."""
        if unknown := [place.server for place in places if place.server not in self._servers]:
            return f"there is no server {unknown[0]}"
        free = {name: dict(amounts) for name, amounts in self._free.items()}
        for server, name, milli in _needs(job, places):
            free[server][name] = free[server].get(name, 0) - milli
            if free[server][name] < 0:
                return f"not enough {name} on {server}"
        self._free = free
        return ""

    async def _follow(self, start: Start, job: Job) -> None:
        """Begin the tasks of an attempt, wait for all of them, and tell how it ended."""
        key, began, processes = (start.job, start.attempt), self._clock(), self._processes[start.job, start.attempt]
        reason = ""
        try:
            for place in start.places:
                for _ in range(place.count):
                    if key not in self._cancelled:
                        processes.append(await _begin(start, place, job))
        except (OSError, ValueError) as error:
            reason = f"could not be started: {error}"
        if key in self._cancelled or reason:
            _kill(processes)
        else:
            self._attempts[key] = replace(self._attempts[key], began=True)
            self._events.put_nowait(Started(self._clock(), *key))
        for waiting in asyncio.as_completed([process.wait() for process in processes]):
            if (status := await waiting) and not reason:  # one task failed: the others end with it
                reason = f"a task ended with status {status}"
                _kill(processes)
        for server, name, milli in _needs(job, start.places):
            self._free[server][name] += milli
        del self._processes[key]
        now = self._clock()
        end: Finished | Failed = Finished(now, *key, seconds=now - began)
        if key in self._cancelled:
            end = Failed(now, *key, "cancelled", "cancelled", seconds=now - began)
        elif reason:
            end = Failed(now, *key, reason, "job", seconds=now - began)
        self._ended(self._attempts[key], end)

    def _ended(self, attempt: Attempt, end: Finished | Failed) -> None:
        self._attempts[attempt.job, attempt.attempt] = replace(attempt, end=end)
        self._events.put_nowait(end)

    async def close(self) -> None:
        """End all that runs."""
        for key, processes in self._processes.items():
            self._cancelled.add(key)
            _kill(processes)
        await asyncio.gather(*self._following)


def _needs(job: Job, places: tuple[Place, ...]) -> list[tuple[str, str, int]]:
    """Server, resource and thousandths of it for each place and resource; berth counts resources in thousandths."""
    demands = {role.name: role.demand for role in job.roles}
    return [(p.server, name, p.count * milli) for p in places for name, milli in demands[p.role].items()]


async def _begin(start: Start, place: Place, job: Job) -> Process:
    told = {"JOB": start.job, "ATTEMPT": str(start.attempt), "ROLE": place.role, "SERVER": place.server}
    given = {str(name): str(value) for name, value in job.payload.get("environment", {}).items()}
    environment = {**os.environ, **given, **{f"BERTH_{name}": value for name, value in told.items()}}
    command = job.payload.get("command") or ["/bin/sh", "-c", job.payload.get("script") or "true"]
    quiet, workdir = asyncio.subprocess.DEVNULL, job.payload.get("workdir")
    return await asyncio.create_subprocess_exec(
        *command, env=environment, cwd=workdir, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )


def _kill(processes: list[Process]) -> None:
    for process in processes:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _servers(rest: str) -> dict[str, Server]:
    """Servers from what stands after the colon of `local:4x2`; checked before anything runs."""
    found = re.fullmatch(r"([1-9]\d{0,2})x([1-9]\d{0,2})", rest or "4x2", re.ASCII)
    if found is None:
        raise InvalidInput("servers x cpus, such as local:4x2", value=rest, key="engine local")
    return {f"local-{i}": Server(f"local-{i}", {"cpu": int(found[2]) * 1000}) for i in range(int(found[1]))}


def _make(servers: dict[str, Server], clock: Clock, _state_file: Path | None, _owner: Owner | None) -> LocalEngine:
    return LocalEngine(servers, clock)


ENGINE = EngineKind(settings=_servers, make=_make)
