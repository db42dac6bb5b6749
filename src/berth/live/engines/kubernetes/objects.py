"""Kubernetes objects, as far as placement depends on them; all other fields are ignored.

Field names are those of the API in Python's spelling (`initContainers` is `init_containers`). `null` counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from berth.files.wording import by
from berth.live.engines.kubernetes.quantities import read_amounts

__all__ = [
    "Container",
    "Expression",
    "Metadata",
    "NodeObject",
    "PodObject",
    "PodSpec",
    "PodTemplate",
    "Term",
    "Toleration",
]

Amounts = Annotated[
    dict[str, int], by(lambda value: read_amounts(value) if isinstance(value, Mapping) else value), Field(default={})
]
Effect = Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"]


class Part(BaseModel):
    """Part of a Kubernetes object."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if isinstance(value, dict) and None in value.values():
            return {key: item for key, item in value.items() if item is not None}
        return value


class Owner(Part):
    """The object that made another one."""

    kind: str = ""
    name: str = ""
    controller: bool = False


class Metadata(Part):
    """Name, labels and owners of an object."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()
    deletion_timestamp: str | None = None


class Resources(Part):
    """What a container or pod requests, and its limits."""

    requests: Amounts
    limits: Amounts


class Port(Part):
    """A port of a container."""

    host_port: int = 0


class Container(Part):
    """A container; an init container with `restartPolicy: Always` is a sidecar."""

    resources: Resources = Resources.model_construct(requests={}, limits={})
    ports: tuple[Port, ...] = ()
    restart_policy: str = ""


class Toleration(Part):
    """A toleration of taints."""

    key: str = ""
    operator: Literal["", "Equal", "Exists", "Lt", "Gt"] = "Equal"
    value: str = ""
    effect: Effect = ""


class Expression(Part):
    """A requirement on a label or field of a node."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fitting_values(self) -> Self:
        if self.operator in ("In", "NotIn") and not self.values:
            raise ValueError(f"values for {self.operator}")
        if self.operator in ("Gt", "Lt") and len(self.values) != 1:
            raise ValueError(f"one value for {self.operator}")
        return self


class Term(Part):
    """A term of node affinity: all of its expressions and fields must match."""

    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class NodeSelector(Part):
    """Terms of which one must match."""

    node_selector_terms: tuple[Term, ...] = ()


class NodeAffinity(Part):
    """Node affinity; preferences are ignored."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None

    @property
    def required(self) -> NodeSelector | None:
        """The terms of which one must match."""
        return self.required_during_scheduling_ignored_during_execution


class PodAffinity(Part):
    """Affinity to pods or against them; preferences are ignored."""

    required_during_scheduling_ignored_during_execution: tuple[dict[str, Any], ...] = ()

    @property
    def required(self) -> bool:
        """Whether there are terms that must match."""
        return bool(self.required_during_scheduling_ignored_during_execution)


class Affinity(Part):
    """All affinities of a pod."""

    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class Spread(Part):
    """A topology spread constraint."""

    when_unsatisfiable: str = "DoNotSchedule"


class Gate(Part):
    """A scheduling gate."""

    name: str = ""


class SchedulingGroup(Part):
    """The PodGroup of a pod (Kubernetes 1.36 and later)."""

    pod_group_name: str = ""


class PodSpec(Part):
    """What a pod needs."""

    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    overhead: Amounts
    resources: Resources | None = None
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[Spread, ...] = ()
    scheduling_gates: tuple[Gate, ...] = ()
    scheduling_group: SchedulingGroup = SchedulingGroup()
    scheduler_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    runtime_class_name: str = ""
    host_network: bool = False
    volumes: tuple[dict[str, Any], ...] = ()
    resource_claims: tuple[dict[str, Any], ...] = ()

    @model_validator(mode="after")
    def _some_container(self) -> Self:
        if not self.containers:
            raise ValueError("at least one container")
        return self


class PodTemplate(Part):
    """The pods that a job makes."""

    metadata: Metadata = Metadata()
    spec: PodSpec


class PodStatus(Part):
    """State of a pod."""

    phase: str = "Pending"


class PodObject(PodTemplate):
    """A pod."""

    status: PodStatus = PodStatus()


class TaintObject(Part):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: Effect


class NodeSpec(Part):
    """Settings of a node."""

    taints: tuple[TaintObject, ...] = ()
    unschedulable: bool = False


class Condition(Part):
    """A condition of a node, such as Ready."""

    type: str
    status: str = "Unknown"


class NodeStatus(Part):
    """State of a node."""

    allocatable: Amounts
    capacity: Amounts
    conditions: tuple[Condition, ...] = ()


class NodeObject(Part):
    """A node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus.model_construct(allocatable={}, capacity={}, conditions=())
