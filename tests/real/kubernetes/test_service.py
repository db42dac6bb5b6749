"""A whole service on a real Kubernetes control plane, used with the command line."""

from __future__ import annotations

import base64
import json
import operator
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from berth.cli import main
from berth.live.clusters.kubernetes import LocalKubernetes
from berth.live.engines.kubernetes.record import ATTEMPT, JOB
from tests.harness.waiting import eventually
from tests.live.service.live import Live, serving

FIRST_HANGS = 'test "$BERTH_ATTEMPT" != 1 || sleep 600; true'
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PODS, SPACE = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default"
ENDED = ("finished", "failed", "cancelled")


@pytest.fixture(scope="module")
def live(kubernetes_cluster: LocalKubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("service")
    settings = {"kubeconfig": str(kubernetes_cluster.kubeconfig), "image": "none", "lost_seconds": 10}
    (folder / "kubernetes.yaml").write_text(json.dumps(settings))
    with serving(folder, "--engine", f"kubernetes:{folder / 'kubernetes.yaml'}") as there:
        yield there


class Berth(NamedTuple):
    """The command line, for the service."""

    live: Live
    capture: pytest.CaptureFixture[str]
    folder: Path

    def __call__(self, *words: str, code: int = 0) -> str:
        """What a command prints; what it says of its error, if it is to fail."""
        self.capture.readouterr()
        found = main(words)
        said = self.capture.readouterr()
        assert found == code, said.err
        return said.err if code else said.out

    def submit(self, *words: str) -> str:
        """Submit a command; the id of the job."""
        return self("submit", "--parsable", *words).strip()

    def manifest(self, **spec: Any) -> str:
        """Submit a manifest; the id of the job."""
        return self("submit", "--parsable", "-f", self.written(**spec)).strip()

    def written(self, **spec: Any) -> str:
        """A file with a manifest."""
        file = self.folder / "job.json"
        file.write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
        return str(file)


@pytest.fixture
def berth(
    live: Live, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Iterator[Berth]:
    """The command line; no job of the test is left afterwards."""
    monkeypatch.setenv("BERTH_URL", live.url)
    yield Berth(live, capsys, tmp_path_factory.mktemp("manifests"))
    for job in live.ask("GET", "/v1/jobs?limit=1000")["jobs"]:
        if job["phase"] not in ENDED:
            live.ask("DELETE", f"/v1/jobs/{job['id']}")
            ended(live, job["id"])


def in_phase(live: Live, job: str, *phases: str) -> dict[str, Any]:
    """The job as soon as it is in one of these phases."""
    found: dict[str, Any] = live.wait_for(f"/v1/jobs/{job}", lambda job: job["phase"] in phases)
    return found


def ended(live: Live, job: str) -> dict[str, Any]:
    return in_phase(live, job, *ENDED)


def server(live: Live, name: str, good: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """A server as soon as it is as it should be."""

    def one(servers: list[dict[str, Any]]) -> dict[str, Any]:
        return next(server for server in servers if server["name"] == name)

    return one(live.wait_for("/v1/servers", lambda servers: good(one(servers))))


def pods_of(cluster: LocalKubernetes, job: str, attempt: int = 1) -> list[dict[str, Any]]:
    notes = {JOB: job, ATTEMPT: str(attempt)}
    pods = cluster.api.request("GET", PODS)["items"]
    return [pod for pod in pods if notes.items() <= (pod["metadata"].get("annotations") or {}).items()]


@pytest.mark.parametrize("tasks", [2, 5, 16])
def test_a_gang_runs_as_one(
    berth: Berth, live: Live, kubernetes_cluster: LocalKubernetes, tmp_path: Path, tasks: int
) -> None:
    told = 'echo "$BERTH_RANK $BERTH_TASKS $BERTH_SERVER" > "$0/$BERTH_RANK"; sleep 0.5'
    job = berth.submit("-n", str(tasks), "-r", "cpu=1", "--", "/bin/sh", "-c", told, str(tmp_path))
    record = ended(live, job)
    assert (record["phase"], record["attempt"]) == ("finished", 1), record
    lines = [(tmp_path / str(rank)).read_text().split() for rank in range(tasks)]
    assert [(int(rank), int(count)) for rank, count, _ in lines] == [(rank, tasks) for rank in range(tasks)]
    places = {place["server"]: place["tasks"] for place in record["places"]}
    assert {name: sum(one[2] == name for one in lines) for name in places} == places
    assert {pod["spec"]["nodeName"] for pod in pods_of(kubernetes_cluster, job)} == set(places)


def test_roles_have_their_own_tasks_and_resources(
    berth: Berth, live: Live, kubernetes_cluster: LocalKubernetes, tmp_path: Path
) -> None:
    roles = {
        "ps": {"count": 1, "resources": {"cpu": 2}},
        "worker": {"count": 4, "resources": {"cpu": "500m", "memory": "1Gi"}},
    }
    script = f'#!/bin/sh\necho $BERTH_TASKS > "{tmp_path}/$BERTH_ROLE-$BERTH_RANK"\n'
    job = berth.manifest(roles=roles, needs={"class": "fast"}, script=script)
    assert ended(live, job)["phase"] == "finished"
    assert {file.name for file in tmp_path.iterdir()} == {"ps-0", *(f"worker-{rank}" for rank in range(4))}
    requests = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in pods_of(kubernetes_cluster, job)]
    assert sorted(one["cpu"] for one in requests) == ["2", *["500m"] * 4]
    assert sum("memory" in one for one in requests) == 4
    assert {pod["spec"]["nodeName"] for pod in pods_of(kubernetes_cluster, job)} <= {"n1", "n2"}


def test_a_job_is_cancelled(berth: Berth, live: Live, kubernetes_cluster: LocalKubernetes) -> None:
    job = berth.submit("-n", "2", "-r", "cpu=1", "--", "sleep", "600")
    in_phase(live, job, "running")
    berth("job", "cancel", job)
    assert ended(live, job)["phase"] == "cancelled"
    assert pods_of(kubernetes_cluster, job) == []
    assert "no pods any more" in berth("job", "logs", job, code=5)


def test_a_time_limit_ends_a_job(berth: Berth, live: Live) -> None:
    job = berth.submit("-n", "2", "-r", "cpu=1", "-t", "1s", "--", "sleep", "600")
    record = ended(live, job)
    assert record["phase"] == "failed"
    assert "time limit" in record["reason"]


def test_a_job_fails_with_its_exit_code(berth: Berth, live: Live) -> None:
    failing = 'test "$BERTH_RANK" = 0 || exec sleep 600; echo no such model; exit 3'
    job = berth.submit("-n", "2", "-r", "cpu=1", "--", "/bin/sh", "-c", failing)
    record = ended(live, job)
    assert record["phase"] == "failed"
    assert "exit code 3 of task-0 on n" in record["reason"]
    assert record["last_output"] == "no such model"
    berth("job", "wait", job, code=8)


def test_a_cordoned_node_is_closed_and_its_jobs_go_on(
    berth: Berth, live: Live, kubernetes_cluster: LocalKubernetes, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    waits = f'until test -e "{go}"; do sleep 0.1; done'
    job = berth.submit("-r", "cpu=1", "--needs", "class=shared", "--", "/bin/sh", "-c", waits)
    in_phase(live, job, "running")
    kubernetes_cluster.api.request("PATCH", "/api/v1/nodes/n5", {"spec": {"unschedulable": True}})
    try:
        found = server(live, "n5", lambda server: server["state"] == "closed")
        assert found["closed"]
        later = berth.submit("-r", "cpu=1", "--needs", "class=shared", "--", "true")
        assert "closed" in berth("job", "explain", later)
        go.touch()
        record = ended(live, job)
        assert (record["phase"], record["attempt"]) == ("finished", 1)
        assert in_phase(live, later, "waiting")["attempt"] == 0
    finally:
        kubernetes_cluster.api.request("PATCH", "/api/v1/nodes/n5", {"spec": {"unschedulable": None}})
    assert ended(live, later)["phase"] == "finished"


@pytest.mark.slow
def test_a_job_goes_elsewhere_when_its_node_is_lost(
    berth: Berth, live: Live, kubernetes_cluster: LocalKubernetes
) -> None:
    gang = ("-n", "2", "--per-server", "2", "-r", "cpu=1", "--needs", "class=slow")
    job = berth.submit(*gang, "--", "/bin/sh", "-c", FIRST_HANGS)
    before = {place["server"] for place in in_phase(live, job, "running")["places"]}
    lost = min(before)
    kubernetes_cluster.lose(lost)
    try:
        server(live, lost, lambda server: server["state"] == "lost")
        record = ended(live, job)
        assert (record["phase"], record["attempt"]) == ("finished", 2)
        assert lost not in {place["server"] for place in record["places"]}
    finally:
        kubernetes_cluster.restore(lost)
    server(live, lost, lambda server: server["state"] == "up")


def test_a_job_is_retried_when_a_pod_is_deleted(berth: Berth, live: Live, kubernetes_cluster: LocalKubernetes) -> None:
    job = berth.submit("-n", "3", "-r", "cpu=1", "--", "/bin/sh", "-c", FIRST_HANGS)
    in_phase(live, job, "running")
    pod = pods_of(kubernetes_cluster, job)[1]["metadata"]["name"]
    kubernetes_cluster.api.request("DELETE", f"{PODS}/{pod}")
    record = ended(live, job)
    assert (record["phase"], record["attempt"]) == ("finished", 2)


def test_requests_of_foreign_pods_are_respected(berth: Berth, live: Live, kubernetes_cluster: LocalKubernetes) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "3"}}, "command": ["sleep", "600"]}
    spec = {"containers": [container], "nodeSelector": {"class": "shared"}, "terminationGracePeriodSeconds": 0}
    kubernetes_cluster.api.request("POST", PODS, {"metadata": {"name": "foreign"}, "spec": spec})
    try:
        found = server(live, "n5", lambda server: server["taken"].get("cpu") == "3")
        assert found["free"]["cpu"] == "1"
        small = berth.submit("-r", "cpu=1", "--needs", "class=shared", "--", "true")
        large = berth.submit("-r", "cpu=2", "--needs", "class=shared", "--", "true")
        assert ended(live, small)["phase"] == "finished"
        assert in_phase(live, large, "waiting")["attempt"] == 0
    finally:
        kubernetes_cluster.api.request("DELETE", f"{PODS}/foreign")
    assert ended(live, large)["phase"] == "finished"
    assert server(live, "n5", lambda server: not server["taken"])["free"]["cpu"] == "4"


