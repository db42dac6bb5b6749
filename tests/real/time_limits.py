"""Time limits through a whole service, on any engine."""

from __future__ import annotations

from typing import Any

from tests.live.service.live import Live

__all__ = ["check_time_limits"]

SLEEP = {"resources": {"cpu": 1}, "work": "1m", "command": ["sh", "-c", "echo begun; exec sleep 60"]}


def check_time_limits(live: Live, beside: dict[str, Any]) -> None:
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
