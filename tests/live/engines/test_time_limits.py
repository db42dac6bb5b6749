"""Time limits through a whole service: a job that runs longer is ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from berth.live.clusters.slurm import LocalSlurm
from tests.live.engines.slurm_site import needs_slurm
from tests.live.service.live import Live, serving

SLEEP = {"resources": {"cpu": 1}, "work": "1m", "command": ["sh", "-c", "echo begun; exec sleep 60"]}


@contextmanager
def on_slurm(cluster: LocalSlurm, folder: Path) -> Iterator[Live]:
    settings = folder / "slurm.yaml"
    given = {"conf": str(cluster.conf), "spool": str(folder / "spool"), "output": str(folder / "output"), "poll": 0.3}
    settings.write_text(yaml.safe_dump(given))
    with serving(folder, "--engine", f"slurm:{settings}") as live:
        yield live


def check(live: Live, beside: dict[str, Any]) -> None:
    """One job runs past its limit and is ended, others are left alone."""
    limited = {**SLEEP, "name": "limited", "tasks": 2, "limit": "3s"}
    quick = {"name": "quick", "resources": {"cpu": 1}, "work": "100ms", "limit": "5m", "command": ["true"]}
    live.ask("POST", "/v1/jobs", [limited, quick, {**SLEEP, "name": "open", **beside}])
    ended = live.wait_for("/v1/jobs/limited", lambda job: job["phase"] == "failed")
    assert "it reached its time limit of 3 s" in ended["reason"]
    assert live.wait_for("/v1/jobs/quick", lambda job: job["phase"] == "finished")["limit"] == 300.0
    assert live.wait_for("/v1/jobs/open", lambda job: job["phase"] == "running")["attempt"] == 1
    live.ask("DELETE", "/v1/jobs/open")
    live.wait_for("/v1/jobs/open", lambda job: job["phase"] == "cancelled")


@needs_slurm
def test_on_slurm(cluster: LocalSlurm, tmp_path: Path) -> None:
    with on_slurm(cluster, tmp_path) as live:
        check(live, {})
        limits = dict(line.split("|") for line in cluster.ask("squeue", "-h", "-t", "all", "-o", "%j|%l").splitlines())
        assert limits["quick"] not in ("UNLIMITED", "365-00:00:00")  # Slurm is told, for when the service is away


def test_on_the_simulated_cluster(tmp_path: Path) -> None:
    with serving(tmp_path) as live:
        live.ask("PUT", "/v1/queues", {"queues": {"default": {"default_time": "2s"}}})
        check(live, {"limit": "5m"})
        live.ask("POST", "/v1/jobs", {"name": "by-queue", "resources": {"cpu": 1}, "work": "1h"})
        found = live.wait_for("/v1/jobs/by-queue", lambda job: job["phase"] == "failed")
        assert "time limit of 2 s" in found["reason"]
