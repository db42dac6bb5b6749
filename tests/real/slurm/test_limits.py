"""Time limits and reservations of nodes on a real Slurm cluster."""

from __future__ import annotations

import asyncio
import re

import pytest

from berth.live.core.events import Failed, Started
from berth.live.core.jobs import Place
from tests.real.slurm.site import SlurmSite, driven

HOUR = 3600.0


def minutes(site: SlurmSite, job: str) -> str:
    """The time limit that Slurm has for the first attempt of a job."""
    (number,) = site.numbers(job, 1)
    said = site.cluster.ask("scontrol", "-o", "show", "job", number)
    match = re.search(r"TimeLimit=(\S+)", said)
    assert match is not None
    return match[1]


def test_slurm_ends_a_job_only_after_its_limit(site: SlurmSite) -> None:
    """Slurm is given a minute more than berth, unless that is more than the partition allows.

    A job without a limit gets the default one of its partition.
    """

    async def run() -> None:
        async with driven(site) as driver:
            start, job = site.simple("limited", 600.0, Place("n1", "w", 1))
            await driver.execute(start, job.replace(limit=90.0))
            await driver.execute(*site.simple("unlimited", 600.0, Place("n2", "w", 1)))
            start, job = site.simple("just", 600.0, Place("n3", "w", 1))
            await driver.execute(start, job.replace(limit=HOUR))
            for _ in range(3):
                await driver.until(Started)
            assert minutes(site, "limited") == "00:03:00"
            assert minutes(site, "unlimited") == "00:30:00"
            assert minutes(site, "just") == "01:00:00"

    site.cluster.ask("scontrol", "update", "PartitionName=main", "DefaultTime=30", "MaxTime=60")
    asyncio.run(run())


@pytest.mark.slow  # Slurm looks at time limits twice a minute
def test_a_time_limit_that_slurm_enforces_is_a_fault_of_the_job(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            start, job = site.simple("slow", 600.0, Place("n1", "w", 1))
            await driver.execute(start, job.replace(limit=30.0))
            await driver.until(Started)
            (number,) = site.numbers("slow", 1)
            site.cluster.ask("scontrol", "update", f"JobId={number}", "EndTime=now+1")  # or wait for two minutes
            end = await driver.ended("slow")
            assert isinstance(end, Failed)
            assert end.fault == "job"
            assert "it reached its time limit" in end.reason

    asyncio.run(run())
