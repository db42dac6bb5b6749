"""The follow-up of attempts, from their start to their end, as controllers do it.

Whenever a record or one of its pods changes, `tend` looks at all of them and does what is missing. What it does may be
repeated at any time, so nothing is lost when berth, the API server or etcd is killed in between. An attempt that cannot
go on gets a verdict first, which is written to its record; then its pods are ended; then its end is recorded and told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Literal

from berth.errors import BerthError
from berth.live.core.events import Event, Failed, Finished, Start, Started, write_event
from berth.live.core.jobs import Job
from berth.live.engines.kubernetes.companion import Group, Way
from berth.live.engines.kubernetes.logs import last_words
from berth.live.engines.kubernetes.record import Key, Record, name_of
from berth.live.engines.kubernetes.settings import KubernetesSettings
from berth.live.engines.kubernetes.state import State
from berth.live.engines.kubernetes.status import SeenPod, seconds_of, seen
from berth.live.engines.kubernetes.template import NotPossible, go_map, pods_of
from berth.live.engines.locks import Locks
from berth.live.kubernetes_api import Api, ApiError, ClusterRefused

__all__ = ["Attempts"]

PARALLEL = 8
"""The most pods of a gang that are created at once."""
UNFIT_SECONDS = 3.0
"""How long kube-scheduler may find no room: what has just ended may still count for it."""
MISSING_SECONDS = 2.0
"""How long a pod may be missing: the watch may be behind."""
FIRST_RETRY, LONGEST_RETRY = 0.2, 10.0
GONE = HTTPStatus.NOT_FOUND
WRONG = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
FINAL = (*WRONG, HTTPStatus.FORBIDDEN, GONE)
"""Answers after which a pod cannot be created; after others it is tried again."""
REFUSALS = (HTTPStatus.CONFLICT, GONE, HTTPStatus.UNPROCESSABLE_ENTITY)
"""Answers after which a pod cannot be placed any more."""
Fault = Literal["job", "server", "engine", "cancelled"]
log = logging.getLogger(__name__)


class Attempts:
    """Starts, ends and follows attempts; `tell` reports events."""

    def __init__(self, api: Api, settings: KubernetesSettings, state: State, tell: Callable[[Event], None]) -> None:
        self._api, self._settings, self._state, self._tell = api, settings, state, tell
        self._way = Way(settings.companion)
        self._locks = Locks[Key]()
        self._tasks: set[asyncio.Task[None]] = set()
        self._queued: set[Key] = set()
        self._tries: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._open = True

    async def start(self, start: Start, job: Job) -> None:
        """Start an attempt, unless its record says that it was started."""
        key = start.job, start.attempt
        async with self._locks.of(key):
            record = self._state.records.get(key)
            if record is None:
                record = Record(key, name_of(self._state.store, key), start.places, asked=time.time())
                record.end = self._hopeless(start, job, record)
                record = await self._write(record)
            if record.end is None and record.verdict is None and not record.created and not record.members:
                record.manifests = pods_of(start, job, record, self._settings, self._state.store)
                await self._create(record)
        self.tend_soon(key)

    async def place(self, start: Start, group: Group | None) -> None:
        """Place a group of pods that another program created; None if it waits no more."""
        key = start.job, start.attempt
        async with self._locks.of(key):
            if key not in self._state.records:
                record = Record(key, name_of(self._state.store, key), start.places, asked=time.time())
                record.end = self._away(record)
                if group is None:
                    record.end = _failed(record, "it no longer waits in Kubernetes", "cancelled")
                else:
                    record.members = group.members(start.places)
                await self._write(record)
        self.tend_soon(key)

    async def cancel(self, key: Key) -> None:
        """End an attempt; one that is not known will never start."""
        async with self._locks.of(key):
            record = self._state.records.get(key)
            if record is None:
                record = Record(key, name_of(self._state.store, key), (), asked=time.time())
                record.end = _failed(record, "cancelled before it began", "cancelled")
                record = await self._write(record)
            if record.end is None and record.verdict is None:
                await self._condemn(record, _failed(record, "cancelled", "cancelled"))
        self.tend_soon(key)

    def _away(self, record: Record) -> Failed | None:
        away = [place.server for place in record.places if place.server not in self._state.servers]
        return _failed(record, f"server {away[0]} is not there", "server") if away else None

    def _hopeless(self, start: Start, job: Job, record: Record) -> Failed | None:
        """Why an attempt cannot be started; None if it can."""
        try:
            pods_of(start, job, record, self._settings, self._state.store)
        except NotPossible as error:
            return _failed(record, str(error), "job")
        return self._away(record)

    async def _write(self, record: Record) -> Record:
        """Create the record, or take the one that is there."""
        try:
            made = await self.ask("POST", "configmaps", record.config_map(self._state.namespace, self._state.store))
        except ClusterRefused as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            found = self._state.read(await self.ask("GET", f"configmaps/{record.name}")) or record
            self._report(found)
            return found
        record.uid = made["metadata"]["uid"]
        self._state.know(record)
        self._report(record)
        return record

    async def _create(self, record: Record) -> None:
        """Create the pods that are not there yet."""
        there = {pod.name for pod in self._state.pods(record).values()}
        few = asyncio.Semaphore(PARALLEL)

        async def create(pod: dict[str, Any]) -> None:
            pod["metadata"]["ownerReferences"] = [record.owner]
            async with few:
                try:
                    made = await self.ask("POST", "pods", pod)
                except ClusterRefused as error:
                    if error.status != HTTPStatus.CONFLICT:
                        raise
                    made = await self.ask("GET", f"pods/{pod['metadata']['name']}")
            if made["metadata"]["uid"] not in self._state.pods(record):  # the watch may be behind
                self._state.add(seen(made))

        missing = [pod for pod in record.manifests or () if pod["metadata"]["name"] not in there]
        results = await asyncio.gather(*(create(pod) for pod in missing), return_exceptions=True)
        if refused := [one for one in results if isinstance(one, ClusterRefused) and one.status in FINAL]:
            fault: Fault = "job" if refused[0].status in WRONG else "engine"
            failed = _failed(record, f"Kubernetes refused a pod: {refused[0]}", fault)
            await self._condemn(record, replace(failed, refused_by=()))
            return
        for one in results:
            if isinstance(one, BaseException):
                raise one
        record.created, record.manifests = True, None
        record.since["created"] = time.monotonic()

    async def _condemn(self, record: Record, verdict: Failed) -> None:
        """Note how an attempt is to end, before its pods are ended."""
        if record.verdict is None and record.end is None:
            await self._patch(record, verdict=verdict)
            record.verdict = verdict
        self.tend_soon(record.key)

    def tend_soon(self, key: Key, after: float = 0.0) -> None:
        """Look at an attempt, now or later."""
        if after:
            self._cancel_timer(key)
            self._timers[key] = asyncio.get_running_loop().call_later(after, self.tend_soon, key)
        elif key not in self._queued and self._open:
            self._queued.add(key)
            self.aside(self.tend(key))

    def aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nothing waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel_timer(self, key: Key) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    async def tend(self, key: Key) -> None:
        """Look at an attempt; try again later if that fails."""
        self._queued.discard(key)
        self._cancel_timer(key)
        try:
            async with self._locks.of(key):
                await self._tend(key)
            self._tries.pop(key, None)
        except Exception as error:  # whatever it is, an attempt that nobody looks at would hang for ever
            tries = self._tries[key] = self._tries.get(key, 0) + 1
            wait = min(FIRST_RETRY * 2 ** min(tries, 10), LONGEST_RETRY)
            trace = None if isinstance(error, ApiError) else error
            log.warning("attempt %d of %s: %s; retrying in %.2g s", key[1], key[0], error, wait, exc_info=trace)
            self.tend_soon(key, wait)

    async def _tend(self, key: Key) -> None:
        record = self._state.records.get(key)
        if record is None:
            return
        pods = self._state.pods(record)
        if record.end is not None:
            self._report(record)  # its end may be known only because the answer to a request was lost
            if record.gone:
                self._state.forget(record)
            elif not record.members:  # a pod may be created late, by a request that was long under way
                await self._delete(pods)
            return
        if record.gone:  # the garbage collector removes its pods
            record.verdict = record.verdict or _failed(record, "its record was removed", "cancelled")
        if record.verdict is not None:
            await self._finish(record, pods)
            return
        if record.members and not record.created:
            await self._bind(record, pods)
        elif record.manifests is not None and not record.created:
            await self._create(record)
        if record.created and record.verdict is None:
            await self._judge(record, list(pods.values()))

    async def _bind(self, record: Record, pods: dict[str, SeenPod]) -> None:
        """Send the pods of others to their nodes; if one of them cannot go, none may stay."""
        wanted = [
            (pods.get(uid), name, task[1]) for (_, name, uid), task in zip(record.members, record.tasks, strict=True)
        ]
        for pod, name, server in wanted:
            if pod is None or pod.deleting:
                await self._condemn(record, _failed(record, f"pod {name} is gone", "cancelled"))
                return
            if self._way.elsewhere(pod, server):
                why = f"was bound to {pod.node}" if pod.node else "was let go by another"
                await self._condemn(record, _failed(record, f"pod {name} {why}", "engine"))
                return
        few = asyncio.Semaphore(PARALLEL)

        async def send(pod: SeenPod, server: str) -> None:
            async with few:
                try:
                    await self._way.send(self._api, pod, server)
                except ClusterRefused as error:
                    if error.status not in REFUSALS or not await self._was_sent(pod, server):
                        raise

        sending = [
            send(pod, server) for pod, _, server in wanted if pod is not None and not self._way.sent(pod, server)
        ]
        for error in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(error, ClusterRefused) and error.status in REFUSALS:
                await self._condemn(record, _failed(record, f"Kubernetes refused a pod: {error}", "engine"))
                return
            if isinstance(error, BaseException):
                raise error
        record.created = True
        record.since["created"] = time.monotonic()

    async def _was_sent(self, pod: SeenPod, server: str) -> bool:
        """Whether a pod that is refused was sent before, and the watch is behind."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            found = seen(await self._api.ask("GET", path))
        except ClusterRefused:
            return False
        there = found.uid == pod.uid and self._way.sent(found, server) and found.node in ("", server)
        if there:
            self._state.add(found)
        return there

    async def _judge(self, record: Record, pods: list[SeenPod]) -> None:
        """Decide what becomes of an attempt whose pods were created and, if others did that, placed."""
        if verdict := self._broken(record, pods):
            failed = next((pod for pod in pods if pod.phase == "Failed"), None)
            if verdict.fault == "job" and failed is not None and not record.members:  # of others, berth reads nothing
                verdict = replace(verdict, last_output=await last_words(self.text, failed))
            await self._condemn(record, verdict)
            return
        if len(pods) < len(record.tasks):
            return
        if len(pods) > 1 and not record.members and not record.released and all(pod.node for pod in pods):
            try:
                await self.ask("POST", "configmaps", go_map(record, self._state.namespace, self._state.store))
            except ClusterRefused as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
            record.released = True
        if not record.told and all(pod.phase in ("Running", "Succeeded") for pod in pods):
            record.told = True
            details = {"namespace": pods[0].namespace, "pods": ",".join(sorted(pod.name for pod in pods))}
            self._tell(Started(time.time(), *record.key, details))
        if all(pod.phase == "Succeeded" for pod in pods):
            await self._end(record, Finished(time.time(), *record.key, seconds_of(pods)))

    def _broken(self, record: Record, pods: list[SeenPod]) -> Failed | None:
        """Why an attempt cannot go on; None if it can."""
        over = {pod.node for pod in pods if pod.ended}
        lost = [one for _, one in record.tasks if one not in self._state.servers and one not in over]
        if lost:
            return _failed(record, f"server {lost[0]} was lost", "server")
        for pod in pods:
            if pod.phase == "Failed":
                reason, fault = pod.failure()
                return replace(_failed(record, reason, fault, seconds_of(pods)), refused_by=(pod.node,))
        for pod in pods:
            if pod.deleting and not pod.ended:
                where = f" from {pod.node}" if pod.node else ""
                return _failed(record, f"pod {pod.name} was deleted or evicted{where}", "server")
        clock = time.monotonic()
        if len(pods) < len(record.tasks):
            if clock - record.since.setdefault("missing", clock) >= MISSING_SECONDS:
                return _failed(record, "a pod was deleted", "server")
            self.tend_soon(record.key, MISSING_SECONDS / 2)
            return None
        record.since.pop("missing", None)
        if waiting := [pod for pod in pods if not pod.node]:
            return self._unbound(record, waiting, clock)
        if all(pod.phase != "Pending" for pod in pods):
            return None
        limit = self._settings.start_seconds
        if clock - record.since.setdefault("bound", clock) > limit:
            why = next((why for pod in pods if (why := pod.stuck)), "its containers are being created")
            return _failed(record, f"a container did not start in {limit:g} s ({why})", "job")
        self.tend_soon(record.key, min(limit, 5.0))
        return None

    def _unbound(self, record: Record, waiting: list[SeenPod], clock: float) -> Failed | None:
        """Whether pods have waited too long for their nodes."""
        since, limit = record.since.setdefault("created", clock), self._settings.bind_seconds
        if unfit := {pod.name: why for pod in waiting if (why := pod.unschedulable)}:
            if clock - record.since.setdefault("unfit", clock) > UNFIT_SECONDS:
                names = [name for _, name, _ in record.members] or map(record.pod, range(len(record.tasks)))
                tasks = zip(names, record.tasks, strict=True)
                by = tuple(dict.fromkeys(server for name, (_, server) in tasks if name in unfit))
                failed = _failed(record, f"kube-scheduler found no room: {next(iter(unfit.values()))}", "server")
                return replace(failed, refused_by=by)
            self.tend_soon(record.key, UNFIT_SECONDS / 3)
            return None
        record.since.pop("unfit", None)
        if clock - since > limit:
            return replace(_failed(record, f"it was not bound in {limit:g} s", "engine"), refused_by=())
        self.tend_soon(record.key, min(limit, 5.0))
        return None

    async def _finish(self, record: Record, pods: dict[str, SeenPod]) -> None:
        """End the pods of an attempt, and the attempt when none of them is left.

        Pods of others that were not placed stay where they wait. Once all of them had got their nodes, the rest of
        them is their owner's: a Job counts each pod that is deleted as a failure, and so would soon fail. Pods on a
        lost node are ended by its kubelet as soon as it is back.
        """
        own = (
            {uid: task[1] for (_, _, uid), task in zip(record.members, record.tasks, strict=True)}
            if record.members
            else {}
        )
        placed = {uid: pod for uid, pod in pods.items() if not own or self._way.sent(pod, own.get(uid, ""))}
        cancelled = isinstance(record.verdict, Failed) and record.verdict.fault == "cancelled"
        if record.members and not cancelled and all(pod.node for pod in pods.values()):
            placed = {uid: pod for uid, pod in placed.items() if pod.node not in self._state.servers}
        await self._delete(placed)
        left = [pod for pod in placed.values() if not pod.ended and (not pod.node or pod.node in self._state.servers)]
        if not left and record.verdict is not None:
            await self._end(record, record.verdict)

    async def _delete(self, pods: dict[str, SeenPod]) -> None:
        """Ask for the end of pods; one that waits for its node is gone at once."""
        for pod in [pod for pod in pods.values() if not pod.deleting and not pod.ended]:
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            try:
                await self._api.ask("DELETE", path, {"preconditions": {"uid": pod.uid}})
            except ClusterRefused as error:
                if error.status not in (GONE, HTTPStatus.CONFLICT):
                    raise
                if error.status == GONE:
                    self._state.drop(pod)

    async def _patch(self, record: Record, **events: Finished | Failed) -> None:
        """Add to the record of an attempt."""
        data = {name: write_event(event) for name, event in events.items()}
        try:
            await self.ask("PATCH", f"configmaps/{record.name}", {"data": data})
        except ClusterRefused as error:
            if error.status != GONE:
                raise
            record.gone = True

    async def _end(self, record: Record, end: Finished | Failed) -> None:
        """Record and report the end of an attempt."""
        if isinstance(end, Failed):
            end = replace(end, time=time.time())
        if not record.gone:
            await self._patch(record, end=end)
        record.end = end
        self._report(record)

    def _report(self, record: Record) -> None:
        """Report the end of an attempt, once."""
        if record.end is not None and not record.reported:
            record.reported = True
            if record.members:
                self._state.give_back(record)
            self._tell(record.end)

    async def sweep(self) -> None:
        """Remove records of attempts that ended long ago and whose ends the journal has; their pods go with them."""
        before = time.time() - self._settings.retention
        for record in list(self._state.records.values()):
            if record.settled and record.end is not None and record.end.time < before:
                try:
                    await self.ask("DELETE", f"configmaps/{record.name}", {"propagationPolicy": "Background"})
                except BerthError as error:
                    if getattr(error, "status", 0) == GONE:
                        self._state.forget(record)
                    else:
                        log.warning("the record of %s could not be removed: %s", record.key[0], error)

    async def ask(self, method: str, what: str, body: object = None) -> Any:
        """A request about an object in the namespace of jobs."""
        path = f"/api/v1/namespaces/{self._state.namespace}/{what}"
        return await self._api.ask(method, path, body)

    async def text(self, path: str, query: Mapping[str, str]) -> str:
        """The text at a path, such as a log."""
        return str(await self._api.ask("GET", path, query=query, text=True))

    def halt(self) -> None:
        """Begin nothing more, and cancel what is under way."""
        self._open = False
        for task in tuple(self._tasks):
            task.cancel()

    async def pause(self) -> None:
        """Stop everything that is under way."""
        self.halt()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._queued.clear()
        for key in list(self._timers):
            self._cancel_timer(key)

    def resume(self) -> None:
        """Work again."""
        self._open = True


def _failed(record: Record, reason: str, fault: Fault, seconds: float | None = None) -> Failed:
    return Failed(time.time(), *record.key, reason, fault, seconds)
