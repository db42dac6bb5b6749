"""Companion mode by its requests: gates, groups, the webhook, and what is left alone."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.live.core.jobs import Place
from berth.live.engines import ADOPTED
from berth.live.engines.kubernetes.companion import GATE, Companion, Way, binding, release
from berth.live.engines.kubernetes.settings import KubernetesSettings
from berth.live.engines.kubernetes.state import State
from berth.live.engines.kubernetes.status import SeenPod, seen
from berth.live.engines.kubernetes.webhook import PATH, Health, gated, review, serve
from berth.live.kubernetes_api import ClusterRefused
from tests.live.engines.kubernetes.api_server import certificates

VERSIONS = [f"1.{minor}" for minor in range(30, 38)]
RULE = {"key": "a", "operator": "Exists"}
KEY = "requiredDuringSchedulingIgnoredDuringExecution"

AFFINITY = {"nodeAffinity": {KEY: {"nodeSelectorTerms": [{"matchExpressions": [RULE]}]}}}


def pod(name: str, labels: dict[str, str] | None = None, notes: dict[str, str] | None = None, **spec: Any) -> SeenPod:
    box = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"name": name, "namespace": "ml", "uid": f"u-{name}", "labels": labels or {}, "annotations": notes or {}}
    return seen({"metadata": metadata, "spec": {"containers": [box], "schedulerName": "berth", **spec}})


class NoJobs:
    """An API server that knows no Job."""

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        raise ClusterRefused("not found", status=404)


class Patched:
    """An API server that notes how pods are changed."""

    def __init__(self) -> None:
        self.changes: list[object] = []

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        assert (method, path) == ("PATCH", "/api/v1/namespaces/ml/pods/p")
        self.changes.append(body)


def waiting(settings: KubernetesSettings, *pods: SeenPod) -> Companion:
    state = State(settings, "default", "s")
    for one in pods:
        state.add(one)
    companion = Companion(NoJobs(), settings)  # type: ignore[arg-type]
    asyncio.run(companion.look(state))
    return companion


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pod_that_was_let_go_is_valid_in_all_versions(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    gates = [{"name": GATE}, {"name": "other.io/gate"}]
    held = pod("p", schedulingGates=gates, affinity=AFFINITY)
    change = release(held, "n1")
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {**held.spec, **change["spec"]}}
    validate.validate(whole, version, strict=True)
    validate.validate({**whole, "spec": {**held.spec}}, version, strict=True)
    validate.validate(binding(held, "n1"), version, strict=True)
    term = change["spec"]["affinity"]["nodeAffinity"][KEY]["nodeSelectorTerms"][0]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    assert term["matchExpressions"] == [RULE]
    assert change["spec"]["schedulingGates"] == [{"name": "other.io/gate"}]
    assert change["metadata"]["uid"] == "u-p"


def test_a_patched_pod_waits_no_more_and_one_with_another_gate_waits_for_that_first() -> None:
    way = Way("gates")
    held = pod("p", schedulingGates=[{"name": GATE}])
    after = seen({"metadata": {"name": "p", "uid": "u-p"}, "spec": {**held.spec, **release(held, "n1")["spec"]}})
    assert (way.waits(held), way.sent(held, "n1")) == (True, False)
    assert (way.waits(after), way.sent(after, "n1")) == (False, True)
    other = pod("q", schedulingGates=[{"name": GATE}, {"name": "other.io/gate"}])
    assert (way.waits(other), way.sent(other, "n1")) == (False, False)
    assert (way.held(held), way.held(after), way.held(other)) == (True, False, True)
    assert (way.elsewhere(held, "n1"), way.elsewhere(after, "n1"), way.elsewhere(after, "n2")) == (False, False, True)
    assert not Way("scheduler").waits(pod("r", schedulingGates=[{"name": "other.io/gate"}]))


def test_odd_pods_are_left_alone_and_stop_nobody(caplog: pytest.LogCaptureFixture) -> None:
    settings = KubernetesSettings(companion="scheduler", settle=60.0)
    huge = {"name": "main", "image": "i", "resources": {"requests": {"memory": "2Pi"}}}
    label = {"kueue.x-k8s.io/pod-group-name": "g"}
    digits = pod("digits", label, {"berth.io/gang-size": "9" * 5000})
    found = waiting(settings, pod("huge", containers=[huge]), digits, pod("fine"))
    assert [group.job.payload["name"] for group in found.waiting.values()] == ["fine"]
    assert "huge" in caplog.text


def test_a_pod_that_replaces_another_of_a_placed_group_completes_it() -> None:
    settings = KubernetesSettings(companion="scheduler", settle=60.0)
    label, notes = {"kueue.x-k8s.io/pod-group-name": "g"}, {"kueue.x-k8s.io/pod-group-total-count": "3"}
    bound = [pod(f"b{i}", label, notes, nodeName="n1") for i in range(2)]
    assert len(waiting(settings, *bound, pod("new", label, notes)).waiting) == 1
    assert waiting(settings, bound[0], pod("new", label, notes)).waiting == {}


@given(st.integers(2, 12))
def test_a_group_waits_until_all_of_it_is_there(size: int) -> None:
    settings = KubernetesSettings(companion="scheduler", settle=60.0)
    notes = {"kueue.x-k8s.io/pod-group-total-count": str(size)}
    pods = [pod(f"p{i:02}", {"kueue.x-k8s.io/pod-group-name": "g"}, notes) for i in range(size)]
    assert waiting(settings, *pods[:-1]).waiting == {}
    (group,) = waiting(settings, *pods).waiting.values()
    assert ADOPTED["kubernetes"].fullmatch(group.job.id)
    assert group.job.roles[0].count == size
    role = group.job.roles[0].name
    members = group.members([Place("a", role, 1), Place("b", role, size - 1)])
    assert [uid for _, _, uid in members] == [one.uid for one in pods]


def test_what_annotations_say_and_names_of_resources() -> None:
    settings = KubernetesSettings(companion="scheduler")
    box = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    notes = {"berth.io/type": "train/resnet", "berth.io/work": "2h", "berth.io/priority": "7"}
    selector = {"nvidia.com/gpu.product": "A100"}
    one = pod("solo", notes=notes, containers=[box], nodeSelector=selector)
    (group,) = waiting(settings, one).waiting.values()
    job = group.job
    assert (job.type, job.work, job.priority, dict(job.needs)) == ("train/resnet", 7200.0, 7, selector)
    assert dict(job.roles[0].requests) == {"gpu": 2000}
    assert dict(job.roles[0].demand) == {"gpu": 2000, "pods": 1000}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, "topology spread"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "volumes"),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        KEY: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
                    }
                }
            },
            "operator In",
        ),
    ],
)
def test_pods_with_rules_that_berth_does_not_know_are_left_alone(
    spec: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert waiting(KubernetesSettings(companion="scheduler"), pod("p", **spec)).waiting == {}
    assert reason in caplog.text
    held = pod("p", schedulingGates=[{"name": GATE}], **spec)
    companion = waiting(KubernetesSettings(companion="gates"), held)
    (ignored, why), api = companion.ignored[held.uid], Patched()
    assert (companion.waiting, ignored, reason in why) == ({}, held, True)
    companion = Companion(api, KubernetesSettings(companion="gates"))  # type: ignore[arg-type]
    asyncio.run(companion.let_go(held))
    assert api.changes == [{"metadata": {"uid": "u-p"}, "spec": {"schedulingGates": []}}]


def test_pods_of_other_namespaces_and_schedulers_are_not_looked_at() -> None:
    settings = KubernetesSettings(companion="scheduler", namespaces=("other",))
    assert waiting(settings, pod("p")).waiting == {}
    assert waiting(KubernetesSettings(companion="scheduler"), pod("p", schedulerName="default-scheduler")).waiting == {}
    assert waiting(KubernetesSettings(), pod("p")).waiting == {}


@pytest.mark.parametrize(
    ("label", "all_pods", "held"),
    [("true", False, True), (None, False, False), (None, True, True), ("false", True, False)],
)
def test_which_pods_the_webhook_holds(label: str | None, all_pods: bool, held: bool) -> None:
    labels = {} if label is None else {GATE: label}
    asked = {"metadata": {"labels": labels}, "spec": {"schedulingGates": [{"name": "x.io/y"}]}}
    changes = gated(asked, all_pods)
    assert bool(changes) is held
    if held:
        assert changes[0]["value"] == [{"name": "x.io/y"}, {"name": GATE}]
    assert gated({**asked, "spec": {"nodeName": "n1"}}, all_pods) == []
    assert gated({**asked, "spec": {"schedulingGates": [{"name": GATE}]}}, all_pods) == []


def test_the_webhook_admits_everything_and_holds_nothing_while_the_service_is_away(tmp_path: Path) -> None:
    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    ready = HTTPServer(("127.0.0.1", 0), Ready)
    threading.Thread(target=ready.serve_forever, daemon=True).start()
    cert, key = certificates(tmp_path)
    context = ssl._create_unverified_context()
    uid_of = {"request": {"uid": "7", "object": {"metadata": {"labels": {GATE: "true"}}, "spec": {}}}}

    def asked(health: Health) -> dict[str, Any]:
        server = serve(0, cert, key, health, all_pods=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{server.server_address[1]}{PATH}?timeout=2s"
        with urllib.request.urlopen(
            urllib.request.Request(url, json.dumps(uid_of).encode()), context=context
        ) as answer:
            found: dict[str, Any] = json.loads(answer.read())["response"]
        server.shutdown()
        server.server_close()
        return found

    there = asked(Health(f"http://127.0.0.1:{ready.server_address[1]}"))
    assert (there["uid"], there["allowed"]) == ("7", True)
    assert json.loads(base64.b64decode(there["patch"]))[0]["path"] == "/spec/schedulingGates"
    ready.shutdown()
    ready.server_close()
    assert asked(Health(f"http://127.0.0.1:{ready.server_address[1]}")) == {"uid": "7", "allowed": True}
    assert review(uid_of, all_pods=False, healthy=False)["response"] == {"uid": "7", "allowed": True}
