"""Time limits on a real Slurm cluster: those that jobs are given, those of partitions, and reservations of nodes."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from berth.live.clusters.slurm import LocalSlurm
from berth.live.core.events import Failed, Started
from berth.live.core.jobs import Place, Server
from berth.live.engines.slurm import SlurmEngine
from berth.live.engines.slurm.partitions import MARGIN, read_partitions, read_reservations
from tests.live.engines.slurm_site import LIMIT, SlurmSite, driven, needs_slurm
from tests.live.service.live import serving

pytestmark = needs_slurm
HOUR = 3600.0


@contextmanager
def reservation(cluster: LocalSlurm, name: str, *words: str) -> Iterator[None]:
    user = pwd.getpwuid(os.getuid()).pw_name
    cluster.ask("scontrol", "create", "reservation", f"ReservationName={name}", f"Users={user}", *words)
    try:
        yield
    finally:
        left = cluster.ask("scontrol", "-o", "show", "reservation")
        if f"ReservationName={name} " in left:
            cluster.ask("scontrol", "delete", f"ReservationName={name}")


def minutes(site: SlurmSite, job: str) -> str:
    """The time limit that Slurm has for the first attempt of a job."""
    (number,) = site.numbers(job, 1)
    said = site.cluster.ask("scontrol", "-o", "show", "job", number)
    match = re.search(r"TimeLimit=(\S+)", said)
    assert match is not None
    return match[1]


def test_slurm_ends_a_job_only_after_its_limit(site: SlurmSite) -> None:
    """Slurm is given a minute more than berth; a job without a limit gets the default one of its partition."""

    async def run() -> None:
        async with driven(site) as driver:
            start, job = site.simple("limited", 600.0, Place("n1", "w", 1))
            await driver.execute(start, job.replace(limit=90.0))
            await driver.execute(*site.simple("unlimited", 600.0, Place("n2", "w", 1)))
            await driver.until(Started)
            await driver.until(Started)
            assert minutes(site, "limited") == "00:03:00"
            assert minutes(site, "unlimited") == "00:30:00"

    site.cluster.ask("scontrol", "update", "PartitionName=main", "DefaultTime=30")
    try:
        asyncio.run(run())
    finally:
        site.cluster.ask("scontrol", "update", "PartitionName=main", "DefaultTime=UNLIMITED")


def test_a_time_limit_that_slurm_enforces_is_a_fault_of_the_job(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            start, job = site.simple("slow", 600.0, Place("n1", "w", 1))
            await driver.execute(start, job.replace(limit=30.0))
            await driver.until(Started)
            (number,) = site.numbers("slow", 1)
            site.cluster.ask("scontrol", "update", f"JobId={number}", "EndTime=now+1")  # or wait for two minutes
            async with asyncio.timeout(4 * LIMIT):
                while (end := driver.end(("slow", 1))) is None:
                    await asyncio.sleep(0.1)
            assert isinstance(end, Failed)
            assert end.fault == "job"
            assert "it reached its time limit" in end.reason

    asyncio.run(run())


def test_the_longest_time_limit_of_a_partition(site: SlurmSite) -> None:
    """A job that exceeds it is refused; one that has just that limit starts, without the grace."""

    async def run() -> None:
        async with driven(site) as driver:
            engine = driver._engine
            assert isinstance(engine, SlurmEngine)
            start, job = site.simple("just", 600.0, Place("n1", "w", 1))
            assert engine.refusal(job.replace(limit=HOUR)) is None
            said = engine.refusal(job.replace(limit=2 * HOUR)) or ""
            assert "its time limit of 2.0 h is longer than partition main of Slurm allows" in said
            assert engine.refusal(job) is None
            await driver.execute(start, job.replace(limit=HOUR))
            await driver.until(Started)
            assert minutes(site, "just") == "01:00:00"
            start, job = site.simple("late", 600.0, Place("n2", "w", 1))
            await driver.execute(start, job.replace(limit=2 * HOUR))
            end = await driver.ended("late")
            assert isinstance(end, Failed)
            assert end.fault == "job"
            assert "MaxTime" in end.reason

    site.cluster.ask("scontrol", "update", "PartitionName=main", "MaxTime=60")
    try:
        asyncio.run(run())
    finally:
        site.cluster.ask("scontrol", "update", "PartitionName=main", "MaxTime=UNLIMITED")


def test_reservations_close_nodes_now_or_at_their_start(site: SlurmSite) -> None:
    """One that holds some cores of a node leaves the rest to other jobs, whatever state Slurm shows for the node."""

    async def servers() -> dict[str, Server]:
        async with driven(site) as driver:
            return {server.name: server for server in (await driver.look()).servers}

    now = time.time()
    with (
        reservation(site.cluster, "later", "StartTime=now+60minutes", "Duration=30", "Nodes=n3,n4", "Flags=MAINT"),
        reservation(site.cluster, "today", "StartTime=now", "Duration=30", "Nodes=n5"),
        reservation(site.cluster, "cores", "StartTime=now", "Duration=30", "Nodes=n6", "CoreCnt=2"),
        reservation(site.cluster, "moving", "StartTime=now+60minutes", "Duration=30", "Nodes=n8", "Flags=TIME_FLOAT"),
    ):
        found = asyncio.run(servers())
    assert {name for name, server in found.items() if server.closed} == {"n5"}
    assert found["n5"].closed.startswith("in Slurm reservation today until ")
    assert {name for name, server in found.items() if server.until is not None} == {"n3", "n4", "n8"}
    assert found["n3"].until_reason.startswith("Slurm reservation later begins at ")
    until, moving = found["n3"].until, found["n8"].until
    assert until is not None
    assert moving is not None
    assert now + HOUR - 5 <= until + MARGIN <= time.time() + HOUR + 60
    assert (moving + MARGIN) % 300 == 0  # so that it does not change at each look


def test_a_maintenance_window(site: SlurmSite, tmp_path: Path) -> None:
    """A short job runs before it; a long one, and one without a limit, wait until it is over, and berth says why."""
    settings = tmp_path / "slurm.yaml"
    settings.write_text(f"conf: {site.cluster.conf}\nspool: {tmp_path / 'spool'}\npoll: 0.5\n")
    nodes = ",".join(node.name for node in site.cluster.nodes)
    window = ("StartTime=now+15minutes", "Duration=60", f"Nodes={nodes}", "Flags=MAINT")
    base = {"resources": {"cpu": 1}, "command": ["sleep", "1"], "workdir": "/"}
    waiting = {"long": {**base, "name": "long", "limit": "1h"}, "open": {**base, "name": "open"}}
    with (
        reservation(site.cluster, "maintenance", *window),
        serving(tmp_path, "--engine", f"slurm:{settings}") as live,
    ):
        live.wait_for("/v1/servers", lambda found: len(found) == 8 and all(server["until"] for server in found))
        for spec in waiting.values():
            live.ask("POST", "/v1/jobs", spec)
        live.ask("POST", "/v1/jobs", {**base, "name": "short", "limit": "1m"})
        live.wait_for("/v1/jobs/short", lambda job: job["phase"] == "finished")
        for name in waiting:
            assert live.ask("GET", f"/v1/jobs/{name}")["phase"] == "waiting"
            assert "Slurm reservation maintenance begins at" in str(live.ask("GET", f"/v1/jobs/{name}/explain"))
        site.cluster.ask("scontrol", "delete", "ReservationName=maintenance")
        for name in waiting:
            live.wait_for(f"/v1/jobs/{name}", lambda job: job["phase"] == "finished")


def test_answers_of_slurm_in_other_forms() -> None:
    (partition,) = read_partitions("PartitionName=day Default=NO MaxTime=1-02:00:00 State=UP\n").values()
    assert (partition.name, partition.default, partition.max_time) == ("day", False, 26 * HOUR)
    assert read_reservations("No reservations in the system\n") == []
