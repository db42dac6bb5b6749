"""The shared Slurm cluster as the contract of engines needs it, and a driver that waits for what is told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from berth.files.quantities import MILLI
from berth.live.clusters import marked
from berth.live.core.events import Event, Failed, Finished, ServerChanged, ServerJoined, Start
from berth.live.core.jobs import Job, Place, Role, Server
from berth.live.engines import EngineError, Snapshot
from berth.live.engines.slurm import SlurmEngine, SlurmSettings
from berth.live.engines.slurm.submission import write_tag
from berth.testing.engines.listener import Listener
from berth.testing.engines.site import Script
from tests.harness.waiting import DEADLINE, eventually_async
from tests.real.contract import WitnessedSite, checked
from tests.real.slurm.shared import SharedSlurm

__all__ = ["LIMIT", "Driver", "SlurmSite", "driven", "kept", "settled"]

LIMIT = DEADLINE
Found = TypeVar("Found")


class SlurmSite(WitnessedSite):
    """The cluster, with a witness in a folder."""

    name = "slurm"

    def __init__(self, cluster: SharedSlurm, folder: Path, settings: SlurmSettings | None = None) -> None:
        (folder / "ledger").mkdir()
        super().__init__(folder / "ledger")
        self.cluster = cluster
        base = settings or SlurmSettings(poll=0.5)
        self.settings = base.replace(conf=cluster.conf, spool=folder / "spool")

    async def engine(self) -> SlurmEngine:
        return SlurmEngine(self.settings)

    async def lose(self, server: str) -> None:
        # a machine that is gone says nothing more; killed one by one, its processes would tell of each other's end
        for process in marked(self.cluster.directory, server):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
        await asyncio.to_thread(self.cluster.kill, server)

    async def restore(self, server: str) -> None:
        self.cluster.begin(server)

    async def restart(self) -> None:
        await asyncio.to_thread(self.cluster.restart_controller)

    async def cancel_behind(self, job: str, attempt: int) -> None:
        self.cluster.ask("scancel", *self.numbers(job, attempt))

    def numbers(self, job: str, attempt: int) -> list[str]:
        """Slurm's numbers of an attempt, of all that it has or lately had."""
        tag = self._tag(job, attempt)
        lines = self.cluster.ask("squeue", "-h", "-t", "all", "-o", "%i|%k").splitlines()
        return [line.split("|")[0] for line in lines if line.endswith(f"|{tag}")]

    def ids(self, job: str, attempt: int) -> set[int]:
        """Slurm's ids of the components of an attempt."""
        tag = self._tag(job, attempt)
        lines = self.cluster.ask("squeue", "-h", "-t", "all", "-o", "%A|%k").splitlines()
        return {int(line.split("|")[0]) for line in lines if line.endswith(f"|{tag}")}

    def _tag(self, job: str, attempt: int) -> str:
        return write_tag((self.settings.spool / "instance").read_text().strip(), job, attempt)

    def simple(self, id: str, seconds: float, *places: Place, **demand: int) -> tuple[Start, Job]:
        """A job of one processor a task, and a first start of it."""
        counts: dict[str, int] = {}
        for place in places:
            counts[place.role] = counts.get(place.role, 0) + place.count
        roles = tuple(Role(name, count, {"cpu": MILLI, **demand}) for name, count in counts.items())
        return Start(id, 1, places), self.job(id, roles, Script(seconds))


class Driver(Listener):
    """Drives an engine, and waits for what it tells."""

    def __init__(self, site: SlurmSite) -> None:
        super().__init__(site.engine, LIMIT)
        self._asked: set[int] = set()

    @property
    def events(self) -> list[Event]:
        """All that was told."""
        return [event for spell in self.spells for event in spell.events]

    @property
    def engine(self) -> SlurmEngine:
        """The engine, which must be open."""
        assert isinstance(self._engine, SlurmEngine)
        return self._engine

    async def until(self, *kinds: type[Event]) -> Event:
        """The next event of these kinds that was not asked for before."""

        def found() -> Event | None:
            for event in self.events:
                if type(event) in kinds and id(event) not in self._asked:
                    return event
            return None

        event: Event = await self.eventually(found, f"no {' or '.join(kind.__name__ for kind in kinds)}")
        self._asked.add(id(event))
        return event

    async def ended(self, job: str, attempt: int = 1) -> Finished | Failed:
        """How an attempt ended."""
        return await self.eventually(lambda: self.end((job, attempt)), f"no end of attempt {attempt} of {job}")

    async def changed(self, name: str, good: Callable[[Server], object]) -> Server:
        """A server, once it is told to be as it should."""

        def found() -> Server | None:
            told = [e.server for e in self.events if isinstance(e, ServerJoined | ServerChanged)]
            last = next((one for one in reversed(told) if one.name == name), None)
            return last if last is not None and good(last) else None

        return await self.eventually(found, f"{name} is not told to be so")

    async def eventually(self, look: Callable[[], Found | None], what: str) -> Found:
        """Wait for something that is not None; at the deadline say what was told."""
        try:
            async with asyncio.timeout(LIMIT):
                while (found := look()) is None:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{what} after {self.events[-5:]}; last error: {self.trouble}") from None
        return found


async def settled(engine: SlurmEngine) -> Snapshot:
    """A snapshot, as soon as there is one: a slurmctld that was just started is given time."""

    async def look() -> Snapshot | EngineError:
        try:
            return await engine.snapshot()
        except EngineError as error:
            return error

    found = await eventually_async(look, lambda seen: isinstance(seen, Snapshot), "no snapshot")
    assert isinstance(found, Snapshot)
    return found


@asynccontextmanager
async def driven(site: SlurmSite) -> AsyncIterator[Driver]:
    """A driver of the site's cluster; what still runs at its end is ended before the next test."""
    driver = Driver(site)
    try:
        await driver.open()
        yield driver
    finally:
        await driver.close()


def kept(site: SlurmSite, names: Collection[str]) -> set[str]:
    """Those of the promises with these names that are kept."""
    return {name for name, result in checked(site, names).items() if result.passed}
