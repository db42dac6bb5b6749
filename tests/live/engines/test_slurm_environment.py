"""The environment and the directory of a job on Slurm: the job has what it was given, and berth's commands do not."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from berth.files.quantities import MILLI
from berth.live.core.events import Failed, Finished, Start
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines.slurm import SlurmSettings
from berth.live.engines.slurm.environment import NotPossible, run_job
from berth.live.engines.slurm.submission import submission
from tests.live.engines.slurm_site import SlurmSite, driven, needs_slurm

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


@needs_slurm
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


@needs_slurm
def test_values_are_on_no_command_line(site: SlurmSite) -> None:
    """Every user of a node sees the command lines there."""
    token = "hf-" + "s3cret" * 3
    text = '[ "$TOKEN" ] || exit 3; exec sleep 2'

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


@needs_slurm
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


def test_a_directory_that_only_some_nodes_have(tmp_path: Path) -> None:
    """Each task goes to the directory itself: Slurm tells only of the first node."""
    done = subprocess.run(
        ["sh", "-c", run_job("echo ran")],
        env={"BERTH_WORKDIR": str(tmp_path / "none"), "SLURMD_NODENAME": "n2"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"berth: cannot enter directory {tmp_path}/none on n2\n"


@needs_slurm
def test_a_type_of_mpi_that_slurm_does_not_have_is_a_fault_of_the_job(site: SlurmSite) -> None:
    end, lines = run(site, a_job(command=["/bin/true"], environment={"SLURM_MPI_TYPE": "nonsense"}))
    assert isinstance(end, Failed), lines
    assert end.fault == "job"
    assert "berth: Slurm has no MPI type nonsense" in str(end)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"environment": {"SLURM_MPI_TYPE": "a b"}}, "SLURM_MPI_TYPE: got 'a b', expected one of those"),
        ({"workdir": "below/here"}, "a working directory by its absolute path, not 'below/here'"),
    ],
)
def test_what_cannot_be_given(payload: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(NotPossible, match=said):
        submission(Start("env", 1, PLACES), a_job(command=["true"], **payload), SlurmSettings(spool=tmp_path), "0a")


@pytest.mark.parametrize("shell", ["sh", "bash", "bash --posix"])
def test_any_shell_hands_the_environment_over(shell: str, tmp_path: Path) -> None:
    """Names that a shell refuses to set arrive as well, and what is set already stays."""
    given = {
        "BERTH_ENV_1": "UID=7",
        "BERTH_ENV_2": "A=1\n2",
        "BERTH_ENV_3": "SLURM_X=own",
        "BERTH_ENV_4": "SLURM_Y=own",
    }
    text = run_job("/usr/bin/env -0")
    environment = {"PATH": "/usr/bin:/bin", "SLURM_X": "Slurm's", "BERTH_WORKDIR": str(tmp_path), **given}
    done = subprocess.run([*shell.split(), "-c", text], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair)
    assert {name: found[name] for name in ("UID", "A", "SLURM_X", "SLURM_Y")} == {
        "UID": "7",
        "A": "1\n2",
        "SLURM_X": "Slurm's",
        "SLURM_Y": "own",
    }
    assert found["PWD"] == str(tmp_path)
    assert not [name for name in found if name.startswith("BERTH_")]


def test_srun_is_found_where_slurm_has_a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes have Slurm where this machine has it, and a PATH that their users choose is not asked."""
    (tmp_path / "srun").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    job = a_job(command=["true"], environment={"PATH": "/mine"})
    told = submission(Start("env", 1, PLACES), job, SlurmSettings(spool=tmp_path), "0a")
    assert told.environment["PATH"].endswith(f":/bin:{tmp_path}")
    assert "PATH=/mine" in told.environment.values()
