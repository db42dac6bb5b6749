"""Slurm's engine over a real slurmrestd, and over what is none."""

from __future__ import annotations

import asyncio
import os
import pwd
from pathlib import Path

import pytest

from berth.files.quantities import MILLI
from berth.live.core.events import Failed, Start, Started
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines import EngineError
from berth.live.engines.slurm import SlurmEngine, SlurmSettings
from berth.live.engines.slurm.commands import SlurmCommands
from berth.live.engines.slurm.foreign_jobs import shares
from berth.live.engines.slurm.rest import SlurmRest
from berth.live.engines.slurm.submission import MIB
from berth.testing import ENGINE_CHECKS
from berth.testing.engines.site import Script
from tests.real.slurm.shared import SharedSlurm, restd
from tests.real.slurm.site import SlurmSite, driven, kept, settled

pytestmark = pytest.mark.skipif(
    restd() is None, reason="slurmrestd is not installed (python3 scripts/slurm.py install)"
)


@pytest.fixture
def site(cluster: SharedSlurm, tmp_path: Path) -> SlurmSite:
    found = SlurmSite(cluster, tmp_path)
    token = tmp_path / "token"
    name = pwd.getpwuid(os.getuid()).pw_name
    token.write_text(cluster.ask("scontrol", "token", f"username={name}", "lifespan=3600"))
    found.settings = found.settings.replace(conf=None, rest=cluster.rest(), token=token)
    return found


SENT = ("starts-what-was-asked", "cancels", "payload-is-data")
"""Promises that depend on the way in which Slurm is asked."""


ALL = tuple(ENGINE_CHECKS.keys() - {"survives-lost-servers"})
"""slurmrestd of 22.05 ignores that jobs are not to be requeued: one that loses a node fails by the engine's fault."""


@pytest.mark.parametrize("names", [SENT, pytest.param(ALL, marks=pytest.mark.slow)], ids=["sent", "all"])
def test_promises_are_kept(site: SlurmSite, names: tuple[str, ...]) -> None:
    assert kept(site, names) == set(names)


def test_servers_are_as_the_commands_say(site: SlurmSite, cluster: SharedSlurm, tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            other = SlurmEngine(SlurmSettings(conf=cluster.conf, spool=tmp_path / "other"))
            said = await driver.look()
            assert said.servers == (await settled(other)).servers
            await other.close()

    asyncio.run(run())


def test_reservations_and_limits_are_as_the_commands_say(site: SlurmSite, cluster: SharedSlurm) -> None:
    name = pwd.getpwuid(os.getuid()).pw_name
    words = ["reservation", "ReservationName=later", f"Users={name}", "StartTime=now+60minutes", "Duration=30"]

    async def run() -> None:
        commands, rest = SlurmCommands(SlurmSettings(conf=cluster.conf)), SlurmRest(site.settings)
        assert await rest.partitions() == await commands.partitions()
        cluster.ask("scontrol", "create", *words, "Nodes=n3,n4", "Flags=MAINT")
        cluster.ask("scontrol", "update", "PartitionName=main", "MaxTime=90")
        found = await commands.reservations()
        assert [one.name for one in found] == ["later"]
        assert await rest.reservations() == found
        assert await rest.partitions() == await commands.partitions()
        cluster.ask("scontrol", "delete", "ReservationName=later")
        assert await rest.reservations() == []

    asyncio.run(run())


def test_an_uneven_script_is_one_allocation(site: SlurmSite) -> None:
    places = (Place("n1", "w", 2), Place("n2", "w", 1))
    role = Role("w", 3, {"cpu": MILLI, "memory": 50 * MIB, "gpu": MILLI})

    async def run() -> None:
        async with driven(site) as driver:
            job = Job("uneven", "t", (role,), payload={"script": "srun echo task; sleep 600"}, limit=90.0)
            await driver.execute(Start("uneven", 1, places), job)
            await driver.until(Started)
            (found,) = [j for j in await SlurmRest(site.settings).jobs() if ":uneven:" in j.comment]
            assert found.limit == 180.0
            assert shares(found) == {
                "n1": {"cpu": 2 * MILLI, "memory": 100 * MIB, "gpu": 2 * MILLI},
                "n2": {"cpu": MILLI, "memory": 50 * MIB, "gpu": MILLI},
            }

    asyncio.run(run())


def test_devices(site: SlurmSite) -> None:
    """GRES over REST, and a job that slurmctld refuses."""
    role = Role("w", 2, {"cpu": MILLI, "gpu": MILLI, "licence": MILLI})

    async def run() -> None:
        async with driven(site) as driver:
            start = Start("devices", 1, (Place("n1", "w", 1), Place("n2", "w", 1)))
            await driver.execute(start, site.job("devices", (role,), Script(600.0)))
            await driver.until(Started)
            (number,) = site.numbers("devices", 1)
            said = site.cluster.ask("scontrol", "-d", "-o", "show", "job", number)
            assert "gpu:1" in said
            assert "licence:1" in said
            await driver.execute(*site.simple("huge", 1.0, Place("n3", "w", 1), memory=10**15 * MILLI))
            end = await driver.ended("huge")
            assert isinstance(end, Failed)
            assert end.fault == "server"

    asyncio.run(run())


def test_nobody_there_and_no_token(site: SlurmSite, tmp_path: Path) -> None:
    async def said(settings: SlurmSettings) -> str:
        engine = SlurmEngine(settings)
        try:
            with pytest.raises(EngineError) as error:
                await engine.snapshot()
            return str(error.value)
        finally:
            await engine.close()

    async def run() -> None:
        assert "no server listens" in await said(site.settings.replace(rest=f"unix:{tmp_path}/none"))
        assert "cannot be read" in await said(site.settings.replace(token=tmp_path / "none"))
        (tmp_path / "bad").write_text("a token?\n")
        assert "expected a JSON Web Token" in await said(site.settings.replace(token=tmp_path / "bad"))
        (tmp_path / "wrong").write_text("SLURM_JWT=abc.def.ghi\n")
        assert "slurmrestd GET" in await said(site.settings.replace(token=tmp_path / "wrong"))

    asyncio.run(run())
