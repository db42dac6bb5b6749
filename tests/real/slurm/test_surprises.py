"""What an operator or a user may do to Slurm behind berth's back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from berth.files.quantities import MILLI
from berth.live.core.events import Failed, Finished, Start, Started
from berth.live.core.jobs import Job, Place, Role
from tests.real.slurm.site import SlurmSite, driven

ONE = (Role("w", 1, {"cpu": MILLI}),)


def test_a_node_that_cannot_end_a_job_is_closed_until_it_can(
    site: SlurmSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its epilog hangs."""
    monkeypatch.setattr("berth.live.engines.slurm.watch.STUCK", 1.0)
    hangs, epilog = tmp_path / "hangs", tmp_path / "epilog"
    hangs.touch()
    epilog.write_text(f"#!/bin/sh\nwhile [ -e {hangs} ]; do sleep 0.2; done\n")
    epilog.chmod(0o755)
    site.cluster.configure(f"Epilog={epilog}")

    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(*site.simple("j", 0.1, Place("n3", "w", 1)))
            await driver.changed("n3", lambda server: "COMPLETING" in server.closed)
            hangs.unlink()
            await driver.changed("n3", lambda server: not server.closed)
            assert isinstance(await driver.ended("j"), Finished)

    try:
        asyncio.run(run())
    finally:
        hangs.unlink(missing_ok=True)


def test_jobs_that_fail_at_once_say_where_their_output_is(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            for i in range(4):
                job = Job(f"f{i}", "t", ONE, payload={"command": ["sh", "-c", "echo out; exit 3"]})
                await driver.execute(Start(job.id, 1, (Place(f"n{i + 1}", "w", 1),)), job)
            for i in range(4):
                end = await driver.ended(f"f{i}")
                assert isinstance(end, Failed)
                assert end.last_output == "out"
            told = {event.job: event.details for event in driver.events if isinstance(event, Started)}
            assert sorted(told) == ["f0", "f1", "f2", "f3"]
            assert all(Path(details["output"]).read_text().count("out\n") == 1 for details in told.values())

    asyncio.run(run())
