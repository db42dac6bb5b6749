"""A reservation in a running service: short jobs use the servers that wait for it, and it is named to the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.live.service.live import serving


@pytest.mark.parametrize("policy", ["easy", "in-order-best-fit"])
def test_reserved_servers_do_not_stand_idle(tmp_path: Path, policy: str) -> None:
    servers = [{"name": f"g{i}", "capacity": {"cpu": 16, "gpu": 4}} for i in range(4)]
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"servers": servers}))
    engine = ["--engine", f"simulated:{tmp_path / 'cluster.yaml'}"]
    with serving(tmp_path, *engine, "--policy", policy, "--faster", "600") as live:
        live.ask("PUT", "/v1/queues", {"queues": {"default": {}}, "patience": 300.0})
        gpu = {"resources": {"cpu": 1, "gpu": 4}}
        live.ask("POST", "/v1/jobs", {"name": "day", "type": "day", "work": "1000h", **gpu})
        live.wait_for("/v1/jobs/day", lambda job: job["phase"] == "running")
        live.ask("POST", "/v1/jobs", {"name": "all", "type": "all", "work": "1h", "tasks": 4, **gpu})
        live.wait_for("/v1/servers", lambda there: all(one["kept_for"] == "all" for one in there))
        short = [{"name": f"short-{i}", "type": "short", "work": "10m", **gpu} for i in range(6)]
        live.ask("POST", "/v1/jobs", [{"name": "long", "type": "long", "work": "2000h", **gpu}, *short])
        for job in short:
            live.wait_for(f"/v1/jobs/{job['name']}", lambda found: found["phase"] == "finished")
        found = live.ask("GET", "/v1/jobs/long/explain")
        assert "4 servers reserved for job all, which is expected to start in" in found["text"]
        assert "more gpu" not in found["text"]
        assert found["why"]["eta"]["low"] is None or found["why"]["eta"]["low"] > 3600.0
        assert live.ask("GET", "/v1/jobs/all")["phase"] == "waiting"
        waiting = {one["job"]["id"]: one["why"] for one in live.ask("GET", "/v1/queue")["jobs"]}
        assert waiting["long"] == "room is reserved for job all"
