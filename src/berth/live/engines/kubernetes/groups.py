"""Gangs: pods that start together, by their templates or, in a cluster, by owner, label or annotation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from berth.files.quantities import Amounts
from berth.live.core.jobs import Role
from berth.live.engines.kubernetes.affinity import Rules
from berth.live.engines.kubernetes.objects import Metadata, PodSpec
from berth.live.engines.kubernetes.pods import Pod, not_modelled

__all__ = ["Gang", "PodKind", "gang_of_pods", "group_of"]

LABELS = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "kueue.x-k8s.io/pod-group-name",
    "jobset.sigs.k8s.io/jobset-name",
)
"""Labels whose value names the group of a pod: coscheduling (new and old), Kueue, JobSet."""
ANNOTATIONS = ("scheduling.k8s.io/group-name", "pod-group-name")
"""Annotations whose value names the group of a pod: Volcano, KAI."""
JOB_LABELS = ("batch.kubernetes.io/job-name", "job-name")
OWNERS = ("Job", "JobSet")


@dataclass(frozen=True)
class PodKind:
    """Equal pods of a gang: how many and what each takes (`role`), and which nodes they may use (`rules`)."""

    role: Role
    rules: Rules
    missing: tuple[str, ...] = ()
    """What the pods use that is not modelled."""


@dataclass(frozen=True)
class Gang:
    """Pods that start together or not at all; `kind` is that of the object that makes them."""

    kind: str
    name: str
    pods: tuple[PodKind, ...]
    notes: tuple[str, ...] = field(default=())
    """What a reader should know about how the gang was read."""

    @property
    def count(self) -> int:
        """The number of its pods."""
        return sum(pods.role.count for pods in self.pods)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def group_of(metadata: Metadata, spec: PodSpec) -> tuple[str, str] | None:
    """The kind and name of the group of a pod; None for a pod of its own.

    >>> group_of(Metadata(labels={"kueue.x-k8s.io/pod-group-name": "train"}), PodSpec(containers=({},)))
    ('pod group', 'train')
    """
    if spec.scheduling_group.pod_group_name:
        return "pod group", spec.scheduling_group.pod_group_name
    for label in LABELS:
        if name := metadata.labels.get(label):
            return "JobSet" if label == LABELS[-1] else "pod group", name
    for annotation in ANNOTATIONS:
        if name := metadata.annotations.get(annotation):
            return "pod group", name
    for label in JOB_LABELS:
        if name := metadata.labels.get(label):
            return "Job", name
    for owner in metadata.owner_references:
        if owner.kind in OWNERS:
            return owner.kind, owner.name
    return None


def kind_of_pods(name: str, count: int, spec: PodSpec, requests: Amounts, rules: Rules) -> PodKind:
    """Equal pods with this spec."""
    return PodKind(Role(name, count, requests), rules, tuple(not_modelled(spec)))


def gang_of_pods(kind: str, name: str, pods: Sequence[Pod]) -> Gang:
    """A gang of these pods; those that need the same are one kind, named after the first of them."""
    alike: list[tuple[Pod, int]] = []
    places: dict[object, int] = {}
    for pod in pods:
        key = tuple(sorted(pod.requests.items())), pod.rules, tuple(not_modelled(pod.spec))
        place = places.setdefault(key, len(alike))
        if place == len(alike):
            alike.append((pod, 0))
        alike[place] = alike[place][0], alike[place][1] + 1
    kinds = [
        kind_of_pods(
            pod.metadata.name or f"pod-{i}" if len(alike) > 1 else "pod", count, pod.spec, pod.requests, pod.rules
        )
        for i, (pod, count) in enumerate(alike)
    ]
    return Gang(kind, name, tuple(kinds))


def members(pod: Pod, pods: Iterable[Pod]) -> list[Pod]:
    """All pods of the group of a pod, itself included."""
    group = group_of(pod.metadata, pod.spec)
    if group is None:
        return [pod]
    return [one for one in pods if one.namespace == pod.namespace and group_of(one.metadata, one.spec) == group]
