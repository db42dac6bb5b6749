"""Real clusters for the tests of this folder."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.live.clusters.kubernetes import KubernetesNode, LocalKubernetes, missing_programs
from berth.live.clusters.ray import LocalRay, RayNode
from tests.real.local import up

NODES = (
    RayNode("n1", gpus=4, labels={"class": "fast"}),
    RayNode("n2", gpus=4, resources={"licence": 2}, labels={"class": "fast"}),
    RayNode("n3", resources={"licence": 1}, labels={"class": "slow"}),
    RayNode("n4", labels={"class": "slow"}),
)
KUBERNETES_NODES = (
    KubernetesNode("n1", gpus=4, labels={"class": "fast"}),
    KubernetesNode("n2", gpus=4, labels={"class": "fast"}),
    KubernetesNode("n3", labels={"class": "slow"}),
    KubernetesNode("n4", labels={"class": "slow"}),
)


@pytest.fixture(scope="session", autouse=True)
def short_lease() -> Iterator[None]:
    """Nobody waits half a minute for a node that hangs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTH_RAY_LEASE", "10s")
        yield


@pytest.fixture(scope="package")  # ended with the last test here: an idle cluster still takes time from others
def ray_cluster() -> Iterator[LocalRay]:
    """Four nodes with four processors each."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # a short path: sockets lie in it
    with up(LocalRay(folder, NODES)) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def kubernetes_cluster() -> Iterator[LocalKubernetes]:
    """Four nodes with four processors each; the users berth, reader and nobody have no rights."""
    if missing_programs():
        pytest.skip("Kubernetes is not installed (python3 scripts/kubernetes.py install)")
    with up(LocalKubernetes(Path(tempfile.mkdtemp(prefix="kubernetes-")), KUBERNETES_NODES)) as cluster:
        yield cluster
