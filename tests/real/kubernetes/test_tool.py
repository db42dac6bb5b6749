"""The local Kubernetes cluster: a real control plane, whose kubelet runs containers as processes."""

from __future__ import annotations

import operator
import shutil
import subprocess
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from berth.live.clusters import ClusterError, alive
from berth.live.clusters.kubernetes import DAEMONS, LocalKubernetes
from berth.live.kubernetes_api import Api, ApiError, connect_with_token
from tests.harness.invariants import InvariantBroken
from tests.harness.waiting import eventually
from tests.real.kubernetes.conftest import NODES

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
NAMES = {node.name for node in NODES}
OTHERS = [name for name in DAEMONS if name != "kubelet"]


@pytest.fixture
def cluster(kubernetes_cluster: LocalKubernetes) -> LocalKubernetes:
    return kubernetes_cluster


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
    return eventually(
        lambda: status(cluster, name), lambda found: found.get("phase") == phase, f"phase {phase} of pod {name}"
    )


def ended(cluster: LocalKubernetes, name: str, phase: str) -> Mapping[str, Any]:
    """Wait until a pod has ended; the final state of its container."""
    found: Mapping[str, Any] = reach(cluster, name, phase)["containerStatuses"][0]["state"]["terminated"]
    return found


def starts(file: Path) -> list[int]:
    """Processes that have written their number into a file."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def started(file: Path) -> int:
    """The process that has written its number into a file, as soon as there is one."""
    return eventually(lambda: starts(file), what=f"no process has begun to write {file}")[0]


def once(file: Path) -> None:
    """Check that no second process has begun."""
    if len(starts(file)) != 1:
        raise InvariantBroken(f"processes {starts(file)} have begun, expected one")


def seen(cluster: LocalKubernetes, name: str) -> Mapping[str, Any]:
    """Wait until the kubelet has reported the states of a pod's containers; the status of the pod."""
    return eventually(
        lambda: status(cluster, name), lambda found: found.get("containerStatuses"), f"the kubelet ignores pod {name}"
    )


def gone(cluster: LocalKubernetes, name: str) -> None:
    """Wait until a pod is gone."""
    eventually(lambda: status(cluster, name), operator.not_, f"pod {name} is not gone")


def noting(file: Path) -> tuple[str, ...]:
    """A command that writes its process number into a file, and runs for long; Kubernetes halves dollar signs."""
    return "sh", "-c", f"echo $$$$ >> {file}; exec sleep 600"


def test_nodes_have_resources_labels_and_taints(cluster: LocalKubernetes) -> None:
    nodes = {node["metadata"]["name"]: node for node in cluster.api.request("GET", "/api/v1/nodes")["items"]}
    assert cluster.ready() == set(nodes) == NAMES
    assert nodes["n2"]["status"]["allocatable"] == {"cpu": "4", "memory": "16Gi", "pods": "250", "nvidia.com/gpu": "4"}
    assert nodes["n6"]["status"]["allocatable"] == {"cpu": "8", "memory": "16Gi", "pods": "250"}
    assert nodes["n6"]["metadata"]["labels"].items() >= {"kubernetes.io/hostname": "n6", "class": "large"}.items()
    assert nodes["n7"]["spec"]["taints"] == [{"key": "team", "value": "a", "effect": "NoSchedule"}]


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
        nodeSelector={"class": "large"},
        container={"args": ["$(WHO)"], "env": env, "workingDir": str(tmp_path)},
    )
    last = ended(cluster, "hello", "Failed")
    assert (last["exitCode"], last["reason"]) == (3, "Error")
    assert last["startedAt"] <= last["finishedAt"]
    assert cluster.api.request("GET", f"{PODS}/hello/log", text=True) == f"hello world on n6 in {tmp_path}\nworld\n"
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
    annotations = {"berth.io/seconds": "100"}
    create(cluster, "slow", annotations=annotations)
    reach(cluster, "slow", "Running")
    create(cluster, "fast", nodeName="n6", annotations=annotations)  # a hundred times as fast
    reach(cluster, "fast", "Succeeded")
    assert status(cluster, "slow")["phase"] == "Running"


def test_pods_wait_for_a_config_map(cluster: LocalKubernetes, tmp_path: Path) -> None:
    volume = {"name": "go", "configMap": {"name": "gate"}}
    gate = tmp_path / "gate"
    for i in range(3):
        create(cluster, f"gang{i}", "test", "-e", str(gate), volumes=[volume])
    for i in range(3):
        assert seen(cluster, f"gang{i}")["phase"] == "Pending"
    gate.touch()  # a pod that did not wait fails, as it finds no gate
    cluster.api.request("POST", MAPS, {"metadata": {"name": "gate"}, "data": {"KEY": "value"}})
    for i in range(3):
        reach(cluster, f"gang{i}", "Succeeded")
    source = {"envFrom": [{"configMapRef": {"name": "gate"}}]}
    create(cluster, "reads", "sh", "-c", "echo $KEY", container=source)
    reach(cluster, "reads", "Succeeded")
    assert cluster.api.request("GET", f"{PODS}/reads/log", text=True) == "value\n"


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
    for name in ("polite", "stubborn"):
        started(tmp_path / name)
    for name in ("polite", "stubborn"):
        cluster.api.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 2})
    for name in ("polite", "stubborn"):
        gone(cluster, name)
    assert (tmp_path / "bye").read_text() == "bye\n"
    assert not any(alive(starts(tmp_path / name)[0]) for name in ("polite", "stubborn"))


