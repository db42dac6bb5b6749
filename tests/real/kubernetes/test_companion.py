"""Companion of Kubernetes: pods of Jobs and gangs with `schedulerName: berth` on a real control plane."""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from berth.cli import app
from berth.live.clusters.kubernetes import LocalKubernetes
from berth.live.core.events import Cancel, Cancelled, Event, Failed, Finished, Start, Started, Submitted
from berth.live.core.jobs import Job, Place
from berth.live.engines import Owner, Snapshot
from berth.live.engines.kubernetes.engine import KubernetesEngine
from berth.live.engines.kubernetes.settings import KubernetesSettings
from tests.harness.invariants import InvariantBroken
from tests.harness.waiting import eventually_async

Test = Callable[..., Coroutine[Any, Any, None]]
NAMES = itertools.count(1)
PODS, JOBS = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"


def awaited(test: Test) -> Callable[..., None]:
    """A test that runs in an event loop."""

    @wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))

    return run


def spec(seconds: float = 1.0, cpu: str = "1", **more: Any) -> dict[str, Any]:
    """A pod that sleeps."""
    command = [sys.executable, "-c", f"import time; time.sleep({seconds})"]
    box = {"name": "main", "image": "none", "command": command, "resources": {"requests": {"cpu": cpu}}}
    return {"schedulerName": "berth", "restartPolicy": "Never", "containers": [box], **more}


def batch_job(pods: int, spec: dict[str, Any]) -> dict[str, Any]:
    name = f"job-{next(NAMES)}"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": {"spec": spec}},
    }


class Driver:
    """An engine whose events are noted."""

    def __init__(self, cluster: LocalKubernetes, **settings: Any) -> None:
        given = KubernetesSettings(kubeconfig=cluster.kubeconfig, companion="scheduler", settle=0.5, **settings)
        self.engine = KubernetesEngine(given, Owner(f"companion{next(NAMES)}"))
        self.events: list[Event] = []
        self.api = cluster.api

    async def listen(self) -> None:
        async for event in self.engine.events():
            self.events.append(event)

    async def until(self, found: Callable[[], Any], what: str) -> Any:
        """What is found, as soon as there is something."""

        def look() -> tuple[Any, list[Event]]:
            return found(), self.events

        return (await eventually_async(look, lambda seen: seen[0], what))[0]

    def of(self, kind: type[Any], job: str | None = None) -> list[Any]:
        """Events of a kind."""
        return [one for one in self.events if isinstance(one, kind) and (job is None or one.job == job)]

    async def submitted(self, name: str) -> Job:
        """The job that the group of this name is to berth."""

        def found() -> Job | None:
            return next((one.job for one in self.of(Submitted) if one.job.payload["name"] == name), None)

        job: Job = await self.until(found, f"{name} is not submitted")
        return job

    def pods(self, job: str) -> list[Any]:
        """The pods of a Job."""
        return list(self.api.request("GET", f"{PODS}?labelSelector=job-name%3D{job}")["items"])


@asynccontextmanager
async def driving(cluster: LocalKubernetes, **settings: Any) -> AsyncIterator[tuple[Driver, Snapshot]]:
    driver = Driver(cluster, **settings)
    snapshot = await driver.engine.snapshot()
    listening = asyncio.create_task(driver.listen())
    try:
        yield driver, snapshot
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await driver.engine.close()


