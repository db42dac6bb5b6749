"""Slurm as an engine.

Slurm is looked at again and again, soon after something was asked of it, every `poll` seconds otherwise, and at once
when a hook of slurmctld calls. What differs from the last look has happened. Attempts are known by the comments of
their jobs; those that Slurm took and does not know any more have failed by the engine's fault.

After a start of slurmctld nothing is said and nothing done until the nodes have spoken to it: one that was killed may
have forgotten its last jobs, which run on until their nodes are told to end them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress

from berth.dispatch.events import (
    Cancel,
    Command,
    Event,
    Failed,
    Finished,
    ServerChanged,
    ServerJoined,
    ServerLost,
    Start,
    Started,
)
from berth.dispatch.jobs import Job, Place, Server
from berth.engines import Attempt, EngineError, Snapshot
from berth.engines.slurm.commands import Away, Refused, Slurm, SlurmCommands
from berth.engines.slurm.hooks import Hooks
from berth.engines.slurm.judging import how_it_ended, requeued, server, when_it_began
from berth.engines.slurm.reading import Config, Node, SlurmJob
from berth.engines.slurm.settings import SlurmSettings
from berth.engines.slurm.spool import Key, Record, Spool
from berth.engines.slurm.writing import NotPossible, read_tag, submission
from berth.errors import InvalidInput

__all__ = ["SlurmEngine"]

SOON = 0.1
"""Seconds until the next look when something is about to happen, at least."""
SURE = 5.0
"""Seconds after which a submission that was not answered is not under way any more."""
SETTLING = 60.0
"""Seconds after a start of slurmctld in which nodes that do not speak are waited for."""
SHORT_MEMORY = 60.0
log = logging.getLogger(__name__)


class SlurmEngine:
    """Jobs on a Slurm cluster."""

    def __init__(self, settings: SlurmSettings | None = None, slurm: Slurm | None = None) -> None:
        self.settings = settings or SlurmSettings()
        self.slurm: Slurm = slurm or SlurmCommands(self.settings)
        self.spool = Spool(self.settings.spool)
        self._hooks: Hooks | None = None
        self._out: deque[Event] = deque()
        self._nodes: dict[str, Node] = {}
        self._servers: dict[str, Server] = {}
        self._config: Config | None = None
        self._partition = self.settings.partition
        self._booted = 0.0
        self._looked: float | None = None
        """When all of Slurm was last looked at."""
        self._unwanted: set[int] = set()
        self._wake = asyncio.Event()
        if self.settings.hooks is not None:
            self._hooks = Hooks(self.settings.hooks, self.spool.instance, self._wake.set)
        self._looking = asyncio.Lock()
        self._locks: defaultdict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)

    # ------------------------------------------------------------------------ looking

    async def snapshot(self) -> Snapshot:
        """All that Slurm knows of our attempts, and all that is remembered of those that have ended."""
        await self._look(everything=True)
        of_servers = (ServerJoined, ServerChanged, ServerLost)
        self._out = deque(event for event in self._out if not isinstance(event, of_servers))
        attempts = [
            Attempt(*record.key, record.places, record.end, record.began or record.end is not None)
            for record in self.spool.records.values()
            if record.end is not None or record.slurm is not None
        ]
        return Snapshot(tuple(self._servers.values()), tuple(attempts))

    async def events(self) -> AsyncIterator[Event]:
        """What happens."""
        if self._hooks is not None:
            self._hooks.listen()
        while True:
            while self._out:
                yield self._out.popleft()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            self._wake.clear()
            await self._look()

    def _pause(self) -> float:
        """Seconds until the next look: few when something was asked of Slurm a moment ago."""
        now = time.monotonic()
        ages = [now - r.since for r in self.spool.open if r.since and (r.verdict or not r.began or _ending(r))]
        return min([self.settings.poll, *(max(SOON, 0.25 * age) for age in ages)])

    async def _look(self, everything: bool = False) -> None:
        """Look at Slurm, and take note of what has happened."""
        async with self._looking:
            began, clock = time.time(), time.monotonic()
            if everything or self._looked is None or clock - self._looked >= self.settings.poll:
                await self._look_at_nodes()
                self._looked = clock
            jobs = await self.slurm.jobs()
            if self._hooks is not None:
                self._hooks.read()
            self._compare(jobs, began, clock)
            if self._unwanted:
                await self.slurm.cancel(sorted(self._unwanted))
                self._unwanted.clear()

    async def _look_at_nodes(self) -> None:
        config, nodes = await asyncio.gather(self.slurm.config(), self.slurm.nodes())
        if not self._partition:
            found = await self.slurm.partitions()
            self._partition = next((name for name, default in found.items() if default), "")
            if not self._partition:
                raise EngineError("Slurm has no default partition: set one with `partition`")
        ours = {self._partition, *filter(None, [self.settings.companion])}
        self._nodes = {node.name: node for node in nodes if ours & set(node.partitions)}
        if not self._nodes:
            raise EngineError(f"Slurm has no nodes in partition {' or '.join(sorted(ours))}")
        self._started(config)
        silent = [name for name, node in self._nodes.items() if _silent(node)]
        if silent and time.monotonic() - self._booted < SETTLING:
            raise EngineError(f"slurmctld was started at {config.boot}, and node {silent[0]} has not spoken to it yet")
        there = {node.name: server(node) for node in self._nodes.values() if node.there}
        self._tell_servers(there)

    def _started(self, config: Config) -> None:
        if self._config is None:
            if config.min_job_age < SHORT_MEMORY:
                log.warning(
                    "Slurm forgets jobs %g s after their end (MinJobAge): those that end while berth is away for "
                    "longer are taken for lost, and run again",
                    config.min_job_age,
                )
            shared = [node.name for node in self._nodes.values() if node.threads > 1]
            if shared and "CORE" in config.select.upper():
                log.warning(
                    "Slurm gives whole cores, and node %s has several CPUs a core: ask for whole cores", shared[0]
                )
        if self._config is None or config.boot != self._config.boot:
            self._booted = time.monotonic()
        self._config = config

    def _tell_servers(self, there: dict[str, Server]) -> None:
        now = time.time()
        for name, found in there.items():
            if name not in self._servers:
                self._out.append(ServerJoined(now, found))
            elif self._servers[name] != found:
                self._out.append(ServerChanged(now, found))
        self._out.extend(ServerLost(now, name) for name in self._servers if name not in there)
        self._servers = there

    # ------------------------------------------------------------------------ what has happened

    def _compare(self, jobs: Iterable[SlurmJob], began: float, clock: float) -> None:
        """Compare what Slurm says with what is known. It was asked at `began`, which is `clock` by another clock."""
        found: defaultdict[Key, list[SlurmJob]] = defaultdict(list)
        for job in jobs:
            key = read_tag(job.comment, self.spool.instance)
            if key is not None:
                found[key].append(job)
        for key, parts in found.items():
            record = self.spool.records.get(key)
            if record is None:
                record = self.spool.asked(key, tuple(Place(name, "", 1) for job in parts for name in job.nodes))
            if record.end is not None:
                self._unwanted.update(job.id for job in parts if not job.ended)
                continue
            self._follow(record, self._one(record, parts), began)
        for record in self.spool.open:
            if record.key not in found and record.slurm is not None and not record.sending and record.since < clock:
                self._missing(record)

    def _one(self, record: Record, parts: Sequence[SlurmJob]) -> tuple[SlurmJob, ...]:
        """The parts of one job; should Slurm have taken an attempt twice, the later one is ended."""
        leaders = sorted({job.leader or job.id for job in parts}, key=lambda id: (id != record.slurm, id))
        self._unwanted.update(job.id for job in parts if (job.leader or job.id) in leaders[1:] and not job.ended)
        self.spool.taken(record, leaders[0])
        return tuple(sorted((j for j in parts if (j.leader or j.id) == leaders[0]), key=lambda job: job.id))

    def _follow(self, record: Record, parts: tuple[SlurmJob, ...], began: float) -> None:
        now, clock = time.time(), time.monotonic()
        if self._hooks is not None:
            record.hooked = self._hooks.times.get(record.key, {})
        if record.parts != parts:
            if _ending(record) is False and any("COMPLETING" in job.states for job in parts):
                record.since = clock
            record.parts = parts
        record.since = record.since or clock
        if any(requeued(job) for job in parts):
            self._end_there(record, "Slurm wanted to run it again", "engine")
        if all(job.ended for job in parts):
            self._ended(record, parts, now)
            return
        if any(job.ended for job in parts) or (record.verdict and any(job.pending or job.running for job in parts)):
            self._unwanted.update(job.id for job in parts if not job.ended)
        if all(job.running for job in parts):
            self._running(record, parts, now)
            record.ran = began
        elif any(job.pending for job in parts):
            record.waited = began
            if clock - record.since > self.settings.patience and record.verdict is None:
                reason = next(job.reason for job in parts if job.pending)
                waited = f"Slurm did not start it in {self.settings.patience:g} s ({reason})"
                self._end_there(record, waited, "engine")

    def _running(self, record: Record, parts: Sequence[SlurmJob], now: float) -> None:
        if not record.began:
            record.began = True
            record.started = min(when_it_began(record, parts, now), now)
            self._out.append(Started(record.started, *record.key))

    def _ended(self, record: Record, parts: Sequence[SlurmJob], now: float) -> None:
        if not record.began and all("COMPLETED" in job.states for job in parts):
            self._running(record, parts, now)
        self._end(record, how_it_ended(record, parts, self._nodes, now))

    def _end_there(self, record: Record, reason: str, fault: str) -> None:
        """Have Slurm end it; when it has, this is told."""
        record.verdict = record.verdict or Failed(time.time(), *record.key, reason, fault)  # type: ignore[arg-type]
        record.since = time.monotonic()
        self._unwanted.update(job.id for job in record.parts if not job.ended)

    def _missing(self, record: Record) -> None:
        """Slurm took it and does not know it; it has ended when its nodes were told so."""
        for place in record.places:
            node = self._nodes.get(place.server)
            if node is not None and _silent(node):
                return
        reason = "Slurm does not know it any more: slurmctld was killed right after it took it, or it ended long ago"
        self._end(record, record.verdict or Failed(time.time(), *record.key, reason, "engine"))

    def _end(self, record: Record, end: Finished | Failed) -> None:
        self.spool.ended(record, end)
        self._locks.pop(record.key, None)
        if self._hooks is not None:
            self._hooks.times.pop(record.key, None)
        self._out.append(end)
        self._wake.set()

    # ------------------------------------------------------------------------ doing

    async def execute(self, command: Command, job: Job | None, /) -> None:
        """Do as told."""
        key = command.job, command.attempt
        async with self._locks[key]:
            if isinstance(command, Cancel):
                await self._cancel(key)
            elif job is None:
                raise InvalidInput("the job that is to start", value=None, key="job")
            else:
                await self._start(command, job)
        self._wake.set()

    async def _start(self, start: Start, job: Job) -> None:
        if await self._known((start.job, start.attempt)):
            return
        assert self._config is not None
        record = self.spool.asked((start.job, start.attempt), start.places)
        away = [place.server for place in start.places if place.server not in self._servers]
        if away:
            self._end(record, Failed(time.time(), *record.key, f"server {away[0]} is not there", "server"))
            return
        try:
            told = submission(
                start, job, self.settings, self.spool.instance, default_memory=self._config.default_memory
            )
        except NotPossible as error:
            self._end(record, Failed(time.time(), *record.key, str(error), "job"))
            return
        record.sending = True
        try:
            number = await self.slurm.submit(told)
        except Refused as error:
            self._end(record, Failed(time.time(), *record.key, f"Slurm refused it: {error}", "job"))
        except Away as error:
            if not error.heard:
                self.spool.forgotten(record)
            raise
        else:
            record.since = time.monotonic()
            self.spool.taken(record, number)
        finally:
            record.sending, record.asked = False, time.time()

    async def _known(self, key: Key) -> bool:
        """Whether an attempt was submitted. `EngineError` while that cannot be known."""
        if self._looked is None:
            await self._look()
        record = self.spool.records.get(key)
        if record is None:
            return False
        if record.end is None and record.slurm is None:  # it was being submitted when something failed
            await self._look()
        if record.end is not None or record.slurm is not None:
            return True
        age = time.time() - record.asked
        if age < (SURE if record.ours else self.settings.command_seconds + SURE):
            raise EngineError(f"it is not known yet whether Slurm took attempt {key[1]} of {key[0]}")
        if not record.ours and self._config is not None and age > 0.9 * self._config.min_job_age:
            self._missing(record)  # it may have run, and Slurm may have forgotten it
            return True
        return False

    async def _cancel(self, key: Key) -> None:
        if not await self._known(key):
            record = self.spool.asked(key, ())
            self._end(record, Failed(time.time(), *key, "cancelled before it began", "cancelled"))
            return
        record = self.spool.records[key]
        if record.end is None and record.slurm is not None:
            await self.slurm.cancel([record.slurm, *(job.id for job in record.parts if job.id != record.slurm)])
            record.verdict = record.verdict or Failed(time.time(), *key, "cancelled", "cancelled")
            record.since = time.monotonic()

    async def close(self) -> None:
        """Let go; what runs goes on."""
        await self.slurm.close()
        if self._hooks is not None:
            self._hooks.close()
        self.spool.close()


def _silent(node: Node) -> bool:
    """Whether a node has not spoken to slurmctld yet, though it may."""
    never = {"DOWN", "FUTURE", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "CLOUD"}
    return not node.registered and not node.states & never


def _ending(record: Record) -> bool:
    return any("COMPLETING" in job.states for job in record.parts)
