"""Bindings a second on a large Kubernetes cluster: `python -m benchmarks.kubernetes_scale --nodes 1000 --pods 10000`.

A real control plane on this machine with hollow nodes, whose pods run nothing. All pods are created first, while their
scheduler is down; then it starts, and the benchmark measures how long it takes until all of them are bound: first
kube-scheduler, then a berth service in companion mode (Binding API), on the same cluster with equal pods. Every pod
fits. Also printed: the processor time of each program meanwhile, and the largest memory of the scheduler. All programs
share the processors of this machine.

`--compare` needs no control plane. It prints for how long one comparison of servers, of which there is one for a number
of changes, holds up the event loop and works beside it: by processor time, the first time and then after each pod has
changed its status. Copied to commit 87a3ffa, it measures that version.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from berth.live.clusters.kubernetes import KubernetesNode, LocalKubernetes
from berth.live.core.jobs import Place
from berth.live.engines.kubernetes.record import RECORD, STORE, Record
from berth.live.engines.kubernetes.servers import server_of
from berth.live.engines.kubernetes.settings import KubernetesSettings
from berth.live.engines.kubernetes.state import State
from berth.live.engines.kubernetes.status import seen
from berth.live.kubernetes_api import Api, Stop

CPUS = 4
PODS = "/api/v1/namespaces/default/pods"
BOUND = {"fieldSelector": "spec.nodeName!="}
PROGRESS = 5.0
"""Seconds between two lines about the progress."""
PATIENCE = 3600.0
TICKS = 100
"""Clock ticks in a second of /proc/PID/stat."""


@dataclass(frozen=True)
class Bound:
    """How a scheduler bound all pods."""

    scheduler: str
    seconds: float
    first: float
    processor: dict[str, float]
    """Seconds of processor time of each program meanwhile."""
    memory: float


def pod(number: int, scheduler: str, milli: int) -> dict[str, object]:
    """A pod that a hollow node runs for ever."""
    name, type_ = f"p-{number}", f"type-{number % 3}"
    box = {"name": "main", "image": "none", "resources": {"requests": {"cpu": f"{milli}m"}}}
    spec = {"schedulerName": scheduler, "containers": [box], "restartPolicy": "Never"}
    return {"metadata": {"name": name, "annotations": {"berth.io/type": type_}}, "spec": spec}


def bindings(api: Api) -> Iterator[int]:
    """How many pods are bound, again after each change."""
    bound: set[str] = set()
    while True:
        found, version = api.list(PODS, BOUND)
        bound.update(one["metadata"]["uid"] for one in found)
        yield len(bound)
        for _, one in api.watch(PODS, BOUND, version, Stop()):
            bound.add(one["metadata"]["uid"])
            yield len(bound)


def processor_seconds(process: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak(process: int) -> float:
    """The largest memory of a process so far, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def filled(api: Api, many: int, scheduler: str) -> None:
    """Create all pods."""
    milli = CPUS * 1000 // 10
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: api.request("POST", PODS, pod(i, scheduler, milli)), range(many)))


def emptied(api: Api) -> None:
    """Delete all pods, some at a time: the API server gives a request one minute."""
    while api.request("GET", PODS, query={"limit": "1"})["items"]:
        api.request("DELETE", PODS, {"gracePeriodSeconds": 0}, {"limit": "1000"})


def used(programs: Mapping[str, int]) -> dict[str, float]:
    """Processor time of programs so far."""
    return {name: processor_seconds(process) for name, process in programs.items()}


def timed(api: Api, many: int, cluster: LocalKubernetes, scheduler: str, process: int) -> Bound:
    """Wait until all pods are bound."""
    programs = {
        "scheduler": process,
        **{name: cluster.daemons()[name] for name in ("kube-apiserver", "etcd", "kubelet")},
    }
    began, before, first = time.monotonic(), used(programs), 0.0
    shown = 0.0
    for bound in bindings(api):
        passed = time.monotonic() - began
        first = first or (passed if bound else 0.0)
        if bound >= many:
            break
        if passed > PATIENCE:
            raise SystemExit(f"{scheduler}: {bound} of {many} pods were bound in {PATIENCE:g} s")
        if passed > shown + PROGRESS:
            shown = passed
            print(f"{scheduler}: {bound} of {many} bound after {passed:.0f} s", flush=True)
    seconds, after = time.monotonic() - began, used(programs)
    return Bound(scheduler, seconds, first, {name: after[name] - before[name] for name in programs}, peak(process))


