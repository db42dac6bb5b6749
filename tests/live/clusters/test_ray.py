"""A local Ray cluster, started and stopped by `berth cluster`."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from berth.cli import app
from berth.live.clusters import alive, marked
from berth.live.clusters.supervisor import down

pytest.importorskip("ray", reason="Ray is not installed")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory with a short path, because sockets lie in it."""
    where = Path(tempfile.mkdtemp(prefix="br-"))
    yield where
    down(where)
    shutil.rmtree(where, ignore_errors=True)


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["cluster", *words])
    return done.exit_code, done.output


@pytest.mark.slow
def test_up_status_env_and_down(folder: Path) -> None:
    code, said = run("up", "ray", "--nodes", "2", "--directory", str(folder))
    assert code == 0, said
    code, said = run("status", "ray", "--directory", str(folder), "-o", "json")
    assert code == 0
    daemons = json.loads(said)["daemons"]
    assert {"n1", "n2"} <= set(daemons)
    assert all(daemon["running"] for daemon in daemons.values())
    code, said = run("env", "ray", "--directory", str(folder))
    assert said.startswith("export RAY_ADDRESS=127.")
    assert run("down", "ray", "--directory", str(folder))[0] == 0
    assert not any(alive(daemon["pid"]) for daemon in daemons.values())
    assert not marked(folder)
    assert run("env", "ray", "--directory", str(folder))[0] == 1
