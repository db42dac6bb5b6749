"""A local Kubernetes cluster: a real control plane, whose kubelet runs containers as processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from berth.cli import app
from berth.errors import InvalidInput
from berth.live.clusters import ClusterError, alive, kubernetes, marked
from berth.live.clusters.kubernetes import DAEMONS, KubernetesNode, LocalKubernetes, missing_programs
from berth.live.clusters.supervisor import down
from berth.live.kubernetes_api import Api, ApiError, connect_with_token

pytestmark = pytest.mark.skipif(
    bool(missing_programs()), reason="Kubernetes is not installed (python3 scripts/kubernetes.py install)"
)
PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
NODES = (
    KubernetesNode("n1", cpus=8, gpus=2, labels={"class": "fast", "berth.io/speed": "4"}),
    KubernetesNode("n2"),
    KubernetesNode("n3", taints=("team=a:NoSchedule",)),
)
LIMIT = 90.0
"""Seconds until something that has not happened counts as missing."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKubernetes]:
    """Three nodes."""
    there = LocalKubernetes(tmp_path_factory.mktemp("kubernetes"), NODES)
    there.start()
    yield there
    there.stop()
    assert not marked(there.directory)


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove the pods of a test."""
    yield
    if "cluster" in request.fixturenames:
        there: LocalKubernetes = request.getfixturevalue("cluster")
        there.api.request("DELETE", PODS, {"gracePeriodSeconds": 1})
        until(lambda: not there.api.request("GET", PODS)["items"])


def until(holds: Callable[[], Any]) -> None:
    end_by = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end_by, "it did not happen in time"
        time.sleep(0.05)


def create(cluster: LocalKubernetes, name: str, *command: str, **more: Any) -> None:
    """Create a pod with one container on a node: n2 by default."""
    container = {"name": "main", "image": "none", **more.pop("container", {})}
    if command:
        container["command"] = list(command)
    annotations = more.pop("annotations", {})
    spec = {"restartPolicy": "Never", "nodeName": "n2", "containers": [container], **more}
    cluster.api.request("POST", PODS, {"metadata": {"name": name, "annotations": annotations}, "spec": spec})


def status(cluster: LocalKubernetes, name: str) -> Mapping[str, Any]:
    """The status of a pod; without a phase if the pod or the API server is gone."""
    try:
        found: Mapping[str, Any] = cluster.api.request("GET", f"{PODS}/{name}")["status"]
    except ApiError:
        return {}
    return found


def reach(cluster: LocalKubernetes, name: str, phase: str) -> Mapping[str, Any]:
    """Wait until a pod is in a phase; its status."""
    until(lambda: status(cluster, name).get("phase") == phase)
    return status(cluster, name)


def ended(cluster: LocalKubernetes, name: str, phase: str) -> Mapping[str, Any]:
    """Wait until a pod has ended; the final state of its container."""
    found: Mapping[str, Any] = reach(cluster, name, phase)["containerStatuses"][0]["state"]["terminated"]
    return found


def starts(file: Path) -> list[int]:
    """Processes that have written their number into a file."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def noting(file: Path) -> tuple[str, ...]:
    """A command that writes its process number into a file, and runs for long; Kubernetes halves dollar signs."""
    return "sh", "-c", f"echo $$$$ >> {file}; exec sleep 600"


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


