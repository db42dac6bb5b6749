"""A real Ray cluster as a site for `check_engine`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from berth.live.clusters.ray import LocalRay
from berth.live.engines import Engine
from berth.live.engines.ray.engine import RayEngine
from tests.harness.waiting import DEADLINE
from tests.real.contract import WitnessedSite

REMOVE = """
import sys, ray
from ray.util.placement_group import get_placement_group, remove_placement_group
ray.init(address=sys.argv[1], namespace="berth", log_to_driver=False, logging_level="ERROR")
remove_placement_group(get_placement_group(sys.argv[2]))
"""


class RaySite(WitnessedSite):
    """Jobs on a cluster that the test starts and stops."""

    short = 0.5

    def __init__(self, cluster: LocalRay, folder: Path) -> None:
        super().__init__(folder)
        self._cluster = cluster

    async def engine(self) -> Engine:
        return RayEngine(self._cluster.address)

    async def lose(self, server: str) -> None:
        self._cluster.kill(server)

    async def restore(self, server: str) -> None:
        self._cluster.start_node(server)

    async def cancel_behind(self, job: str, attempt: int) -> None:
        command = [sys.executable, "-c", REMOVE, self._cluster.address, f"berth-{job}-{attempt}"]
        await asyncio.to_thread(subprocess.run, command, check=True, timeout=DEADLINE)
