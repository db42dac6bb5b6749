"""Watch Slurm: compare its nodes and jobs with what is known, and tell the differences as events.

Attempts are known by the comments of their jobs. Those that Slurm took and does not know any more have failed by the
engine's fault. After a start of slurmctld nothing is said until the nodes have spoken to it: one that was killed may
have forgotten its last jobs, which run on until their nodes are told to end them.
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
from berth.live.engines import EngineError
from berth.live.engines.slurm.attempts import Attempts, is_ending
from berth.live.engines.slurm.commands import Slurm
from berth.live.engines.slurm.companion import ORIGIN, Companion, HeldJob, is_own, is_theirs
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
"""Seconds until the next look when something is about to happen, at least."""
SETTLING = 60.0
"""Seconds after a start of slurmctld in which nodes that do not speak are waited for."""
ENDING = 2.0
"""Seconds in which nodes that have spoken to a new slurmctld end jobs that it does not know."""
RECENT = 10.0
"""Seconds; a slurmctld that was started longer ago and knows its nodes is taken to be through with that."""
CONFIRMED = 0.1
"""Seconds for which it is believed that slurmctld was not started again."""
LINGERING = 300.0
"""Seconds after a start of slurmctld in which nodes may still speak of jobs that it forgot, by their numbers."""
STUCK = 10.0
"""Seconds after which a node that is still COMPLETING is closed."""
SURE = 60.0
"""Seconds between the submission of an attempt and that of a job which may be it."""
SHORT_MEMORY = 60.0
"""Seconds; a slurmctld that remembers jobs for less is warned of."""
SWEEP = 3600.0
"""Seconds between two removals of old files."""
FORGOTTEN = 60.0
"""Seconds after which a held job that only used up a number has been left behind."""
log = logging.getLogger(__name__)


class Watch:
    """What is known of a Slurm cluster, and in `told` what is to be said of it."""

    def __init__(self, settings: SlurmSettings, slurm: Slurm, spool: Spool, outputs: Outputs) -> None:
        self.told: deque[Event] = deque()
        self.wake = asyncio.Event()
        self.servers: dict[str, Server] = {}
        """In the order of Slurm's node table."""
        self.waiting: dict[str, HeldJob] = {}
        """Jobs that people gave to Slurm, by our ids."""
        self.config: Config | None = None
        self.partition: Partition | None = None
        """Where jobs are submitted."""
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
        """Attempts that have not ended, by Slurm's numbers."""
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
        """Whether Slurm was looked at, so that all that it had then is known."""
        return self._looked is not None

    @property
    def _boot(self) -> float:
        """When slurmctld was started."""
        return 0.0 if self.config is None else round(time.time() - self.config.age, 1)

    def listen(self) -> None:
        """Hear the hooks."""
        if self._hooks is not None:
            self._hooks.listen()

    def close(self) -> None:
        """Hear nothing more."""
        if self._hooks is not None:
            self._hooks.close()

    def pause(self) -> float:
        """Seconds until the next look: few when something was asked of Slurm a moment ago."""
        now = time.monotonic()
        ages = [now - r.since for r in self._spool.open if r.since and (r.verdict or not r.began or is_ending(r.parts))]
        return min([self._settings.poll, *(max(SOON, 0.25 * age) for age in ages)])

    async def look(self, everything: bool = False) -> None:
        """Look at Slurm, and take note of what has happened."""
        async with self._looking:
            began, clock = time.time(), time.monotonic()
            late = self.attempts.nodes_due or self._looked is None or clock - self._looked >= self._settings.poll
            nodes_too, self.attempts.nodes_due = everything or late, False
            if nodes_too:
                await self._look_at_nodes()
            jobs = await self._slurm.jobs()
            self._highest = max([self._highest, *(job.id for job in jobs)])
            self._numbered = {r.slurm: r for r in self._spool.open if r.slurm is not None and not is_theirs(r.key)}
            tags = {self._key(job) for job in jobs}
            if any(record.key not in tags and not record.sending for record in self._spool.open):
                self._confirmed = 0.0  # it may have been another slurmctld that answered
                await self.confirm()
            if self._hooks is not None:
                self._hooks.read()
            self.attempts.boot = self._boot
            self._compare(jobs, began, clock)
            servers = self.servers
            if nodes_too:
                there = {name: server(node) for name, node in self._nodes.items() if node.there}
                there = {name: self._stuck(found, clock) for name, found in there.items()}
                servers = reserve(there, self._nodes, self._reservations, self._user, began)
            # told after the ends of what ran there, which Slurm knows at the same time
            self._tell_servers(servers, self._taken(jobs))
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
        """After a start of slurmctld, wait until the nodes have spoken to it and have ended what it does not know."""
        now = time.monotonic()
        if self.config is None or config.boot != self.config.boot:
            self._booted = now - (0.0 if self.config is not None else config.age)
            self._spoken = None
        self.config = config
        silent = [name for name, node in self._nodes.items() if node.silent]
        if silent and now - self._booted < SETTLING:
            raise EngineError(f"slurmctld was started at {config.boot}, and node {silent[0]} has not spoken to it yet")
        if self._spoken is None:
            self._spoken = self._booted if now - self._booted > RECENT else now
        if now - self._spoken < ENDING:
            raise EngineError(f"slurmctld was started at {config.boot}, and nodes are ending what it does not know")

    async def confirm(self) -> None:
        """Slurmctld has settled, and is still the same: one that was just started must not be given jobs."""
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
                "are taken for lost, and run again",
                config.min_job_age,
            )
        shared = [node.name for node in self._nodes.values() if node.threads > 1]
        if shared and "CORE" in config.select.upper():
            log.warning("Slurm gives whole cores, and node %s has several CPUs in each: ask for whole ones", shared[0])
        if self._settings.companion and not config.default_memory and "MEMORY" in config.select.upper():
            log.warning("Slurm gives jobs that do not ask for memory all of it: set DefMemPerCPU")

    def _warn_of_others(self, nodes: Sequence[Node]) -> None:
        """Berth's own jobs could not run on nodes of the companion partition alone, so that these are no servers."""
        companion = self._settings.companion
        others = [node.name for node in nodes if companion in node.partitions and node.name not in self._nodes]
        if others:
            log.warning(
                "nodes of partition %s that are not in partition %s (`partition`) are not used: %s",
                companion,
                self._partition,
                ", ".join(others[:5]) + (", …" if len(others) > 5 else ""),
            )

    def _taken(self, jobs: Sequence[SlurmJob]) -> Taken:
        """What is not for berth. An attempt of ours is never taken for another's job, however it stands."""
        taken = Taken()
        for job in jobs:
            if not job.holding:
                continue
            key = self._key(job)
            record = None if key is None else self._spool.records.get(key)
            if record is None or (record.end is not None and is_theirs(record.key)):  # somebody released it by hand
                taken.add(job)
            elif record.end is None and record.demands is not None:
                taken.add(job, asked_for(record.places, record.demands))
        return taken

    def _stuck(self, found: Server, clock: float) -> Server:
        """A node that cannot get rid of a job starts nothing new; Slurm calls it up all the same."""
        if "COMPLETING" not in self._nodes[found.name].states:
            self._completing.pop(found.name, None)
        elif clock - self._completing.setdefault(found.name, clock) > STUCK and not found.closed:
            return replace(found, closed="Slurm cannot end a job there (COMPLETING)")
        return found

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

    def _compare(self, jobs: Sequence[SlurmJob], began: float, clock: float) -> None:
        """Compare what Slurm says with what is known. It was asked at `began`, which is `clock` by another clock."""
        found: defaultdict[Key, list[SlurmJob]] = defaultdict(list)
        for job in jobs:
            if (key := self._key(job)) is not None:
                found[key].append(job)
            elif (
                job.name == NUMBER
                and job.user == self._user
                and job.pending
                and began - (job.submit or 0.0) > FORGOTTEN
            ):
                self.attempts.unwanted.add(job.id)  # made by a berth that was killed before it could cancel it
        for key, parts in found.items():
            record = self._spool.records.get(key)
            if record is None and not key[1]:
                continue
            if record is None:
                record = self._spool.asked(key, tuple(Place(name, "", 1) for job in parts for name in job.nodes))
            if record.end is None:
                self.attempts.follow(record, self.attempts.one_job(record, parts), began)
            elif not is_theirs(key):
                self.attempts.unwanted.update(job.id for job in parts if not job.ended)
        for record in self._spool.open:
            if record.key not in found and record.slurm is not None and not record.sending and record.since < clock:
                self.attempts.missing(record)
        self._tell_waiting(self._companion.waiting(jobs))

    def _key(self, job: SlurmJob) -> Key | None:
        """The attempt that a job is; None where it is none of ours.

        Anybody may write any comment, so a job counts as an attempt only when it runs as the user of the attempt.
        """
        key = read_tag(job.comment, self._spool.instance)
        if key is None:  # a user may have changed the comment; numbers are used again after a crash of slurmctld
            known = self._numbered.get(job.leader or job.id)
            if known is None or (job.name, job.user) != (known.key[0], known.user or self._user):
                return None
            return known.key if abs((job.submit or 0.0) - known.asked) < SURE else None
        record = self._spool.records.get(key)
        if is_theirs(key):
            ours = is_own(key, job)
        elif record is not None and record.user:
            ours = job.user == record.user
        elif self._settings.users:  # an older version did not write down the user
            ours = record is not None and record.slurm in (job.id, job.leader)
        else:
            ours = job.user in ("", self._user)
        return key if ours else None

    def _tell_waiting(self, there: dict[str, HeldJob]) -> None:
        """Jobs that people gave to Slurm, and took away again; those that run are followed as attempts."""
        now, held = time.time(), {record.key[0] for record in self._spool.open}
        self.told.extend(Submitted(now, each.job) for id, each in there.items() if id not in self.waiting)
        self.told.extend(Cancelled(now, id, ORIGIN) for id in self.waiting if id not in there and id not in held)
        self.waiting = there

    async def _tidy(self) -> None:
        """End what nobody wants, remove old files, and hold jobs again that did not start or are to start again."""
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