def test_nodes_have_resources_labels_and_taints(cluster: LocalKubernetes) -> None:
    nodes = {node["metadata"]["name"]: node for node in cluster.api.request("GET", "/api/v1/nodes")["items"]}
    assert cluster.ready() == set(nodes) == {"n1", "n2", "n3"}
    assert nodes["n1"]["status"]["allocatable"] == {"cpu": "8", "memory": "16Gi", "pods": "250", "nvidia.com/gpu": "2"}
    assert nodes["n1"]["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
    assert nodes["n3"]["spec"]["taints"] == [{"key": "team", "value": "a", "effect": "NoSchedule"}]


def test_a_pod_runs_its_command_and_ends_with_its_exit_code(cluster: LocalKubernetes, tmp_path: Path) -> None:
    env = [
        {"name": "WHO", "value": "world"},
        {"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "BOTH", "value": "$(WHO) on $(WHERE)"},
    ]
    create(
        cluster,
        "hello",
        "sh",
        "-c",
        "echo hello $BOTH in $PWD; echo $0; exit 3",
        nodeName=None,
        nodeSelector={"class": "fast"},
        container={"args": ["$(WHO)"], "env": env, "workingDir": str(tmp_path)},
    )
    last = ended(cluster, "hello", "Failed")
    assert (last["exitCode"], last["reason"]) == (3, "Error")
    assert last["startedAt"] <= last["finishedAt"]
    assert cluster.api.request("GET", f"{PODS}/hello/log", text=True) == f"hello world on n1 in {tmp_path}\nworld\n"
    assert cluster.api.request("GET", f"{PODS}/hello/log", query={"tailLines": "1"}, text=True) == "world\n"
    create(cluster, "nothing", "no-such-command")
    assert ended(cluster, "nothing", "Failed")["exitCode"] == 127


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_prints_logs(cluster: LocalKubernetes) -> None:
    create(cluster, "talks", "echo", "some words")
    reach(cluster, "talks", "Succeeded")
    command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "logs", "talks"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "some words\n"


def test_containers_without_a_command_take_their_time(cluster: LocalKubernetes) -> None:
    annotations = {"berth.io/seconds": "8"}
    began = time.monotonic()
    create(cluster, "slow", annotations=annotations)
    create(cluster, "fast", nodeName="n1", annotations=annotations)
    reach(cluster, "fast", "Succeeded")
    assert 1.9 < time.monotonic() - began < 7  # four times as fast
    assert status(cluster, "slow")["phase"] == "Running"


def test_pods_wait_for_a_config_map(cluster: LocalKubernetes, tmp_path: Path) -> None:
    volume = {"name": "go", "configMap": {"name": "gate"}}
    for i in range(3):
        create(cluster, f"gang{i}", "touch", str(tmp_path / f"started{i}"), volumes=[volume])
    until(lambda: all(status(cluster, f"gang{i}").get("containerStatuses") for i in range(3)))
    time.sleep(1)
    assert not list(tmp_path.iterdir())
    assert status(cluster, "gang0")["phase"] == "Pending"
    cluster.api.request("POST", MAPS, {"metadata": {"name": "gate"}, "data": {"KEY": "value"}})
    for i in range(3):
        reach(cluster, f"gang{i}", "Succeeded")
    assert len(list(tmp_path.iterdir())) == 3
    source = {"envFrom": [{"configMapRef": {"name": "gate"}}]}
    create(cluster, "reads", "sh", "-c", "echo $KEY", container=source)
    reach(cluster, "reads", "Succeeded")
    assert cluster.api.request("GET", f"{PODS}/reads/log", text=True) == "value\n"
    cluster.api.request("DELETE", f"{MAPS}/gate")


def test_init_containers_run_first_and_in_order(cluster: LocalKubernetes, tmp_path: Path) -> None:
    first = [
        {"name": name, "image": "none", "command": ["sh", "-c", f"echo {name} >> {tmp_path}/order"]}
        for name in ("a", "b")
    ]
    create(cluster, "ordered", "sh", "-c", f"echo c >> {tmp_path}/order", initContainers=first)
    reach(cluster, "ordered", "Succeeded")
    assert (tmp_path / "order").read_text().split() == ["a", "b", "c"]
    first[0]["command"] = ["false"]
    create(cluster, "failing", "touch", str(tmp_path / "never"), initContainers=first)
    reach(cluster, "failing", "Failed")
    assert not (tmp_path / "never").exists()


def test_a_failed_container_is_restarted_where_asked(cluster: LocalKubernetes, tmp_path: Path) -> None:
    script = f"echo $$$$ >> {tmp_path}/starts; test $(wc -l < {tmp_path}/starts) = 2"
    create(cluster, "again", "sh", "-c", script, restartPolicy="OnFailure")
    assert reach(cluster, "again", "Succeeded")["containerStatuses"][0]["restartCount"] == 1


def test_a_deleted_pod_is_told_to_end_and_then_killed(cluster: LocalKubernetes, tmp_path: Path) -> None:
    polite = (
        f"trap 'echo bye > {tmp_path}/bye; exit 0' TERM; echo $$$$ > {tmp_path}/polite; while :; do sleep 0.1; done"
    )
    stubborn = f"trap '' TERM; echo $$$$ > {tmp_path}/stubborn; while :; do sleep 0.1; done"
    create(cluster, "polite", "sh", "-c", polite)
    create(cluster, "stubborn", "sh", "-c", stubborn)
    until(lambda: starts(tmp_path / "polite") and starts(tmp_path / "stubborn"))
    for name in ("polite", "stubborn"):
        cluster.api.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 2})
    until(lambda: not status(cluster, "polite") and not status(cluster, "stubborn"))
    assert (tmp_path / "bye").read_text() == "bye\n"
    assert not any(alive(starts(tmp_path / name)[0]) for name in ("polite", "stubborn"))


def test_a_deadline_ends_a_pod(cluster: LocalKubernetes) -> None:
    create(cluster, "late", "sleep", "600", activeDeadlineSeconds=1, terminationGracePeriodSeconds=1)
    assert reach(cluster, "late", "Failed")["reason"] == "DeadlineExceeded"


