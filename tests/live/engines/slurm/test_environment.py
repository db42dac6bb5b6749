"""The environment and the directory of a job on Slurm, without one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from berth.files.quantities import MILLI
from berth.live.core.events import Start
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines.slurm import SlurmSettings
from berth.live.engines.slurm.environment import NotPossible, run_job
from berth.live.engines.slurm.submission import submission

ROLES = (Role("w", 2, {"cpu": MILLI}),)
PLACES = (Place("n1", "w", 1), Place("n2", "w", 1))


def a_job(**payload: Any) -> Job:
    return Job("env", "t", ROLES, payload=payload)


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
