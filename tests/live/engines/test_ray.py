"""Ray's engine without a cluster: its name and its settings, and addresses where no cluster is."""

from __future__ import annotations

import asyncio
import socket

import pytest

from berth.errors import InvalidInput, MissingExtra
from berth.live.engines import EngineError, remote
from berth.live.engines.clock import Clock
from berth.live.engines.ray.engine import RayEngine
from berth.live.engines.registry import make_engine

pytest.importorskip("ray", reason="Ray is not installed")


def test_no_cluster_is_a_clear_error_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def snapshot(address: str) -> str:
        engine = RayEngine(address)
        try:
            with pytest.raises(EngineError) as found:
                await engine.snapshot()
        finally:
            await engine.close()
        return str(found.value)

    monkeypatch.setattr(remote, "SNAPSHOT_SECONDS", 5.0)  # Ray itself would try for minutes
    with socket.create_server(("127.0.0.29", 0)) as silent:
        address = f"127.0.0.29:{silent.getsockname()[1]}"
        assert asyncio.run(snapshot(address)) == f"the engine at {address} does not answer"
    assert asyncio.run(snapshot(address)).startswith(f"no Ray cluster at {address}: ")


def test_engines_of_ray_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_engine("ray:10.0.0.1:6379", Clock()), RayEngine)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:port")
    with pytest.raises(InvalidInput, match=r"address: got '10\.0\.0\.1:port', expected the address of a Ray cluster"):
        make_engine("ray", Clock())
    with pytest.raises(InvalidInput, match="engine: got 'ray:', expected"):
        make_engine("ray:", Clock())
    monkeypatch.setenv("BERTH_RAY_LEASE", "1s")
    with pytest.raises(InvalidInput, match="BERTH_RAY_LEASE: got '1s', expected at least 3 s"):
        make_engine("ray:10.0.0.1:6379", Clock())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"berth-scheduler\[ray\]"):
        make_engine("ray:10.0.0.1:6379", Clock())