def test_a_node_dies_and_comes_back(cluster: LocalKubernetes, tmp_path: Path) -> None:
    create(cluster, "dies", *noting(tmp_path / "pid"))
    reach(cluster, "dies", "Running")
    until(lambda: starts(tmp_path / "pid"))
    cluster.lose("n2")
    assert not alive(starts(tmp_path / "pid")[0])
    until(lambda: cluster.ready() == {"n1", "n3"})
    assert status(cluster, "dies")["phase"] == "Running"  # the API server cannot know
    cluster.restore("n2")
    until(lambda: cluster.ready() == {"n1", "n2", "n3"})
    until(lambda: status(cluster, "dies").get("phase") in (None, "Failed"))
    assert len(starts(tmp_path / "pid")) == 1


def test_processes_go_on_during_a_partition(cluster: LocalKubernetes, tmp_path: Path) -> None:
    create(cluster, "parted", *noting(tmp_path / "pid"), tolerations=[{"operator": "Exists"}])
    until(lambda: starts(tmp_path / "pid"))
    cluster.lose("n2", processes=False)
    until(lambda: "n2" not in cluster.ready())
    cluster.api.request("DELETE", f"{PODS}/parted", {"gracePeriodSeconds": 1})
    time.sleep(2)
    assert alive(starts(tmp_path / "pid")[0])  # the node does not hear of it
    cluster.restore("n2")
    until(lambda: not status(cluster, "parted") and cluster.ready() == {"n1", "n2", "n3"})
    assert not alive(starts(tmp_path / "pid")[0])


@pytest.mark.parametrize("daemon", DAEMONS)
def test_pods_go_on_without_a_daemon(cluster: LocalKubernetes, tmp_path: Path, daemon: str) -> None:
    ending = f"echo $$$$ >> {tmp_path}/ends; sleep 1.5; exit 5"
    create(cluster, "goes", *noting(tmp_path / "goes"), tolerations=[{"operator": "Exists"}])
    create(cluster, "ends", "sh", "-c", ending, tolerations=[{"operator": "Exists"}])
    for name in ("goes", "ends"):
        reach(cluster, name, "Running")
    cluster.kill(daemon)
    time.sleep(2)
    cluster.start_daemon(daemon)
    assert ended(cluster, "ends", "Failed")["exitCode"] == 5
    until(lambda: cluster.ready() == {"n1", "n2", "n3"})
    create(cluster, "after", "true", nodeName=None)
    reach(cluster, "after", "Succeeded")
    assert status(cluster, "goes")["phase"] == "Running"
    for name in ("goes", "ends"):
        assert len(starts(tmp_path / name)) == 1
    assert alive(starts(tmp_path / "goes")[0])


def test_a_pod_that_is_removed_without_a_kubelet_ends_when_it_returns(cluster: LocalKubernetes, tmp_path: Path) -> None:
    create(cluster, "orphan", *noting(tmp_path / "pid"))
    until(lambda: starts(tmp_path / "pid"))
    cluster.kill("kubelet")
    cluster.api.request("DELETE", f"{PODS}/orphan", {"gracePeriodSeconds": 0})
    assert alive(starts(tmp_path / "pid")[0])
    cluster.start_daemon("kubelet")
    until(lambda: not alive(starts(tmp_path / "pid")[0]))


def test_a_user_without_a_role_is_refused(cluster: LocalKubernetes) -> None:
    reader = connect_with_token(cluster.user("reader"))
    with pytest.raises(ApiError, match="forbidden") as refused:
        reader.request("GET", PODS)
    assert refused.value.status == HTTPStatus.FORBIDDEN
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    cluster.api.request("POST", f"{roles}/roles", {"metadata": {"name": "read"}, "rules": rules})
    bound = {
        "metadata": {"name": "read"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "read"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}],
    }
    cluster.api.request("POST", f"{roles}/rolebindings", bound)
    until(lambda: _allowed(reader))
    with pytest.raises(ApiError, match="forbidden"):
        connect_with_token(cluster.user("nobody")).request("GET", PODS)
    with pytest.raises(ClusterError, match="name users before start"):
        cluster.user("stranger")


def _allowed(reader: Api) -> bool:
    try:
        return bool(reader.request("GET", PODS)["kind"] == "PodList")
    except ApiError:
        return False


def test_a_hollow_cluster_is_stopped_and_starts_again_with_its_state(tmp_path: Path) -> None:
    there = LocalKubernetes(tmp_path, 50, hollow=True)
    try:
        there.start()
        create(there, "idle", "touch", str(tmp_path / "never"), nodeName="n50", annotations={"berth.io/seconds": "0.5"})
        reach(there, "idle", "Succeeded")
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
