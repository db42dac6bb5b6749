"""Gangs of a file: Pods, Jobs and JobSets of Kubernetes, pods of one group, and berth's own jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from berth.errors import InvalidInput
from berth.files.quantities import MILLI
from berth.files.wording import checked
from berth.files.yaml_tree import Tree, read_documents
from berth.live.core.jobs import Job
from berth.live.engines.kubernetes.affinity import Rules, rules_of
from berth.live.engines.kubernetes.groups import Gang, PodKind, gang_of_pods, group_of, kind_of_pods
from berth.live.engines.kubernetes.objects import Expression, Metadata, Part, PodObject, PodTemplate
from berth.live.engines.kubernetes.pods import PODS, Pod, pod_of, requests_of

__all__ = ["gang_of_job", "is_kubernetes", "read_gangs"]

KINDS = ("Pod", "Job", "JobSet", "List")
OWN = "berth/"


class JobSpec(Part):
    """Spec of a Job."""

    parallelism: Annotated[int, Field(ge=0)] = 1
    completions: Annotated[int, Field(ge=0)] | None = None
    template: PodTemplate

    @property
    def count(self) -> int:
        """The number of pods that run at once."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)


class JobTemplate(Part):
    """The jobs that a JobSet makes."""

    spec: JobSpec


class JobObject(Part):
    """A Job."""

    metadata: Metadata = Metadata()
    spec: JobSpec


class ReplicatedJob(Part):
    """Equal jobs of a JobSet."""

    name: str
    replicas: Annotated[int, Field(ge=0)] = 1
    template: JobTemplate


class JobSetSpec(Part):
    """Spec of a JobSet."""

    replicated_jobs: tuple[ReplicatedJob, ...]


class JobSetObject(Part):
    """A JobSet."""

    metadata: Metadata = Metadata()
    spec: JobSetSpec


def is_kubernetes(text: str, file: str) -> bool:
    """Whether a file has objects of Kubernetes, and not berth's own jobs."""
    values = [tree.value for tree in read_documents(text, file)]
    return any(isinstance(value, dict) and _is_foreign(value) for value in values)


def _is_foreign(value: dict[str, Any]) -> bool:
    version = value.get("apiVersion")
    return isinstance(version, str) and not version.startswith(OWN)


def read_gangs(text: str, file: str) -> list[Gang]:
    """Read the gangs of a YAML or JSON file; pods of one group are one gang.

    >>> pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main}]}}"
    >>> str(read_gangs(pod, "pod.yaml")[0])
    'Pod default/a'
    """
    gangs: list[Gang] = []
    pods: dict[tuple[str, str, str], list[Pod]] = {}
    for tree in _objects(read_documents(text, file)):
        kind = tree.value.get("kind") if isinstance(tree.value, dict) else None
        match kind:
            case "Pod":
                pod = pod_of(checked(tree, PodObject))
                group, name = group_of(pod.metadata, pod.spec) or ("Pod", pod.metadata.name)
                pods.setdefault((group, pod.namespace, name), []).append(pod)
            case "Job":
                gangs.append(_job(tree))
            case "JobSet":
                gangs.append(_jobset(tree))
            case _:
                place, line = tree.place(("kind",))
                expected = f"one of {', '.join(KINDS)}, or berth's own job (apiVersion: berth/v1)"
                raise InvalidInput(expected, value=kind, key="kind", file=place or file, line=line)
    gangs += [gang_of_pods(kind, f"{space}/{name}", mine) for (kind, space, name), mine in pods.items()]
    if not gangs:
        raise InvalidInput("at least one job", found="nothing", file=file)
    return gangs


def _objects(trees: Iterable[Tree]) -> Iterable[Tree]:
    for tree in trees:
        if isinstance(tree.value, dict) and tree.value.get("kind") == "List":
            items = tree.value.get("items")
            for i, item in enumerate(items if isinstance(items, list) else ()):
                under = {key[2:]: place for key, place in tree.places.items() if key[:2] == ("items", i)}
                yield Tree(item, under)
        else:
            yield tree


def _pods(name: str, count: int, template: PodTemplate) -> PodKind:
    return kind_of_pods(name, count, template.spec, requests_of(template.spec), rules_of(template.spec))


def _named(metadata: Metadata) -> str:
    return f"{metadata.namespace or 'default'}/{metadata.name or 'unnamed'}"


def _job(tree: Tree) -> Gang:
    job = checked(tree, JobObject)
    if not job.spec.count:
        file, line = tree.place(("spec", "parallelism"))
        raise InvalidInput("at least one pod", value=0, key="spec.parallelism", file=file, line=line)
    return Gang("Job", _named(job.metadata), (_pods("pod", job.spec.count, job.spec.template),))


def _jobset(tree: Tree) -> Gang:
    jobset = checked(tree, JobSetObject)
    parts = [(part, part.replicas * part.template.spec.count) for part in jobset.spec.replicated_jobs]
    kinds = tuple(_pods(part.name, count, part.template.spec.template) for part, count in parts if count)
    if not kinds:
        file, line = tree.place(("spec", "replicatedJobs"))
        raise InvalidInput("at least one pod", found="none", key="spec.replicatedJobs", file=file, line=line)
    return Gang("JobSet", _named(jobset.metadata), kinds)


def gang_of_job(job: Job, resources: Sequence[str]) -> Gang:
    """The pods of one of berth's own jobs, a pod for each task, on a cluster with these resources.

    A resource without a domain that no node has, such as `gpu`, stands for the one that ends in it (`nvidia.com/gpu`).
    """
    names = {name: _full_name(name, resources) for name in job.total}
    selector = tuple(
        (f"{label}={wanted}", Expression(key=label, operator="In", values=tuple(wanted.split("|"))))
        for label, wanted in job.needs.items()
    )
    kinds = []
    for role in job.roles:
        demand = {names[name]: milli for name, milli in role.demand.items()}
        kinds.append(PodKind(replace(role, demand={**demand, PODS: MILLI}), Rules(selector)))
    notes = tuple(f"{short} means {full} here" for short, full in names.items() if short != full)
    return Gang("job", job.id, tuple(kinds), notes)


def _full_name(name: str, resources: Sequence[str]) -> str:
    full = [one for one in resources if one.endswith(f"/{name}")]
    return full[0] if name not in resources and len(full) == 1 else name
