"""Plans of gangs and explanations of pods, beside a referee that tries every assignment of pods to nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.live.engines.kubernetes.cluster import Cluster, cluster_of, read_cluster
from berth.live.engines.kubernetes.groups import Gang
from berth.live.engines.kubernetes.manifests import read_gangs
from berth.live.engines.kubernetes.plan import PodPlan, explain_pod, plan_gang, plan_gangs
from tests.live.engines.kubernetes.builders import (
    Object,
    clusters,
    job,
    node,
    over,
    plain_fits,
    plain_may_use,
    pod,
    specs,
)


def gang_of(*objects: Object) -> Gang:
    return read_gangs(json.dumps({"kind": "List", "items": list(objects)}), "job.json")[0]


def check_places(plan: PodPlan, nodes: list[Object], pods: list[Object], kinds: dict[str, tuple[int, Object]]) -> None:
    """The places are those of whole gangs, on nodes that the pods may use, within what nodes have."""
    rows = [one["metadata"]["name"] for one in nodes]
    taken = [(kinds[place.role][1], rows.index(place.server)) for place in plan.places for _ in range(place.count)]
    for name, (count, spec) in kinds.items():
        assert sum(place.count for place in plan.places if place.role == name) == count
        assert all(plain_may_use(spec, nodes[rows.index(p.server)]) for p in plan.places if p.role == name)
    assert not over(nodes, pods, taken)


@given(clusters(), specs(), st.integers(1, 4))
def test_equal_pods_start_exactly_if_some_assignment_fits(
    there: tuple[list[Object], list[Object]], spec: Object, count: int
) -> None:
    nodes, pods = there
    plan = plan_gang(cluster_of(nodes, pods), gang_of(job(count, spec)))
    assert plan.starts == plain_fits(nodes, pods, [spec] * count)
    if plan.starts:
        check_places(plan, nodes, pods, {"pod": (count, spec)})
    else:
        assert plan.blocks
        assert sum(group.servers for group in plan.nodes) == len(nodes)


@given(clusters(), st.lists(st.tuples(specs(), st.integers(1, 2)), min_size=2, max_size=2))
def test_gangs_of_several_kinds_never_overcommit(
    there: tuple[list[Object], list[Object]], kinds: list[tuple[Object, int]]
) -> None:
    nodes, pods = there
    parts = [
        {"name": f"k{i}", "template": {"spec": {"parallelism": count, "template": {"spec": spec}}}}
        for i, (spec, count) in enumerate(kinds)
    ]
    jobset = {"kind": "JobSet", "metadata": {"name": "train"}, "spec": {"replicatedJobs": parts}}
    plan = plan_gang(cluster_of(nodes, pods), gang_of(jobset))
    if plan.starts:
        check_places(plan, nodes, pods, {f"k{i}": (count, spec) for i, (spec, count) in enumerate(kinds)})
    else:
        assert any("does not find" in note for note in plan.notes)


@given(clusters(), specs(), st.integers(1, 2), st.integers(1, 2))
def test_gangs_of_a_file_come_one_after_another(
    there: tuple[list[Object], list[Object]], spec: Object, first: int, second: int
) -> None:
    nodes, pods = there
    gangs = [gang_of(job(first, spec)), gang_of(job(second, spec))]
    plans = plan_gangs(cluster_of(nodes, pods), gangs)
    rows = [one["metadata"]["name"] for one in nodes]
    taken = [(spec, rows.index(p.server)) for plan in plans for p in plan.places for _ in range(p.count)]
    assert not over(nodes, pods, taken)
    if plans[0].starts:
        assert plans[1].starts == plain_fits(nodes, pods, [spec] * (first + second))


# ---------------------------------------------------------------------------- words

GPU = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "110"}
ONLY = {"key": "gpu", "value": "only", "effect": "NoSchedule"}


def busy_cluster(*more: Object) -> Cluster:
    """Six nodes of which others hold GPUs, three tainted ones, one without GPUs, one cordoned."""
    nodes = [node(f"gpu-{i}", GPU) for i in range(1, 7)]
    nodes += [node(f"a100-{i}", GPU, taints=[ONLY]) for i in range(1, 4)]
    nodes += [node("cpu-1", {**GPU, "nvidia.com/gpu": "0"}), node("gpu-7", GPU, cordoned=True)]
    held = {"cpu": "8", "nvidia.com/gpu": "2"}
    pods = [pod(f"run-{i}-{j}", f"gpu-{i}", held, namespace="ml") for i in range(1, 7) for j in range(1 + i % 3)]
    return cluster_of(nodes, [*pods, *more])


def wanting(**requests: str) -> Object:
    return {"containers": [{"name": "main", "resources": {"requests": requests}}]}


def test_a_gang_that_waits_is_explained_with_counts_of_nodes() -> None:
    plan = plan_gang(busy_cluster(), gang_of(job(3, wanting(cpu="8", **{"nvidia.com/gpu": "8"}))))
    assert str(plan).splitlines() == [
        "Job default/train would wait",
        "  there is room for 0 of 3 pods on 11 nodes",
        "  3 of 11 nodes: tainted gpu=only:NoSchedule, not tolerated (a100-1, a100-2, a100-3)",
        "  2 of 11 nodes: 4 of 8 nvidia.com/gpu free, 8 asked (gpu-1, gpu-4)",
        "  2 of 11 nodes: 2 of 8 nvidia.com/gpu free, 8 asked (gpu-2, gpu-5)",
        "  2 of 11 nodes: 6 of 8 nvidia.com/gpu free, 8 asked (gpu-3, gpu-6)",
        "  1 of 11 nodes: no nvidia.com/gpu (cpu-1)",
        "  1 of 11 nodes: cordoned (gpu-7)",
        "  it would start if you request 4 nvidia.com/gpu instead of 8 for each pod",
        "  or if you tolerate the taint gpu=only:NoSchedule",
        "  or if you wait for the end of 4 pods: ml/run-1-0, ml/run-1-1, ml/run-6-0, ml/run-3-0",
    ]
    assert json.loads(json.dumps(plan.as_dict()))["starts"] is False


def test_many_different_amounts_are_one_line() -> None:
    nodes = [node(f"n{i}", {"cpu": f"{i + 1}", "pods": "9"}) for i in range(6)]
    plan = plan_gang(cluster_of(nodes, []), gang_of(job(1, wanting(cpu="7"))))
    assert [str(group) for group in plan.nodes] == [
        "6 of 6 nodes: 1 to 6 of 1 to 6 cpu free, 7 asked (n0, n1, n2 and 3 more)"
    ]


def test_a_gang_that_starts_says_where() -> None:
    plan = plan_gang(busy_cluster(), gang_of(job(2, wanting(cpu="8", **{"nvidia.com/gpu": "6"}))))
    assert str(plan) == "Job default/train would start now\n  1 pod on each of gpu-3, gpu-6"


def test_no_change_of_one_kind_suffices() -> None:
    plan = plan_gang(busy_cluster(), gang_of(job(1, wanting(**{"example.com/tpu": "1"}))))
    assert "no single kind of change would let it start" in plan.blocks
    assert "no example.com/tpu" in str(plan)


def test_a_pod_is_explained_together_with_its_group() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "train"}
    asked = {"cpu": "1", "nvidia.com/gpu": "6"}
    gang = [pod(f"train-{i}", "", asked, labels=labels, namespace="ml") for i in range(3)]
    bound = pod("train-3", "gpu-1", {"cpu": "1"}, labels=labels, namespace="ml")
    plan = explain_pod(busy_cluster(*gang, bound), "train-1", "ml")
    lines = str(plan).splitlines()
    assert lines[0] == "pod group ml/train waits (3 pods)"
    assert "  3 of 4 pods of the group wait, 1 has a node" in lines
    assert "  ml/train-1 alone would fit on gpu-3" in lines
    assert "  or if you run 2 pods instead of 3" in lines


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (pod("p", "gpu-3"), "Pod default/p is bound to node gpu-3 (Running)"),
        (pod("p", "gpu-3", phase="Failed"), "Pod default/p has ended (Failed)"),
        (pod("p", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]), "held by scheduling gates: kueue.x-k8s.io"),
        (pod("p"), "there is room: its scheduler has not bound it yet"),
        (pod("p", schedulerName="volcano"), "not modelled, and used by these pods: the rules of the scheduler volcano"),
    ],
)
def test_pods_in_other_states(one: Object, said: str) -> None:
    assert said in str(explain_pod(busy_cluster(one), "p"))


def test_notes() -> None:
    against = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    others = pod("w"), pod("lonely", "gpu-1", affinity=against)
    text = str(plan_gang(busy_cluster(*others), gang_of(job(1, wanting(cpu="1")))))
    assert "note: 1 other pod waits too; the answer ignores them" in text
    assert "note: not modelled: required anti-affinity of 1 running pod" in text


def test_an_unknown_pod_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"got 'run-1', expected a pod of namespace ml, .*did you mean 'run-1-0'"):
        explain_pod(busy_cluster(), "run-1", "ml")
    with pytest.raises(InvalidInput, match="there is one in namespace ml"):
        explain_pod(busy_cluster(), "run-1-0", "default")


# ---------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes", "c.json: got other text .* expected JSON, the output of kubectl get nodes,pods -A -o json"),
        ("[]", "c.json: items: got no key items, expected a list of objects"),
        ('{"items": []}', "c.json: got none, expected at least one node"),
        (json.dumps({"items": [node("a", {"cpu": "x"})]}), r"c.json: node a.status.allocatable.cpu: got 'x', expected"),
        (json.dumps({"items": [node("a"), pod("p", requests={"cpu": "-1"})]}), r"pod p.spec.containers\[0\].*got '-1'"),
    ],
)
def test_bad_clusters_are_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_cluster(text, "c.json")


def test_other_objects_of_a_file_are_ignored() -> None:
    items: list[Any] = [node("a"), pod("p", "a"), {"kind": "Service"}, {"kind": "PodList", "items": [pod("q")]}]
    cluster = read_cluster(json.dumps({"kind": "List", "items": items}), "c.json")
    assert [len(cluster.nodes), len(cluster.pods), len(cluster.waiting)] == [1, 2, 1]
