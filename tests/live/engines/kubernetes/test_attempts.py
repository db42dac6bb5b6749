"""Attempts on an API server in memory: their records, their pods, and what is told of them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from berth.live.core.events import Event, Failed, Finished, Start, Started
from berth.live.core.jobs import Job, Place, Role, Server
from berth.live.engines.kubernetes.attempts import Attempts
from berth.live.engines.kubernetes.settings import KubernetesSettings
from berth.live.engines.kubernetes.state import State
from berth.live.engines.kubernetes.status import seen
from berth.live.kubernetes_api import ClusterRefused

SETTINGS = KubernetesSettings(image="busybox")
JOB = Job("a", "t", (Role("w", 2, {"cpu": 1000}),), payload={"command": ["true"]})
KEY = JOB.id, 1
GANG = Start(*KEY, (Place("n1", "w", 1), Place("n2", "w", 1)))


@dataclass
class Cluster:
    """Objects in memory by path, and one process with an engine's attempts on them."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    told: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.made = 0
        self.begin()

    def begin(self) -> None:
        """Begin a process that knows only what is in the cluster."""
        self.state = State(SETTINGS, "jobs", "s")
        self.state.take({"nodes": {}, "maps": self.of("configmaps"), "pods": {}})
        self.state.servers = {name: Server(name, {"cpu": 4000}) for name in ("n1", "n2", "n3")}
        self.attempts = Attempts(self, SETTINGS, self.state, self.told.append)  # type: ignore[arg-type]

    async def ask(self, method: str, path: str, body: Any = None, **_: object) -> Any:
        """Answer a request as an API server does."""
        match method:
            case "POST":
                path = f"{path}/{body['metadata']['name']}"
                if path in self.objects:
                    raise ClusterRefused("already exists", status=409)
                self.made += 1
                self.objects[path] = copy.deepcopy(body)
                self.objects[path]["metadata"] |= {"uid": f"u{self.made}", "namespace": "jobs"}
            case "PATCH":
                self.objects[path]["data"] |= body["data"]
            case "DELETE":
                self.changed(path, deletionTimestamp="now")
        if path not in self.objects:
            raise ClusterRefused("not found", status=404)
        return copy.deepcopy(self.objects[path])

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """The objects of a kind, by uid."""
        found = [copy.deepcopy(one) for path, one in self.objects.items() if f"/{kind}/" in path]
        return {one["metadata"]["uid"]: one for one in found}

    def pod(self, index: int) -> str:
        """The path of a pod of the attempt."""
        return next(path for path in self.objects if "/pods/" in path and path.endswith(f"-{index}"))

    def changed(self, path: str, phase: str = "", node: str = "", **metadata: str) -> None:
        """Change a pod; the process sees it."""
        pod = self.objects[path]
        pod["metadata"] |= metadata
        if node:
            pod["spec"]["nodeName"] = node
        if phase:
            pod["status"] = {"phase": phase}
        list(self.state.apply("pods", pod["metadata"]["uid"], seen(pod)))

    async def tend(self) -> list[Event]:
        """What is told when the attempt is looked at."""
        await self.attempts.tend(KEY)
        told = list(self.told)
        self.told.clear()
        return told

    async def started(self, start: Start = GANG) -> None:
        """Start a gang whose pods all have their nodes."""
        await self.attempts.start(start, JOB)
        for i, (_, server) in enumerate(self.state.records[KEY].tasks):
            self.changed(self.pod(i), node=server)


def on_a_cluster(test: Callable[[Cluster], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test in an event loop, on a cluster of its own."""

    def run() -> None:
        async def play() -> None:
            cluster = Cluster()
            await test(cluster)
            await cluster.attempts.pause()

        asyncio.run(play())

    run.__doc__ = test.__doc__
    return run


@on_a_cluster
async def test_an_attempt_that_was_cancelled_before_it_began_never_begins(cluster: Cluster) -> None:
    """Neither in the process that cancelled it, nor in the next one."""
    await cluster.attempts.cancel(KEY)
    for new in (False, True):
        if new:
            cluster.begin()
        await cluster.attempts.start(GANG, JOB)
        (end,) = await cluster.tend()
        assert isinstance(end, Failed)
        assert (end.reason, end.fault) == ("cancelled before it began", "cancelled")
        assert not cluster.of("pods")


@on_a_cluster
async def test_the_record_owns_the_pods(cluster: Cluster) -> None:
    """So the garbage collector removes them with it."""
    await cluster.started()
    (record,) = cluster.of("configmaps").values()
    pods = cluster.of("pods").values()
    assert len(pods) == 2
    for pod in pods:
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("ConfigMap", record["metadata"]["name"])
        assert owner["uid"] == record["metadata"]["uid"]
        assert owner["controller"]


@on_a_cluster
async def test_a_gang_has_started_when_all_of_its_pods_run(cluster: Cluster) -> None:
    await cluster.started()
    assert not await cluster.tend()
    cluster.changed(cluster.pod(0), "Running")
    assert not await cluster.tend()
    cluster.changed(cluster.pod(1), "Running")
    (began,) = await cluster.tend()
    assert isinstance(began, Started)
    cluster.changed(cluster.pod(0), "Succeeded")
    assert not await cluster.tend()
    cluster.changed(cluster.pod(1), "Succeeded")
    (end,) = await cluster.tend()
    assert isinstance(end, Finished)


@on_a_cluster
async def test_a_gang_ends_with_a_node_of_it(cluster: Cluster) -> None:
    """Its pods on other nodes are deleted, and its end is told when they are gone."""
    await cluster.started()
    for i in (0, 1):
        cluster.changed(cluster.pod(i), "Running")
    await cluster.tend()
    del cluster.state.servers["n1"]
    assert not await cluster.tend()
    assert not await cluster.tend()
    left = cluster.objects[cluster.pod(1)]
    assert "deletionTimestamp" in left["metadata"]
    list(cluster.state.apply("pods", left["metadata"]["uid"], None))
    (end,) = await cluster.tend()
    assert isinstance(end, Failed)
    assert (end.reason, end.fault) == ("server n1 was lost", "server")
