"""Nodes of a real control plane that do not take a pod: too many pods there, or a volume that is elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from berth.live.clusters.kubernetes import LocalKubernetes
from tests.harness.waiting import eventually
from tests.live.service.live import Live, serving

SPACE = "/api/v1/namespaces/default"
CLAIMS, VOLUMES = f"{SPACE}/persistentvolumeclaims", "/api/v1/persistentvolumes"
FEW = 3


@pytest.fixture(scope="module")
def live(kubernetes_cluster: LocalKubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("refusals")
    settings = {
        "kubeconfig": str(kubernetes_cluster.kubeconfig),
        "image": "none",
        "companion": "scheduler",
        "settle": 0.5,
    }
    (folder / "kubernetes.yaml").write_text(json.dumps(settings))
    with serving(folder, "--engine", f"kubernetes:{folder / 'kubernetes.yaml'}") as there:
        yield there


@pytest.fixture
def few_pods(live: Live, kubernetes_cluster: LocalKubernetes) -> Iterator[str]:
    """A node that takes only a few pods."""
    path, name = "/api/v1/nodes/n5/status", "n5"
    before = kubernetes_cluster.api.request("GET", path)["status"]["allocatable"]["pods"]
    for most in (str(FEW), before):
        told = {"status": {"allocatable": {"pods": most}, "capacity": {"pods": most}}}
        kubernetes_cluster.api.request("PATCH", path, told)
        if most != before:
            yield name


@pytest.fixture
def claim(kubernetes_cluster: LocalKubernetes) -> Iterator[str]:
    """A claim of a volume; no volume is there yet."""
    asked = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    kubernetes_cluster.api.request("POST", CLAIMS, {"metadata": {"name": "data"}, "spec": asked})
    yield "data"
    for path in (f"{CLAIMS}/data", f"{VOLUMES}/data"):
        kubernetes_cluster.api.request("PATCH", path, {"metadata": {"finalizers": None}})
        kubernetes_cluster.api.request("DELETE", path)


def make_volume(cluster: LocalKubernetes, node: str) -> None:
    """A volume for the claim that only one node can reach."""
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "local": {"path": "/"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
        "claimRef": {"namespace": "default", "name": "data"},
    }
    cluster.api.request("POST", VOLUMES, {"metadata": {"name": "data"}, "spec": spec})
    eventually(
        lambda: cluster.api.request("GET", f"{CLAIMS}/data")["status"], lambda now: now["phase"] == "Bound", "bound"
    )


def submit(live: Live, name: str, *command: str, **more: Any) -> str:
    spec = {"name": name, "resources": {"cpu": "100m"}, "command": list(command), **more}
    return str(live.ask("POST", "/v1/jobs", [spec])["jobs"][0]["id"])


def in_phase(live: Live, job: str, phase: str) -> dict[str, Any]:
    found: dict[str, Any] = live.wait_for(f"/v1/jobs/{job}", lambda job: job["phase"] == phase)
    return found


def said(live: Live, job: str, *words: str) -> str:
    """What explain says, as soon as all these words are in it."""
    found = live.wait_for(f"/v1/jobs/{job}/explain", lambda told: all(word in told["text"] for word in words))
    return str(found["text"])


def with_claim(name: str) -> dict[str, Any]:
    return {"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}}


def test_a_node_takes_no_more_pods_than_it_may(live: Live, few_pods: str) -> None:
    """Nothing is tried: berth counts pods as any other resource."""
    live.wait_for("/v1/servers", lambda all_: {one["name"]: one for one in all_}[few_pods]["capacity"]["pods"] == "3")
    needs = {"class": "shared"}
    jobs = [submit(live, f"pods-{i}", "sleep", "600", needs=needs) for i in range(FEW + 2)]
    for job in jobs[:FEW]:
        in_phase(live, job, "running")
    assert "too little pods" in said(live, jobs[FEW], "too little pods")
    live.ask("DELETE", f"/v1/jobs/{jobs[0]}")
    assert in_phase(live, jobs[FEW], "running")["attempt"] == 1
    assert live.ask("GET", f"/v1/jobs/{jobs[FEW + 1]}")["attempt"] == 0
    for job in jobs[1:]:
        live.ask("DELETE", f"/v1/jobs/{job}")
    for job in jobs:
        in_phase(live, job, "cancelled")


def test_a_job_finds_the_one_node_that_has_its_volume(
    live: Live, kubernetes_cluster: LocalKubernetes, claim: str
) -> None:
    make_volume(kubernetes_cluster, "n6")
    job = submit(live, "reads", "true", pod=with_claim(claim))
    record = in_phase(live, job, "finished")
    assert [place["server"] for place in record["places"]] == ["n6"]
    assert record["failures"] == 0
    assert record["attempt"] <= 6, "a node was tried twice"


def test_a_job_whose_volume_is_not_there_waits_and_says_why_and_harms_nobody(
    live: Live, kubernetes_cluster: LocalKubernetes, claim: str
) -> None:
    needs = {"class": "large"}
    job = submit(live, "waits", "true", pod=with_claim(claim), needs=needs)
    text = said(live, job, "1 server refused such jobs (n6)", "PersistentVolumeClaim")
    assert "it fits on no server that has not refused it" in text
    other = submit(live, "runs", "true", needs=needs, type="other")
    assert in_phase(live, other, "finished")["attempt"] == 1
    assert live.ask("GET", f"/v1/jobs/{job}")["phase"] in ("waiting", "starting")
    make_volume(kubernetes_cluster, "n6")
    record = in_phase(live, job, "finished")
    assert record["failures"] == 0


def test_pods_that_no_queue_takes_are_told_why_and_placed_when_it_opens(
    live: Live, kubernetes_cluster: LocalKubernetes
) -> None:
    queues = live.ask("GET", "/v1/queues")
    closed = {**queues, "queues": {name: {**one, "accepts": False} for name, one in queues["queues"].items()}}
    live.ask("PUT", "/v1/queues", closed)
    try:
        spec = {
            "schedulerName": "berth",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none", "command": ["true"]}],
        }
        kubernetes_cluster.api.request("POST", f"{SPACE}/pods", {"metadata": {"name": "asks"}, "spec": spec})
        where = f"{SPACE}/events?fieldSelector=involvedObject.name%3Dasks"
        eventually(
            lambda: [one["message"] for one in kubernetes_cluster.api.request("GET", where)["items"]],
            lambda told: any("a queue that takes jobs" in text for text in told),
            "the pod has an event that says why",
        )
    finally:
        live.ask("PUT", "/v1/queues", queues)
    pod = f"{SPACE}/pods/asks"
    eventually(
        lambda: kubernetes_cluster.api.request("GET", pod), lambda found: found["status"].get("phase") == "Succeeded"
    )
