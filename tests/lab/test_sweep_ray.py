"""Sweeps on a real Ray cluster of several nodes; everything of Ray runs in processes of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from berth.errors import BerthError, InvalidInput
from berth.lab.run import ray as ray_cells
from berth.lab.run.ray import check_cluster
from berth.live.clusters.ray import LocalRay, RayNode

ROOT = Path(__file__).parents[2]
HERE = "tests.lab.policies"
pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


@contextmanager
def ray_cluster(nodes: int) -> Iterator[LocalRay]:
    """A cluster whose nodes have one processor each."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        cluster = LocalRay(Path(folder), [RayNode(f"n{i + 1}", cpus=1) for i in range(nodes)], watchful=False)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


def start(file: Path, out: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "berth", "sweep", str(file), "--out", str(out), "-o", "json", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(running: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
    said, told = running.communicate(timeout=200)
    assert running.returncode == code, told
    found: dict[str, Any] = json.loads(said)
    return found


def table(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "summary.parquet").drop("decide_microseconds")


def test_a_cluster_gives_the_same_table_even_when_it_loses_a_node(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "scenario: small\nset: {horizon: 40}\ngrid: {cluster.servers: [3, 4]}\nseeds: 2\narrivals: hidden\n"
        f"policies: [fairness, random-allocation, ogasched, '{HERE}:Slow']\noracles: [slot]\n"
    )
    deadly = tmp_path / "deadly.yaml"
    deadly.write_text(
        "scenario: small\ngrid: {cluster.servers: [3]}\nset: {horizon: 12}\nseeds: 1\narrivals: hidden\noracles: []\n"
        f"policies: [fairness, '{HERE}:Dies', '{HERE}:DiesAtOnce']\n"
    )
    local = answer(start(file, tmp_path / "local", "--workers", "2"))
    with ray_cluster(2) as cluster:
        on = ("--on", "ray", "--address", cluster.address)
        whole = answer(start(file, tmp_path / "ray", *on))
        assert table(tmp_path / "ray").equals(table(tmp_path / "local"))
        assert [point["changes"] for point in whole["points"]] == [point["changes"] for point in local["points"]]

        # cells that kill their process are given up, and no other
        (point,) = answer(start(deadly, tmp_path / "deadly", *on), code=1)["points"]
        assert [row["policy"] for row in point["summary"]] == ["fairness"]
        assert len(point["failed"]) == 2
        assert all("its process died" in error for error in point["failed"].values())

        running = start(file, tmp_path / "lost", *on)
        finished(tmp_path / "lost", 8, running)
        cluster.kill("n1")
        assert len(list((tmp_path / "lost").glob("cells/*.parquet"))) < 16, "it was over before the node was lost"
        lost = answer(running)
        assert lost["cells_reused"] == 0
        assert not any(point["failed"] for point in lost["points"])
        assert table(tmp_path / "lost").equals(table(tmp_path / "local"))
    assert table(tmp_path / "local").height == 8


def finished(out: Path, count: int, running: subprocess.Popen[str]) -> None:
    """Wait until so many cells are done."""
    until = time.monotonic() + 150
    while len(list(out.glob("cells/*.parquet"))) < count:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def test_cells_of_a_node_that_hangs_are_computed_elsewhere_and_count_once(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "scenario: small\nset: {horizon: 60}\ngrid: {cluster.servers: [3, 4]}\nseeds: 4\narrivals: hidden\n"
        f"policies: ['{HERE}:Slow', fairness]\noracles: []\n"
    )
    answer(start(file, tmp_path / "local", "--workers", "2"))
    out = tmp_path / "ray"
    with ray_cluster(2) as cluster:
        running = start(file, out, "--on", "ray", "--address", cluster.address)
        finished(out, 4, running)  # so both nodes are at work
        cluster.hang("n1")
        finished(out, 15, running)
        cluster.wake("n1")
        # the node is back, with what it had begun, while the last cell may still be computed
        said, told = running.communicate(timeout=200)
    assert running.returncode == 0, told
    assert told.splitlines()[-1] == "berth: 16 cells done"
    assert not any(point["failed"] for point in json.loads(said)["points"])
    assert len(list(out.glob("cells/*.parquet"))) == 16
    assert table(out).equals(table(tmp_path / "local"))


def refused(tmp_path: Path, address: str) -> str:
    """What is said of an address where no cluster is; nothing may be written."""
    file = tmp_path / "sweep.yaml"
    file.write_text("scenario: small\ngrid: {cluster.servers: [3]}\npolicies: [fairness]\noracles: []\nseeds: 1\n")
    running = start(file, tmp_path / "out", "--on", "ray", "--address", address, "--quiet")
    said, told = running.communicate(timeout=150)
    assert (running.returncode, said) == (2, "")
    assert not (tmp_path / "out").exists()
    (line,) = told.splitlines()
    return line.removeprefix("berth: error: ")


def test_no_cluster_at_the_address_is_one_clear_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.29", 0)) as taken:
        free = f"127.0.0.29:{taken.getsockname()[1]}"
    assert refused(tmp_path, free) == f"no Ray cluster at {free}: Connection refused"
    assert refused(tmp_path, f"ray://{free}") == f"no Ray cluster at ray://{free}: Connection refused"


@pytest.mark.parametrize("address", ["nonsense", "10.0.0.1", "10.0.0.1:port", "http://10.0.0.1:80", "10.0.0.1:70000"])
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(InvalidInput, match=f"address: got '{address}', expected the address of a Ray cluster"):
        check_cluster(address)


def test_something_else_at_the_address_is_refused_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cells, "PATIENCE", 12)  # Ray itself would try for minutes
    with socket.create_server(("127.0.0.29", 0)) as silent:
        address = f"127.0.0.29:{silent.getsockname()[1]}"
        with pytest.raises(BerthError, match=f"no Ray cluster at {address}: no answer that Ray understands in 12 s"):
            check_cluster(address)
