"""What an operator or a user may do to Slurm behind berth's back, and jobs that Slurm could never run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from berth.files.quantities import MILLI
from berth.live.clusters.slurm import LocalSlurm
from berth.live.core.events import Failed, Finished, ServerChanged, Start, Started
from berth.live.core.jobs import Job, Place, Role
from tests.live.engines.slurm_site import LIMIT, NODES, SlurmSite, driven, needs_slurm, settled, slurm

pytestmark = needs_slurm

ONE = (Role("w", 1, {"cpu": MILLI}),)


def test_a_node_that_cannot_end_a_job_is_closed_until_it_can(tmp_path: Path) -> None:
    hangs, epilog = tmp_path / "hangs", tmp_path / "epilog"
    hangs.touch()
    epilog.write_text(f"#!/bin/sh\nwhile [ -e {hangs} ]; do sleep 0.2; done\n")
    epilog.chmod(0o755)
    tmp_path.chmod(0o755)
    with slurm(nodes=NODES[2:5], lines=[f"Epilog={epilog}"]) as cluster:
        site = SlurmSite(cluster, tmp_path)

        async def run() -> None:
            async with driven(site) as driver:
                await driver.execute(*site.simple("j", 0.1, Place("n3", "w", 1)))

                def closed() -> str:
                    seen = [e.server for e in driver.events if isinstance(e, ServerChanged)]
                    return next((one.closed for one in reversed(seen) if one.name == "n3"), "")

                async with asyncio.timeout(LIMIT):
                    while "COMPLETING" not in closed():
                        await asyncio.sleep(0.1)
                hangs.unlink()
                async with asyncio.timeout(LIMIT):
                    while closed():
                        await asyncio.sleep(0.1)
                assert isinstance(await driver.ended("j"), Finished)

        asyncio.run(run())


def test_a_job_whose_comment_was_changed_is_still_ours(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(*site.simple("c", 4.0, Place("n1", "w", 1)))
            await driver.until(Started)
            (number,) = site.numbers("c", 1)
            site.cluster.ask("scontrol", "update", f"JobId={number}", "Comment=nothing")
            assert isinstance(await driver.ended("c"), Finished)

    asyncio.run(run())
    assert len(site.ledger.begun()) == 1


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


@pytest.mark.parametrize(
    ("roles", "payload", "reason"),
    [
        ((Role("w", 1, {}),), {"command": ["true"]}, "at least one CPU"),
        (ONE, {}, "nothing to run"),
        (ONE, {"command": ["true"], "workdir": "relative"}, "absolute path"),
        (ONE, {"command": ["true"], "environment": {"A=B": "c"}}, "cannot be a variable"),
        (ONE, {"command": ["true"], "environment": {"SLURM_MPI_TYPE": "; x"}}, "srun --mpi=list"),
        (ONE, {"script": "true\r\n"}, "Unix line breaks"),
        (ONE, {"command": ["x" * 200_000]}, "a command of at most"),
        ((Role("w", 1, {"cpu": 1500}),), {"command": ["true"]}, "whole units of cpu"),
    ],
)
def test_what_slurm_could_never_run_is_refused_before_it_is_accepted(
    cluster: LocalSlurm, tmp_path: Path, roles: tuple[Role, ...], payload: dict[str, Any], reason: str
) -> None:
    async def run() -> None:
        engine = await SlurmSite(cluster, tmp_path).engine()
        try:
            await settled(engine)
            assert reason in (engine.refusal(Job("j", "t", roles, payload=payload)) or "")
            good = {"command": ["true"], "workdir": "/tmp", "environment": {"A": "b"}}
            assert engine.refusal(Job("j", "t", (Role("w", 9, {"cpu": MILLI}),), payload=good)) is None
        finally:
            await engine.close()

    asyncio.run(run())
