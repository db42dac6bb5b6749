"""Sweeps on a real Ray cluster; everything of Ray runs in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest

from berth.lab.run.processes import run_cells
from berth.lab.run.runner import Done, Work
from berth.lab.run.sweep import sweep
from berth.live.clusters.ray import LocalRay, RayNode
from berth.scenario import Scenario
from tests.harness.invariants import InvariantBroken
from tests.harness.waiting import DEADLINE, eventually
from tests.real.local import up

ROOT = Path(__file__).parents[3]
BAD = "tests.lab.policies"
BEGINS = 600.0
"""Seconds until cells begin: nodes first start processes that import berth, and one of them compiles its kernels."""


@contextmanager
def small_cluster() -> Iterator[LocalRay]:
    """Two nodes with one processor each, of which one that hangs is not noticed by Ray itself."""
    nodes = [RayNode("n1", cpus=1), RayNode("n2", cpus=1)]
    with up(LocalRay(Path(tempfile.mkdtemp(prefix="ray-")), nodes, watchful=False)) as cluster:
        yield cluster


def start(file: Path, out: Path, *words: str) -> subprocess.Popen[str]:
    """Start a sweep."""
    command = [sys.executable, "-m", "berth", "sweep", str(file), "--out", str(out), "-o", "json", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def on(cluster: LocalRay) -> tuple[str, ...]:
    return "--on", "ray", "--address", cluster.address


def answer(running: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
    """What a sweep says at its end."""
    said, told = running.communicate(timeout=DEADLINE)
    assert running.returncode == code, told
    found: dict[str, Any] = json.loads(said)
    return found


def here(file: Path) -> pl.DataFrame:
    """The table of a sweep whose cells are computed in this process."""

    def computed(scenarios: Sequence[Scenario], works: Sequence[Work], done: Done, **_: Any) -> None:
        run_cells(scenarios, works, done)

    with patch("berth.lab.run.sweep.run_cells", computed):
        return sweep(file).frame().drop("decide_microseconds")


def table(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "summary.parquet").drop("decide_microseconds")


def done(out: Path) -> list[str]:
    """Cells that are done."""
    return [file.name for file in out.glob("cells/[!.]*.parquet")]


def finished(out: Path, count: int, running: subprocess.Popen[str]) -> None:
    """Wait until so many cells are done."""

    def look() -> tuple[int, int | None]:
        return len(done(out)), running.poll()

    cells, ended = eventually(look, lambda seen: seen[0] >= count or seen[1] is not None, f"{count} cells")
    assert cells >= count, (ended, running.communicate())


@pytest.mark.limit(1200)
def test_a_sweep_that_loses_a_node_gives_the_same_table(alone: None, ray_cluster: LocalRay, tmp_path: Path) -> None:
    """Two cells wait on two nodes when one of the nodes dies."""
    gate = tmp_path / "gate"
    gate.mkdir()
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "scenario: small\nset: {horizon: 12}\ngrid: {cluster.servers: [3]}\nseeds: 2\narrivals: hidden\noracles: []\n"
        f"policies: ['tests.real.ray.policies:Waits:folder={gate}', fairness]\n"
    )
    running = start(file, tmp_path / "ray", *on(ray_cluster), "--workers", "2")

    def waiting() -> tuple[list[str], int | None]:
        return [one.read_text() for one in gate.glob("*.begun")], running.poll()

    nodes, ended = eventually(
        waiting,
        lambda seen: (len(seen[0]) == 2 and all(seen[0])) or seen[1] is not None,
        "two cells begin",
        BEGINS,
    )
    assert ended is None, running.communicate()
    assert len(set(nodes)) == 2
    ray_cluster.kill(nodes[0])
    # the cell that it had is begun again on another node
    nodes, _ = eventually(waiting, lambda seen: (len(seen[0]) == 3 and all(seen[0])) or seen[1] is not None)
    (gate / "go").touch()
    found = answer(running)
    assert found["cells_reused"] == 0
    assert not any(point["failed"] for point in found["points"])
    if len(done(tmp_path / "ray")) != 4:
        raise InvariantBroken(f"four cells, but {done(tmp_path / 'ray')} are there")
    assert table(tmp_path / "ray").equals(here(file))


@pytest.mark.slow
def test_cells_that_kill_their_process_are_given_up_and_no_other(
    alone: None, ray_cluster: LocalRay, tmp_path: Path
) -> None:
    deadly = tmp_path / "deadly.yaml"
    deadly.write_text(
        "scenario: small\ngrid: {cluster.servers: [3]}\nset: {horizon: 12}\nseeds: 1\narrivals: hidden\noracles: []\n"
        f"policies: [fairness, '{BAD}:Dies', '{BAD}:DiesAtOnce']\n"
    )
    (point,) = answer(start(deadly, tmp_path / "deadly", *on(ray_cluster)), code=1)["points"]
    assert [row["policy"] for row in point["summary"]] == ["fairness"]
    assert len(point["failed"]) == 2
    assert all("its process died" in error for error in point["failed"].values())


@pytest.mark.slow
def test_a_cluster_gives_the_same_table_as_processes(alone: None, ray_cluster: LocalRay, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "scenario: small\nset: {horizon: 40}\ngrid: {cluster.servers: [3, 4]}\nseeds: 2\narrivals: hidden\n"
        "policies: [fairness, random-allocation, ogasched]\noracles: [slot]\n"
    )
    whole = answer(start(file, tmp_path / "ray", *on(ray_cluster), "--workers", "3"))
    assert table(tmp_path / "ray").equals(here(file))
    assert [point["changes"] for point in whole["points"]] == [{"cluster.servers": 3}, {"cluster.servers": 4}]


@pytest.mark.slow
def test_cells_of_a_node_that_hangs_are_computed_elsewhere_and_count_once(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "scenario: small\nset: {horizon: 60}\ngrid: {cluster.servers: [3, 4]}\nseeds: 4\narrivals: hidden\n"
        f"policies: ['{BAD}:Slow', fairness]\noracles: []\n"
    )
    out = tmp_path / "ray"
    with small_cluster() as cluster:
        running = start(file, out, *on(cluster))
        finished(out, 4, running)  # so both nodes are at work
        cluster.hang("n1")
        finished(out, 15, running)
        cluster.wake("n1")
        # the node is back, with what it had begun, while the last cell may still be computed
        said, told = running.communicate(timeout=DEADLINE)
    assert running.returncode == 0, told
    assert told.splitlines()[-1] == "berth: 16 cells done"
    assert not any(point["failed"] for point in json.loads(said)["points"])
    assert len(done(out)) == 16
    assert table(out).equals(here(file))
