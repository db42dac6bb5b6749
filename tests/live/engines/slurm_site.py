"""A real Slurm cluster for tests, and what the contract of engines needs of it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from berth.files.quantities import MILLI
from berth.live.clusters import marked
from berth.live.clusters.kubernetes import LocalKubernetes
from berth.live.clusters.ray import LocalRay
from berth.live.clusters.slurm import LocalSlurm, SlurmNode, missing_programs
from berth.live.core.events import Event, Failed, Finished, Start
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines import EngineError, Snapshot
from berth.live.engines.slurm import SlurmEngine, SlurmSettings
from berth.live.engines.slurm.hooks import hold_script, hook_script
from berth.testing.engines.ledger import Ledger
from berth.testing.engines.listener import Listener
from berth.testing.engines.site import Script, Sighting, Site

needs_slurm = pytest.mark.skipif(
    bool(missing_programs()), reason="Slurm is not installed (python3 scripts/slurm.py install)"
)
GRES = {"gpu": 2, "licence": 3}
NODES = [
    SlurmNode("n1", gres=GRES, features=["fast", "class=big"]),
    SlurmNode("n2", gres=GRES, features=["fast", "class=big"]),
    *(SlurmNode(f"n{i}") for i in range(3, 9)),
]
Local = TypeVar("Local", LocalRay, LocalSlurm, LocalKubernetes)
LIMIT = 240.0
"""Seconds until something that has not happened counts as missing. Slurm itself may take 66 s to end a gang that was
cancelled while its tasks were launched: its first node waits a minute for the report of one that refused the launch."""


@contextmanager
def up(cluster: Local) -> Iterator[Local]:
    """Start a local cluster; end it afterwards, with all that it started, and remove its files."""
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        assert not marked(cluster.directory)
        shutil.rmtree(cluster.directory, ignore_errors=True)


@contextmanager
def slurm(
    companion: str = "", tokens: bool = False, nodes: Sequence[SlurmNode] = NODES, lines: Sequence[str] = ()
) -> Iterator[LocalSlurm]:
    """A cluster with hooks in its directory, and with a partition whose jobs are held where one is named.

    `lines` are added to slurm.conf.
    """
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # a short path: sockets lie in it
    folder.chmod(0o755)  # other users of this machine run jobs on it
    (folder / "hooks").mkdir()
    script = folder / "hook.sh"
    script.write_text(hook_script(folder / "hooks"))
    script.chmod(0o755)
    more = [f"PrologSlurmctld={script}", f"EpilogSlurmctld={script}", *lines]
    if companion:
        (folder / "job_submit.lua").write_text(hold_script(companion))
        more += [
            "DefMemPerCPU=100",
            "JobSubmitPlugins=lua",
            "Licenses=matlab:2",
            f"PartitionName={companion} Nodes=ALL State=UP",
            "PartitionName=narrow Nodes=n3,n4 State=UP",
        ]
    if tokens:
        (folder / "jwt.key").touch(mode=0o600)
        (folder / "jwt.key").write_bytes(os.urandom(32))
        more += ["AuthAltTypes=auth/jwt", f"AuthAltParameters=jwt_key={folder}/jwt.key"]
    with up(LocalSlurm(folder, nodes, more=more)) as cluster:
        yield cluster


class SlurmSite(Site):
    """The cluster, with a witness in a folder."""

    name = "slurm"
    patience = LIMIT

    def __init__(self, cluster: LocalSlurm, folder: Path, settings: SlurmSettings | None = None) -> None:
        self.cluster, self.ledger = cluster, Ledger(folder / "ledger")
        (folder / "ledger").mkdir()
        base = settings or SlurmSettings(poll=0.5)
        self.settings = base.replace(conf=cluster.conf, spool=folder / "spool", patience=min(base.patience, 4.0))

    async def engine(self) -> SlurmEngine:
        return SlurmEngine(self.settings)

    def job(self, id: str, roles: tuple[Role, ...], script: Script) -> Job:
        return self.ledger.job(id, roles, script)

    async def begun(self) -> Sequence[Sighting]:
        return self.ledger.begun()

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
        lines = self.cluster.ask("squeue", "-h", "-t", "all", "-o", "%i|%k").splitlines()
        return [line.split("|")[0] for line in lines if line.endswith(f":{job}:{attempt}")]

    def simple(self, id: str, seconds: float, *places: Place, **demand: int) -> tuple[Start, Job]:
        """A job of one processor a task, and a first start of it."""
        counts: dict[str, int] = {}
        for place in places:
            counts[place.role] = counts.get(place.role, 0) + place.count
        roles = tuple(Role(name, count, {"cpu": MILLI, **demand}) for name, count in counts.items())
        return Start(id, 1, places), self.job(id, roles, Script(seconds))


class Driver(Listener):
    """Drives an engine, and waits for what it tells."""

    @property
    def events(self) -> list[Event]:
        """All that was told."""
        return [event for spell in self.spells for event in spell.events]

    async def until(self, *kinds: type[Event]) -> Event:
        """The next event of these kinds that was not asked for before."""
        async with asyncio.timeout(LIMIT):
            while True:
                for event in self.events:
                    if isinstance(event, kinds) and id(event) not in self._asked:
                        self._asked.add(id(event))
                        return event
                await asyncio.sleep(0.02)

    async def ended(self, job: str, attempt: int = 1) -> Finished | Failed:
        """How an attempt ended."""
        try:
            async with asyncio.timeout(LIMIT):
                while (end := self.end((job, attempt))) is None:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise TimeoutError(f"no end of {job} after {self.events[-5:]}; last error: {self.trouble}") from None
        return end

    _asked: set[int]


async def settled(engine: SlurmEngine) -> Snapshot:
    """A snapshot, as soon as there is one: a slurmctld that was just started is given time."""
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                return await engine.snapshot()
            except EngineError:
                await asyncio.sleep(0.1)


async def until(good: Callable[[], bool]) -> None:
    """Wait for something outside the engine."""
    async with asyncio.timeout(LIMIT):
        while not good():
            await asyncio.sleep(0.1)


@asynccontextmanager
async def driven(site: SlurmSite) -> AsyncIterator[Driver]:
    """A driver of the site's cluster; at the end nothing of it runs."""
    driver = Driver(site.engine, LIMIT)
    driver._asked = set()
    try:
        await driver.open()
        yield driver
    finally:
        await driver.close()
        left = {re.split("[_+]", line)[0] for line in site.cluster.ask("squeue", "-h", "-o", "%i").split()}
        if left:
            site.cluster.ask("scancel", *left)
        async with asyncio.timeout(LIMIT):
            while site.cluster.ask("squeue", "-h", "-o", "%i").strip():
                await asyncio.sleep(0.05)
