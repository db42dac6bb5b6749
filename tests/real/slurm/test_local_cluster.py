"""Local Slurm clusters: real daemons, started and stopped by `berth cluster`."""

from __future__ import annotations

import json
import operator
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from berth.cli import app
from berth.errors import InvalidInput
from berth.live.clusters import ClusterError, alive, marked
from berth.live.clusters.slurm import LocalSlurm
from berth.live.clusters.supervisor import down, standing, up
from tests.harness.waiting import eventually
from tests.real.slurm.shared import SharedSlurm


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory for a cluster that ends with the test."""
    where = tmp_path / "slurm"
    yield where
    down(where)
    assert not marked(where)


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["cluster", *words])
    return done.exit_code, done.output


def test_up_status_and_down_from_the_command_line(folder: Path) -> None:
    code, said = run("up", "slurm", "--nodes", "2", "--cpus", "3", "--gpus", "1", "--directory", str(folder))
    assert code == 0, said
    assert f"export SLURM_CONF={folder}/slurm.conf" in said
    assert run("up", "slurm", "--directory", str(folder))[0] != 0  # it is up already
    code, said = run("status", "slurm", "--directory", str(folder), "-o", "json")
    found = json.loads(said)
    assert set(found["daemons"]) == {"munged", "slurmctld", "n1", "n2"}
    assert all(daemon["running"] for daemon in found["daemons"].values())
    processes = [daemon["pid"] for daemon in found["daemons"].values()]
    code, said = run("down", "slurm", "--directory", str(folder))
    assert code == 0
    assert not any(alive(process) for process in processes)
    assert not folder.exists()
    assert run("status", "slurm", "--directory", str(folder))[0] == 1
    assert "no cluster" in run("down", "slurm", "--directory", str(folder))[1]


def test_up_and_down_end_everything_even_if_the_supervisor_was_killed(folder: Path) -> None:
    found = up("slurm", folder, {"nodes": 1, "cpus": 2, "gpus": 0})
    supervisor = json.loads((folder / "cluster.json").read_text())["supervisor"]
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: alive(supervisor), operator.not_, "the supervisor was not killed")
    left = standing(folder)
    assert left is not None
    assert not left.supervised
    assert left.running == set(found.daemons)
    assert "was killed" in run("status", "slurm", "--directory", str(folder))[1]
    again = up("slurm", folder, {"nodes": 1, "cpus": 2, "gpus": 0})  # what is left of the first is ended
    assert again.supervised
    assert not any(alive(process) for process in found.daemons.values())
    assert down(folder)
    assert not marked(folder)


@pytest.mark.parametrize("way", ["exec", "setsid --fork"])
def test_down_ends_what_slurm_lost(folder: Path, tmp_path: Path, way: str) -> None:
    """A process whose parent is gone stays when its job ends."""
    up("slurm", folder, {"nodes": 1, "cpus": 2, "gpus": 0})
    out = tmp_path / "pid"
    cluster = LocalSlurm(folder, 1)
    command = f"{way} sh -c 'echo $$ > {out}; exec sleep 600'; sleep 600"
    job = cluster.ask("sbatch", "--parsable", "-o", "/dev/null", "--wrap", command)
    process = int(eventually(lambda: out.read_text().strip() if out.exists() else "", what="the job does not run"))
    assert process in marked(folder, "n1")
    cluster.ask("scancel", job.strip())
    eventually(lambda: cluster.ask("squeue", "-h"), operator.not_, "the job does not end")
    assert alive(process) == (way != "exec")
    assert down(folder)
    assert not alive(process)


def test_a_daemon_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    cluster = LocalSlurm(tmp_path, 1, more=["SelectType=select/nonsense"])
    with pytest.raises(ClusterError, match="slurmctld ended"):
        cluster.start()
    assert not marked(tmp_path)


def test_a_node_is_killed_with_what_runs_there_and_begins_again(cluster: SharedSlurm, tmp_path: Path) -> None:
    out = tmp_path / "pid"
    cluster.ask("sbatch", "-w", "n2", "--gres=gpu:2", "-o", "/dev/null", "--wrap", f"echo $$ > {out}; exec sleep 600")
    process = int(eventually(lambda: out.read_text().strip() if out.exists() else "", what="the job does not run"))
    assert process in marked(cluster.directory, "n2")
    assert process not in marked(cluster.directory, "n1")
    cluster.kill("n2")
    assert not alive(process)
    assert "n2" not in cluster.daemons()
    assert "n1" in cluster.daemons()
    cluster.begin("n2")
    assert "n2" in cluster.daemons()
    with pytest.raises(InvalidInput, match="munged, slurmctld or a node"):
        cluster.begin("n9")
