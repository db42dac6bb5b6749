"""Pods: what one requests of its node by Kubernetes' rules, and what of it is not modelled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from berth.files.quantities import MILLI, Amounts
from berth.live.engines.kubernetes.affinity import Rules, rules_of
from berth.live.engines.kubernetes.objects import Container, Metadata, PodObject, PodSpec

__all__ = ["PODS", "Pod", "not_modelled", "pod_of", "requests_of"]

PODS = "pods"
"""The resource of which every pod takes one."""
ENDED = ("Succeeded", "Failed")
MIRROR = "kubernetes.io/config.mirror"
VOLUMES = ("persistentVolumeClaim", "ephemeral", "csi")
SCHEDULERS = ("", "default-scheduler", "berth")
HOST_PORTS = "host ports"


def _add(total: dict[str, int], more: Amounts) -> None:
    for name, milli in more.items():
        total[name] = total.get(name, 0) + milli


def _most(total: dict[str, int], other: Amounts) -> None:
    for name, milli in other.items():
        total[name] = max(total.get(name, 0), milli)


def _of_container(container: Container) -> dict[str, int]:
    """Requests of a container; a limit without a request counts as the request."""
    return {**container.resources.limits, **container.resources.requests}


def requests_of(spec: PodSpec) -> dict[str, int]:
    """What a pod takes of its node, in thousandths.

    The larger of what its containers and sidecars take together and what the most demanding init container takes
    beside the sidecars started before it; requests of the pod as a whole replace that; the overhead comes on top, and
    one of the resource `pods`.

    >>> from berth.live.engines.kubernetes.objects import PodSpec
    >>> box = {"resources": {"requests": {"cpu": "500m"}}}
    >>> requests_of(PodSpec.model_validate({"containers": [box, box], "initContainers": [box], "overhead": {"cpu": 1}}))
    {'cpu': 2000, 'pods': 1000}
    """
    running: dict[str, int] = {}
    for container in spec.containers:
        _add(running, _of_container(container))
    starting: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in spec.init_containers:
        here = dict(sidecars)
        _add(here, _of_container(container))
        _most(starting, here)
        if container.restart_policy == "Always":
            sidecars = here
    _add(running, sidecars)
    _most(running, starting)
    if spec.resources is not None:
        running = {**spec.resources.limits, **running, **spec.resources.requests}
    _add(running, spec.overhead)
    return {**running, PODS: MILLI}


def not_modelled(spec: PodSpec) -> Iterator[str]:
    """What a pod uses that may keep it from nodes and that berth does not model."""
    if spec.affinity.pod_affinity.required:
        yield "required affinity to other pods"
    if spec.affinity.pod_anti_affinity.required:
        yield "required anti-affinity to other pods"
    if any(one.when_unsatisfiable == "DoNotSchedule" for one in spec.topology_spread_constraints):
        yield "topology spread constraints"
    if any(kind in volume for volume in spec.volumes for kind in VOLUMES):
        yield "node affinity and limits of volumes"
    if spec.resource_claims:
        yield "dynamic resource claims"
    containers = (*spec.containers, *spec.init_containers)
    ports = any(port.host_port or spec.host_network for container in containers for port in container.ports)
    if ports:
        yield HOST_PORTS
    if any(one.operator in ("Lt", "Gt") for one in spec.tolerations):
        yield "tolerations with numeric operators"
    if (spec.priority > 0 or spec.priority_class_name) and spec.preemption_policy != "Never":
        yield "preemption of pods with a lower priority"
    if spec.runtime_class_name and not spec.overhead:
        yield "overhead and nodes of a runtime class"
    if spec.scheduler_name not in SCHEDULERS:
        yield f"the rules of the scheduler {spec.scheduler_name}"
    if spec.node_name:
        yield "nodeName: the pod bypasses the scheduler"


@dataclass(frozen=True)
class Pod:
    """A pod of a cluster; `node` is empty while it waits for one."""

    metadata: Metadata
    spec: PodSpec = field(repr=False)
    phase: str = "Pending"

    @property
    def name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.metadata.name}"

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self.metadata.namespace or "default"

    @property
    def node(self) -> str:
        """The node that it is bound to."""
        return self.spec.node_name

    @property
    def ended(self) -> bool:
        """Whether it holds nothing any more."""
        return self.phase in ENDED

    @property
    def waits(self) -> bool:
        """Whether it waits for a node."""
        return not self.node and not self.ended and self.metadata.deletion_timestamp is None

    @property
    def stays(self) -> bool:
        """Whether its end would bring no room: a daemon set or the kubelet itself would start it again."""
        owners: Iterable[str] = (owner.kind for owner in self.metadata.owner_references)
        return MIRROR in self.metadata.annotations or any(kind in ("DaemonSet", "Node") for kind in owners)

    @cached_property
    def requests(self) -> Amounts:
        """What it takes of its node."""
        return requests_of(self.spec)

    @cached_property
    def rules(self) -> Rules:
        """Which nodes it may use."""
        return rules_of(self.spec)


def pod_of(given: PodObject) -> Pod:
    """Read a pod."""
    return Pod(given.metadata, given.spec, given.status.phase)
