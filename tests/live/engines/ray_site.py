"""A real Ray cluster as a site for `check_engine`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from berth.live.clusters.ray import LocalRay
from berth.live.core.jobs import Job, Role
from berth.live.engines import Engine
from berth.live.engines.ray.engine import RayEngine
from berth.testing.engines.ledger import Ledger
from berth.testing.engines.site import Script, Sighting, Site

REMOVE = """
import sys, ray
from ray.util.placement_group import get_placement_group, remove_placement_group
ray.init(address=sys.argv[1], namespace="berth", log_to_driver=False, logging_level="ERROR")
remove_placement_group(get_placement_group(sys.argv[2]))
"""


class RaySite(Site):
    """Jobs on a cluster that the test starts and stops."""

    short, patience = 0.5, 240.0

    def __init__(self, cluster: LocalRay, folder: Path) -> None:
        self._cluster, self._ledger = cluster, Ledger(folder)

    async def engine(self) -> Engine:
        return RayEngine(self._cluster.address)

    def job(self, id: str, roles: tuple[Role, ...], script: Script) -> Job:
        return self._ledger.job(id, roles, script)

    async def begun(self) -> Sequence[Sighting]:
        return self._ledger.begun()

    async def lose(self, server: str) -> None:
        self._cluster.kill(server)

    async def restore(self, server: str) -> None:
        self._cluster.start_node(server)

    async def cancel_behind(self, job: str, attempt: int) -> None:
        command = [sys.executable, "-c", REMOVE, self._cluster.address, f"berth-{job}-{attempt}"]
        subprocess.run(command, check=True, timeout=240)