def test_odd_characters_of_an_environment_arrive(berth: Berth, live: Live, tmp_path: Path) -> None:
    odd = {
        "DOLLARS": "$HOME $(BERTH_JOB) $$ $$(X) ${A}",
        "QUOTES": "\"double\" 'single' `back` \\ \\n",
        "LINES": "one\ntwo\n\tthree ",
        "UNICODE": "Grüße, 世界 😀 ‮",
        "EMPTY": "",
    }
    copy = f"import json, os; json.dump(dict(os.environ), open({str(tmp_path / 'seen')!r}, 'w'))"
    job = berth.manifest(resources={"cpu": 1}, environment=odd, command=[sys.executable, "-c", copy, "$(BERTH_JOB)"])
    assert ended(live, job)["phase"] == "finished"
    seen = json.loads((tmp_path / "seen").read_text())
    assert {name: seen[name] for name in odd} == odd
    bad = berth("submit", "-f", berth.written(environment={"1 =": "x"}, command=["true"]), code=2)
    assert "cannot be a variable in Kubernetes" in bad


def test_a_secret_is_given_by_reference(
    berth: Berth, live: Live, kubernetes_cluster: LocalKubernetes, tmp_path: Path
) -> None:
    metadata = {"name": "login"}
    data = {"password": base64.b64encode(b"s3cret $(X)").decode()}
    kubernetes_cluster.api.request(
        "POST", f"{SPACE}/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    )
    variable = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}
    pod = {
        "metadata": {"labels": {"app": "train"}},
        "spec": {"containers": [{"name": "trainer", "env": [variable]}], "terminationGracePeriodSeconds": 1},
    }
    command = ["/bin/sh", "-c", f'printf %s "$PASSWORD" > "{tmp_path}/seen-$BERTH_RANK"; echo done']
    job = berth.manifest(tasks=2, resources={"cpu": 1}, image="busybox", pod=pod, command=command)
    record = ended(live, job)
    assert record["phase"] == "finished", record
    assert [(tmp_path / f"seen-{rank}").read_text() for rank in range(2)] == ["s3cret $(X)"] * 2
    assert record["payload"] == {"command": command, "image": "busybox", "pod": pod}
    made = pods_of(kubernetes_cluster, job)
    assert {one["metadata"]["labels"]["app"] for one in made} == {"train"}
    assert {one["spec"]["containers"][0]["image"] for one in made} == {"busybox"}
    assert berth("job", "logs", job) == "task-0: done\ntask-1: done\n"


