"""A local Kubernetes cluster: its start and its stop, and settings that it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from berth.cli import app
from berth.errors import InvalidInput
from berth.live.clusters import ClusterError, alive, kubernetes, marked
from berth.live.clusters.kubernetes import DAEMONS, LocalKubernetes
from berth.live.clusters.supervisor import down
from berth.live.kubernetes_api import connect_with_token
from tests.harness.waiting import eventually
from tests.real.kubernetes.site import needs_kubernetes

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "PROGRAMS", ("etcd", "no-such-apiserver"))
    with pytest.raises(ClusterError, match=r"no-such-apiserver not found: .*scripts/kubernetes.py install"):
        LocalKubernetes(tmp_path, 1).start()


def test_names_and_numbers_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="1 to 5000 nodes"):
        LocalKubernetes(tmp_path, 0)
    with pytest.raises(InvalidInput, match="a node of this cluster"):
        LocalKubernetes(tmp_path, 1).lose("n7")
    with pytest.raises(InvalidInput, match="kube-scheduler"):
        LocalKubernetes(tmp_path, 1).kill("slurmctld")


@pytest.mark.slow
@needs_kubernetes
def test_up_status_env_and_down_from_the_command_line(tmp_path: Path) -> None:
    folder = tmp_path / "kubernetes"

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["cluster", *words, "--directory", str(folder)])
        return done.exit_code, done.output

    try:
        code, said = run("up", "kubernetes", "--nodes", "2", "--gpus", "1")
        assert code == 0, said
        assert "berth serve --engine kubernetes" in said
        code, said = run("status", "kubernetes", "-o", "json")
        daemons = json.loads(said)["daemons"]
        assert set(daemons) == set(DAEMONS)
        assert all(daemon["running"] for daemon in daemons.values())
        assert run("env", "kubernetes")[1] == f"export KUBECONFIG={folder}/admin.kubeconfig\n"
        nodes = connect_with_token(folder / "admin.kubeconfig").request("GET", "/api/v1/nodes")["items"]
        assert [node["metadata"]["labels"]["class"] for node in nodes] == ["fast", "slow"]
        assert run("down", "kubernetes")[0] == 0
        assert not any(alive(daemon["pid"]) for daemon in daemons.values())
        assert not folder.exists()
    finally:
        down(folder)
    assert not marked(folder)


@pytest.mark.slow
@needs_kubernetes
def test_a_hollow_cluster_is_stopped_and_starts_again_with_its_state(tmp_path: Path) -> None:
    there = LocalKubernetes(tmp_path, 50, hollow=True)
    try:
        there.start()
        container = {"name": "main", "image": "none", "command": ["touch", str(tmp_path / "never")]}
        spec = {"restartPolicy": "Never", "nodeName": "n50", "containers": [container]}
        about = {"name": "idle", "annotations": {"berth.io/seconds": "0.5"}}
        there.api.request("POST", PODS, {"metadata": about, "spec": spec})
        eventually(lambda: there.api.request("GET", f"{PODS}/idle")["status"]["phase"], lambda p: p == "Succeeded")
        assert not (tmp_path / "never").exists()
        server = there.kubeconfig.read_text()
        there.api.request("POST", MAPS, {"metadata": {"name": "kept"}})
        there.stop()
        assert not marked(tmp_path)
        there.start()
        assert there.kubeconfig.read_text() == server
        assert there.api.request("GET", f"{MAPS}/kept")["metadata"]["name"] == "kept"
    finally:
        there.stop()
    assert not marked(tmp_path)