@pytest.mark.parametrize("pods", [1, 2, 16])
@awaited
async def test_a_job_runs_as_a_gang_where_berth_said(kubernetes_cluster: LocalKubernetes, pods: int) -> None:
    async with driving(kubernetes_cluster) as (driver, snapshot):
        names = [server.name for server in snapshot.servers][:4]
        made = driver.api.request("POST", JOBS, batch_job(pods, spec(cpu="100m")))["metadata"]["name"]
        job = await driver.submitted(made)
        assert [(role.count, role.demand["cpu"]) for role in job.roles] == [(pods, 100)]
        assert job.origin == "kubernetes"
        role = job.roles[0].name
        counts = [pods // 2, pods - pods // 2]
        places = tuple(Place(name, role, count) for name, count in zip(names, counts, strict=False) if count)
        await driver.engine.execute(Start(job.id, 1, places), job)
        await driver.until(lambda: driver.of(Finished, job.id) or driver.of(Failed, job.id), "the gang does not end")
        assert [type(one) for one in driver.events if getattr(one, "job", None) == job.id] == [Started, Finished]
        there = sorted(one["spec"]["nodeName"] for one in driver.pods(made))
        assert there == sorted(place.server for place in places for _ in range(place.count))


@awaited
async def test_a_gang_that_lost_a_pod_binds_nothing(kubernetes_cluster: LocalKubernetes) -> None:
    async with driving(kubernetes_cluster) as (driver, snapshot):
        labels = {"scheduling.x-k8s.io/pod-group": "lost", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}
        for i in range(3):
            pod = {"metadata": {"name": f"lost-{i}", "labels": labels}, "spec": spec(cpu="100m")}
            driver.api.request("POST", PODS, pod)
        job = await driver.submitted("lost")
        assert job.roles[0].count == 3
        group = driver.engine._companion.waiting[job.id]
        server = snapshot.servers[0].name
        driver.api.request("DELETE", f"{PODS}/lost-1")
        await driver.until(lambda: driver.of(Cancelled, job.id), "nobody tells that the group is gone")
        driver.engine._companion.waiting[job.id] = group  # as if berth had not heard of it yet
        await driver.engine.execute(Start(job.id, 1, (Place(server, job.roles[0].name, 3),)), job)
        await driver.until(lambda: driver.of(Failed, job.id), "the start does not fail")
        left = [driver.api.request("GET", f"{PODS}/lost-{i}") for i in (0, 2)]
        assert ["nodeName" in one["spec"] for one in left] == [False, False]


@awaited
async def test_a_pod_that_fails_leaves_the_others_to_their_owner(
    kubernetes_cluster: LocalKubernetes, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with driving(kubernetes_cluster) as (driver, snapshot):
        labels = {"scheduling.x-k8s.io/pod-group": "fails", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
        for i, command in enumerate(("exit 3", f"until test -e {go}; do sleep 0.1; done")):
            pod = {"metadata": {"name": f"fails-{i}", "labels": labels}, "spec": spec(cpu="100m")}
            pod["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", command]
            driver.api.request("POST", PODS, pod)
        job = await driver.submitted("fails")
        place = Place(snapshot.servers[0].name, job.roles[0].name, 2)
        await driver.engine.execute(Start(job.id, 1, (place,)), job)
        await driver.until(lambda: driver.of(Failed, job.id), "its failure is not told")
        go.touch()

        def phases() -> list[str]:
            return [driver.api.request("GET", f"{PODS}/fails-{i}")["status"]["phase"] for i in range(2)]

        await eventually_async(phases, lambda seen: seen == ["Failed", "Succeeded"], "phases of the pods")
        assert "exit code 3" in driver.of(Failed, job.id)[0].reason


@awaited
async def test_a_restart_finds_what_was_placed_and_places_nothing_twice(
    kubernetes_cluster: LocalKubernetes, tmp_path: Path
) -> None:
    driver, lines, go = Driver(kubernetes_cluster), tmp_path / "lines", tmp_path / "go"
    snapshot = await driver.engine.snapshot()
    listening = asyncio.create_task(driver.listen())
    pod = spec(cpu="100m")
    told = f"echo began >> {lines}; until test -e {go}; do sleep 0.1; done"
    pod["containers"][0]["command"] = ["/bin/sh", "-c", told]
    made = driver.api.request("POST", JOBS, batch_job(2, pod))["metadata"]["name"]
    job = await driver.submitted(made)
    start = Start(job.id, 1, (Place(snapshot.servers[0].name, job.roles[0].name, 2),))
    await driver.engine.execute(start, job)
    await driver.until(lambda: driver.of(Started, job.id), "it does not start")
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await driver.engine.close()
    second = Driver(kubernetes_cluster)
    second.engine = KubernetesEngine(driver.engine.settings, Owner(driver.engine.store))
    again = await second.engine.snapshot()
    known = [one for one in again.attempts if one.job == job.id]
    assert [(one.attempt, one.end, one.began) for one in known] == [(1, None, True)]
    assert job.id not in [one.id for one in again.waiting]
    listening = asyncio.create_task(second.listen())
    await second.engine.execute(start, job)
    go.touch()
    await second.until(lambda: second.of(Finished, job.id), "it does not end")
    assert second.of(Failed, job.id) == []
    if (began := len(lines.read_text().split())) != 2:
        raise InvariantBroken(f"{began} pods of a gang of two have begun")
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await second.engine.close()


@awaited
async def test_a_pod_that_berth_cannot_place_is_told_why_and_release_can_be_rehearsed(
    kubernetes_cluster: LocalKubernetes,
) -> None:
    rule = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    async with driving(kubernetes_cluster) as (driver, _):
        pod = {"metadata": {"name": "spread"}, "spec": spec(topologySpreadConstraints=[rule])}
        driver.api.request("POST", PODS, pod)
        where, which = "/api/v1/namespaces/default/events", {"fieldSelector": "reason=BerthIgnored"}
        told = await driver.until(lambda: driver.api.list(where, which)[0], "the pod is not told why")
        assert [one["involvedObject"]["name"] for one in told] == ["spread"]
        assert "while its schedulerName is berth: expected pods without topology spread" in told[0]["message"]
        words = ["kubernetes", "release", "--dry-run", "--kubeconfig", str(kubernetes_cluster.kubeconfig)]
        said = await asyncio.to_thread(CliRunner().invoke, app, words)
        assert re.search(r"^default/spread: bound to n\d+ \(dry run\)$", said.output, re.MULTILINE)
        assert not driver.api.request("GET", f"{PODS}/spread")["spec"].get("nodeName")


@awaited
async def test_pods_of_others_count_and_a_waiting_group_is_explained(
    kubernetes_cluster: LocalKubernetes,
) -> None:
    async with driving(kubernetes_cluster) as (driver, snapshot):
        server = snapshot.servers[0]
        pod = {"metadata": {"name": "foreign"}, "spec": {**spec(seconds=60.0), "schedulerName": "default-scheduler"}}
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": server.name}
        driver.api.request("POST", PODS, pod)
        before = server.taken.get("cpu", 0)
        await driver.until(
            lambda: any(
                getattr(one, "server", None) is not None
                and getattr(one.server, "name", "") == server.name
                and one.server.taken.get("cpu", 0) == before + 1000
                for one in driver.events
                if one.kind == "server-changed"
            ),
            "the pod of another scheduler does not count",
        )
        made = driver.api.request("POST", JOBS, batch_job(2, spec()))["metadata"]["name"]
        job = await driver.submitted(made)
        uids = {one["metadata"]["uid"] for one in driver.pods(made)}
        for text in ("no room", "it waits for faster servers"):
            await driver.engine.note(job.id, text)
        found, _ = driver.api.list("/api/v1/namespaces/default/events", {"fieldSelector": "reason=BerthWaiting"})
        said = {one["involvedObject"]["uid"]: one["message"] for one in found}
        assert {said[uid] for uid in uids} == {"it waits for faster servers"}
        await driver.engine.execute(Cancel(job.id, 0), job)
        await driver.until(lambda: not uids & {one["metadata"]["uid"] for one in driver.pods(made)}, "pods are left")
