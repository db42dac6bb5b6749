"""A scheduler that is killed at any moment loses nothing that it acknowledged and begins nothing twice."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.waiting import DEADLINE
from tests.live.service.live import serving_process

ROOT = Path(__file__).parents[3]


def crash(where: str, kills: int) -> dict[str, int]:
    """Run the crash test; what it counted."""
    command = [sys.executable, "-m", "tests.live.service.crash", "--store", where, "--kills", str(kills)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    print(found)
    return found


def test_five_kills(where: str) -> None:
    found = crash(where, 5)
    assert found["kills"] == 5
    assert found["jobs acknowledged"] > 5


@pytest.mark.slow
def test_two_hundred_kills(where: str) -> None:
    found = crash(where, 200)
    assert found["kills"] == 200
    assert found["jobs acknowledged"] > 200


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_is_told_to_stop_closes_its_store(tmp_path: Path, how: signal.Signals) -> None:
    """Everything is in the one file then, which may be copied."""
    with serving_process(tmp_path, "--open") as live:
        live.ask("POST", "/v1/jobs", {"name": "kept", "tasks": 1, "resources": {"cpu": 1}})
        live.process.send_signal(how)
        assert live.process.wait(timeout=240) == 0
    assert sorted(path.name for path in tmp_path.glob("berth.db-*")) == []
    with sqlite3.connect(tmp_path / "berth.db") as copy:
        assert copy.execute("select count(*) from jobs").fetchone() == (1,)


CLUSTER = "servers: [{name: s, capacity: {cpu: 4}}]\n"


@pytest.mark.parametrize("engine", ["simulated", "simulated:cluster.yaml"])
def test_a_job_on_a_simulated_cluster_outlives_a_kill(tmp_path: Path, engine: str) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)

    def runs(job: dict[str, Any]) -> bool:
        return bool(job["phase"] == "running")

    with serving_process(tmp_path, "--engine", engine, cwd=tmp_path) as live:
        live.ask("POST", "/v1/jobs", {"name": "long", "resources": {"cpu": 1}, "work": "10h"})
        before = live.wait_for("/v1/jobs/long", runs)
        live.process.kill()
        live.process.wait(timeout=DEADLINE)
    assert (tmp_path / "berth.db.engine").is_file()
    with serving_process(tmp_path, "--engine", engine, cwd=tmp_path) as live:
        live.wait_for("/readyz", lambda ready: ready["ready"])
        after = live.ask("GET", "/v1/jobs/long")
    assert {key: after[key] for key in ("phase", "attempt", "started", "reason")} == {
        key: before[key] for key in ("phase", "attempt", "started", "reason")
    }
