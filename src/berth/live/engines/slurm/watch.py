"""Watch Slurm: compare its nodes and jobs with what is known, and report the differences as events.

The comments of jobs identify attempts. Attempts that Slurm accepted and no longer knows have failed by the engine's
fault. After a start of slurmctld nothing is reported until the nodes have contacted it: one that was killed may have
forgotten its last jobs, which run on until their nodes are told to end them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import pwd
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace

from berth.live.core.events import (
    Cancelled,
    Event,
    ServerChanged,
    ServerJoined,
    ServerLost,
    Submitted,
)
from berth.live.core.jobs import Place, Server
from berth.live.engines import ADOPTED, EngineError
from berth.live.engines.slurm.attempts import Attempts, is_ending
from berth.live.engines.slurm.commands import Slurm
from berth.live.engines.slurm.companion import ORIGIN, Companion, HeldJob, is_own
from berth.live.engines.slurm.foreign_jobs import Taken, asked_for
from berth.live.engines.slurm.hooks import Hooks
from berth.live.engines.slurm.interpret import server
from berth.live.engines.slurm.outputs import Outputs
from berth.live.engines.slurm.parsing import NUMBER, Config, Node, SlurmJob
from berth.live.engines.slurm.partitions import Partition, Reservation, reserve
from berth.live.engines.slurm.settings import SlurmSettings
from berth.live.engines.slurm.spool import AttemptRecord, Key, Spool
from berth.live.engines.slurm.submission import read_tag

__all__ = ["Watch"]

SOON = 0.1
"""The least seconds until the next poll when something is about to happen."""
SETTLING = 60.0
"""Seconds after a start of slurmctld for which berth waits for silent nodes."""
ENDING = 2.0
"""Seconds in which nodes that have contacted a new slurmctld end jobs that it does not know."""
RECENT = 10.0
"""Seconds; a slurmctld that was started longer ago and knows its nodes counts as settled."""
CONFIRMED = 0.1
"""Seconds for which a check that slurmctld was not restarted stays valid."""
LINGERING = 300.0
"""Seconds after a start of slurmctld in which nodes may still report jobs that it forgot, by their ids."""
STUCK = 10.0
"""Seconds after which a node that is still COMPLETING is closed."""
SURE = 60.0
"""The most seconds between the submission of an attempt and that of a job which may be it."""
SHORT_MEMORY = 60.0
"""Seconds; berth warns if slurmctld remembers jobs for less."""
SWEEP = 3600.0
"""Seconds between two removals of old files."""
FORGOTTEN = 60.0
"""Seconds after which a held job that only used up a job id counts as left behind."""
PIECE = 1000
"""The most attempts that are compared without a pause for the other tasks of the event loop."""
log = logging.getLogger(__name__)


class Watch:
    """What is known of a Slurm cluster; `told` has the events to report."""

    def __init__(self, settings: SlurmSettings, slurm: Slurm, spool: Spool, outputs: Outputs) -> None:
        self.told: deque[Event] = deque()
        self.wake = asyncio.Event()
        self.servers: dict[str, Server] = {}
        """Servers in the order of Slurm's node table."""
        self.waiting: dict[str, HeldJob] = {}
        """Companion jobs, by berth's ids."""
        self.config: Config | None = None
        self.partition: Partition | None = None
        """The partition for submissions."""
        self._settings, self._slurm, self._spool, self._outputs = settings, slurm, spool, outputs
        self._companion = Companion(settings.companion, spool)
        self._hooks = None if settings.hooks is None else Hooks(settings.hooks, spool.instance, self.wake.set)
        self.attempts = Attempts(settings.patience, slurm, spool, outputs, self._hooks, self.told, self.wake)
        self._user = pwd.getpwuid(os.getuid()).pw_name
        self._nodes: dict[str, Node] = {}
        self._partition = settings.partition
        self._reservations: list[Reservation] = []
        self._booted = 0.0
        self._spoken: float | None = None
        self._settled = ""
        self._highest = 0
        self._numbered: dict[int, AttemptRecord] = {}
        """Attempts that have not ended, by Slurm's job ids."""
        self._completing: dict[str, float] = {}
        """Since when nodes are COMPLETING."""
        self._confirmed = 0.0
        self._confirming = asyncio.Lock()
        self._looked: float | None = None
        self._looking = asyncio.Lock()
        self._swept = -math.inf
        self._sweeping: asyncio.Future[None] | None = None

    @property
    def has_looked(self) -> bool:
        """Whether Slurm has been polled, so that its state then is known."""
        return self._looked is not None

    @property
    def _boot(self) -> float:
        """When slurmctld was started."""
        return 0.0 if self.config is None else round(time.time() - self.config.age, 1)

    def listen(self) -> None:
        """Listen to the hooks."""
        if self._hooks is not None:
            self._hooks.listen()

    def close(self) -> None:
        """Stop listening."""
        if self._hooks is not None:
            self._hooks.close()

    def pause(self) -> float:
        """Seconds until the next poll: few after a recent command."""
        now = time.monotonic()
        ages = [now - r.since for r in self._spool.open if r.since and (r.verdict or not r.began or is_ending(r.parts))]
        return min([self._settings.poll, *(max(SOON, 0.25 * age) for age in ages)])

    async def look(self, everything: bool = False) -> None:
        """Poll Slurm, and note what has happened."""
        async with self._looking:
            began, clock = time.time(), time.monotonic()
            late = self.attempts.nodes_due or self._looked is None or clock - self._looked >= self._settings.poll
            nodes_too, self.attempts.nodes_due = everything or late, False
            if nodes_too:
                await self._look_at_nodes()
            jobs = await self._slurm.jobs()
            self._highest = max([self._highest, *(job.id for job in jobs)])
            self._numbered = {r.slurm: r for r in self._spool.open if r.slurm is not None and not r.theirs}
            keyed = [(self._key(job), job) for job in jobs]
            tags = {key for key, _ in keyed}
            if any(record.key not in tags and not record.sending for record in self._spool.open):
                self._confirmed = 0.0  # another slurmctld may have answered
                await self.confirm()
            if self._hooks is not None:
                self._hooks.read()
            self.attempts.boot = self._boot
            await asyncio.sleep(0)  # each of these steps takes long if there are many jobs or nodes
            await self._compare(keyed, began, clock)
            await asyncio.sleep(0)
            servers = self.servers
            if nodes_too:
                up = [node for node in self._nodes.values() if node.there]
                there = await asyncio.to_thread(lambda: {node.name: server(node) for node in up})
                there = {name: self._stuck(found, clock) for name, found in there.items()}
                servers = reserve(there, self._nodes, self._reservations, self._user, began)
            # reported after the ends of attempts there, which Slurm knows at the same time
            taken = self._taken(keyed)
            await asyncio.sleep(0)
            self._tell_servers(servers, taken)
            if nodes_too:
                self._looked = clock
                await self.attempts.look_for_tasks()
            await self._tidy()

    # ------------------------------------------------------------------------ nodes

    async def _look_at_nodes(self) -> None:
        slurm = self._slurm
        config, nodes, partitions, self._reservations = await asyncio.gather(
            slurm.config(), slurm.nodes(), slurm.partitions(), slurm.reservations()
        )
        if not self._partition:
            self._partition = next((name for name, found in partitions.items() if found.default), "")
            if not self._partition:
                raise EngineError("Slurm has no default partition: set one with `partition`")
        self.partition = partitions.get(self._partition)
        self._nodes = self.attempts.nodes = {n.name: n for n in nodes if self._partition in n.partitions}
        if not self._nodes:
            raise EngineError(f"Slurm has no nodes in partition {self._partition}")
        if self.config is None:
            self._warn(config)
            self._warn_of_others(nodes)
        self._settle(config)
        if self._settled != config.boot:
            known = [record.slurm for record in self._spool.records.values() if record.slurm is not None]
            if known and config.age < LINGERING:
                await self._slurm.skip(max(self._highest, *known))
            self._settled = config.boot

    def _settle(self, config: Config) -> None:
        """After a start of slurmctld, wait until the nodes have contacted it and have ended what it does not know."""
        now = time.monotonic()
        if self.config is None or config.boot != self.config.boot:
            self._booted = now - (0.0 if self.config is not None else config.age)
            self._spoken = None
        self.config = config
        silent = [name for name, node in self._nodes.items() if node.silent]
        if silent and now - self._booted < SETTLING:
            raise EngineError(f"slurmctld was started at {config.boot}, and node {silent[0]} has not contacted it yet")
        if self._spoken is None:
            self._spoken = self._booted if now - self._booted > RECENT else now
        if now - self._spoken < ENDING:
            raise EngineError(f"slurmctld was started at {config.boot}, and nodes are ending jobs it does not know")

    async def confirm(self) -> None:
        """Check that slurmctld has settled and is still the same: one that was just started must not get jobs."""
        async with self._confirming:
            now = time.monotonic()
            if now - self._confirmed > CONFIRMED:
                config = await self._slurm.config()
                if config.boot != self._settled:
                    self.attempts.nodes_due = True
                    self.wake.set()
                    raise EngineError(f"slurmctld was started at {config.boot}, and has to settle first")
                self._confirmed = now

    def _warn(self, config: Config) -> None:
        if config.min_job_age < SHORT_MEMORY:
            log.warning(
                "Slurm forgets jobs %g s after their end (MinJobAge): those that end while berth is away for longer "
                "count as lost, and run again",
                config.min_job_age,
            )
        shared = [node.name for node in self._nodes.values() if node.threads > 1]
        if shared and "CORE" in config.select.upper():
            log.warning("Slurm gives whole cores, and node %s has several CPUs in each: ask for whole ones", shared[0])
        if self._settings.companion and not config.default_memory and "MEMORY" in config.select.upper():
            log.warning("Slurm gives jobs that do not ask for memory all of it: set DefMemPerCPU")

    def _warn_of_others(self, nodes: Sequence[Node]) -> None:
        """Warn of nodes that only the companion partition has: berth's own jobs could not run there."""
        companion = self._settings.companion
        others = [node.name for node in nodes if companion in node.partitions and node.name not in self._nodes]
        if others:
            log.warning(
                "nodes of partition %s that are not in partition %s (`partition`) are not used: %s",
                companion,
                self._partition,
                ", ".join(others[:5]) + (", …" if len(others) > 5 else ""),
            )

    def _taken(self, jobs: Sequence[tuple[Key | None, SlurmJob]]) -> Taken:
        """What berth may not use. An attempt of berth never counts as a foreign job, whatever its state."""
        taken = Taken()
        for key, job in jobs:
            if not job.holding:
                continue
            record = None if key is None else self._spool.records.get(key)
            if record is None or (record.end is not None and record.theirs):  # released by hand
                taken.add(job)
            elif record.end is None and record.demands is not None:
                taken.add(job, asked_for(record.places, record.demands))
        return taken

    def _stuck(self, known: Server, clock: float) -> Server:
        """Close a node that cannot get rid of a job, though Slurm calls it up."""
        if "COMPLETING" not in self._nodes[known.name].states:
            self._completing.pop(known.name, None)
        elif clock - self._completing.setdefault(known.name, clock) > STUCK and not known.closed:
            return replace(known, closed="Slurm cannot end a job there (COMPLETING)")
        return known

    def _tell_servers(self, there: dict[str, Server], taken: Taken) -> None:
        now = time.time()
        there = {name: taken.of(found) for name, found in there.items()}
        for name, found in there.items():
            if name not in self.servers:
                self.told.append(ServerJoined(now, found))
            elif self.servers[name] != found:
                self.told.append(ServerChanged(now, found))
        self.told.extend(ServerLost(now, name) for name in self.servers if name not in there)
        self.servers = there

    # ------------------------------------------------------------------------ jobs

    async def _compare(self, jobs: Sequence[tuple[Key | None, SlurmJob]], began: float, clock: float) -> None:
        """Compare Slurm's jobs with what is known. Slurm was asked at `began`, which is `clock` by another clock."""
        jobs_of: defaultdict[Key, list[SlurmJob]] = defaultdict(list)
        for key, job in jobs:
            if key is not None:
                jobs_of[key].append(job)
            elif (
                job.name == NUMBER
                and job.user == self._user
                and job.pending
                and began - (job.submit or 0.0) > FORGOTTEN
            ):
                self.attempts.unwanted.add(job.id)  # a berth that was killed made it and could not cancel it
        for i, (key, parts) in enumerate(jobs_of.items()):
            if i % PIECE == PIECE - 1:
                await asyncio.sleep(0)
            record = self._spool.records.get(key)
            if record is None and not key[1]:
                continue
            if record is None:
                places = tuple(Place(name, "", 1) for job in parts for name in job.nodes)
                record = self._spool.asked(key, places, theirs=is_own(key, parts[0]))
            if record.end is None:
                self.attempts.follow(record, self.attempts.one_job(record, parts), began)
            elif not record.theirs:
                self.attempts.unwanted.update(job.id for job in parts if not job.ended)
        for record in self._spool.open:
            if record.key not in jobs_of and record.slurm is not None and not record.sending and record.since < clock:
                self.attempts.missing(record)
        self._tell_waiting(self._companion.waiting(job for _, job in jobs))

    def _key(self, job: SlurmJob) -> Key | None:
        """The attempt of a job; None if the job is not berth's.

        Any user may write any comment, so a job counts as an attempt only if it runs as the user of the attempt.
        """
        if job.refused and (job.leader or job.id) not in self._numbered:
            return None  # the command that submitted it says why
        key = read_tag(job.comment, self._spool.instance)
        if key is None:  # a user may have changed the comment; ids are reused after a crash of slurmctld
            known = self._numbered.get(job.leader or job.id)
            if known is None or (job.name, job.user) != (known.key[0], known.user or self._user):
                return None
            return known.key if abs((job.submit or 0.0) - known.asked) < SURE else None
        record = self._spool.records.get(key)
        if ADOPTED[ORIGIN].fullmatch(key[0]) is not None if record is None else record.theirs:
            ours = is_own(key, job)
        elif record is not None and record.user:
            ours = job.user == record.user
        elif self._settings.users:  # an older version did not record the user
            ours = record is not None and record.slurm in (job.id, job.leader)
        else:
            ours = job.user in ("", self._user)
        return key if ours else None

    def _tell_waiting(self, there: dict[str, HeldJob]) -> None:
        """Report new and withdrawn companion jobs; those that run are followed as attempts."""
        now, held = time.time(), {record.key[0] for record in self._spool.open}
        self.told.extend(Submitted(now, each.job) for id, each in there.items() if id not in self.waiting)
        self.told.extend(Cancelled(now, id, ORIGIN) for id in self.waiting if id not in there and id not in held)
        self.waiting = there

    async def _tidy(self) -> None:
        """End unwanted jobs, remove old files, and hold jobs again that did not start or are to start again."""
        if self.attempts.unwanted:
            await self._slurm.cancel(sorted(self.attempts.unwanted))
            self.attempts.unwanted.clear()
        if time.monotonic() - self._swept > SWEEP and (self._sweeping is None or self._sweeping.done()):
            self._swept, running = (
                time.monotonic(),
                {f"{job}.{attempt}" for job, attempt in (record.key for record in self._spool.open)},
            )
            self._sweeping = asyncio.get_running_loop().run_in_executor(None, self._outputs.sweep, running)
        await self.attempts.hold_again()
