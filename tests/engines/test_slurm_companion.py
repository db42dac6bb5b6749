"""Jobs that people give to Slurm with sbatch, in a partition that berth serves: a real cluster with the Lua snippet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from berth.clusters.slurm import LocalSlurm
from berth.dispatch.events import Cancel, Cancelled, Failed, Finished, Start, Started, Submitted
from berth.dispatch.jobs import Job, Place
from berth.dispatch.quantities import MILLI
from berth.engines.slurm.writing import MIB
from tests.engines.slurm_site import LIMIT, Driver, SlurmSite, driven, needs_slurm, slurm

pytestmark = needs_slurm


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    with slurm(companion="shared") as there:
        yield there


@pytest.fixture
def site(cluster: LocalSlurm, tmp_path: Path) -> SlurmSite:
    found = SlurmSite(cluster, tmp_path)
    found.settings = replace(found.settings, companion="shared", poll=0.3)
    return found


def sbatch(site: SlurmSite, *words: str, command: str = "sleep 600") -> str:
    """Submit as a person does; Slurm's number."""
    given = ["-p", "shared", "-o", "/dev/null", *words, "--wrap", command]
    return site.cluster.ask("sbatch", "--parsable", *given).strip()


async def submitted(driver: Driver) -> Job:
    event = await driver.until(Submitted)
    assert isinstance(event, Submitted)
    return event.job


def state(site: SlurmSite, number: str) -> str:
    return site.cluster.ask("squeue", "-h", "-t", "all", "-j", number, "-o", "%T %r").strip()


def test_from_sbatch_to_its_end(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            words = ["-N2", "--ntasks-per-node=2", "-c1", "--mem=300", "--gres=gpu:1", "-C", "fast", "-t", "10"]
            number = sbatch(site, *words, "--comment", "berth:type=resnet,work=2h", command="srun sleep 1")
            job = await submitted(driver)
            assert state(site, number).startswith("PENDING JobHeld")  # by the snippet: nobody said --hold
            assert (job.type, job.work, job.estimate, job.origin) == ("resnet", 7200.0, 600.0, "slurm")
            assert (job.needs, job.user) == ({"fast": "yes"}, "root")
            (role,) = job.roles
            assert (role.count, role.per_server) == (2, 1)
            assert role.demand == {"cpu": 2 * MILLI, "memory": 300 * MIB, "gpu": MILLI}
            assert [each.id for each in (await driver.look()).waiting] == [job.id]
            start = Start(job.id, 1, (Place("n2", "node", 1), Place("n1", "node", 1)))
            await driver.execute(start, job)
            await driver.execute(start, job)
            assert isinstance(await driver.until(Started), Started)
            assert site.cluster.ask("squeue", "-h", "-j", number, "-o", "%N").strip() == "n[1-2]"
            snapshot = await driver.look()
            assert snapshot.waiting == ()
            assert [(a.job, a.attempt, a.end) for a in snapshot.attempts] == [(job.id, 1, None)]
            assert isinstance(await driver.ended(job.id), Finished)
            assert not [event for event in driver.events if isinstance(event, Cancelled)]

    asyncio.run(run())


def test_people_and_berth_cancel(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            theirs = sbatch(site, "-n1")
            job = await submitted(driver)
            site.cluster.ask("scancel", theirs)
            event = await driver.until(Cancelled)
            assert isinstance(event, Cancelled)
            assert (event.job, event.by) == (job.id, "slurm")
            ours = sbatch(site, "-n1")
            job = await submitted(driver)
            await driver.execute(Cancel(job.id, 0), job)
            await driver.until(Cancelled)
            assert state(site, ours).startswith("CANCELLED")
            runs = sbatch(site, "-n1")
            job = await submitted(driver)
            await driver.execute(Start(job.id, 1, (Place("n3", "node", 1),)), job)
            await driver.until(Started)
            await driver.execute(Cancel(job.id, 1), job)
            end = await driver.ended(job.id)
            assert isinstance(end, Failed)
            assert end.fault == "cancelled"
            assert state(site, runs).startswith("CANCELLED")

    asyncio.run(run())


def test_a_job_that_is_requeued_waits_again(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            number = sbatch(site, "-n1", "--requeue", command="sleep 1; test $SLURM_RESTART_COUNT || sleep 600")
            job = await submitted(driver)
            await driver.execute(Start(job.id, 1, (Place("n4", "node", 1),)), job)
            await driver.until(Started)
            site.cluster.ask("scontrol", "requeue", number)
            end = await driver.ended(job.id)
            assert isinstance(end, Failed)
            assert (end.fault, end.reason) == ("engine", "Slurm put it back into its queue")
            again = await submitted(driver)
            assert again.id == job.id
            assert state(site, number).startswith("PENDING JobHeld")
            assert [each.id for each in (await driver.look()).waiting] == [job.id]
            await driver.execute(Start(job.id, 2, (Place("n5", "node", 1),)), job)
            assert isinstance(await driver.ended(job.id, 2), Finished)
            assert site.cluster.ask("squeue", "-h", "-t", "all", "-j", number, "-o", "%N").strip() == "n5"

    asyncio.run(run())


def test_a_job_that_slurm_does_not_start_waits_again(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            site.cluster.ask(
                "sbatch", "-p", "main", "-w", "n6", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600"
            )
            sbatch(site, "-n1", command="true")
            job = await submitted(driver)
            await driver.execute(Start(job.id, 1, (Place("n6", "node", 1),)), job)
            end = await driver.ended(job.id)
            assert isinstance(end, Failed)
            assert end.fault == "engine"
            await driver.execute(Start(job.id, 2, (Place("n3", "node", 1),)), job)
            assert isinstance(await driver.ended(job.id, 2), Finished)

    asyncio.run(run())


def test_a_new_driver_knows_what_waits_and_runs(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            sbatch(site, "-n1")
            runs = await submitted(driver)
            await driver.execute(Start(runs.id, 1, (Place("n3", "node", 1),)), runs)
            await driver.until(Started)
            sbatch(site, "-n1")
            waits = await submitted(driver)
            await driver.close()
            found = await driver.open()
            assert [job.id for job in found.waiting] == [waits.id]
            assert [(a.job, a.attempt) for a in found.attempts] == [(runs.id, 1)]

    asyncio.run(run())


def test_what_is_not_taken(site: SlurmSite, caplog: pytest.LogCaptureFixture) -> None:
    """Arrays stay held, with a warning; jobs of other partitions and jobs of berth itself run as ever."""

    async def run() -> None:
        async with driven(site) as driver:
            sbatch(site, "--array=1-3", "-n1")
            other = site.cluster.ask("sbatch", "--parsable", "-p", "main", "-o", "/dev/null", "--wrap", "true").strip()
            await driver.execute(*site.simple("own", 0.5, Place("n1", "w", 1)))
            assert isinstance(await driver.ended("own"), Finished)
            async with asyncio.timeout(LIMIT):
                while not state(site, other).startswith("COMPLETED"):
                    await asyncio.sleep(0.1)
            assert (await driver.look()).waiting == ()

    asyncio.run(run())
    assert "waits in Slurm and is not taken: expected a job that is neither an array" in caplog.text


def test_own_jobs_in_the_same_partition_are_not_held(site: SlurmSite) -> None:
    site.settings = replace(site.settings, partition="shared")

    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(*site.simple("own-2", 0.5, Place("n1", "w", 1)))
            assert isinstance(await driver.ended("own-2"), Finished)
            assert not [event for event in driver.events if isinstance(event, Submitted)]

    asyncio.run(run())