@contextmanager
def hollow(nodes: int) -> Iterator[LocalKubernetes]:
    """A cluster of hollow nodes."""
    with tempfile.TemporaryDirectory(prefix="berth-", ignore_cleanup_errors=True) as name:
        there = [KubernetesNode(f"n{i}", CPUS, labels={"class": "abc"[i % 3]}) for i in range(nodes)]
        cluster = LocalKubernetes(Path(name) / "kubernetes", there, hollow=True)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


def engine_state(nodes: int, pods: int) -> tuple[State, list[dict[str, Any]]]:
    """What the engine knows of a cluster full of berth's pods, made by a version that did not note what it counts."""
    state = State(KubernetesSettings(), "default", "store")
    status = {"allocatable": {"cpu": str(CPUS), "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}
    there: list[dict[str, Any]] = [
        {"metadata": {"name": f"n{i}", "uid": f"n{i}"}, "spec": {}, "status": status} for i in range(nodes)
    ]
    settings = KubernetesSettings()
    state.take({"nodes": {one["metadata"]["uid"]: server_of(one, settings) for one in there}, "maps": {}, "pods": {}})
    given = []
    for i in range(pods):
        node, name = f"n{i % nodes}", f"r-{i}"
        state.know(Record((f"j-{i}", 1), name, (Place(node, "main", 1),)))
        labels, made = {STORE: "store", RECORD: name}, pod(i, "berth", 1000)
        metadata = {"name": f"p-{i}", "uid": f"p-{i}", "namespace": "default", "labels": labels}
        spec = {**cast(dict[str, object], made["spec"]), "nodeName": node}
        given.append({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    return state, given


def compared(state: State) -> tuple[float, float]:
    """Milliseconds of processor time of a comparison of servers on the loop and beside it."""
    begin = time.process_time()
    if not hasattr(state, "gather"):
        state.compare()  # type: ignore[attr-defined]
        return 1e3 * (time.process_time() - begin), 0.0
    servers = state.gather()
    middle = time.process_time()
    state.servers = servers()
    return 1e3 * (middle - begin), 1e3 * (time.process_time() - middle)


def compare(nodes: int, pods: int) -> None:
    """Print how long comparisons of servers take."""
    state, given = engine_state(nodes, pods)
    known: dict[str, Any] = {}
    table = Table("", "on the loop, ms", "beside it, ms", title=f"{nodes:,} nodes, {pods:,} pods of berth's own")
    for phase, text in (("Pending", "at first"), ("Running", "after a change of each pod"), ("Running", "again")):
        for one in given:
            uid = one["metadata"]["uid"]
            known[uid] = seen({**one, "status": {"phase": phase}}, known.get(uid))
            state.add(known[uid])
        table.add_row(text, *(f"{figure:,.0f}" for figure in compared(state)))
    Console().print(table)


def main() -> None:
    """Measure both schedulers, and print the figures side by side."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--policy", default="completion")
    parser.add_argument("--compare", action="store_true", help="only how long comparisons of servers take")
    given = parser.parse_args()
    if given.compare:
        compare(given.nodes, given.pods)
        return
    from tests.live.service.live import serving_process  # which 87a3ffa has elsewhere

    if given.pods > 10 * given.nodes:
        raise SystemExit("ten pods fit on a node")
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with hollow(given.nodes) as cluster:
        api = cluster.api
        cluster.kill("kube-scheduler")
        filled(api, given.pods, "default-scheduler")
        cluster.start_daemon("kube-scheduler")
        process = cluster.daemons()["kube-scheduler"]
        rows = [timed(api, given.pods, cluster, "kube-scheduler", process)]
        emptied(api)
        filled(api, given.pods, "berth")
        folder = cluster.directory.parent
        (folder / "berth.yaml").write_text(f"kubeconfig: {cluster.kubeconfig}\nimage: none\ncompanion: scheduler\n")
        arguments = ("--open", "--engine", f"kubernetes:{folder}/berth.yaml", "--policy", given.policy)
        with serving_process(folder, *arguments, "--learn-by", "class") as live:
            rows.append(timed(api, given.pods, cluster, f"berth {given.policy}", live.process.pid))
            decided = live.ask("GET", "/v1/decisions?limit=1000")
    table = Table("scheduler", "seconds", "first after", "bindings/s", "memory, MiB")
    parts = Table("processor time, s", *rows[0].processor)
    for row in rows:
        figures = (row.seconds, row.first, given.pods / row.seconds, row.memory)
        table.add_row(row.scheduler, *(f"{figure:.1f}" for figure in figures))
        parts.add_row(row.scheduler, *(f"{figure:.1f}" for figure in row.processor.values()))
    Console().print(table, parts)
    seconds = sorted(one["seconds"] for one in decided)
    if seconds:
        print(f"{len(seconds)} decisions of berth, median {1000 * seconds[len(seconds) // 2]:.0f} ms")


if __name__ == "__main__":
    main()
