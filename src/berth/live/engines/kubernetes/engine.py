"""Jobs on a Kubernetes cluster (`--engine kubernetes`, `--engine kubernetes:FILE`).

Each attempt has a record in the cluster (`record`), which owns its pods (`template`); `attempts` follows them, and
`state` is what the engine knows of the cluster. As a companion, berth also places pods that others create
(`companion`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

from berth.errors import BerthError, InvalidInput
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
from berth.live.core.jobs import Job, Place, Server
from berth.live.engines import Attempt, EngineError, EngineKind, NoLogs, Owner, Snapshot
from berth.live.engines.clock import Clock
from berth.live.engines.kubernetes.attempts import Attempts
from berth.live.engines.kubernetes.companion import ORIGIN, Companion, Group
from berth.live.engines.kubernetes.lease import Lease, own_identity
from berth.live.engines.kubernetes.logs import read_logs
from berth.live.engines.kubernetes.pod_events import IGNORED, PLACED, WAITS, write_events
from berth.live.engines.kubernetes.record import Record
from berth.live.engines.kubernetes.settings import KubernetesSettings, read_settings
from berth.live.engines.kubernetes.state import State
from berth.live.engines.kubernetes.status import SeenPod
from berth.live.engines.kubernetes.template import NotPossible, pods_of, sized
from berth.live.engines.kubernetes.watching import Watching
from berth.live.kubernetes_api import ApiError, connect

__all__ = ["ENGINE", "KubernetesEngine"]

log = logging.getLogger(__name__)
SWEEP = 30.0
"""Seconds between two looks for records that are old enough to be removed."""
TURN = 200
"""Changes after which other tasks have a turn."""
EVENTS = 2
"""The most requests about events that are under way at once: placing pods goes first."""


class KubernetesEngine:
    """Jobs on a Kubernetes cluster."""

    def __init__(self, settings: KubernetesSettings | None = None, owner: Owner | None = None) -> None:
        self.settings = settings or KubernetesSettings()
        self.store = re.sub(r"[^A-Za-z0-9]", "", "" if owner is None else owner.name)[:63] or "default"
        self.api = connect(self.settings.kubeconfig, self.settings.context)
        self.namespace = self.settings.namespace or self.api.namespace
        self._state = State(self.settings, self.namespace, self.store)
        self._told: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._attempts = Attempts(self.api, self.settings, self._state, self._tell)
        self._companion = Companion(self.api, self.settings)
        self._lease = Lease(self.api, self.namespace, identity=own_identity(self.store), on_lost=self._lost)
        self._watching: Watching | None = None
        self._swept = 0.0
        self._due, self._next = False, 0.0
        """Whether servers and groups have to be compared, and when they may be."""
        self._few_events = asyncio.Semaphore(EVENTS)
        self._left: set[str] = set()
        """Pods that berth cannot place and has let go, or said so."""
        self._gone: set[str] = set()
        """Groups whose attempts failed and whose pods are gone."""

    def refusal(self, job: Job) -> str | None:
        """Why Kubernetes could never run a job; None if it could."""
        if job.origin == ORIGIN:
            return None
        places = tuple(Place("any", role.name, role.count) for role in job.roles)
        try:
            pods_of(Start(job.id, 1, places), job, Record((job.id, 1), "any", places), self.settings, self.store)
        except NotPossible as error:
            return str(error)
        return None

    def sized(self, job: Job) -> Job:
        """What the pods of a job take of their nodes; pods of others say so themselves."""
        try:
            return job if job.origin == ORIGIN else sized(job, self.settings, self.store)
        except (NotPossible, InvalidInput, ValueError):  # it is refused, or fails with the reason
            return job

    async def snapshot(self) -> Snapshot:
        """The current state of the cluster, read from the API server."""
        await self._stop()
        await self._lease.acquire()
        watching = Watching(self.api, self._state.followed(), self._wake)
        try:
            await watching.start()
        except BerthError as error:
            watching.stop()
            if getattr(error, "status", 0) in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise InvalidInput("the rights that berth needs", found=str(error), key="kubernetes") from None
            raise EngineError(str(error)) from None
        self._watching = watching
        self._state.take(watching.objects)
        self._attempts.resume()
        await asyncio.gather(*(self._attempts.tend(key) for key in list(self._state.records)))
        await self._companion.look(self._state)
        until = time.monotonic() + 2 * self.settings.settle
        while self._companion.pause and time.monotonic() < until:  # else a group that is not complete would look gone
            await asyncio.sleep(self._companion.pause)
            await self._companion.look(self._state)
        self._lease.check()
        self._leave()
        self._told.clear()
        attempts = []
        for record in self._state.records.values():
            record.reported = record.end is not None
            began = record.told or record.end is not None
            attempts.append(Attempt(*record.key, record.places, record.end, began))
        self._gone = {one.job for one in attempts if isinstance(one.end, Failed)}
        waiting = tuple(group.job for group in self._companion.waiting.values())
        return Snapshot(tuple(self._state.servers.values()), tuple(attempts), waiting)

    async def events(self) -> AsyncIterator[Event]:
        """Events, until the connection breaks."""
        while True:
            while self._told:
                yield self._told.popleft()
            if self._watching is None:
                raise EngineError("not connected")
            self._lease.check()
            await self._follow(self._watching)

    async def _follow(self, watching: Watching) -> None:
        """Wait for changes, and apply them; what takes long on a large cluster is done for several at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rest()):
                await self._wake.wait()
        self._wake.clear()
        self._lease.check()
        self._due = self._due or bool(watching.changes or self._companion.pause or self._state.waits)
        while watching.changes:
            change = watching.changes.popleft()
            if isinstance(change, BerthError):
                raise EngineError(str(change))
            for key in self._state.apply(*change):
                self._attempts.tend_soon(key)
            if len(watching.changes) % TURN == 0:
                await asyncio.sleep(0)
        began = time.monotonic()
        if (self._due or self._state.stale) and began >= self._next:
            self._due = False
            await self._compare()
            self._next = time.monotonic() + min(9 * (time.monotonic() - began), 2.0)
        if time.monotonic() - self._swept > SWEEP:
            self._swept = time.monotonic()
            self._attempts.aside(self._attempts.sweep())

    def _rest(self) -> float:
        """Seconds to wait for changes."""
        if self._due or self._state.stale:
            return max(self._next - time.monotonic(), 0.001)
        return 1.0 if self._state.waits else self._companion.pause or SWEEP

    async def _compare(self) -> None:
        """Tell what has become of servers and of groups that wait."""
        if self._state.stale or self._state.waits:
            await self._tell_servers()
        before = dict(self._companion.waiting)
        await self._companion.look(self._state)
        self._leave()
        for name, group in self._companion.waiting.items():
            if name not in before:
                self._told.append(Submitted(time.time(), group.job))
        self._tell_gone(before)

    def _leave(self) -> None:
        """Say why pods are not placed, and let go of those that wait for it."""
        for uid, (pod, why) in self._companion.ignored.items():
            if uid not in self._left:
                self._attempts.aside(self._let_go(pod, why))
        self._left = set(self._companion.ignored)

    async def _let_go(self, pod: SeenPod, why: str) -> None:
        try:
            await self._companion.let_go(pod)
        except ApiError as error:
            log.warning("pod %s is not let go: %s", pod.name, error)
            self._left.discard(pod.uid)
        gates = self.settings.companion == "gates"
        what = "left to kube-scheduler" if gates else "no scheduler places it while its schedulerName is berth"
        await self._write_events([pod], IGNORED, f"{what}: {why}")

    def _tell_gone(self, before: Mapping[str, Group]) -> None:
        """Tell which groups wait no more and are not placed either: their pods were deleted."""
        records = self._state.records.values()
        failed = {record.key[0] for record in records if record.members and isinstance(record.end, Failed)}
        placed = {record.key[0] for record in records if record.members and not isinstance(record.end, Failed)}
        for name in (before.keys() | (failed - self._gone)) - self._companion.waiting.keys() - placed:
            self._told.append(Cancelled(time.time(), name, ORIGIN))
        self._gone = failed - self._companion.waiting.keys() - placed

    async def _tell_servers(self) -> None:
        before = self._state.servers
        after, news = await asyncio.to_thread(_compared, before, self._state.gather())
        self._state.servers = after
        now = time.time()
        for server in news:
            self._told.append((ServerChanged if server.name in before else ServerJoined)(now, server))
        for name in before.keys() - after.keys():
            self._told.append(ServerLost(now, name))
            for record in self._state.records.values():
                if record.end is None and any(place.server == name for place in record.places):
                    self._attempts.tend_soon(record.key)

    async def execute(self, command: Command, job: Job | None, /) -> None:
        """Execute a command."""
        key = command.job, command.attempt
        self._lease.check()
        try:
            if isinstance(command, Cancel):
                await self._cancel(command, job)
            elif job is None:
                raise InvalidInput("the job that is to start", value=None, key="job")
            elif job.origin == ORIGIN:
                group = self._companion.waiting.get(command.job)
                await self._attempts.place(command, group)
                if group is not None:
                    nodes = ", ".join(dict.fromkeys(place.server for place in command.places))
                    pods = [pod for those in group.pods.values() for pod in those]
                    text = f"attempt {command.attempt} of {command.job} on {nodes}"
                    self._attempts.aside(self._write_events(pods, PLACED, text))
            else:
                await self._attempts.start(command, job)
        except ApiError as error:
            raise EngineError(str(error)) from None
        self._attempts.tend_soon(key)

    async def _cancel(self, command: Cancel, job: Job | None) -> None:
        group = self._companion.waiting.get(command.job)
        record = self._state.records.get((command.job, command.attempt))
        theirs = record is None or bool(record.members) if job is None else job.origin == ORIGIN
        if group is not None and theirs and (record is None or record.end is not None):
            await self._companion.delete(group)
        else:
            await self._attempts.cancel((command.job, command.attempt))

    def settled(self, ended: Iterable[tuple[str, int]], /) -> None:
        """Note that the journal has the ends of these attempts."""
        for key in ended:
            record = self._state.records.get(key)
            if record is not None and record.end is not None:
                record.settled = True

    async def recalled(self) -> Collection[str]:
        """The jobs of recorded attempts, and those of groups that wait."""
        if self._watching is None:
            raise EngineError("not connected")
        return {job for job, _ in self._state.records} | self._companion.waiting.keys()

    async def logs(self, job: str, attempt: int, task: int | None, tail: int) -> str:
        """The last lines of each task of an attempt, or of one task."""
        record = self._state.records.get((job, attempt))
        if record is None:
            raise NoLogs(f"attempt {attempt} of job {job} is not in the cluster")
        return await read_logs(self._attempts.text, record, self._state.pods(record).values(), task, tail)

    async def note(self, job: str, text: str, /) -> None:
        """Show why a group of pods waits, as an event on its pods."""
        group = self._companion.waiting.get(job)
        if group is not None:
            pods = [pod for those in group.pods.values() for pod in those]
            await self._write_events(pods, WAITS, text)

    async def _write_events(self, pods: list[SeenPod], reason: str, text: str) -> None:
        """Events help readers; scheduling goes on without them."""
        try:
            async with self._few_events:
                await write_events(self.api, pods, reason, text)
        except ApiError as error:
            log.warning("no event for pod %s: %s", pods[0].name, error)

    def _lost(self, reason: str) -> None:
        """Another berth may lead now: stop at once."""
        self._attempts.halt()
        self._wake.set()

    async def close(self) -> None:
        """Disconnect; jobs go on running."""
        await self._stop()
        await self._lease.release()
        self.api.close()

    def _tell(self, event: Event) -> None:
        self._told.append(event)
        self._wake.set()

    async def _stop(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.stop()
        await self._attempts.pause()


def _compared(
    before: Mapping[str, Server], servers: Callable[[], dict[str, Server]]
) -> tuple[dict[str, Server], list[Server]]:
    """The servers now, and those that are new or other than before."""
    after = servers()
    return after, [server for name, server in after.items() if before.get(name) != server]


def _settings(rest: str) -> KubernetesSettings:
    return read_settings(Path(rest)) if rest else KubernetesSettings()


def _make(settings: KubernetesSettings, _: Clock, __: Path | None, owner: Owner | None) -> KubernetesEngine:
    return KubernetesEngine(settings, owner)


ENGINE = EngineKind(_settings, _make, reads_file=True)
