"""Ray's engine without the head of the cluster. This module is the last one here: the cluster ends with its head."""

from __future__ import annotations

import pytest

from berth.live.clusters.ray import LocalRay
from berth.live.engines import EngineError
from berth.live.engines.ray.engine import RayEngine
from tests.harness.waiting import eventually_async
from tests.real.ray.conftest import Drive
from tests.real.ray.driver import Driver


@pytest.mark.slow
def test_without_its_head_a_cluster_is_an_error_and_runs_nothing(drive: Drive, ray_cluster: LocalRay) -> None:
    address = ray_cluster.address

    async def play(driver: Driver) -> None:
        job = await driver.job("n1").start()
        await job.runs()
        driver.listener.trouble = ""
        ray_cluster.kill_head()
        await job.is_over()
        driver.made.clear()  # there is nobody who could cancel it
        await eventually_async(lambda: driver.listener.trouble, what="nobody noticed")
        with pytest.raises(EngineError, match=f"no Ray cluster at {address}: Connection refused"):
            await RayEngine(address).snapshot()

    drive(play)
