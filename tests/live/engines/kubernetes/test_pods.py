"""What pods request of their nodes, and what of them is not modelled."""

from __future__ import annotations

from typing import Any

import pytest

from berth.live.engines.kubernetes.objects import Metadata, PodSpec
from berth.live.engines.kubernetes.pods import Pod, not_modelled, requests_of


def box(cpu: str = "", limit: str = "", **more: Any) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": {"cpu": cpu} if cpu else {}, "limits": {"cpu": limit} if limit else {}}
    return {"name": "main", "resources": resources, **more}


def requested(**spec: Any) -> int:
    return requests_of(PodSpec.model_validate({"containers": [box("1")], **spec})).get("cpu", 0)


def test_containers_add_up_and_limits_stand_for_requests() -> None:
    assert requested(containers=[box("1"), box("500m")]) == 1500
    assert requested(containers=[box("", "2"), box("500m", "4")]) == 2500
    assert requests_of(PodSpec.model_validate({"containers": [{"name": "main"}]})) == {"pods": 1000}


def test_init_containers_run_one_after_another_beside_earlier_sidecars() -> None:
    always = {"restartPolicy": "Always"}
    assert requested(initContainers=[box("3"), box("2")]) == 3000
    assert requested(initContainers=[box("500m")]) == 1000
    assert requested(initContainers=[box("2", **always)]) == 3000
    assert requested(initContainers=[box("2", **always), box("4")]) == 6000
    assert requested(initContainers=[box("4"), box("2", **always)]) == 4000


def test_overhead_and_requests_of_the_pod_as_a_whole() -> None:
    assert requested(overhead={"cpu": "250m"}) == 1250
    assert requested(overhead={"cpu": "250m"}, resources={"requests": {"cpu": "4"}}) == 4250
    assert requested(resources={"limits": {"cpu": "4"}}) == 1000
    assert requested(containers=[{"name": "main"}], resources={"limits": {"cpu": "4"}}) == 4000


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, "affinity to other pods"),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, "anti-affinity to other pods"),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, "topology spread"),
        ({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}, "volumes"),
        ({"resourceClaims": [{"name": "gpu"}]}, "dynamic resource claims"),
        ({"containers": [box("1", ports=[{"containerPort": 80, "hostPort": 80}])]}, "host ports"),
        ({"priority": 1000}, "preemption"),
        ({"priorityClassName": "high"}, "preemption"),
        ({"runtimeClassName": "kata"}, "runtime class"),
        ({"schedulerName": "volcano"}, "the scheduler volcano"),
        ({"tolerations": [{"key": "cores", "operator": "Gt", "value": "4"}]}, "numeric operators"),
        ({"nodeName": "n1"}, "bypasses the scheduler"),
    ],
)
def test_what_is_not_modelled_is_said(spec: dict[str, Any], said: str) -> None:
    found = list(not_modelled(PodSpec.model_validate({"containers": [box("1")], **spec})))
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"volumes": [{"name": "data", "emptyDir": {}}], "priority": 1000, "preemptionPolicy": "Never"},
        {"runtimeClassName": "kata", "overhead": {"cpu": "100m"}},
    ],
)
def test_what_does_not_bind_is_not_said(spec: dict[str, Any]) -> None:
    assert not list(not_modelled(PodSpec.model_validate({"containers": [box("1")], **spec})))


def test_pods_that_would_be_back_at_once() -> None:
    spec = PodSpec.model_validate({"containers": [box("1")]})
    assert Pod(Metadata.model_validate({"ownerReferences": [{"kind": "DaemonSet", "name": "net"}]}), spec).stays
    assert Pod(Metadata.model_validate({"annotations": {"kubernetes.io/config.mirror": "x"}}), spec).stays
    assert not Pod(Metadata.model_validate({"ownerReferences": [{"kind": "Job", "name": "train"}]}), spec).stays
