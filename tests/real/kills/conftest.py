"""A cluster of its own for each run with kills."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.live.clusters.kubernetes import LocalKubernetes
from berth.live.clusters.kubernetes import missing_programs as kubernetes_missing
from berth.live.clusters.ray import LocalRay, RayNode
from berth.live.clusters.slurm import SlurmNode
from berth.live.clusters.slurm import missing_programs as slurm_missing
from tests.real.local import up
from tests.real.slurm.shared import SharedSlurm

RAY = [RayNode(f"n{i}", labels={"class": "fast" if i <= 2 else "slow"}) for i in range(1, 5)]
SLURM = [SlurmNode(f"n{i}", features=["class=fast" if i <= 4 else "class=slow"]) for i in range(1, 9)]


def folder(kind: str) -> Path:
    """A short path: sockets lie in it."""
    return Path(tempfile.mkdtemp(prefix=f"{kind}-"))


@pytest.fixture
def slurm_cluster() -> Iterator[SharedSlurm]:
    if slurm_missing():
        pytest.skip("Slurm is not installed (python3 scripts/slurm.py install)")
    with up(SharedSlurm(folder("slurm"), SLURM)) as cluster:
        yield cluster


@pytest.fixture
def ray_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalRay]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: berth[ray]")
    monkeypatch.setenv("BERTH_RAY_LEASE", "10s")
    with up(LocalRay(folder("ray"), RAY)) as cluster:
        yield cluster


@pytest.fixture
def kubernetes_cluster() -> Iterator[LocalKubernetes]:
    if kubernetes_missing():
        pytest.skip("Kubernetes is not installed (python3 scripts/kubernetes.py install)")
    with up(LocalKubernetes(folder("kubernetes"), 6)) as cluster:
        yield cluster
