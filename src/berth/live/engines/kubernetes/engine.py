"""Jobs on a Kubernetes cluster (`--engine kubernetes`, `--engine kubernetes:FILE`).

Each attempt has a record in the cluster (`record`), which owns its pods (`template`). The engine works as controllers
do: whenever a record or one of its pods changes, it looks at all of them and does what is missing (`_tend`). What it
does may be repeated at any time, so nothing is lost when berth, the API server or etcd is killed in between.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

from berth.errors import BerthError, InvalidInput
from berth.files.quantities import Amounts
from berth.live.core.events import (
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
    write_event,
)
from berth.live.core.jobs import Job, Place, Server
from berth.live.engines import Attempt, EngineError, EngineKind, NoLogs, Owner, Snapshot
from berth.live.engines.clock import Clock
from berth.live.engines.kubernetes.api import Api, ClusterRefused, ClusterSilent, connect
from berth.live.engines.kubernetes.logs import read_logs
from berth.live.engines.kubernetes.record import RECORD, STORE, Key, Record, is_go, name_of, read_record
from berth.live.engines.kubernetes.servers import excess, server_of, taken_of
from berth.live.engines.kubernetes.settings import KubernetesSettings, read_settings
from berth.live.engines.kubernetes.status import SeenPod, seconds_of, seen
from berth.live.engines.kubernetes.template import NotPossible, go_map, pods_of
from berth.live.engines.kubernetes.watching import Followed, Watching

__all__ = ["ENGINE", "KubernetesEngine"]

PARALLEL = 8
"""The most pods of a gang that are created or deleted at once."""
UNFIT_SECONDS = 3.0
"""How long kube-scheduler may find no room: what has just ended may still count for it."""
FIRST_RETRY, LONGEST_RETRY = 0.2, 10.0
SWEEP = 30.0
"""Seconds between two looks for records that are old enough to be removed."""
Fault = Literal["job", "server", "engine", "cancelled"]
log = logging.getLogger(__name__)


class KubernetesEngine:
    """Jobs on a Kubernetes cluster."""

    def __init__(self, settings: KubernetesSettings | None = None, owner: Owner | None = None) -> None:
        self.settings = settings or KubernetesSettings()
        self.store = re.sub(r"[^A-Za-z0-9]", "", "" if owner is None else owner.name)[:63] or "default"
        self.api: Api = connect(self.settings.kubeconfig, self.settings.context)
        self.namespace = self.settings.namespace or self.api.namespace
        self.records: dict[Key, Record] = {}
        self.pods: dict[str, dict[str, SeenPod]] = {}
        """The pods of each record, by name."""
        self._names: dict[str, Key] = {}
        self._own: dict[str, tuple[str, str]] = {}
        """The record and the name of each of berth's own pods, by uid."""
        self._foreign: dict[str, SeenPod] = {}
        self._nodes: dict[str, Server | None] = {}
        """Each node by uid, with nothing taken; None while it is not ready."""
        self._servers: dict[str, Server] = {}
        self._told: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._watching: Watching | None = None
        self._locks: defaultdict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._queued: set[Key] = set()
        self._tries: dict[Key, int] = {}
        self._stale = False
        """Whether servers have to be computed anew."""
        self._swept = 0.0

    # what the scheduler calls

    def refusal(self, job: Job) -> str | None:
        """Why Kubernetes could never run a job; None if it could."""
        places = tuple(Place("any", role.name, role.count) for role in job.roles)
        try:
            pods_of(Start(job.id, 1, places), job, Record((job.id, 1), "any", places), self.settings, self.store)
        except NotPossible as error:
            return str(error)
        return None

    async def snapshot(self) -> Snapshot:
        """The current state of the cluster, read from the API server."""
        await self._stop()
        watching = Watching(self.api, self._followed(), self._wake)
        try:
            await watching.start()
        except ClusterRefused as error:
            watching.stop()
            if error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise InvalidInput("the rights that berth needs", found=str(error), key="kubernetes") from None
            raise EngineError(str(error)) from None
        except BerthError as error:
            watching.stop()
            raise EngineError(str(error)) from None
        self._watching = watching
        self._take(watching.objects)
        self._servers = self._all_servers()
        await asyncio.gather(*(self._tend_again(key) for key in list(self.records)))
        self._told.clear()
        attempts = [
            Attempt(*record.key, record.places, record.end, record.told or record.end is not None)
            for record in self.records.values()
        ]
        return Snapshot(tuple(self._servers.values()), tuple(attempts))

    async def events(self) -> AsyncIterator[Event]:
        """Events, until the connection breaks."""
        while True:
            while self._told:
                yield self._told.popleft()
            watching = self._watching
            if watching is None:
                raise EngineError("not connected")
            await self._follow(watching)

    async def execute(self, command: Command, job: Job | None, /) -> None:
        """Execute a command."""
        key = command.job, command.attempt
        try:
            async with self._locks[key]:
                if isinstance(command, Cancel):
                    await self._cancel(key)
                elif job is None:
                    raise InvalidInput("the job that is to start", value=None, key="job")
                else:
                    await self._start(command, job)
        except (ClusterSilent, ClusterRefused) as error:
            raise EngineError(str(error)) from None
        self._tend_soon(key)

    async def logs(self, job: str, attempt: int, task: int | None, tail: int) -> str:
        """The last lines of each task of an attempt, or of one task."""

        async def ask(what: str, query: Mapping[str, str]) -> str:
            path = f"/api/v1/namespaces/{self.namespace}/{what}"
            return str(await asyncio.to_thread(self.api.request, "GET", path, None, query, True))

        record = self.records.get((job, attempt))
        if record is None:
            raise NoLogs(f"attempt {attempt} of job {job} is not in the cluster")
        return await read_logs(ask, record, self.pods.get(record.name, {}), task, tail)

    async def close(self) -> None:
        """Disconnect; jobs go on running."""
        await self._stop()
        self.api.close()

    # the state of the cluster

    def _followed(self) -> tuple[Followed, ...]:
        ours = {"labelSelector": f"{STORE}={self.store}"}
        maps = f"/api/v1/namespaces/{self.namespace}/configmaps"
        return (
            Followed("nodes", "/api/v1/nodes", {}, lambda given: (server_of(given, self.settings),)),
            Followed("maps", maps, ours, lambda given: given),
            Followed("pods", "/api/v1/pods", {}, seen),
        )

    def _take(self, objects: dict[str, dict[str, Any]]) -> None:
        """Begin with these objects."""
        known, self.records, self._names = self.records, {}, {}
        self._nodes = {uid: one[0] for uid, one in objects["nodes"].items()}
        self._foreign, self._own, self.pods = {}, {}, {}
        gos = set()
        for one in objects["maps"].values():
            if is_go(one):
                gos.add(one["metadata"]["labels"][RECORD])
            else:
                self._record(one, known)
        for record in self.records.values():
            record.released = record.name in gos
        for pod in objects["pods"].values():
            self._pod(pod)
        for record in self.records.values():
            if record.manifests is None:  # a task of a gang that was not let go has not begun: its pod may be made anew
                count = len(record.tasks)
                record.created = record.released or count == 1 or len(self.pods.get(record.name, {})) == count

    def _record(self, config_map: dict[str, Any], known: dict[Key, Record]) -> None:
        record = read_record(config_map)
        if record is None:
            log.warning("ConfigMap %s is not the record of an attempt", config_map["metadata"]["name"])
            return
        before = known.get(record.key)
        if before is not None and before.uid == record.uid:
            before.end, before.verdict = before.end or record.end, before.verdict or record.verdict
            record = before
        self.records[record.key] = record
        self._names[record.name] = record.key

    def _pod(self, pod: SeenPod) -> None:
        name = pod.labels.get(RECORD)
        if name and pod.labels.get(STORE) == self.store and pod.namespace == self.namespace:
            self.pods.setdefault(name, {})[pod.name] = pod
            self._own[pod.uid] = name, pod.name
        else:
            self._foreign[pod.uid] = pod

    async def _follow(self, watching: Watching) -> None:
        """Wait for changes, and apply them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SWEEP):
                await self._wake.wait()
        self._wake.clear()
        while watching.changes:
            change = watching.changes.popleft()
            if isinstance(change, BerthError):
                raise EngineError(str(change))
            self._apply(*change)
        if self._stale:
            self._stale = False
            self._compare_servers()
        await self._sweep()

    def _apply(self, what: str, uid: str, found: Any) -> None:
        if what == "nodes":
            self._stale = self._stale or found is None or self._nodes.get(uid) != found
            if found is None:
                self._nodes.pop(uid, None)
            else:
                self._nodes[uid] = found[0]
        elif what == "maps":
            self._map_changed(uid, found)
        else:
            self._pod_changed(uid, found)

    def _map_changed(self, uid: str, found: dict[str, Any] | None) -> None:
        if found is None:
            for record in [record for record in self.records.values() if record.uid == uid]:
                record.gone = True
                self._tend_soon(record.key)
        elif is_go(found):
            if (key := self._names.get(found["metadata"]["labels"][RECORD])) is not None:
                self.records[key].released = True
        else:
            self._record(found, self.records)

    def _pod_changed(self, uid: str, pod: SeenPod | None) -> None:
        before = self._foreign.pop(uid, None)
        name, pod_name = self._own.pop(uid, ("", ""))
        if pod is not None:
            self._pod(pod)
            name = self._own[uid][0] if uid in self._own else ""
        elif name:
            self.pods.get(name, {}).pop(pod_name, None)
        if name in self._names:
            self._tend_soon(self._names[name])
        after = self._foreign.get(uid)
        self._stale = self._stale or _held(before) != _held(after)

    def _all_servers(self) -> dict[str, Server]:
        servers = {server.name: server for server in self._nodes.values() if server is not None}
        held = [one for pod in self._foreign.values() if (one := _held(pod)) is not None]
        own = (pod for pods in self.pods.values() for pod in pods.values() if pod.node and not pod.ended)
        held += [(more, pod.node) for pod in own if (more := excess(pod))]
        taken = taken_of(held, servers, self.settings.names())
        return {
            name: Server(name, one.capacity, one.labels, one.speed, one.closed, taken[name])
            for name, one in servers.items()
        }

    def _compare_servers(self) -> None:
        before, self._servers = self._servers, self._all_servers()
        now = time.time()
        for name, server in self._servers.items():
            if name not in before:
                self._told.append(ServerJoined(now, server))
            elif before[name] != server:
                self._told.append(ServerChanged(now, server))
        for name in before.keys() - self._servers.keys():
            self._told.append(ServerLost(now, name))
            for record in self.records.values():
                if record.end is None and any(place.server == name for place in record.places):
                    self._tend_soon(record.key)

    # attempts

    async def _start(self, start: Start, job: Job) -> None:
        key = start.job, start.attempt
        record = self.records.get(key)
        if record is None:
            record = Record(key, name_of(self.store, key), start.places, asked=time.time())
            away = [place.server for place in start.places if place.server not in self._servers]
            try:
                pods_of(start, job, record, self.settings, self.store)
            except NotPossible as error:
                record.end = _failed(record, str(error), "job")
            if away:
                record.end = _failed(record, f"server {away[0]} is not there", "server")
            record = await self._write(record)
        if record.end is None and not record.created and record.verdict is None:
            record.manifests = pods_of(start, job, record, self.settings, self.store)
            await self._create(record)

    async def _write(self, record: Record) -> Record:
        """Create the record, or take the one that is there."""
        try:
            made = await self._ask("POST", "configmaps", record.config_map(self.namespace, self.store))
            record.uid = made["metadata"]["uid"]
        except ClusterRefused as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            self._record(await self._ask("GET", f"configmaps/{record.name}"), self.records)
            return self.records[record.key]
        self.records[record.key] = record
        self._names[record.name] = record.key
        if record.end is not None:
            self._tell(record.end)
        return record

    async def _create(self, record: Record) -> None:
        """Create the pods that are not there yet."""
        there = self.pods.get(record.name, {})
        missing = [one for one in record.manifests or () if one["metadata"]["name"] not in there]
        few = asyncio.Semaphore(PARALLEL)

        async def create(pod: dict[str, Any]) -> None:
            pod["metadata"]["ownerReferences"] = [record.owner]
            async with few:
                try:
                    made = await self._ask("POST", "pods", pod)
                except ClusterRefused as error:
                    if error.status != HTTPStatus.CONFLICT:
                        raise
                    made = await self._ask("GET", f"pods/{pod['metadata']['name']}")
            if made["metadata"]["uid"] not in self._own:  # the watch may be behind
                self._pod(seen(made))

        results = await asyncio.gather(*(create(pod) for pod in missing), return_exceptions=True)
        refused = [one for one in results if isinstance(one, ClusterRefused)]
        if refused:
            fault: Fault = "job" if refused[0].status == HTTPStatus.UNPROCESSABLE_ENTITY else "engine"
            await self._condemn(record, _failed(record, f"Kubernetes refused a pod: {refused[0]}", fault))
            return
        for one in results:
            if isinstance(one, BaseException):
                raise one
        record.created, record.manifests = True, None
        record.since["created"] = time.monotonic()

    async def _cancel(self, key: Key) -> None:
        record = self.records.get(key)
        if record is None:
            record = Record(key, name_of(self.store, key), (), asked=time.time())
            record.end = _failed(record, "cancelled before it began", "cancelled")
            record = await self._write(record)
        if record.end is None and record.verdict is None:
            await self._condemn(record, _failed(record, "cancelled", "cancelled"))

    async def _condemn(self, record: Record, verdict: Failed) -> None:
        """Note how an attempt is to end, before its pods are ended."""
        if record.verdict is None and record.end is None:
            await self._patch(record, verdict=verdict)
            record.verdict = verdict
        self._tend_soon(record.key)

    def _tend_soon(self, key: Key, after: float = 0.0) -> None:
        if after:
            asyncio.get_running_loop().call_later(after, self._tend_soon, key)
        elif key not in self._queued and self._watching is not None:
            self._queued.add(key)
            task = asyncio.create_task(self._tend_again(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tend_again(self, key: Key) -> None:
        try:
            await self._tend(key)
            self._tries.pop(key, None)
        except (ClusterSilent, ClusterRefused) as error:
            tries = self._tries[key] = self._tries.get(key, 0) + 1
            wait = min(FIRST_RETRY * 2 ** min(tries, 10), LONGEST_RETRY)
            log.warning("attempt %d of %s: %s; retrying in %.2g s", key[1], key[0], error, wait)
            self._tend_soon(key, wait)

    async def _tend(self, key: Key) -> None:
        """Do what an attempt needs now."""
        self._queued.discard(key)
        async with self._locks[key]:
            record = self.records.get(key)
            if record is None or (record.end is not None and record.gone):
                self._forget(key)
                return
            pods = self.pods.get(record.name, {})
            if record.end is not None:  # a pod may be created late, by a request that was long under way
                await self._delete(pods)
                return
            if record.gone:  # somebody removed the record, and the garbage collector removes its pods
                record.verdict = record.verdict or _failed(
                    record, "its record was removed from the cluster", "cancelled"
                )
            if record.verdict is not None:
                await self._finish(record, pods)
            elif record.created:
                await self._judge(record, list(pods.values()))
            elif record.manifests is not None:
                await self._create(record)

    async def _judge(self, record: Record, pods: list[SeenPod]) -> None:
        """Decide what becomes of an attempt whose pods were created."""
        if verdict := self._broken(record, pods):
            await self._condemn(record, verdict)
            return
        if len(pods) < len(record.tasks):
            return
        if len(pods) > 1 and not record.released and all(pod.node for pod in pods):
            try:
                await self._ask("POST", "configmaps", go_map(record, self.namespace, self.store))
            except ClusterRefused as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
            record.released = True
        if not record.told and all(pod.phase in ("Running", "Succeeded") for pod in pods):
            record.told = True
            details = {"namespace": self.namespace, "pods": ",".join(sorted(pod.name for pod in pods))}
            self._tell(Started(time.time(), *record.key, details))
        if all(pod.phase == "Succeeded" for pod in pods):
            await self._end(record, Finished(time.time(), *record.key, seconds_of(pods)))

    def _broken(self, record: Record, pods: list[SeenPod]) -> Failed | None:
        """Why an attempt cannot go on; None if it can."""
        lost = [place.server for place in record.places if place.server not in self._servers]
        over = {pod.node for pod in pods if pod.ended}
        if lost and (set(lost) - over):
            return _failed(record, f"server {lost[0]} was lost", "server")
        for pod in pods:
            if pod.phase == "Failed":
                reason, fault = pod.failure()
                return _failed(record, reason, fault, seconds_of(pods))
        for pod in pods:
            if pod.deleting and not pod.ended:
                return _failed(
                    record, f"pod {pod.name} was deleted or evicted from {pod.node or 'the queue'}", "server"
                )
        clock = time.monotonic()
        if len(pods) < len(record.tasks):
            if clock - record.since.setdefault("missing", clock) < 2.0:  # the watch may be behind
                self._tend_soon(record.key, 1.0)
                return None
            return _failed(record, "a pod was deleted", "server")
        record.since.pop("missing", None)
        waiting = [pod for pod in pods if not pod.node]
        if waiting:
            return self._unbound(record, waiting, clock)
        if stuck := next((why for pod in pods if (why := pod.stuck)), ""):
            since = record.since.setdefault("stuck", clock)
            if clock - since > self.settings.start_seconds:
                return _failed(
                    record, f"a container did not start in {self.settings.start_seconds:g} s ({stuck})", "job"
                )
            self._tend_soon(record.key, 5.0)
        return None

    def _unbound(self, record: Record, waiting: list[SeenPod], clock: float) -> Failed | None:
        """Whether pods have waited too long for their nodes."""
        since = record.since.setdefault("created", clock)
        if unfit := next((why for pod in waiting if (why := pod.unschedulable)), ""):
            if clock - record.since.setdefault("unfit", clock) > UNFIT_SECONDS:
                return _failed(record, f"kube-scheduler found no room: {unfit}", "server")
            self._tend_soon(record.key, 1.0)
        elif clock - since > self.settings.bind_seconds:
            return _failed(record, f"kube-scheduler did not bind it in {self.settings.bind_seconds:g} s", "engine")
        else:
            self._tend_soon(record.key, 5.0)
        return None

    async def _finish(self, record: Record, pods: dict[str, SeenPod]) -> None:
        """End the pods of an attempt, and the attempt when none of them is left."""
        await self._delete(pods)
        left = [pod for pod in pods.values() if not pod.ended and (not pod.node or pod.node in self._servers)]
        if not left and record.verdict is not None:
            await self._end(record, record.verdict)

    async def _delete(self, pods: dict[str, SeenPod]) -> None:
        """Ask for the end of pods; one that waits for its node is gone at once."""
        for pod in [pod for pod in pods.values() if not pod.deleting and not pod.ended]:
            try:
                await self._ask("DELETE", f"pods/{pod.name}", {"preconditions": {"uid": pod.uid}})
            except ClusterRefused as error:
                if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    raise

    async def _patch(self, record: Record, **events: Finished | Failed) -> None:
        """Add to the record of an attempt."""
        data = {name: write_event(event) for name, event in events.items()}
        try:
            await self._ask("PATCH", f"configmaps/{record.name}", {"data": data})
        except ClusterRefused as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            record.gone = True

    async def _end(self, record: Record, end: Finished | Failed) -> None:
        """Record and report the end of an attempt."""
        if isinstance(end, Failed):
            end = Failed(time.time(), *record.key, end.reason, end.fault, end.seconds, end.last_output)
        if not record.gone:
            await self._patch(record, end=end)
        record.end = end
        self._tell(end)

    def _tell(self, event: Event) -> None:
        self._told.append(event)
        self._wake.set()

    def _forget(self, key: Key) -> None:
        record = self.records.pop(key, None)
        if record is not None:
            self._names.pop(record.name, None)
            self.pods.pop(record.name, None)
        self._locks.pop(key, None)

    async def _sweep(self) -> None:
        """Remove records of attempts that ended long ago; their pods go with them."""
        now = time.time()
        if now - self._swept < SWEEP:
            return
        self._swept = now
        for record in list(self.records.values()):
            if record.end is not None and record.end.time < now - self.settings.retention:
                with suppress(BerthError):
                    await self._ask("DELETE", f"configmaps/{record.name}", {"propagationPolicy": "Background"})

    async def _ask(self, method: str, what: str, body: object = None) -> Any:
        path = f"/api/v1/namespaces/{self.namespace}/{what}"
        return await asyncio.to_thread(self.api.request, method, path, body)

    async def _stop(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.stop()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._queued.clear()


def _failed(record: Record, reason: str, fault: Fault, seconds: float | None = None) -> Failed:
    return Failed(time.time(), *record.key, reason, fault, seconds)


def _held(pod: SeenPod | None) -> tuple[Amounts, str] | None:
    """What a pod holds, and of which node."""
    return None if pod is None or not pod.node or pod.ended else (pod.requests, pod.node)


def _settings(rest: str) -> KubernetesSettings:
    return read_settings(Path(rest)) if rest else KubernetesSettings()


def _make(settings: KubernetesSettings, _: Clock, __: Path | None, owner: Owner | None) -> KubernetesEngine:
    return KubernetesEngine(settings, owner)


ENGINE = EngineKind(_settings, _make, reads_file=True)
