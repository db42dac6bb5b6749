"""Time limits through a whole service: a job that runs longer is ended."""

from __future__ import annotations

from pathlib import Path

from tests.live.service.live import serving
from tests.real.time_limits import check_time_limits


def test_on_the_simulated_cluster(tmp_path: Path) -> None:
    with serving(tmp_path) as live:
        live.ask("PUT", "/v1/queues", {"queues": {"default": {"default_time": "2s"}}})
        check_time_limits(live, {"limit": "5m"})
        live.ask("POST", "/v1/jobs", {"name": "by-queue", "resources": {"cpu": 1}, "work": "1h"})
        found = live.wait_for("/v1/jobs/by-queue", lambda job: job["phase"] == "failed")
        assert "time limit of 2 s" in found["reason"]
