"""What a real Slurm cluster as a whole holds back, here by its partition, fails no job and is no node's fault."""

from __future__ import annotations

import asyncio
from pathlib import Path

from berth.live.core.events import Failed, Started
from berth.live.core.jobs import Place
from tests.live.service.live import serving
from tests.real.slurm.shared import SharedSlurm
from tests.real.slurm.site import SlurmSite, driven


def test_slurm_says_whether_its_nodes_or_something_else_held_a_job_back(site: SlurmSite) -> None:
    usual = site.settings
    site.settings = usual.replace(patience=2.0)

    async def run() -> None:
        async with driven(site) as driver:
            site.cluster.ask("sbatch", "-w", "n4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600")
            await driver.execute(*site.simple("node", 1.0, Place("n4", "w", 1)))
            end = await driver.ended("node")
            assert isinstance(end, Failed)
            assert ("Resources" in end.reason, end.refused_by) == (True, ("n4",))
            site.cluster.ask("scontrol", "update", "PartitionName=main", "State=DOWN")
            await driver.execute(*site.simple("partition", 1.0, Place("n1", "w", 1)))
            end = await driver.ended("partition")
            assert isinstance(end, Failed)
            assert ("PartitionDown" in end.reason, end.refused_by) == (True, ())
        site.cluster.ask("scontrol", "update", "PartitionName=main", "State=UP")
        site.settings = usual
        async with driven(site) as driver:
            await driver.execute(*site.simple("later", 1.0, Place("n1", "w", 1)))
            await driver.until(Started)

    asyncio.run(run())


def test_a_job_that_slurm_holds_back_waits_and_says_why(cluster: SharedSlurm, tmp_path: Path) -> None:
    settings = tmp_path / "slurm.yaml"
    settings.write_text(f"conf: {cluster.conf}\nspool: {tmp_path / 'spool'}\npoll: 0.3\npatience: 2\n")
    with serving(tmp_path, "--engine", f"slurm:{settings}") as live:
        cluster.ask("scontrol", "update", "PartitionName=main", "State=DOWN")
        live.ask("POST", "/v1/jobs", [{"name": "held", "resources": {"cpu": 1}, "command": ["true"]}])
        words = "the cluster refused such jobs", "times in a row", "PartitionDown"
        live.wait_for("/v1/jobs/held/explain", lambda told: all(word in told["text"] for word in words))
        cluster.ask("scontrol", "update", "PartitionName=main", "State=UP")
        done = live.wait_for("/v1/jobs/held", lambda job: job["phase"] == "finished")
        assert done["failures"] == 0
