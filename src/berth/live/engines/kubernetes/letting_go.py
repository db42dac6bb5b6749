"""Let go of all pods that wait for berth, for a cluster without it.

A scheduling gate is removed, and kube-scheduler goes on. A pod with `schedulerName: berth` is bound to a node where it
fits, with its group or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus

from berth.live.engines.kubernetes.cluster import Cluster, cluster_of
from berth.live.engines.kubernetes.companion import SCHEDULER, Way, binding, release
from berth.live.engines.kubernetes.fitting import Fitting
from berth.live.engines.kubernetes.groups import PodKind, gang_of_pods, group_of, members
from berth.live.engines.kubernetes.pods import Pod
from berth.live.engines.kubernetes.status import SeenPod, seen
from berth.live.kubernetes_api import Api, ClusterRefused

__all__ = ["let_go"]


def let_go(api: Api, namespace: str | None = None, *, dry: bool = False) -> Iterator[str]:
    """Let all waiting pods go, of one namespace or of all; says what was done with each, or would be."""
    found, _ = api.list("/api/v1/pods")
    pods = [pod for pod in map(seen, found) if namespace in (None, pod.namespace)]
    for pod in [pod for pod in pods if Way("gates").held(pod)]:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        said = _tried(api, "PATCH", path, release(pod, None), dry)
        yield f"{pod.namespace}/{pod.name}: {said or 'left to kube-scheduler'}"
    waiting = {(pod.namespace, pod.name): pod for pod in pods if Way("scheduler").waits(pod)}
    if waiting:
        yield from _bound(api, cluster_of(api.list("/api/v1/nodes")[0], found, api.host), waiting, dry)


def _bound(api: Api, cluster: Cluster, waiting: dict[tuple[str, str], SeenPod], dry: bool) -> Iterator[str]:
    done: set[str] = set()
    for pod in [pod for pod in cluster.waiting if pod.spec.scheduler_name == SCHEDULER]:
        group = [one for one in members(pod, cluster.waiting) if (one.namespace, one.metadata.name) in waiting]
        if not group or pod.name in done:
            continue
        done |= {one.name for one in group}
        kind, name = group_of(pod.metadata, pod.spec) or ("Pod", pod.metadata.name)
        gang = gang_of_pods(kind, name, group)
        places = Fitting.of(cluster, gang).places()
        if not places:
            yield f"{pod.namespace}/{name}: no room for its {len(group)} pods"
            continue
        cluster = cluster.after([one.role for one in gang.pods], places)
        servers = {
            kind.role.name: [p.server for p in places for _ in range(p.count) if p.role == kind.role.name]
            for kind in gang.pods
        }
        for one in group:
            server = servers[_role(one, gang.pods)].pop(0)
            there = waiting[one.namespace, one.metadata.name]
            path = f"/api/v1/namespaces/{there.namespace}/pods/{there.name}/binding"
            said = _tried(api, "POST", path, binding(there, server), dry)
            yield f"{there.namespace}/{there.name}: {said or f'bound to {server}'}"


def _role(pod: Pod, kinds: Sequence[PodKind]) -> str:
    """The role of a pod in its gang."""
    like = (kind.role.name for kind in kinds if kind.role.demand == pod.requests and kind.rules == pod.rules)
    return next(like, kinds[0].role.name)


def _tried(api: Api, method: str, path: str, body: object, dry: bool) -> str:
    """Send a request; why it was refused, or nothing."""
    if dry:
        return ""
    try:
        api.request(method, path, body)
    except ClusterRefused as error:
        if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            return "gone, or placed by another"
        raise
    return ""
