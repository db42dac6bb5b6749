"""The Kubernetes control plane of a run: started once, looked at before each test, and cleaned after it."""

from __future__ import annotations

import operator
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from berth.errors import BerthError
from berth.live.clusters.kubernetes import DAEMONS, KubernetesNode, LocalKubernetes, missing_programs
from berth.live.kubernetes_api import ApiError
from tests.harness.waiting import eventually
from tests.real.local import up

NODES = (
    KubernetesNode("n1", gpus=4, labels={"class": "fast"}),
    KubernetesNode("n2", gpus=4, labels={"class": "fast"}),
    KubernetesNode("n3", labels={"class": "slow"}),
    KubernetesNode("n4", labels={"class": "slow"}),
    KubernetesNode("n5", labels={"class": "shared"}),
    KubernetesNode("n6", cpus=8, labels={"class": "large", "berth.io/speed": "100"}),
    KubernetesNode("n7", taints=("team=a:NoSchedule",)),
)
RECOVERY_SECONDS = 60.0
"""Seconds that a cluster has to become sound by itself before it is started anew."""

PODS = "/api/v1/pods"
CREATED: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "/apis/batch/v1/jobs": lambda _: True,
    PODS: lambda _: True,
    "/api/v1/configmaps": lambda one: one["metadata"]["name"] != "kube-root-ca.crt",
    "/api/v1/secrets": lambda one: one["type"] == "Opaque",
    "/apis/coordination.k8s.io/v1/leases": lambda _: True,
}
"""Kinds of objects that tests and engines create, and which of them are theirs."""
UNCORDON = {"spec": {"unschedulable": None}}


@pytest.fixture(scope="package")
def kubernetes_cluster() -> Iterator[LocalKubernetes]:
    """Seven nodes; the users berth, reader and nobody have no rights, except those that a test gives them."""
    if missing := missing_programs():
        pytest.skip(f"{', '.join(missing)} not installed (python3 scripts/kubernetes.py install)")
    with up(LocalKubernetes(Path(tempfile.mkdtemp(prefix="kubernetes-")), NODES)) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def tidy(kubernetes_cluster: LocalKubernetes) -> Iterator[None]:
    """A sound cluster before each test, and nothing of the test in it afterwards."""
    if not sound(kubernetes_cluster):
        kubernetes_cluster.stop()
        kubernetes_cluster.start()
        clean(kubernetes_cluster)
    yield
    if sound(kubernetes_cluster):
        clean(kubernetes_cluster)


def sound(cluster: LocalKubernetes) -> bool:
    """Bring back what a test took away; whether all daemons and nodes are there."""
    if set(cluster.daemons()) != set(DAEMONS):
        return False
    try:
        for node in cluster.nodes:
            if (cluster.directory / "lost" / node.name).exists():
                cluster.restore(node.name)
        names = {node.name for node in cluster.nodes}
        eventually(cluster.ready, lambda ready: ready == names, "ready nodes", RECOVERY_SECONDS)
        for node in cluster.api.request("GET", "/api/v1/nodes")["items"]:
            if node["spec"].get("unschedulable"):
                cluster.api.request("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", UNCORDON)
    except (AssertionError, BerthError):
        return False
    return True


def clean(cluster: LocalKubernetes) -> None:
    """Delete what tests and engines create in namespaces, and wait until no pod is left."""
    for kind, ours in CREATED.items():
        for one in cluster.api.list(kind)[0]:
            about = one["metadata"]
            if not about["namespace"].startswith("kube-") and ours(one):
                root, _, plural = kind.rpartition("/")
                path = f"{root}/namespaces/{about['namespace']}/{plural}/{about['name']}"
                with suppress(ApiError):  # it went with its owner
                    cluster.api.request("DELETE", path, {"gracePeriodSeconds": 1, "propagationPolicy": "Background"})
    eventually(lambda: [pod["metadata"]["name"] for pod in cluster.api.list(PODS)[0]], operator.not_, "pods are left")
