"""A whole service on a real Kubernetes control plane, used with the command line."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.live.clusters.kubernetes import KubernetesNode, LocalKubernetes
from berth.live.engines.kubernetes.record import ATTEMPT, JOB
from tests.live.engines.kubernetes_site import LIMIT, needs_kubernetes
from tests.live.engines.slurm_site import up
from tests.live.service.live import Live, serving

pytestmark = needs_kubernetes
NODES = [
    *(KubernetesNode(f"n{i}", labels={"class": "fast"}) for i in range(1, 5)),
    *(KubernetesNode(f"n{i}", labels={"class": "slow"}) for i in range(5, 7)),
    KubernetesNode("n7", labels={"class": "shared"}),
]
FIRST_HANGS = 'test "$BERTH_ATTEMPT" != 1 || sleep 600; true'
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PODS, SPACE = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKubernetes]:
    """Seven nodes with four processors each."""
    with up(LocalKubernetes(Path(tempfile.mkdtemp(prefix="k8s-")), NODES)) as there:
        yield there


@pytest.fixture(scope="module")
def live(cluster: LocalKubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "kubernetes.yaml").write_text(
        json.dumps({"kubeconfig": str(cluster.kubeconfig), "image": "none", "lost_seconds": 15})
    )
    with serving(folder, "--engine", f"kubernetes:{folder / 'kubernetes.yaml'}") as there:
        yield there


def berth(live: Live, *words: str, code: int = 0, text: str | None = None) -> str:
    """What a command prints; what it says of its error, if it is to fail."""
    command = [sys.executable, "-m", "berth", *words]
    environment = {**os.environ, "BERTH_URL": live.url}
    done = subprocess.run(
        command, env=environment, input=text, capture_output=True, encoding="utf-8", timeout=LIMIT, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def submit(live: Live, *words: str) -> str:
    """Submit a command; the id of the job."""
    return berth(live, "submit", "--parsable", *words).strip()


def manifest(live: Live, **spec: Any) -> str:
    """Submit a manifest; the id of the job."""
    return berth(live, "submit", "--parsable", "-f", "-", text=json.dumps(spec, ensure_ascii=False)).strip()


def in_phase(live: Live, job: str, *phases: str) -> dict[str, Any]:
    """The job as soon as it is in one of these phases."""
    found: dict[str, Any] = live.wait_for(f"/v1/jobs/{job}", lambda job: job["phase"] in phases)
    return found


def ended(live: Live, job: str) -> dict[str, Any]:
    return in_phase(live, job, "finished", "failed", "cancelled")


def server(live: Live, name: str, good: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """A server as soon as it is as it should be."""

    def one(servers: list[dict[str, Any]]) -> dict[str, Any]:
        return next(server for server in servers if server["name"] == name)

    return one(live.wait_for("/v1/servers", lambda servers: good(one(servers))))


def pods_of(cluster: LocalKubernetes, job: str, attempt: int = 1) -> list[dict[str, Any]]:
    notes = {JOB: job, ATTEMPT: str(attempt)}
    pods = cluster.api.request("GET", PODS)["items"]
    return [pod for pod in pods if notes.items() <= (pod["metadata"].get("annotations") or {}).items()]


def wait_for(good: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + LIMIT
    while not good():
        assert time.monotonic() < until, what
        time.sleep(0.1)


@pytest.mark.parametrize("tasks", [2, 5, 16])
def test_a_gang_runs_as_one(live: Live, cluster: LocalKubernetes, tmp_path: Path, tasks: int) -> None:
    told = 'echo "$BERTH_RANK $BERTH_TASKS $BERTH_SERVER" > "$0/$BERTH_RANK"; sleep 0.5'
    job = submit(live, "-n", str(tasks), "-r", "cpu=1", "--", "/bin/sh", "-c", told, str(tmp_path))
    record = ended(live, job)
    assert (record["phase"], record["attempt"]) == ("finished", 1), record
    lines = [(tmp_path / str(rank)).read_text().split() for rank in range(tasks)]
    assert [(int(rank), int(count)) for rank, count, _ in lines] == [(rank, tasks) for rank in range(tasks)]
    places = {place["server"]: place["tasks"] for place in record["places"]}
    assert {name: sum(one[2] == name for one in lines) for name in places} == places
    assert {pod["spec"]["nodeName"] for pod in pods_of(cluster, job)} == set(places)


def test_roles_have_their_own_tasks_and_resources(live: Live, cluster: LocalKubernetes, tmp_path: Path) -> None:
    roles = {
        "ps": {"count": 1, "resources": {"cpu": 2}},
        "worker": {"count": 4, "resources": {"cpu": "500m", "memory": "1Gi"}},
    }
    script = f'#!/bin/sh\necho $BERTH_TASKS > "{tmp_path}/$BERTH_ROLE-$BERTH_RANK"\n'
    job = manifest(live, roles=roles, needs={"class": "fast"}, script=script)
    assert ended(live, job)["phase"] == "finished"
    assert {file.name for file in tmp_path.iterdir()} == {"ps-0", *(f"worker-{rank}" for rank in range(4))}
    requests = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in pods_of(cluster, job)]
    assert sorted(one["cpu"] for one in requests) == ["2", *["500m"] * 4]
    assert sum("memory" in one for one in requests) == 4
    assert {pod["spec"]["nodeName"] for pod in pods_of(cluster, job)} <= {"n1", "n2", "n3", "n4"}


def test_a_job_is_cancelled(live: Live, cluster: LocalKubernetes) -> None:
    job = submit(live, "-n", "2", "-r", "cpu=1", "--", "sleep", "600")
    in_phase(live, job, "running")
    berth(live, "job", "cancel", job)
    assert ended(live, job)["phase"] == "cancelled"
    assert pods_of(cluster, job) == []
    assert "no pods any more" in berth(live, "job", "logs", job, code=5)


def test_a_time_limit_ends_a_job(live: Live) -> None:
    job = submit(live, "-n", "2", "-r", "cpu=1", "-t", "1s", "--", "sleep", "600")
    record = ended(live, job)
    assert record["phase"] == "failed"
    assert "time limit" in record["reason"]


def test_a_job_fails_with_its_exit_code(live: Live) -> None:
    failing = 'test "$BERTH_RANK" = 0 || exec sleep 600; echo no such model; exit 3'
    job = submit(live, "-n", "2", "-r", "cpu=1", "--", "/bin/sh", "-c", failing)
    record = ended(live, job)
    assert record["phase"] == "failed"
    assert "exit code 3 of task-0 on n" in record["reason"]
    assert record["last_output"] == "no such model"
    berth(live, "job", "wait", job, code=8)


def test_a_cordoned_node_is_closed_and_its_jobs_go_on(live: Live, cluster: LocalKubernetes, tmp_path: Path) -> None:
    go = tmp_path / "go"
    waits = f'until test -e "{go}"; do sleep 0.1; done'
    job = submit(live, "-r", "cpu=1", "--needs", "class=shared", "--", "/bin/sh", "-c", waits)
    in_phase(live, job, "running")
    cluster.api.request("PATCH", "/api/v1/nodes/n7", {"spec": {"unschedulable": True}})
    try:
        found = server(live, "n7", lambda server: server["state"] == "closed")
        assert found["closed"]
        later = submit(live, "-r", "cpu=1", "--needs", "class=shared", "--", "true")
        assert "closed" in berth(live, "job", "explain", later)
        go.touch()
        record = ended(live, job)
        assert (record["phase"], record["attempt"]) == ("finished", 1)
        assert in_phase(live, later, "waiting")["attempt"] == 0
    finally:
        cluster.api.request("PATCH", "/api/v1/nodes/n7", {"spec": {"unschedulable": None}})
    assert ended(live, later)["phase"] == "finished"


def test_a_job_goes_elsewhere_when_its_node_is_lost(live: Live, cluster: LocalKubernetes) -> None:
    job = submit(
        live, "-n", "2", "--per-server", "2", "-r", "cpu=1", "--needs", "class=slow", "--", "/bin/sh", "-c", FIRST_HANGS
    )
    before = {place["server"] for place in in_phase(live, job, "running")["places"]}
    lost = min(before)
    cluster.lose(lost)
    try:
        server(live, lost, lambda server: server["state"] == "lost")
        record = ended(live, job)
        assert (record["phase"], record["attempt"]) == ("finished", 2)
        assert lost not in {place["server"] for place in record["places"]}
    finally:
        cluster.restore(lost)
    server(live, lost, lambda server: server["state"] == "up")


def test_a_job_is_retried_when_a_pod_is_deleted(live: Live, cluster: LocalKubernetes) -> None:
    job = submit(live, "-n", "3", "-r", "cpu=1", "--", "/bin/sh", "-c", FIRST_HANGS)
    in_phase(live, job, "running")
    pod = pods_of(cluster, job)[1]["metadata"]["name"]
    cluster.api.request("DELETE", f"{PODS}/{pod}")
    record = ended(live, job)
    assert (record["phase"], record["attempt"]) == ("finished", 2)


def test_requests_of_foreign_pods_are_respected(live: Live, cluster: LocalKubernetes) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "3"}}, "command": ["sleep", "600"]}
    spec = {"containers": [container], "nodeSelector": {"class": "shared"}, "terminationGracePeriodSeconds": 0}
    cluster.api.request("POST", PODS, {"metadata": {"name": "foreign"}, "spec": spec})
    try:
        found = server(live, "n7", lambda server: server["taken"].get("cpu") == "3")
        assert found["free"]["cpu"] == "1"
        small = submit(live, "-r", "cpu=1", "--needs", "class=shared", "--", "true")
        large = submit(live, "-r", "cpu=2", "--needs", "class=shared", "--", "true")
        assert ended(live, small)["phase"] == "finished"
        assert in_phase(live, large, "waiting")["attempt"] == 0
    finally:
        cluster.api.request("DELETE", f"{PODS}/foreign")
    assert ended(live, large)["phase"] == "finished"
    assert server(live, "n7", lambda server: not server["taken"])["free"]["cpu"] == "4"


def test_odd_characters_of_an_environment_arrive(live: Live, tmp_path: Path) -> None:
    odd = {
        "DOLLARS": "$HOME $(BERTH_JOB) $$ $$(X) ${A}",
        "QUOTES": "\"double\" 'single' `back` \\ \\n",
        "LINES": "one\ntwo\n\tthree ",
        "UNICODE": "Grüße, 世界 😀 ‮",
        "EMPTY": "",
    }
    copy = f"import json, os; json.dump(dict(os.environ), open({str(tmp_path / 'seen')!r}, 'w'))"
    job = manifest(live, resources={"cpu": 1}, environment=odd, command=[sys.executable, "-c", copy, "$(BERTH_JOB)"])
    assert ended(live, job)["phase"] == "finished"
    seen = json.loads((tmp_path / "seen").read_text())
    assert {name: seen[name] for name in odd} == odd
    bad = berth(live, "submit", "-f", "-", code=2, text=json.dumps({"environment": {"1 =": "x"}, "command": ["true"]}))
    assert "cannot be a variable in Kubernetes" in bad


def test_a_secret_is_given_by_reference(live: Live, cluster: LocalKubernetes, tmp_path: Path) -> None:
    metadata = {"name": "login"}
    data = {"password": base64.b64encode(b"s3cret $(X)").decode()}
    cluster.api.request(
        "POST", f"{SPACE}/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    )
    variable = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}
    pod = {
        "metadata": {"labels": {"app": "train"}},
        "spec": {"containers": [{"name": "trainer", "env": [variable]}], "terminationGracePeriodSeconds": 1},
    }
    command = ["/bin/sh", "-c", f'printf %s "$PASSWORD" > "{tmp_path}/seen-$BERTH_RANK"; echo done']
    job = manifest(live, tasks=2, resources={"cpu": 1}, image="busybox", pod=pod, command=command)
    record = ended(live, job)
    assert record["phase"] == "finished", record
    assert [(tmp_path / f"seen-{rank}").read_text() for rank in range(2)] == ["s3cret $(X)"] * 2
    assert record["payload"] == {"command": command, "image": "busybox", "pod": pod}
    made = pods_of(cluster, job)
    assert {one["metadata"]["labels"]["app"] for one in made} == {"train"}
    assert {one["spec"]["containers"][0]["image"] for one in made} == {"busybox"}
    assert berth(live, "job", "logs", job) == "task-0: done\ntask-1: done\n"


def test_a_pod_that_berth_could_not_run_is_refused(live: Live) -> None:
    for pod, words in (
        ({"spec": {"nodeName": "n1"}}, "pod.spec.nodeName: berth sets it"),
        (
            {"spec": {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}},
            "pod.spec.affinity.podAntiAffinity: berth chooses the nodes",
        ),
        ({"spec": {"topologySpreadConstraints": [{"maxSkew": 1}]}}, "pod.spec.topologySpreadConstraints: berth"),
        ({"spec": {"containers": []}}, "expected a list of containers"),
        ({"kind": "Pod"}, "the keys metadata and spec"),
    ):
        text = json.dumps({"command": ["true"], "pod": pod})
        assert words in berth(live, "submit", "-f", "-", code=2, text=text)


def test_a_pod_that_kubernetes_refuses_fails_its_job(live: Live) -> None:
    mount = {"name": "main", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    job = manifest(live, resources={"cpu": 1}, command=["true"], pod={"spec": {"containers": [mount]}})
    record = ended(live, job)
    assert record["phase"] == "failed"
    assert "Kubernetes refused a pod" in record["reason"]
    assert "volumeMounts" in record["reason"]


def test_logs_of_tasks_are_printed(live: Live) -> None:
    words = 'for i in 1 2 3; do echo "line $i of $BERTH_ROLE $BERTH_RANK"; done; printf "no end"'
    roles = {"ps": {"count": 1, "resources": {"cpu": 1}}, "worker": {"count": 2, "resources": {"cpu": 1}}}
    job = manifest(live, roles=roles, command=["/bin/sh", "-c", words])
    assert ended(live, job)["phase"] == "finished"
    printed = berth(live, "job", "logs", job).splitlines()
    for role, rank in (("ps", 0), ("worker", 0), ("worker", 1)):
        lines = [*(f"line {i} of {role} {rank}" for i in (1, 2, 3)), "no end"]
        assert [line for line in printed if line.startswith(f"{role}-{rank}: ")] == [
            f"{role}-{rank}: {line}" for line in lines
        ]
    assert len(printed) == 12
    assert len(berth(live, "job", "logs", job, "--tail", "2").splitlines()) == 6
    one = json.loads(berth(live, "job", "logs", job, "--task", "0", "--tail", "2", "-o", "json"))
    assert (one["job"], one["attempt"]) == (job, 1)
    assert one["text"].startswith("line 3 of ")
    assert "a task from 0 to 2" in berth(live, "job", "logs", job, "--task", "3", code=2)


def test_logs_of_a_running_job_are_printed(live: Live, tmp_path: Path) -> None:
    go = tmp_path / "go"
    words = f'echo begun; until test -e "{go}"; do sleep 0.1; done; echo over'
    job = submit(live, "-r", "cpu=1", "--", "/bin/sh", "-c", words)
    wait_for(lambda: live.ask("GET", f"/v1/jobs/{job}")["phase"] == "running", "it does not run")
    wait_for(lambda: berth(live, "job", "logs", job) == "begun\n", "its first line is not there")
    go.touch()
    assert ended(live, job)["phase"] == "finished"
    assert berth(live, "job", "logs", job) == "begun\nover\n"
    waiting = submit(live, "-r", "cpu=1", "--needs", "class=none", "--", "true")
    assert "has not begun" in berth(live, "job", "logs", waiting, code=5)
    berth(live, "job", "cancel", waiting)


def test_logs_are_lost_with_their_pods(live: Live, cluster: LocalKubernetes) -> None:
    job = submit(live, "-r", "cpu=1", "--", "echo", "x")
    assert ended(live, job)["phase"] == "finished"
    pod = pods_of(cluster, job)[0]["metadata"]["name"]
    cluster.api.request("DELETE", f"{PODS}/{pod}")
    wait_for(lambda: not pods_of(cluster, job), "the pod is not deleted")
    assert "their output is gone" in berth(live, "job", "logs", job, code=5)
