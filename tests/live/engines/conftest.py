"""Real clusters for the tests of this folder."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.live.clusters.ray import LocalRay, RayNode
from berth.live.clusters.slurm import LocalSlurm
from tests.live.engines.slurm_site import SlurmSite, slurm, up

NODES = (
    RayNode("n1", gpus=4, labels={"class": "fast"}),
    RayNode("n2", gpus=4, resources={"licence": 2}, labels={"class": "fast"}),
    RayNode("n3", resources={"licence": 1}, labels={"class": "slow"}),
    RayNode("n4", labels={"class": "slow"}),
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


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    """Eight nodes of Slurm; modules that need it otherwise have their own."""
    with slurm() as there:
        yield there


@pytest.fixture
def site(cluster: LocalSlurm, tmp_path: Path) -> SlurmSite:
    return SlurmSite(cluster, tmp_path)
