"""Nodes of a cluster: allocatable resources, labels, and taints that keep pods away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from berth.files.quantities import Amounts
from berth.live.engines.kubernetes.affinity import NODE_NAME, Taint
from berth.live.engines.kubernetes.objects import NodeObject

__all__ = ["Node", "node_of"]

PREFIX = "node.kubernetes.io/"
NOT_READY = {"False": f"{PREFIX}not-ready", "Unknown": f"{PREFIX}unreachable"}


@dataclass(frozen=True)
class Node:
    """A node; `taints` are those with the effect NoSchedule or NoExecute."""

    name: str
    allocatable: Amounts
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()

    @cached_property
    def facts(self) -> Mapping[str, str]:
        """Labels, and the field `metadata.name`."""
        return {**self.labels, NODE_NAME: self.name}


def node_of(given: NodeObject) -> Node:
    """Read a node. A cordon, and a condition Ready that is not True, count as the taints that stand for them."""
    taints = [Taint(one.key, one.value, one.effect) for one in given.spec.taints if one.effect != "PreferNoSchedule"]
    states = [f"{PREFIX}unschedulable"] if given.spec.unschedulable else []
    ready = next((condition.status for condition in given.status.conditions if condition.type == "Ready"), "True")
    states += [NOT_READY[ready]] if ready in NOT_READY else []
    known = {taint.key for taint in taints}
    taints += [Taint(key, "", "NoSchedule") for key in states if key not in known]
    allocatable = given.status.allocatable or given.status.capacity
    return Node(given.metadata.name, allocatable, given.metadata.labels, tuple(taints))
