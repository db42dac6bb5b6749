"""Nodes of the kubelet: registration, heartbeats, and nodes that are lost on purpose."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from berth.live.clusters.kubelet.link import LISTED, follow, insist
from berth.live.kubernetes_api import STRATEGIC, Api, ApiError

__all__ = ["Nodes", "stamp"]

LOOK_SECONDS = 0.05
MOST_PODS = 250
INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeProxyVersion",
    "architecture",
)
LEASE_SECONDS = 3.0
"""How long a heartbeat may take: the next one follows soon."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def stamp(seconds: float | None = None) -> str:
    """A time in the format of the API: now, or that of an epoch.

    >>> stamp(0)
    '1970-01-01T00:00:00Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def node_object(spec: Mapping[str, Any], port: int) -> dict[str, Any]:
    """The Node object of a node that is ready."""
    has = {"cpu": str(spec["cpus"]), "memory": f"{spec['memory']}Gi", "pods": str(MOST_PODS)}
    if spec.get("gpus"):
        has["nvidia.com/gpu"] = str(spec["gpus"])
    names = {"kubernetes.io/hostname": spec["name"], "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec["name"], "labels": {**names, **spec.get("labels", {})}},
        "spec": {"taints": [_taint(text) for text in spec.get("taints", ())]},
        "status": {
            "capacity": has,
            "allocatable": has,
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": spec["name"]},
            ],
            "nodeInfo": {**dict.fromkeys(INFO, ""), "kubeletVersion": "v1.20.2", "operatingSystem": "linux"},
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            **_ready(),
        },
    }


def _ready() -> dict[str, Any]:
    now = stamp()
    told = {"status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now, "lastTransitionTime": now}
    good = {**told, "status": "False", "reason": "KubeletHasSufficientMemory"}
    return {"conditions": [{"type": "Ready", **told}, {"type": "MemoryPressure", **good}]}


def _taint(text: str) -> dict[str, str]:
    """A taint of a text.

    >>> _taint("team=a:NoSchedule")
    {'key': 'team', 'value': 'a', 'effect': 'NoSchedule'}
    """
    words, _, effect = text.rpartition(":")
    key, _, value = words.partition("=")
    return {"key": key, "value": value, "effect": effect}


class Nodes:
    """All nodes. Files in the directory `lost` name nodes that are lost, and hold `dead` or `partition`.

    The file `seen` lists lost nodes as soon as the kubelet has stopped to speak for them.
    """

    def __init__(
        self, api: Api, specs: Sequence[Mapping[str, Any]], port: int, beat: float, lost: Path | None, seen: Path
    ) -> None:
        self.specs = {spec["name"]: spec for spec in specs}
        self._api, self._port, self._beat = api, port, beat
        self._files, self._seen = lost, seen
        self._before: dict[str, str] | None = None
        self._lost: dict[str, asyncio.Event] = {}
        self._returning: set[asyncio.Task[None]] = set()
        self._deaths = {name: asyncio.Event() for name in self.specs}

    def speed(self, name: str) -> float:
        """The label `berth.io/speed` of a node."""
        return float(self.specs[name].get("labels", {}).get("berth.io/speed", 1))

    async def reachable(self, name: str) -> None:
        """Wait until the node is not lost."""
        while (restored := self._lost.get(name)) is not None:
            await restored.wait()

    async def death(self, name: str) -> None:
        """Wait until the node dies next."""
        await self._deaths[name].wait()

    async def register(self) -> None:
        """Register all nodes; a node that exists gets its status."""
        self._look()
        await asyncio.gather(*(self._register(spec) for spec in self.specs.values()))

    async def _register(self, spec: Mapping[str, Any]) -> None:
        await self.reachable(spec["name"])
        told = node_object(spec, self._port)
        try:
            await insist(self._api, "POST", "/api/v1/nodes", told)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            await self._refresh(spec["name"])
        await self._renew(spec["name"])

    async def _refresh(self, name: str) -> None:
        """Send the whole status of a node."""
        told = {"status": node_object(self.specs[name], self._port)["status"]}
        with suppress(ApiError):  # the node was deleted
            await insist(self._api, "PATCH", f"/api/v1/nodes/{name}/status", told, patch=STRATEGIC)

    async def beat(self) -> None:
        """Renew the leases of all nodes that are not lost, for ever."""
        while True:
            began = time.monotonic()
            await asyncio.gather(*(self._renew(name) for name in self.specs if name not in self._lost))
            await asyncio.sleep(max(self._beat - (time.monotonic() - began), 0.05))

    async def _renew(self, name: str) -> None:
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        try:
            await self._api.ask("PATCH", f"{LEASES}/{name}", {"spec": spec}, seconds=LEASE_SECONDS)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                with suppress(ApiError):  # the namespace of leases is made soon after the start
                    await self._api.ask("POST", LEASES, {"metadata": {"name": name}, "spec": spec})

    async def watch(self) -> None:
        """Tell the API server again that a node is ready when it believes otherwise, for ever."""
        async for kind, told in follow(self._api, "/api/v1/nodes", {}):
            for node in told if kind == LISTED else [told] if kind == "MODIFIED" else ():
                name, conditions = node["metadata"]["name"], node.get("status", {}).get("conditions", ())
                wrong = not any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
                if wrong and name in self.specs and name not in self._lost:
                    await self._refresh(name)

    async def look(self) -> None:
        """Look which nodes are lost, for ever."""
        while True:
            self._look()
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        if self._files is None:
            return
        now = {file.name: _text(file) for file in self._files.iterdir() if file.name in self.specs}
        if now == self._before:
            return
        self._lose(now, self._before or {})
        self._before = now
        beside = self._seen.with_suffix(".new")
        beside.write_text(json.dumps(sorted(now)), encoding="utf-8")
        beside.replace(self._seen)

    def _lose(self, now: Mapping[str, str], before: Mapping[str, str]) -> None:
        for name, how in now.items():
            self._lost.setdefault(name, asyncio.Event())
            if how == "dead" and before.get(name) != "dead":
                self._deaths[name].set()
                self._deaths[name] = asyncio.Event()
        for name in set(self._lost) - set(now):
            self._lost.pop(name).set()
            self._returning.add(task := asyncio.create_task(self._refresh(name)))
            task.add_done_callback(self._returning.discard)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
