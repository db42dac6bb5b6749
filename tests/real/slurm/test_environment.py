"""The environment and the directory of a job on Slurm: the job has what it was given, and berth's commands do not."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from berth.files.quantities import MILLI
from berth.live.core.events import Failed, Finished, Start
from berth.live.core.jobs import Job, Place, Role
from tests.real.slurm.site import SlurmSite, driven

ROLES = (Role("w", 2, {"cpu": MILLI}),)
PLACES = (Place("n1", "w", 1), Place("n2", "w", 1))


def a_job(**payload: Any) -> Job:
    return Job("env", "t", ROLES, payload=payload)


def run(site: SlurmSite, job: Job) -> tuple[Finished | Failed, list[str]]:
    """How a job ends, and the lines that it prints."""

    async def drive() -> Finished | Failed:
        async with driven(site) as driver:
            await driver.execute(Start(job.id, 1, PLACES), job)
            return await driver.ended(job.id)

    end = asyncio.run(drive())
    return end, (site.settings.outputs / f"{job.id}.1.out").read_text().splitlines()


HARMFUL = {
    "PATH": "/nowhere",
    "LD_PRELOAD": "/nowhere/evil.so",
    "LD_LIBRARY_PATH": "/nowhere",
    "IFS": "/e",
    "SHELLOPTS": "noexec",
    "UID": "7",
    "SLURM_CONF": "/nowhere/slurm.conf",
    "SLURM_JOB_ID": "1",
    "SLURM_NTASKS": "77",
    "SLURM_HINT": "nonsense",
    "BERTH_JOB": "another",
    "BERTH_ENV_1": "A=B",
    "BASH_FUNC_srun%%": "() { exit 9; }",
    "BASH_FUNC_date%%": "() { exit 9; }",
    "odd.name": "x",
    "TEXT": "a 'b' \"c\" $d `e`\n\\ü",
    "_mark": "/nowhere",
    "_ended": "9",
}


@pytest.mark.parametrize("kind", ["command", "script"])
def test_berths_own_commands_do_not_see_the_environment_of_the_job(site: SlurmSite, tmp_path: Path, kind: str) -> None:
    """A job whose PATH had no srun was tried 21 times, and said that Slurm could not start its tasks."""
    (tmp_path / "env.sh").write_text("exit 9\n")
    given = {**HARMFUL, "BASH_ENV": str(tmp_path / "env.sh"), "ENV": str(tmp_path / "env.sh")}
    given["TMPDIR"] = "/nowhere"
    shown = "/usr/bin/env -u LD_PRELOAD -u SHELLOPTS /usr/bin/env -0 >OUT.$SLURM_PROCID"
    text = shown.replace("OUT", str(tmp_path / "seen"))
    if kind == "command":
        payload: dict[str, Any] = {"command": ["/bin/dash", "-c", text]}
    else:
        payload = {"script": f"#!/bin/dash\n{text}\n"}
    end, lines = run(site, a_job(environment=given, workdir="/", **payload))
    assert isinstance(end, Finished), (end, lines)
    assert not [line for line in lines if "nowhere/evil.so" not in line], lines
    seen = sorted(tmp_path.glob("seen.*"))
    assert len(seen) == (2 if kind == "command" else 1)
    for path in seen:
        found = dict(pair.split("=", 1) for pair in path.read_text().split("\0") if pair)
        for name in ("PATH", "LD_LIBRARY_PATH", "UID", "SLURM_HINT", "TEXT", "TMPDIR", "BASH_ENV", "_mark"):
            assert found[name] == given[name], name
        assert found["BERTH_JOB"] == "env"
        assert found["SLURM_CONF"] == str(site.cluster.conf)  # Slurm's own words about the job stand
        assert int(found["SLURM_JOB_ID"]) > 0
        assert found["SLURM_NTASKS"] == "2"
        assert not [name for name in found if name.startswith(("BERTH_ENV", "BERTH_WORKDIR", "BERTH_PAIR"))]


def test_values_are_on_no_command_line(site: SlurmSite) -> None:
    """Every user of a node sees the command lines there."""
    token = "hf-" + "s3cret" * 3
    text = '[ "$TOKEN" ] || exit 3; exec sleep 1'

    async def drive() -> None:
        async with driven(site) as driver:
            job = a_job(command=["/bin/sh", "-c", text], environment={"TOKEN": token})
            await driver.execute(Start(job.id, 1, PLACES), job)
            while driver.end((job.id, 1)) is None:
                for path in Path("/proc").glob("[0-9]*/cmdline"):
                    with suppress(OSError):
                        assert token.encode() not in path.read_bytes(), path.read_bytes()
                await asyncio.sleep(0.02)
            assert isinstance(await driver.ended(job.id), Finished)
            assert token not in site.cluster.ask("scontrol", "show", "job", site.numbers(job.id, 1)[0])

    asyncio.run(drive())


@pytest.mark.parametrize("kind", ["command", "script"])
def test_a_directory_that_is_not_there(site: SlurmSite, kind: str) -> None:
    """Slurm would run it in the directory for temporary files instead."""
    given: dict[str, Any] = (
        {"command": ["/bin/sh", "-c", "echo ran"]} if kind == "command" else {"script": "echo ran\n"}
    )
    end, lines = run(site, a_job(workdir="/no such/directory", **given))
    assert isinstance(end, Failed)
    assert "ran" not in lines
    assert end.fault == "job"
    assert end.reason.startswith("its working directory cannot be entered on its first server")
    assert lines[-1] == "berth: cannot enter directory /no such/directory on n1"


def test_a_type_of_mpi_that_slurm_does_not_have_is_a_fault_of_the_job(site: SlurmSite) -> None:
    end, lines = run(site, a_job(command=["/bin/true"], environment={"SLURM_MPI_TYPE": "nonsense"}))
    assert isinstance(end, Failed), lines
    assert end.fault == "job"
    assert "berth: Slurm has no MPI type nonsense" in str(end)