def test_a_pod_that_berth_could_not_run_is_refused(berth: Berth, live: Live) -> None:
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
        assert words in berth("submit", "-f", berth.written(command=["true"], pod=pod), code=2)


def test_a_pod_that_kubernetes_refuses_fails_its_job(berth: Berth, live: Live) -> None:
    mount = {"name": "main", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    job = berth.manifest(resources={"cpu": 1}, command=["true"], pod={"spec": {"containers": [mount]}})
    record = ended(live, job)
    assert record["phase"] == "failed"
    assert "Kubernetes refused a pod" in record["reason"]
    assert "volumeMounts" in record["reason"]


def test_logs_of_tasks_are_printed(berth: Berth, live: Live) -> None:
    words = 'for i in 1 2 3; do echo "line $i of $BERTH_ROLE $BERTH_RANK"; done; printf "no end"'
    roles = {"ps": {"count": 1, "resources": {"cpu": 1}}, "worker": {"count": 2, "resources": {"cpu": 1}}}
    job = berth.manifest(roles=roles, command=["/bin/sh", "-c", words])
    assert ended(live, job)["phase"] == "finished"
    printed = berth("job", "logs", job).splitlines()
    for role, rank in (("ps", 0), ("worker", 0), ("worker", 1)):
        lines = [*(f"line {i} of {role} {rank}" for i in (1, 2, 3)), "no end"]
        assert [line for line in printed if line.startswith(f"{role}-{rank}: ")] == [
            f"{role}-{rank}: {line}" for line in lines
        ]
    assert len(printed) == 12
    assert len(berth("job", "logs", job, "--tail", "2").splitlines()) == 6
    one = json.loads(berth("job", "logs", job, "--task", "0", "--tail", "2", "-o", "json"))
    assert (one["job"], one["attempt"]) == (job, 1)
    assert one["text"].startswith("line 3 of ")
    assert "a task from 0 to 2" in berth("job", "logs", job, "--task", "3", code=2)


def test_logs_of_a_running_job_are_printed(berth: Berth, live: Live, tmp_path: Path) -> None:
    go = tmp_path / "go"
    words = f'echo begun; until test -e "{go}"; do sleep 0.1; done; echo over'
    job = berth.submit("-r", "cpu=1", "--", "/bin/sh", "-c", words)
    in_phase(live, job, "running")
    eventually(lambda: berth("job", "logs", job), lambda said: said == "begun\n", "output of the job")
    go.touch()
    assert ended(live, job)["phase"] == "finished"
    assert berth("job", "logs", job) == "begun\nover\n"
    waiting = berth.submit("-r", "cpu=1", "--needs", "class=none", "--", "true")
    assert "has not begun" in berth("job", "logs", waiting, code=5)
    berth("job", "cancel", waiting)


def test_logs_are_lost_with_their_pods(berth: Berth, live: Live, kubernetes_cluster: LocalKubernetes) -> None:
    job = berth.submit("-r", "cpu=1", "--", "echo", "x")
    assert ended(live, job)["phase"] == "finished"
    pod = pods_of(kubernetes_cluster, job)[0]["metadata"]["name"]
    kubernetes_cluster.api.request("DELETE", f"{PODS}/{pod}")
    eventually(lambda: pods_of(kubernetes_cluster, job), operator.not_, "the pod is not deleted")
    assert "their output is gone" in berth("job", "logs", job, code=5)
