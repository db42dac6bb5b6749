"""Sweeps on Ray without a cluster: addresses that are refused."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from berth.cli import main
from berth.errors import BerthError, InvalidInput
from berth.lab.run import ray as ray_cells
from berth.lab.run.ray import check_cluster

pytest.importorskip("ray", reason="Ray is not installed")


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_no_cluster_at_the_address_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    file, out = tmp_path / "sweep.yaml", tmp_path / "out"
    file.write_text("scenario: small\ngrid: {cluster.servers: [3]}\npolicies: [fairness]\noracles: []\nseeds: 1\n")
    with socket.create_server(("127.0.0.29", 0)) as taken:
        free = f"{scheme}127.0.0.29:{taken.getsockname()[1]}"
    assert main(["sweep", str(file), "--out", str(out), "--on", "ray", "--address", free, "--quiet"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"berth: error: no Ray cluster at {free}: Connection refused\n")
    assert not out.exists()


@pytest.mark.parametrize("address", ["nonsense", "10.0.0.1", "10.0.0.1:port", "http://10.0.0.1:80", "10.0.0.1:70000"])
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(InvalidInput, match=f"address: got '{address}', expected the address of a Ray cluster"):
        check_cluster(address)


def test_something_else_at_the_address_is_refused_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cells, "PATIENCE", 1)  # Ray itself would try for minutes
    with socket.create_server(("127.0.0.29", 0)) as silent:
        address = f"127.0.0.29:{silent.getsockname()[1]}"
        with pytest.raises(BerthError, match=f"no Ray cluster at {address}: no answer that Ray understands in 1 s"):
            check_cluster(address)
