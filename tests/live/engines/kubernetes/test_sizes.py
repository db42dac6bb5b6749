"""What berth counts for the pods of a job before they are bound: all that they take of their nodes."""

from __future__ import annotations

from typing import Any

import pytest

from berth.files.quantities import amounts
from berth.live.core.events import Start
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines.kubernetes.record import Record
from berth.live.engines.kubernetes.servers import server_of
from berth.live.engines.kubernetes.settings import KubernetesSettings
from berth.live.engines.kubernetes.status import SeenPod, seen
from berth.live.engines.kubernetes.template import pods_of, sized
from tests.live.engines.kubernetes.builders import node

SETTINGS = KubernetesSettings(image="busybox")


def given(pod: dict[str, Any] | None = None, **more: Any) -> Job:
    role = Role("task", 2, amounts({"cpu": "500m", "gpu": 1}))
    return Job("j", "t", (role,), payload={"command": ["true"], **({"pod": pod} if pod else {})}, **more)


def counted(pod: dict[str, Any] | None = None) -> dict[str, int]:
    return dict(sized(given(pod), SETTINGS, "s").roles[0].demand)


def box(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": f"b{cpu}", "image": "busybox", "resources": {"requests": {"cpu": cpu}}, **more}


def made(job: Job) -> list[SeenPod]:
    """The pods of an attempt of a job, as the API server shows them."""
    places = (Place("n1", "task", 2),)
    pods = pods_of(Start("j", 1, places), job, Record(("j", 1), "j", places), SETTINGS, "s")
    return [seen({**pod, "metadata": {**pod["metadata"], "uid": str(i)}}) for i, pod in enumerate(pods)]


def test_each_task_takes_one_of_the_pods_of_its_node() -> None:
    server, _ = server_of(node("n1", {"cpu": "4", "pods": "3"}), SETTINGS)
    assert server is not None
    assert server.capacity == amounts({"cpu": 4, "pods": 3})
    assert counted() == amounts({"cpu": "500m", "gpu": 1, "pods": 1})


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [{"name": "main"}, box("2")]}, "2.5"),
        ({"initContainers": [box("3")]}, "3"),
        ({"initContainers": [box("2", restartPolicy="Always")]}, "2.5"),
        ({"overhead": {"cpu": "250m"}}, "750m"),
    ],
)
def test_other_containers_and_overhead_count_before_a_pod_is_bound(spec: dict[str, Any], cpu: str) -> None:
    job = sized(given({"spec": spec}), SETTINGS, "s")
    (role,) = job.roles
    assert role.demand["cpu"] == amounts({"cpu": cpu})["cpu"]
    assert role.requests == amounts({"cpu": "500m", "gpu": 1})
    pods = made(job)
    assert {pod.requests["cpu"] for pod in pods} == {role.demand["cpu"]}
    assert pods[0].spec["containers"][0]["resources"]["requests"]["cpu"] == "500m"
    assert [pod.excess for pod in pods] == [{}, {}]


def test_sizing_again_changes_nothing() -> None:
    once = sized(given({"spec": {"initContainers": [box("3")]}}), SETTINGS, "s")
    assert sized(once, SETTINGS, "s") == once


def test_the_node_selector_of_a_template_is_a_need_of_its_job() -> None:
    pod = {"spec": {"nodeSelector": {"disk": "ssd", "zone": "a"}}}
    assert sized(given(pod, needs={"zone": "b"}), SETTINGS, "s").needs == {"disk": "ssd", "zone": "b"}


def test_what_a_webhook_added_is_taken_and_so_is_all_that_older_versions_did_not_count() -> None:
    plain = made(given())  # a job from a journal of an older version
    assert [pod.excess for pod in plain] == [{"pods": 1000}, {"pods": 1000}]
    (pod, _) = made(sized(given(), SETTINGS, "s"))
    spec = {**pod.spec, "containers": [*pod.spec["containers"], box("1")]}
    there = {"metadata": {"name": "p", "uid": "1", "annotations": dict(pod.annotations)}, "spec": spec}
    assert seen(there).excess == {"cpu": 1000}
    for text in ("", "[]", "{", '{"cpu": "x"}', "null"):
        there["metadata"]["annotations"] = {"berth.io/counted": text}
        assert seen(there).excess == {"cpu": 1000, "pods": 1000}
