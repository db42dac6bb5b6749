"""Gangs of files."""

from __future__ import annotations

import pytest

from berth.errors import InvalidInput
from berth.live.core.specs import read_manifests
from berth.live.engines.kubernetes.groups import group_of
from berth.live.engines.kubernetes.manifests import gang_of_job, is_kubernetes, read_gangs
from berth.live.engines.kubernetes.objects import Metadata, PodSpec

BOX = "containers: [{name: main, resources: {requests: {cpu: 2}}}]"
JOBSET = f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: train, namespace: ml}}
spec:
  replicatedJobs:
    - name: leader
      template: {{spec: {{template: {{spec: {{{BOX}}}}}}}}}
    - name: worker
      replicas: 2
      template: {{spec: {{parallelism: 3, completions: 2, template: {{spec: {{{BOX}}}}}}}}}
"""


def shape(text: str) -> list[tuple[str, list[tuple[str, int]]]]:
    gangs = read_gangs(text, "job.yaml")
    return [(str(gang), [(pods.role.name, pods.role.count) for pods in gang.pods]) for gang in gangs]


def test_a_jobset_has_a_kind_of_pods_for_each_replicated_job() -> None:
    assert shape(JOBSET) == [("JobSet ml/train", [("leader", 1), ("worker", 4)])]


def test_a_job_has_parallelism_many_pods_at_most_its_completions() -> None:
    text = (
        f"{{kind: Job, metadata: {{name: a}}, spec: {{parallelism: 8, completions: 3, template: {{spec: {{{BOX}}}}}}}}}"
    )
    assert shape(text) == [("Job default/a", [("pod", 3)])]
    assert shape(text.replace("completions: 3, ", "")) == [("Job default/a", [("pod", 8)])]


def test_pods_of_one_group_are_one_gang() -> None:
    labels = "labels: {kueue.x-k8s.io/pod-group-name: train}"
    text = "---\n".join(
        f"{{kind: Pod, metadata: {{name: {name}, {labels}}}, spec: {{{box}}}}}\n"
        for name, box in (("a", BOX), ("b", BOX), ("c", BOX.replace("cpu: 2", "cpu: 4")))
    )
    assert shape(text) == [("pod group default/train", [("a", 2), ("c", 1)])]
    assert shape(text.replace(labels, "labels: {}"))[2] == ("Pod default/c", [("pod", 1)])


@pytest.mark.parametrize(
    ("metadata", "spec", "group"),
    [
        ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, {}, ("pod group", "g")),
        ({"labels": {"jobset.sigs.k8s.io/jobset-name": "g", "job-name": "g-0"}}, {}, ("JobSet", "g")),
        ({"labels": {"batch.kubernetes.io/job-name": "g"}}, {}, ("Job", "g")),
        ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, {}, ("pod group", "g")),
        ({"ownerReferences": [{"kind": "Job", "name": "g"}]}, {}, ("Job", "g")),
        ({"ownerReferences": [{"kind": "ReplicaSet", "name": "g"}]}, {}, None),
        ({}, {"schedulingGroup": {"podGroupName": "g"}}, ("pod group", "g")),
        ({}, {}, None),
    ],
)
def test_groups_by_label_annotation_and_owner(
    metadata: dict[str, object], spec: dict[str, object], group: tuple[str, str] | None
) -> None:
    made = PodSpec.model_validate({"containers": [{"name": "main"}], **spec})
    assert group_of(Metadata.model_validate(metadata), made) == group


def test_own_jobs_become_pods_and_short_names_of_resources_are_completed() -> None:
    own = read_manifests("{tasks: 2, per_server: 1, resources: {cpu: 1, gpu: 4}, needs: {zone: a|b}}")[0]
    gang = gang_of_job(own.job("train", "ann"), ["cpu", "nvidia.com/gpu"])
    pods = gang.pods[0]
    assert pods.role.demand == {"cpu": 1000, "nvidia.com/gpu": 4000, "pods": 1000}
    assert (pods.role.count, pods.role.per_server) == (2, 1)
    assert gang.notes == ("gpu means nvidia.com/gpu here",)
    assert not pods.rules.unmatched({"zone": "b"})
    assert pods.rules.unmatched({"zone": "c"}) == ("no label zone=a|b",)
    two = gang_of_job(own.job("train", "ann"), ["nvidia.com/gpu", "amd.com/gpu"])
    assert "gpu" in two.pods[0].role.demand


def test_files_of_kubernetes_are_told_from_own_jobs() -> None:
    assert is_kubernetes(JOBSET, "job.yaml")
    assert not is_kubernetes("{apiVersion: berth/v1, kind: Job, spec: {tasks: 2}}", "job.yaml")
    assert not is_kubernetes("tasks: 2", "job.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Deployment", r"job.yaml:1: kind: got 'Deployment', expected one of Pod, Job, JobSet, List, or berth's"),
        (JOBSET.replace("cpu: 2", "cpu: 2x"), r"job.yaml:8: spec.replicatedJobs\[0\].*cpu: got '2x', expected a Kuber"),
        (JOBSET.replace("replicas: 2", "replicas: -1"), r"job.yaml:10: .*replicas: got -1, expected a number ≥ 0"),
        (JOBSET.replace("parallelism: 3", "parallelism: x"), "parallelism: got 'x', expected a whole number"),
        ("kind: Pod\nspec: {}", "job.yaml:2: spec.containers: got nothing, expected this key"),
        ("kind: Pod\nspec: {containers: []}", "expected at least one container"),
        (f"kind: Job\nspec: {{parallelism: 0, template: {{spec: {{{BOX}}}}}}}", "job.yaml:2: spec.parallelism: got 0"),
        (
            f"kind: Pod\nspec: {{{BOX}, nodeSelector: {{ssd: 1}}}}",
            "job.yaml:2: spec.nodeSelector.ssd: got 1, expected a",
        ),
        ("", "job.yaml: got nothing, expected at least one job"),
    ],
)
def test_bad_files_are_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_gangs(text, "job.yaml")


def test_affinity_needs_fitting_values() -> None:
    rule = "{key: zone, operator: In, values: []}"
    terms = (
        f"{{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: [{rule}]}}]}}}}"
    )
    with pytest.raises(InvalidInput, match="expected values for In"):
        read_gangs(f"kind: Pod\nspec: {{{BOX}, affinity: {{nodeAffinity: {terms}}}}}", "job.yaml")
    with pytest.raises(InvalidInput, match=r"operator: got 'Like', expected one of In, NotIn"):
        read_gangs(
            f"kind: Pod\nspec: {{{BOX}, affinity: {{nodeAffinity: {terms.replace('In,', 'Like,')}}}}}", "job.yaml"
        )
