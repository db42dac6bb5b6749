"""One running check of an engine: its servers, its attempts, and its findings."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from berth.errors import BerthError, InvalidInput
from berth.files.quantities import MILLI
from berth.live.core.events import Cancel, Failed, Finished, Start
from berth.live.core.jobs import Job, Place, Role, Server
from berth.live.engines import EngineError
from berth.testing.engines.listener import Listener
from berth.testing.engines.site import Script, Sighting, Site
from berth.testing.subject import Broken, Finding, short

__all__ = ["LONG", "Case", "Room", "Run", "Trial", "told"]

LONG = 3600.0
"""Run time in seconds of a job that does not end by itself."""
LEAST_SERVERS, LEAST_CPUS = 3, 2
"""Minimum cluster: number of servers, and cpus of each."""
MOST_PARTS = 2
"""Largest number of cases that share a server."""


class Room:
    """Servers of a site, lent to cases in parts of two cpus, or whole."""

    def __init__(self, servers: Iterable[Server]) -> None:
        self.cpus = {server.name: server.capacity.get("cpu", 0) for server in servers if not server.closed}
        parts = {name: min(cpu // (LEAST_CPUS * MILLI), MOST_PARTS) for name, cpu in self.cpus.items()}
        self._parts = {name: count for name, count in parts.items() if count}
        self._free = dict(self._parts)
        if len(self._free) < LEAST_SERVERS:
            raise InvalidInput(f"{LEAST_SERVERS} servers of {LEAST_CPUS} cpus or more", found=str(self.cpus))
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def take(self, count: int, whole: bool = False) -> AsyncIterator[list[str]]:
        """Lend two cpus, or all, of this many servers."""

        def fitting() -> list[str]:
            most_free = sorted(self._free, key=lambda name: -self._free[name])
            return [name for name in most_free if self._free[name] >= (self._parts[name] if whole else 1)]

        async with self._changed:
            await self._changed.wait_for(lambda: len(fitting()) >= count)
            taken = {name: self._parts[name] if whole else 1 for name in fitting()[:count]}
            for name, parts in taken.items():
                self._free[name] -= parts
        try:
            yield list(taken)
        finally:
            async with self._changed:
                for name, parts in taken.items():
                    self._free[name] += parts
                self._changed.notify_all()


class Run:
    """An attempt of a job that a check starts; `begins` says whether it must begin (None: it may)."""

    def __init__(self, trial: Trial, job: Job, places: Sequence[Place], attempt: int, begins: bool | None) -> None:
        self.trial, self.job, self.places, self.attempt, self.begins = trial, job, tuple(places), attempt, begins
        self.key = job.id, attempt
        self.given = False
        """Whether the engine got the command."""

    def __str__(self) -> str:
        return f"attempt {self.attempt} of {self.job.id}"

    @property
    def tasks(self) -> Counter[tuple[str, str]]:
        """Tasks of the attempt: roles and servers."""
        return Counter({(place.role, place.server): place.count for place in self.places})

    async def start(self) -> Run:
        """Send the start command."""
        self.given = True
        await self.trial.driver.execute(Start(*self.key, self.places), self.job)
        return self

    async def refused(self) -> None:
        """Send the command once, and wait for an error, or for a failure that is not the job's fault."""
        self.given = True
        try:
            async with asyncio.timeout(self.trial.site.patience):
                await self.trial.driver.once(Start(*self.key, self.places), self.job)
        except TimeoutError:
            raise Broken(f"no answer in {self.trial.site.patience:g} s", "a command to be taken or refused") from None
        except EngineError:
            return
        end = await self.end()
        if not isinstance(end, Failed) or end.fault not in ("server", "engine"):
            raise Broken(f"{self} ended as {told(end)}", "Failed by fault of the server or the engine")

    async def cancel(self, with_job: bool = True) -> None:
        """Send the cancel command."""
        self.given = True
        await self.trial.driver.execute(Cancel(*self.key), self.job if with_job else None)

    async def seen(self) -> list[Sighting]:
        """Tasks of the attempt that the witness saw."""
        return [sight for sight in await self.trial.site.begun() if (sight.job, sight.attempt) == self.key]

    async def runs(self) -> bool:
        """Whether the witness sees a running task of the attempt."""
        return any(sight.state == "runs" for sight in await self.seen())

    async def has_begun(self) -> None:
        """Wait until the witness has seen all of its tasks, and compare."""

        async def enough() -> bool:
            return len(await self.seen()) >= self.tasks.total()

        with suppress(TimeoutError):
            await self.trial.until(enough)
        if problem := await self.misplaced():
            raise problem

    async def misplaced(self) -> Broken | None:
        """Difference between the tasks that began and those that should."""
        seen = Counter((sight.role, sight.server) for sight in await self.seen())
        wanted = self.tasks if self.begins is not False else Counter[tuple[str, str]]()
        if seen == wanted or (self.begins is None and seen <= wanted):
            return None
        return Broken(f"of {self} began {_tasks(seen)}", _tasks(wanted))

    async def end(self) -> Finished | Failed:
        """Wait until its end is reported."""

        async def ended() -> bool:
            return self.trial.driver.end(self.key) is not None

        with suppress(TimeoutError):
            await self.trial.until(ended)
        end = self.trial.driver.end(self.key)
        if end is None:
            raise Broken(f"the end of {self} was not reported in {self.trial.site.patience:g} s", "a report")
        return end

    async def finishes(self) -> Finished:
        """Wait until its end is reported as finished."""
        end = await self.end()
        if not isinstance(end, Finished):
            raise Broken(f"{self} ended as {told(end)}", "Finished")
        return end

    async def fails(self, *faults: str) -> Failed:
        """Wait until its end is reported as failed, with one of these faults, or any."""
        end = await self.end()
        if not isinstance(end, Failed) or (faults and end.fault not in faults):
            raise Broken(f"{self} ended as {told(end)}", f"Failed, fault {' or '.join(faults) or 'of any kind'}")
        return end

    async def is_over(self) -> None:
        """Wait until the witness sees no running task of the attempt."""

        async def over() -> bool:
            return not await self.runs()

        try:
            await self.trial.until(over)
        except TimeoutError:
            raise Broken(f"tasks of {self} keep running", "all of them to end") from None


