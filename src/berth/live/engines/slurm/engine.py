"""Slurm as an engine.

The engine polls Slurm: soon after a command, otherwise every `poll` seconds, and at once when a hook of slurmctld
calls (`watch`). Each attempt is recorded before it is submitted (`spool`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import secrets
import time
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from berth.errors import InvalidInput, did_you_mean
from berth.live.core.events import (
    Cancel,
    Cancelled,
    Command,
    Event,
    Failed,
    ServerChanged,
    ServerJoined,
    ServerLost,
    Start,
    Submitted,
)
from berth.live.core.jobs import Job, Place
from berth.live.engines import Attempt, EngineError, EngineKind, Owner, Snapshot
from berth.live.engines.clock import Clock
from berth.live.engines.locks import Locks
from berth.live.engines.slurm.commands import Away, Refused, Slurm, SlurmCommands
from berth.live.engines.slurm.companion import ORIGIN, pinned
from berth.live.engines.slurm.environment import NotPossible
from berth.live.engines.slurm.foreign_jobs import asked_for, room
from berth.live.engines.slurm.outputs import Outputs, check_shared, make_shared
from berth.live.engines.slurm.pauses import Pauses, Turn, fault_of
from berth.live.engines.slurm.rest import SlurmRest
from berth.live.engines.slurm.settings import SlurmSettings, read_settings
from berth.live.engines.slurm.spool import AttemptRecord, Key, Spool
from berth.live.engines.slurm.submission import Submission, submission, write_tag
from berth.live.engines.slurm.watch import Watch

__all__ = ["ENGINE", "SlurmEngine", "check_settings"]

SURE = 5.0
"""Seconds after which an unanswered submission is no longer under way."""
log = logging.getLogger(__name__)


def check_settings(settings: SlurmSettings) -> None:
    """Refuse settings that are wrong on this machine, without making anything."""
    conf = settings.conf
    if conf is not None and not settings.rest:
        try:
            conf.open("rb").close()
        except OSError as error:
            found = f"{conf}: {error.strerror or error}"
            raise InvalidInput("a slurm.conf that can be read", found=found, key="conf") from None
    if settings.users:
        if os.geteuid() != 0:
            found = f"berth runs as {pwd.getpwuid(os.geteuid()).pw_name}"
            raise InvalidInput("false: only root can run jobs as other users", found=found, key="users")
        check_shared(settings.outputs)


class SlurmEngine:
    """Jobs on a Slurm cluster."""

    def __init__(
        self,
        settings: SlurmSettings | None = None,
        slurm: Slurm | None = None,
        owner: Owner | None = None,
        file: Path | None = None,
    ) -> None:
        self.settings = (settings or SlurmSettings()).of(owner)
        self._file = file
        """The file of the settings, for errors."""
        check_settings(self.settings)
        way = SlurmRest if self.settings.rest else SlurmCommands
        self.slurm: Slurm = slurm or way(self.settings)
        self._spool = Spool(self.settings.spool, owner)
        try:
            self._make_outputs()
            self._outputs = Outputs(self.settings, self._spool.instance)
            self._watch = Watch(self.settings, self.slurm, self._spool, self._outputs)
        except BaseException:
            self._spool.close()
            raise
        self._locks = Locks[Key]()
        self._pauses = Pauses()
        self._checked = False

    @property
    def paused(self) -> str | None:
        """Why nothing is submitted now."""
        return self._pauses.said

    def _make_outputs(self) -> None:
        outputs = self.settings.outputs
        if self.settings.users:
            make_shared(outputs.absolute())
            return
        try:
            outputs.mkdir(parents=True, exist_ok=True)
        except (NotADirectoryError, FileExistsError) as error:
            found = f"{outputs}: {error.strerror}"
            raise InvalidInput("a directory", found=found, key="output") from None
        except OSError as error:  # perhaps only the nodes have it
            log.warning("the output directory %s is not reachable here: %s", outputs, error.strerror or error)

    async def _check_partitions(self) -> None:
        """Refuse partitions that Slurm does not have."""
        named = {key: getattr(self.settings, key) for key in ("partition", "companion")}
        known = await self.slurm.partitions() if any(named.values()) else {}
        for key, name in named.items():
            if name and name not in known:
                expected = f"a partition of Slurm ({', '.join(sorted(known))}){did_you_mean(name, known)}"
                raise InvalidInput(expected, value=name, key=key, file=self._file)
        self._checked = True

    def refusal(self, job: Job) -> str | None:
        """Why Slurm could never run a job, on any servers; None if it could."""
        places = tuple(Place("any", role.name, role.count) for role in job.roles)
        known = self._watch.config, None, self._watch.partition
        try:
            submission(Start(job.id, 1, places), job, self.settings, self._spool.instance, *known)
        except NotPossible as error:
            return str(error)
        return None

    async def snapshot(self) -> Snapshot:
        """All that Slurm knows of berth's attempts, and the remembered ends of attempts.

        Raises `InvalidInput` if Slurm shows that the settings are wrong.
        """
        if not self._checked:
            await self._check_partitions()
        await self._watch.look(everything=True)
        seen = (ServerJoined, ServerChanged, ServerLost, Submitted, Cancelled)
        later = [event for event in self._watch.told if not isinstance(event, seen)]
        self._watch.told.clear()
        self._watch.told.extend(later)
        attempts = [
            Attempt(
                *record.key,
                record.places,
                record.end,
                record.began or record.end is not None,
                self._watch.attempts.details(record),
            )
            for record in self._spool.records.values()
            if record.end is not None or record.slurm is not None
        ]
        waiting = tuple(each.job for each in self._watch.waiting.values())
        return Snapshot(tuple(self._watch.servers.values()), tuple(attempts), waiting)

    async def events(self) -> AsyncIterator[Event]:
        """Events."""
        self._watch.listen()
        while True:
            while self._watch.told:
                yield self._watch.told.popleft()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._watch.pause()):
                    await self._watch.wake.wait()
            self._watch.wake.clear()
            await self._watch.look()

    async def execute(self, command: Command, job: Job | None, /) -> None:
        """Execute a command."""
        key = command.job, command.attempt
        async with self._locks.of(key):
            if isinstance(command, Cancel):
                await self._cancel(key, job)
            elif job is None:
                raise InvalidInput("the job that is to start", value=None, key="job")
            elif job.origin == ORIGIN:
                await self._place(command)
            else:
                await self._start(command, job)
        self._watch.wake.set()

    async def _start(self, start: Start, job: Job) -> None:
        if await self._known((start.job, start.attempt)):
            return
        whose = job.user if self.settings.users else ""
        self._pauses.check(whose)
        await self._watch.confirm()
        with self._pauses.turn(whose) as turn:
            await self._submit(start, job, turn)

    async def _submit(self, start: Start, job: Job, turn: Turn) -> None:
        secret = secrets.token_hex(8)
        told = self._submission(start, job, secret)
        user = told.user.pw_name if isinstance(told, Submission) and told.user is not None else ""
        steps = job.payload.get("script") is None
        record = self._spool.asked((start.job, start.attempt), start.places, steps, job, user, secret)
        if self._is_away(start, record):
            return
        if isinstance(told, NotPossible):
            self._fail(record, str(told), "job")
            return
        record.sending = True
        try:
            number = await self.slurm.submit(told)
        except Refused as error:
            fault = fault_of(str(error), told.minutes is not None)
            if fault == "engine":
                turn.refusal = str(error)
            self._fail(record, f"Slurm refused it: {error}", fault)
        except Away as error:
            if error.heard:
                turn.refusal = str(error)
            else:
                self._spool.forgotten(record)
            raise
        else:
            turn.taken = True
            record.since = time.monotonic()
            self._spool.taken(record, number)
        finally:
            record.sending = False
            self._spool.sent(record)

    def _room(self, start: Start) -> dict[str, dict[str, int]]:
        """What each server of a start has free for it, in Slurm's order of servers."""
        names = {place.server for place in start.places}
        others = [r for r in self._spool.open_on(names) if r.key != (start.job, start.attempt)]
        servers = [server for name, server in self._watch.servers.items() if name in names]
        return room(servers, [asked_for(r.places, r.demands) for r in others if r.demands is not None])

    def _submission(self, start: Start, job: Job, secret: str) -> Submission | NotPossible:
        """The submission to Slurm, once its user has an output directory; or why the job cannot run."""
        known = self._watch.config, self._room(start), self._watch.partition
        try:
            told = submission(start, job, self.settings, self._spool.instance, *known, secret=secret)
            if told.user is not None:
                self._outputs.make(told.user)
        except NotPossible as error:
            return error
        return told

    async def _place(self, start: Start) -> None:
        """Pin and release a job that waits in Slurm."""
        key = start.job, start.attempt
        if await self._known(key):
            return
        if start.job not in self._watch.waiting:
            await self._watch.look()
        there = self._watch.waiting.get(start.job)
        record = self._spool.asked(key, start.places, job=None if there is None else there.job, theirs=True)
        if there is None:
            self._fail(record, "it no longer waits in Slurm", "cancelled")
            return
        if self._is_away(start, record):
            return
        changes = {**pinned(there.job, start.places), "Comment": write_tag(self._spool.instance, *key)}
        record.sending = True
        try:
            await self.slurm.update(there.slurm, changes)
            record.since = time.monotonic()
            self._spool.taken(record, there.slurm)
            await self.slurm.release(there.slurm)
        except Refused as error:
            self._fail(record, f"Slurm refused it: {error}", "engine")
        finally:
            record.sending = False
            self._spool.sent(record)

    def _is_away(self, start: Start, record: AttemptRecord) -> bool:
        away = [place.server for place in start.places if place.server not in self._watch.servers]
        if away:
            self._fail(record, f"server {away[0]} is not there", "server")
        return bool(away)

    def _fail(self, record: AttemptRecord, reason: str, fault: Literal["job", "server", "engine", "cancelled"]) -> None:
        self._watch.attempts.end(record, Failed(time.time(), *record.key, reason, fault))

    async def _known(self, key: Key) -> bool:
        """Whether an attempt was submitted. Raises `EngineError` while that is unknown."""
        if not self._watch.has_looked:
            await self._watch.look()
        record = self._spool.records.get(key)
        if record is None:
            return False
        if record.end is None and record.slurm is None:  # its submission failed halfway
            await self._watch.look()
        if record.end is not None or record.slurm is not None:
            return True
        age, config = time.monotonic() - record.asked_clock, self._watch.config
        if age < (SURE if record.ours else self.settings.command_seconds + SURE):
            raise EngineError(f"it is not known yet whether Slurm took attempt {key[1]} of {key[0]}")
        if not record.ours and config is not None and age > 0.9 * config.min_job_age:
            self._watch.attempts.missing(record)  # it may have run, and Slurm may have forgotten it
            return True
        return False

    async def _cancel(self, key: Key, job: Job | None) -> None:
        known, there = await self._known(key), self._watch.waiting.get(key[0])
        theirs = not known or self._spool.records[key].theirs if job is None else job.origin == ORIGIN
        if there is not None and theirs and (not known or self._spool.records[key].end is not None):
            await self.slurm.cancel([there.slurm])
        elif not known:
            self._fail(self._spool.asked(key, ()), "cancelled before it began", "cancelled")
        else:
            record = self._spool.records[key]
            if record.end is None and record.slurm is not None:
                await self.slurm.cancel([record.slurm, *(job.id for job in record.parts if job.id != record.slurm)])
                record.verdict = record.verdict or Failed(time.time(), *key, "cancelled", "cancelled")
                record.since = time.monotonic()

    def settled(self, ended: Iterable[tuple[str, int]], /) -> None:
        """Note that the journal has the ends of these attempts."""
        self._spool.settled(ended)

    async def recalled(self) -> Collection[str]:
        """The jobs of remembered attempts, and those that wait in Slurm."""
        if not self._watch.has_looked:
            raise EngineError("Slurm has not answered yet")
        return {job for job, _ in self._spool.records} | self._watch.waiting.keys()

    async def close(self) -> None:
        """Close; jobs go on running."""
        await self.slurm.close()
        self._watch.close()
        self._spool.close()


def _settings(rest: str) -> tuple[SlurmSettings, Path | None]:
    file = Path(rest) if rest else None
    settings = read_settings(file) if file else SlurmSettings()
    try:
        check_settings(settings)
    except InvalidInput as error:
        raise error.at(file=file) from None
    return settings, file


def _make(given: tuple[SlurmSettings, Path | None], _: Clock, __: Path | None, owner: Owner | None) -> SlurmEngine:
    settings, file = given
    try:
        return SlurmEngine(settings, owner=owner, file=file)
    except InvalidInput as error:
        raise error.at(file=file) from None


ENGINE = EngineKind(_settings, _make, reads_file=True)