def test_a_deadline_ends_a_pod(cluster: LocalKubernetes) -> None:
    create(cluster, "late", "sleep", "600", activeDeadlineSeconds=1, terminationGracePeriodSeconds=1)
    assert reach(cluster, "late", "Failed")["reason"] == "DeadlineExceeded"


@pytest.mark.slow
def test_a_node_dies_and_comes_back(cluster: LocalKubernetes, tmp_path: Path) -> None:
    create(cluster, "dies", *noting(tmp_path / "pid"))
    reach(cluster, "dies", "Running")
    process = started(tmp_path / "pid")
    cluster.lose("n2")
    assert not alive(process)
    eventually(cluster.ready, lambda ready: ready == NAMES - {"n2"}, "ready nodes")
    assert status(cluster, "dies")["phase"] == "Running"  # the API server cannot know
    cluster.restore("n2")
    eventually(cluster.ready, lambda ready: ready == NAMES, "ready nodes")
    eventually(lambda: status(cluster, "dies").get("phase"), lambda phase: phase in (None, "Failed"), "pod dies")
    once(tmp_path / "pid")


def test_processes_go_on_during_a_partition(cluster: LocalKubernetes, tmp_path: Path) -> None:
    create(cluster, "parted", *noting(tmp_path / "pid"), tolerations=[{"operator": "Exists"}])
    process = started(tmp_path / "pid")
    cluster.lose("n2", processes=False)
    eventually(cluster.ready, lambda ready: "n2" not in ready, "ready nodes")
    cluster.api.request("DELETE", f"{PODS}/parted", {"gracePeriodSeconds": 1})
    create(cluster, "later", "true", nodeName="n4")
    reach(cluster, "later", "Succeeded")  # so the kubelet has read of the deletion
    assert alive(process)  # but the node does not hear of it
    cluster.restore("n2")
    gone(cluster, "parted")
    eventually(cluster.ready, lambda ready: ready == NAMES, "ready nodes")
    assert not alive(process)


@pytest.mark.parametrize("daemon", ["kubelet", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_pods_go_on_without_a_daemon(cluster: LocalKubernetes, tmp_path: Path, daemon: str) -> None:
    ending = f"echo $$$$ >> {tmp_path}/ends; until test -e {tmp_path}/end; do sleep 0.1; done; exit 5"
    create(cluster, "goes", *noting(tmp_path / "goes"), tolerations=[{"operator": "Exists"}])
    create(cluster, "ends", "sh", "-c", ending, tolerations=[{"operator": "Exists"}])
    processes = {name: started(tmp_path / name) for name in ("goes", "ends")}
    for name in processes:
        reach(cluster, name, "Running")
    cluster.kill(daemon)
    (tmp_path / "end").touch()
    eventually(lambda: alive(processes["ends"]), operator.not_, "the process does not end")
    cluster.start_daemon(daemon)
    assert ended(cluster, "ends", "Failed")["exitCode"] == 5
    eventually(cluster.ready, lambda ready: ready == NAMES, "ready nodes")
    create(cluster, "after", "true", nodeName=None)
    reach(cluster, "after", "Succeeded")
    assert status(cluster, "goes")["phase"] == "Running"
    for name in processes:
        once(tmp_path / name)
    assert alive(processes["goes"])


def test_a_pod_that_is_removed_without_a_kubelet_ends_when_it_returns(cluster: LocalKubernetes, tmp_path: Path) -> None:
    create(cluster, "orphan", *noting(tmp_path / "pid"))
    process = started(tmp_path / "pid")
    cluster.kill("kubelet")
    cluster.api.request("DELETE", f"{PODS}/orphan", {"gracePeriodSeconds": 0})
    assert alive(process)
    cluster.start_daemon("kubelet")
    eventually(lambda: alive(process), operator.not_, "the process goes on")


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
    try:
        eventually(lambda: _allowed(reader), what="the role gives no right")
    finally:
        for kind in ("rolebindings", "roles"):
            cluster.api.request("DELETE", f"{roles}/{kind}/read")
    with pytest.raises(ApiError, match="forbidden"):
        connect_with_token(cluster.user("nobody")).request("GET", PODS)
    with pytest.raises(ClusterError, match="name users before start"):
        cluster.user("stranger")


def _allowed(reader: Api) -> bool:
    try:
        return bool(reader.request("GET", PODS)["kind"] == "PodList")
    except ApiError:
        return False