def told(end: Finished | Failed | None) -> str:
    """Describe an end."""
    if isinstance(end, Failed):
        return f"Failed, fault {end.fault} ({end.reason or 'no reason'})"
    return "nothing" if end is None else "Finished"


def _tasks(tasks: Mapping[tuple[str, str], int]) -> str:
    said = [f"{count} {role} on {server}" for (role, server), count in sorted(tasks.items()) if count]
    return ", ".join(said) or "nothing"


class Trial:
    """Tools of a check; `tag` is part of its job ids, to keep them unique."""

    def __init__(self, site: Site, driver: Listener, room: Room, tag: str) -> None:
        self.site, self.driver, self.room, self.tag = site, driver, room, tag
        self.findings: list[Finding] = []
        self.runs: dict[str, list[Run]] = {}
        """Attempts of each case."""
        self.numbers = itertools.count(1)
        self.at_last: Callable[[], list[tuple[str, Broken]]] = list
        """Tests to run when all checks are done."""

    def found(self, case: str, broken: Broken) -> None:
        """Record a broken promise."""
        self.findings.append(Finding(case, broken.seen, broken.expected))

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a condition holds; `TimeoutError` if it does not."""
        async with asyncio.timeout(self.site.patience):
            while not await holds():
                await asyncio.sleep(0.1 * self.site.short)

    async def case(self, name: str, count: int, run: Callable[[Case], Awaitable[None]], *, whole: bool = False) -> None:
        """Run one case with two cpus, or all, of this many servers, and clean up after it."""
        async with self.room.take(count, whole) as servers:
            case = Case(self, name, servers)
            try:
                await run(case)
            except Broken as broken:
                self.found(name, broken)
            except Exception as error:
                self.found(name, Broken(f"raised {short(error)}", "no error"))
            finally:
                with suppress(Broken, BerthError, TimeoutError):
                    if not self.driver.is_open:
                        await self.driver.open()
                await case.clear()

    async def judge(self) -> None:
        """At the very end: test that exactly the expected tasks began, and were reported."""
        for name, broken in self.at_last():
            if name not in {finding.instance for finding in self.findings}:
                self.found(name, broken)
        for case, runs in self.runs.items():
            if case not in {finding.instance for finding in self.findings}:
                for problem in [problem for run in runs if (problem := await run.misplaced())][:1]:
                    self.found(case, problem)


class Case:
    """Part of a check, with two cpus of each of its servers, or all."""

    def __init__(self, trial: Trial, name: str, servers: list[str]) -> None:
        self.trial, self.name, self.servers = trial, name, servers
        self._runs = trial.runs.setdefault(name, [])

    def run(
        self,
        *where: tuple[str, str, int] | str,
        seconds: float | None = None,
        begins: bool | None = True,
        attempt: int = 1,
        of: Run | None = None,
        id: str | None = None,
        cpu: int = MILLI,
        fails: str | None = None,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Run:
        """Make an attempt with tasks there (server, role, count; a name alone is one task), not started yet.

        `of` reuses the job of another attempt; the default is a new job, short unless set otherwise.
        """
        places = [Place(*((each, "main", 1) if isinstance(each, str) else each)) for each in where]
        if of is not None:
            job = of.job
        else:
            counts: Counter[str] = Counter()
            for place in places:
                counts[place.role] += place.count
            roles = tuple(Role(role, count, {"cpu": cpu}) for role, count in counts.items())
            script = Script(seconds or self.trial.site.short, fails, arguments, environment or {})
            job = self.trial.site.job(id or f"{self.trial.tag}-{next(self.trial.numbers)}", roles, script)
        run = Run(self.trial, job, places, attempt, begins)
        self._runs.append(run)
        return run

    async def clear(self) -> None:
        """Wait until nothing of the case runs, and cancel long jobs."""
        await asyncio.gather(*(self._clear(run) for run in self._runs))

    async def _clear(self, run: Run) -> None:
        with suppress(Exception):  # another check tests cancelling
            if run.given and self.trial.driver.end(run.key) is None:
                await run.cancel()
                await run.end()
                await run.is_over()
