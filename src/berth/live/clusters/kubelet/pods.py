"""Pods of the kubelet: each has a coroutine that runs its containers and reports their states."""

from __future__ import annotations

import asyncio
import shutil
import time
import traceback
from calendar import timegm
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from berth.live.clusters.kubelet.containers import Container, Idle, Process, expanded, folders
from berth.live.clusters.kubelet.inputs import LOOK_SECONDS, Inputs, Source, variables
from berth.live.clusters.kubelet.link import LISTED, follow, insist
from berth.live.clusters.kubelet.nodes import Nodes
from berth.live.clusters.kubelet.statuses import phase_of, pod_status, running, terminated, waiting
from berth.live.kubernetes_api import STRATEGIC, Api, ApiError

__all__ = ["Pods"]

BACKOFF, LONGEST_BACKOFF = 1.0, 30.0
"""Seconds until a container is restarted: at first, and at most."""
SECONDS = "berth.io/seconds"
"""Annotation: how long a container without a command runs."""
Data = Mapping[Source, Mapping[str, str]]


class Pods:
    """All pods on the kubelet's nodes; `hollow` nodes run nothing. Files of pods lie in `directory`."""

    def __init__(self, api: Api, nodes: Nodes, directory: Path, hollow: bool = False) -> None:
        self.api, self.nodes, self.directory, self.hollow = api, nodes, directory, hollow
        self.inputs = Inputs(api)
        self._runs: dict[str, PodRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        """Follow the pods that are bound to a node, for ever."""
        self.directory.mkdir(parents=True, exist_ok=True)
        async for kind, told in follow(self.api, "/api/v1/pods", {"fieldSelector": "spec.nodeName!="}):
            if kind == LISTED:
                present = {pod["metadata"]["uid"] for pod in told}
                for folder in self.directory.iterdir():
                    if folder.name not in present and folder.name not in self._runs:
                        self._spawn(_end_orphan(folder))
                for uid in set(self._runs) - present:
                    self._runs[uid].forget()
            for pod in told if kind == LISTED else [told]:
                self._update(pod, kind == "DELETED")

    def _update(self, pod: Mapping[str, Any], gone: bool) -> None:
        uid = pod["metadata"]["uid"]
        run = self._runs.get(uid)
        if run is None and not gone and pod["spec"]["nodeName"] in self.nodes.specs:
            run = self._runs[uid] = PodRun(self, pod)
            self._spawn(self._serve(run))
        if run is not None:
            run.update(pod, gone)

    async def _serve(self, run: PodRun) -> None:
        try:
            await run.serve()
        except Exception:
            traceback.print_exc()
        finally:
            self._runs.pop(run.uid, None)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def log(self, space: str, name: str, container: str, previous: bool = False) -> Path | None:
        """The log of a container's last start, or of the one before; None if there is none."""
        for run in list(self._runs.values()):
            if (run.pod["metadata"]["namespace"], run.pod["metadata"]["name"]) == (space, name):
                starts = folders(run.folder, container)
                if len(starts) > previous:
                    return starts[-2 if previous else -1] / "log"
        return None


class PodRun:
    """A pod on a node, from its start to its removal."""

    def __init__(self, pods: Pods, pod: Mapping[str, Any]) -> None:
        self.pod, self.uid, self.node = pod, pod["metadata"]["uid"], pod["spec"]["nodeName"]
        self.folder = pods.directory / self.uid
        space, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self._path = f"/api/v1/namespaces/{space}/pods/{name}"
        self._pods, self._api, self._nodes = pods, pods.api, pods.nodes
        self._doomed, self._gone = asyncio.Event(), False
        self._telling = asyncio.Lock()
        self._running: dict[str, Container] = {}
        self._states: dict[str, Mapping[str, Any]] = {}
        self._starts: dict[str, int] = {}
        self._begun = pod.get("status", {}).get("startTime")
        self._ran = pod.get("status", {}).get("phase") == "Running"

    def update(self, pod: Mapping[str, Any], gone: bool) -> None:
        """Take note of a change."""
        self.pod = pod
        if gone:
            self.forget()
        elif "deletionTimestamp" in pod["metadata"]:
            self._doomed.set()

    def forget(self) -> None:
        """Take note that the pod does not exist any more."""
        self._gone = True
        self._doomed.set()

    async def serve(self) -> None:
        """Run the containers, report their states, and remove the pod when it is deleted."""
        if self.pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            await self._carry_out()
        await self._doomed.wait()
        if not self._gone:
            await self._nodes.reachable(self.node)
            now = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
            with suppress(ApiError):  # it is gone
                await insist(self._api, "DELETE", self._path, now)
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _carry_out(self) -> None:
        await self._nodes.reachable(self.node)
        if self._doomed.is_set() and not self.folder.exists():  # it never ran
            return
        work, doom = asyncio.create_task(self._work()), asyncio.create_task(self._doom())
        done, _ = await asyncio.wait({work, doom}, timeout=self._left(), return_when=asyncio.FIRST_COMPLETED)
        doom.cancel()
        reason = None
        if work in done:
            work.result()
        else:
            reason = None if doom in done else "DeadlineExceeded"
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            spec, meta = self.pod["spec"], self.pod["metadata"]
            grace = meta.get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds", 30))
            await asyncio.gather(*(self._stop(name, grace) for name in list(self._running)))
        states = [self._states.get(one["name"], {}) for one in self.pod["spec"]["containers"]]
        await self._tell("Failed" if reason else phase_of(states), reason)

    async def _doom(self) -> None:
        """Wait until the node learns that the pod is deleted; a lost node does not."""
        await self._doomed.wait()
        await self._nodes.reachable(self.node)

    def _left(self) -> float | None:
        """Seconds until the deadline of the pod."""
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is None:
            return None
        began = timegm(time.strptime(self._begun, "%Y-%m-%dT%H:%M:%SZ")) if self._begun else time.time()
        return max(began + float(limit) - time.time(), 0.0)

    async def _stop(self, name: str, grace: float) -> None:
        container = self._running.pop(name)
        await container.stop(grace)
        self._states[name] = terminated(container)

    async def _work(self) -> None:
        """Run all containers to their ends."""
        data, missing = await self._pods.inputs.read(self.pod)
        if missing:
            await self._tell("Pending")
        while missing:
            await asyncio.sleep(LOOK_SECONDS)
            data, missing = await self._pods.inputs.read(self.pod)
        await self._nodes.reachable(self.node)
        for spec in self.pod["spec"].get("initContainers", ()):
            await self._run(spec, data, True)
            if phase_of([self._states[spec["name"]]]) == "Failed":
                return
        usual = self.pod["spec"]["containers"]
        for spec in usual:
            self._start(spec, data)
        await self._tell("Running")
        await asyncio.gather(*(self._run(spec, data, False) for spec in usual))

    async def _run(self, spec: Mapping[str, Any], data: Data, initial: bool) -> None:
        """Run a container until it ends for good."""
        name, policy, pause = spec["name"], self.pod["spec"].get("restartPolicy", "Always"), BACKOFF
        while True:
            container = self._running.get(name) or self._start(spec, data)
            if initial and not (container.folder / "code").exists():
                await self._tell("Pending")
            code = await container.wait()
            self._running.pop(name, None)
            self._states[name] = terminated(container)
            if policy == "Never" or (code == 0 and (initial or policy == "OnFailure")):
                return
            await self._nodes.reachable(self.node)
            self._states[name] = waiting("CrashLoopBackOff")
            await self._tell("Pending" if initial else "Running")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_BACKOFF)
            self._running[name] = self._start(spec, data, again=True)
            if not initial:
                await self._tell("Running")

    def _start(self, spec: Mapping[str, Any], data: Data, again: bool = False) -> Container:
        """Start a container, or find its last start again."""
        name, starts = spec["name"], folders(self.folder, spec["name"])
        number = int(starts[-1].suffix[1:]) + again if starts else 0
        folder = self.folder / f"{name}.{number}"
        container: Process | Idle
        if self._pods.hollow or not spec.get("command"):
            told = self.pod["metadata"].get("annotations", {}).get(SECONDS)
            seconds = None if told is None else float(told) / self._nodes.speed(self.node)
            container = Idle(folder, seconds, lambda: self._nodes.death(self.node))
            if not folder.exists():
                container.start()
        else:
            container = Process(folder)
            if again or not (folder.exists() or self._ran):  # without its files, a pod that ran is lost
                values = variables(self.pod, spec, data)
                command = [expanded(word, values) for word in (*spec["command"], *spec.get("args", ()))]
                container.start(command, values, self.node, spec.get("workingDir"))
        self._running[name], self._starts[name] = container, number
        self._states[name] = running(container)
        return container

    async def _tell(self, phase: str, reason: str | None = None) -> None:
        """Report the state of the pod; reports arrive in order, even if their sender is cancelled."""
        status = pod_status(self.pod, phase, self._states, self._starts, reason)
        if self._begun:
            status["startTime"] = self._begun
        self._begun = status["startTime"]
        await asyncio.shield(asyncio.ensure_future(self._send({"metadata": {"uid": self.uid}, "status": status})))

    async def _send(self, told: Mapping[str, Any]) -> None:
        async with self._telling:
            await self._nodes.reachable(self.node)
            if not self._gone:
                with suppress(ApiError):  # the pod is gone
                    await insist(self._api, "PATCH", f"{self._path}/status", told, patch=STRATEGIC)


async def _end_orphan(folder: Path) -> None:
    """End the processes of a pod that was removed while the kubelet did not run."""
    for one in folder.iterdir():
        await Process(one).stop(0)
    shutil.rmtree(folder, ignore_errors=True)
