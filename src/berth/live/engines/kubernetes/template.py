"""The pods of an attempt: one for each task, pinned to its server by node affinity.

kube-scheduler still binds them, so volumes, taints and devices are checked as for every pod. The pods of a gang mount
a ConfigMap that is created when all of them have their nodes: until then no kubelet starts a container.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from berth.errors import BerthError
from berth.files.quantities import MILLI
from berth.live.core.events import Start
from berth.live.core.jobs import Job, Place
from berth.live.engines.kubernetes.affinity import REQUIRED, here
from berth.live.engines.kubernetes.objects import PodObject
from berth.live.engines.kubernetes.pods import requests_of
from berth.live.engines.kubernetes.quantities import is_bytes
from berth.live.engines.kubernetes.record import ATTEMPT, COUNTED, JOB, RANK, ROLE, Record, go_name, labels
from berth.live.engines.kubernetes.settings import KubernetesSettings, as_given

__all__ = ["MAIN", "NotPossible", "go_map", "pods_of", "sized"]

MAIN = "main"
"""The container that runs the task, unless the template names its first one."""
BARRIER, MOUNT = "berth-gang", "/etc/berth"
RESERVED = ("nodeName", "schedulerName", "schedulingGates", "restartPolicy", "hostname")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
"""What a name of a variable may be in all versions of Kubernetes."""


class NotPossible(BerthError):
    """Kubernetes cannot run such a job; the message says why."""


def _template(job: Job, settings: KubernetesSettings) -> dict[str, Any]:
    """The pod template of a job: metadata and spec."""
    given = job.payload.get("pod") or {}
    if given and not settings.templates:
        raise NotPossible("pod: jobs may not bring pod templates here (`templates` in the settings of the engine)")
    if not isinstance(given, Mapping) or not set(given) <= {"metadata", "spec"}:
        raise NotPossible("pod: expected a pod template, with the keys metadata and spec")
    template: dict[str, Any] = copy.deepcopy(dict(given))
    spec = template.setdefault("spec", {})
    metadata = template.setdefault("metadata", {})
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        raise NotPossible("pod: expected mappings as metadata and spec")
    if not set(metadata) <= {"labels", "annotations"}:
        raise NotPossible("pod.metadata: only labels and annotations; berth names the pods")
    for field in RESERVED:
        if field in spec:
            raise NotPossible(f"pod.spec.{field}: berth sets it")
    if (spec.get("affinity") or {}).get("nodeAffinity"):
        raise NotPossible("pod.spec.affinity.nodeAffinity: berth chooses the nodes; use `needs`")
    if (beyond := _rule_about_pods(spec)) is not None:
        raise NotPossible(f"pod.spec.{beyond}: berth chooses the nodes, and knows no rules about other pods")
    containers = spec.setdefault("containers", [{"name": MAIN}])
    if not isinstance(containers, list) or not containers or not all(isinstance(one, dict) for one in containers):
        raise NotPossible("pod.spec.containers: expected a list of containers")
    return template


def _rule_about_pods(spec: Mapping[str, Any]) -> str | None:
    """The field of a pod that binds its place to those of other pods; preferences are none."""
    for kind in ("podAffinity", "podAntiAffinity"):
        if (spec.get("affinity") or {}).get(kind, {}).get(REQUIRED):
            return f"affinity.{kind}"
    spread = spec.get("topologySpreadConstraints") or ()
    strict = any(one.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule" for one in spread)
    return "topologySpreadConstraints" if strict else None


def _quantity(name: str, milli: int) -> str:
    return f"{milli}m" if name == "cpu" else str(-(-milli // MILLI))


def _resources(demand: Mapping[str, int], settings: KubernetesSettings) -> dict[str, dict[str, str]]:
    """Requests, and limits of resources that Kubernetes does not overcommit."""
    asked = {settings.kubernetes_name(name): milli for name, milli in demand.items() if milli}
    requests = {name: _quantity(name, milli) for name, milli in asked.items()}
    devices = {name: amount for name, amount in requests.items() if name != "cpu" and not is_bytes(name)}
    for name in devices:
        if asked[name] % MILLI:
            raise NotPossible(f"resources: {name} can only be asked for in whole units")
    return {"requests": requests, **({"limits": devices} if devices else {})}


def _literal(text: str) -> str:
    """A text in which Kubernetes replaces nothing: it would replace $(NAME), and it reads $$ as $."""
    return text.replace("$", "$$")


def _environment(job: Job, start: Start, role: str, rank: int, server: str) -> list[dict[str, Any]]:
    given: Mapping[str, str] = job.payload.get("environment") or {}
    for name in given:
        if not VARIABLE.fullmatch(name):
            raise NotPossible(f"environment: {name[:80]!r} cannot be a variable in Kubernetes")
    servers = list(dict.fromkeys(place.server for place in start.places))
    ours = {
        "BERTH_JOB": start.job,
        "BERTH_ATTEMPT": str(start.attempt),
        "BERTH_ROLE": role,
        "BERTH_RANK": str(rank),
        "BERTH_TASKS": str(sum(place.count for place in start.places)),
        "BERTH_SERVER": server,
        "BERTH_SERVERS": ",".join(servers),
    }
    return [{"name": name, "value": _literal(value)} for name, value in {**given, **ours}.items()]


def _command(job: Job) -> list[str]:
    if job.payload.get("callable"):
        raise NotPossible("callable: only Ray runs Python callables")
    script = job.payload.get("script")
    command = ["/bin/sh", "-c", script] if script else list(job.payload.get("command") or [])
    return [_literal(word) for word in command]


def _affinity(server: str) -> dict[str, Any]:
    return {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [here(server)]}]}}


def pods_of(start: Start, job: Job, record: Record, settings: KubernetesSettings, store: str) -> list[dict[str, Any]]:
    """The pods of an attempt. Raises `NotPossible` if Kubernetes could not run the job."""
    try:
        return _pods_of(start, job, record, settings, store)
    except (AttributeError, TypeError, ValueError) as error:  # lists and texts where mappings belong
        raise NotPossible(f"pod: expected a pod template as Kubernetes takes it ({error})") from None


def _pods_of(start: Start, job: Job, record: Record, settings: KubernetesSettings, store: str) -> list[dict[str, Any]]:
    template, command = _template(job, settings), _command(job)
    roles = {role.name: role for role in job.roles}
    main = template["spec"]["containers"][0]
    main.setdefault("name", MAIN)
    main["image"] = main.get("image") or job.payload.get("image") or settings.image
    if not main["image"]:
        raise NotPossible("image: expected the image that the job runs in (or `image` in the settings of the engine)")
    if command:
        main["command"] = command
        main.pop("args", None)
    if job.payload.get("workdir"):
        main["workingDir"] = job.payload["workdir"]
    spec = template["spec"]
    spec["restartPolicy"] = "Never"
    spec.setdefault("automountServiceAccountToken", False)
    spec["tolerations"] = [*(spec.get("tolerations") or []), *(as_given(one) for one in settings.tolerations)]
    if len(record.tasks) > 1:
        barrier = {"name": BARRIER, "configMap": {"name": go_name(record.name)}}
        spec["volumes"] = [*(spec.get("volumes") or []), barrier]
        for container in (*spec["containers"], *(spec.get("initContainers") or [])):
            mounts = container.get("volumeMounts") or []
            container["volumeMounts"] = [*mounts, {"name": BARRIER, "mountPath": MOUNT, "readOnly": True}]
    pods = []
    ranks: dict[str, int] = {}
    for index, (role, server) in enumerate(record.tasks):
        rank = ranks[role] = ranks.get(role, -1) + 1
        made = copy.deepcopy(spec)
        own = made["containers"][0]
        own["env"] = [*(own.get("env") or []), *_environment(job, start, role, rank, server)]
        limits = {**((own.get("resources") or {}).get("limits") or {})}
        asked = _resources(roles[role].requests, settings)
        counted = {settings.kubernetes_name(name): milli for name, milli in roles[role].demand.items() if milli}
        own["resources"] = {**asked, "limits": {**limits, **asked.get("limits", {})}}
        made["affinity"] = {**(made.get("affinity") or {}), "nodeAffinity": _affinity(server)}
        metadata = template["metadata"]
        pods.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": record.pod(index),
                    "labels": {**(metadata.get("labels") or {}), **labels(store, record.name, "task")},
                    "annotations": {
                        **(metadata.get("annotations") or {}),
                        JOB: start.job,
                        ATTEMPT: str(start.attempt),
                        ROLE: role,
                        RANK: str(rank),
                        COUNTED: json.dumps(counted),
                    },
                },
                "spec": made,
            }
        )
    return pods


def sized(job: Job, settings: KubernetesSettings, store: str) -> Job:
    """A job with all that its pods take: one of a node's pods each, sidecars, init containers and overhead.

    The node selector of its template becomes labels that its servers must have.
    """
    places = tuple(Place("any", role.name, 1) for role in job.roles)
    record, names = Record((job.id, 1), "any", places), settings.names()
    pods = pods_of(Start(job.id, 1, places), job, record, settings, store)
    roles = []
    for role, pod in zip(job.roles, pods, strict=True):
        demand = dict(role.requests)
        for name, milli in requests_of(PodObject.model_validate(pod).spec).items():
            name = names.get(name, name)
            demand[name] = max(demand.get(name, 0), milli)
        roles.append(replace(role, demand=demand, asked=role.requests))
    selector = pods[0]["spec"].get("nodeSelector") or {}
    return job.replace(roles=tuple(roles), needs={**{str(k): str(v) for k, v in selector.items()}, **job.needs})


def go_map(record: Record, namespace: str, store: str) -> dict[str, Any]:
    """The ConfigMap that lets the pods of a gang start; it says which servers they are on."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": go_name(record.name),
            "namespace": namespace,
            "labels": labels(store, record.name, "go"),
            "ownerReferences": [record.owner],
        },
        "data": {"servers": "\n".join(server for _, server in record.tasks)},
    }
