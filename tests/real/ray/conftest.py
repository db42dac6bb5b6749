"""The Ray cluster of a run: started once, looked at before each test, and brought back to what it was after it."""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.live.clusters import alive
from berth.live.clusters.ray import LocalRay, RayNode
from tests.real.local import up
from tests.real.ray.driver import Driver

NODES = (
    RayNode("n1", gpus=4, labels={"class": "fast"}),
    RayNode("n2", gpus=4, resources={"licence": 2}, labels={"class": "fast"}),
    RayNode("n3", resources={"licence": 1}, labels={"class": "slow"}),
)
Drive = Callable[[Callable[[Driver], Coroutine[Any, Any, None]]], None]


@pytest.fixture(scope="package")
def ray_cluster() -> Iterator[LocalRay]:
    """Three nodes with four processors each; one that hangs is lost after ten seconds, not after half a minute."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # a short path: sockets lie in it
    with pytest.MonkeyPatch.context() as patch, up(LocalRay(folder, NODES)) as cluster:
        patch.setenv("BERTH_RAY_LEASE", "10s")
        yield cluster


class Shared:
    """A driver of the cluster that tests share: most of them would spend their time on connecting."""

    def __init__(self, driver: Driver, runner: asyncio.Runner) -> None:
        self._driver, self._runner = driver, runner

    def drive(self, play: Callable[[Driver], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine with the driver; afterwards nothing that it has started runs."""
        self._runner.run(self._played(play))

    async def _played(self, play: Callable[[Driver], Coroutine[Any, Any, None]]) -> None:
        await self._driver.ready()
        try:
            await play(self._driver)
        finally:
            await self._driver.clear()

    def close(self) -> None:
        """Disconnect."""
        if self._driver.listener.is_open:
            self._runner.run(self._driver.listener.close())


@pytest.fixture(scope="package")
def shared(ray_cluster: LocalRay, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """The driver that tests share."""
    with asyncio.Runner() as runner:
        shared = Shared(Driver(ray_cluster, tmp_path_factory.mktemp("jobs")), runner)
        yield shared
        shared.close()


@pytest.fixture(autouse=True)
def tidy(ray_cluster: LocalRay, shared: Shared) -> None:
    """A sound cluster before each test: what an earlier one killed or suspended is there again."""
    if not mended(ray_cluster):
        shared.close()
        ray_cluster.stop()
        ray_cluster.start()


def mended(cluster: LocalRay) -> bool:
    """Wake or restart nodes; false if the head is gone, and the cluster with it."""
    daemons, names = cluster.daemons(), [node.name for node in NODES]
    if not all(alive(process) for name, process in daemons.items() if name not in names):
        return False
    for name in names:
        cluster.wake(name)
        if not alive(daemons[name]):
            cluster.start_node(name)
    return True


@pytest.fixture
def drive(shared: Shared) -> Drive:
    """Run a coroutine with the driver that tests share."""
    return shared.drive


@pytest.fixture
def alone(shared: Shared) -> None:
    """Disconnect the driver that tests share: as long as it listens, the cluster belongs to nobody else."""
    shared.close()


@pytest.fixture
def heard(drive: Drive, shared: Shared) -> None:
    """Every node is heard, and nobody is connected: the first snapshot of an engine has all servers."""

    async def nothing(driver: Driver) -> None:
        pass

    drive(nothing)
    shared.close()
