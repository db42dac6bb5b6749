"""Whose a job is that waits in Slurm: never what a name says that a user chose."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from berth.live.core.events import Cancel, Start
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines.slurm import SlurmEngine, SlurmSettings
from berth.live.engines.slurm.spool import Spool
from tests.live.engines.slurm_in_memory import SlurmInMemory

PLACES = (Place("n1", "w", 1),)


def own(name: str) -> Job:
    """A job that a user submitted to berth."""
    return Job(name, "t", (Role("w", 1, {"cpu": 1000}),), payload={"command": ["true"]})


@asynccontextmanager
async def engine(slurm: SlurmInMemory, folder: Path) -> AsyncIterator[SlurmEngine]:
    made = SlurmEngine(SlurmSettings(spool=folder / "spool", companion="shared"), slurm)
    try:
        yield made
    finally:
        await made.close()


def test_a_job_of_berth_with_the_name_of_a_held_job_starts_as_itself(tmp_path: Path) -> None:
    async def run() -> None:
        slurm = SlurmInMemory(getpass.getuser())
        victim = slurm.held_job("bob")
        async with engine(slurm, tmp_path) as one:
            (theirs,) = (await one.snapshot()).waiting
            job = own(theirs.id)
            await one.execute(Start(job.id, 1, PLACES), job)
            assert slurm.released == []
            assert slurm.submitted == [job.id]
            (attempt,) = (await one.snapshot()).attempts
            assert attempt.end is None
            await one.execute(Cancel(job.id, 1), job)
            await one.snapshot()
            await one.execute(Cancel(job.id, 1), job)
            await one.execute(Cancel(job.id, 1), None)
            assert victim.id not in slurm.ended
            await one.execute(Start(theirs.id, 2, PLACES), theirs)
            assert slurm.released == [victim.id]

    asyncio.run(run())


def test_a_job_of_berth_that_never_began_does_not_end_the_held_job_of_its_name(tmp_path: Path) -> None:
    async def run() -> None:
        slurm = SlurmInMemory(getpass.getuser())
        victim = slurm.held_job("bob")
        async with engine(slurm, tmp_path) as one:
            (theirs,) = (await one.snapshot()).waiting
            await one.execute(Cancel(theirs.id, 1), own(theirs.id))
            assert slurm.ended == []
            await one.execute(Cancel(theirs.id, 0), None)
            assert slurm.ended == [victim.id]

    asyncio.run(run())


def test_the_spool_knows_whose_attempts_are(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.asked(("slurm-1-2", 1), PLACES)
    spool.asked(("slurm-1-3", 1), PLACES, theirs=True)
    spool.close()
    again = Spool(tmp_path)
    assert [record.theirs for record in again.records.values()] == [False, True]
    again.close()
    old = (
        (tmp_path / "attempts.jsonl")
        .read_text()
        .replace('"theirs": false', '"x": 0')
        .replace('"theirs": true', '"x": 0')
    )
    (tmp_path / "attempts.jsonl").write_text(old)
    older = Spool(tmp_path)
    assert [record.theirs for record in older.records.values()] == [True, True]
    older.close()
