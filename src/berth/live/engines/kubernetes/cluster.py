"""Nodes and pods of a cluster at one moment, from its API or the output of `kubectl get nodes,pods -A -o json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from berth.errors import InvalidInput, did_you_mean
from berth.files.quantities import Amounts
from berth.files.wording import checked
from berth.files.yaml_tree import Tree
from berth.live.core.jobs import Place, Role
from berth.live.engines.kubernetes.nodes import Node, node_of
from berth.live.engines.kubernetes.objects import NodeObject, PodObject
from berth.live.engines.kubernetes.pods import Pod, pod_of
from berth.live.kubernetes_api import connect

__all__ = ["COMMAND", "Cluster", "cluster_of", "read_cluster", "read_live"]

COMMAND = "kubectl get nodes,pods -A -o json"


@dataclass(frozen=True)
class Cluster:
    """Nodes and pods; `source` is where they were read."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    source: str = ""
    taken: Mapping[str, Amounts] = field(default_factory=dict)
    """What gangs that were planned before take of each node."""

    @cached_property
    def holding(self) -> Mapping[str, tuple[Pod, ...]]:
        """The pods that hold resources of each node."""
        held: dict[str, list[Pod]] = {}
        for pod in self.pods:
            if pod.node and not pod.ended:
                held.setdefault(pod.node, []).append(pod)
        return {name: tuple(pods) for name, pods in held.items()}

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Every resource that a node has."""
        return tuple(dict.fromkeys(name for node in self.nodes for name in node.allocatable))

    @property
    def waiting(self) -> tuple[Pod, ...]:
        """The pods that wait for a node."""
        return tuple(pod for pod in self.pods if pod.waits)

    def after(self, roles: Iterable[Role], places: Iterable[Place]) -> Cluster:
        """The cluster when a gang with these roles has got these places."""
        demand = {role.name: role.demand for role in roles}
        taken = {node: dict(held) for node, held in self.taken.items()}
        for place in places:
            held = taken.setdefault(place.server, {})
            for name, milli in demand[place.role].items():
                held[name] = held.get(name, 0) + milli * place.count
        return replace(self, taken=taken)

    def pod(self, name: str, namespace: str) -> Pod:
        """The pod of this name."""
        there = {pod.metadata.name: pod for pod in self.pods if pod.namespace == namespace}
        if name not in there:
            others = [pod.namespace for pod in self.pods if pod.metadata.name == name]
            hint = f"; there is one in namespace {others[0]}" if others else did_you_mean(name, there)
            expected = f"a pod of namespace {namespace}, which has {len(there)}{hint}"
            raise InvalidInput(expected, value=name, key="pod", file=self.source or None)
        return there[name]


def cluster_of(nodes: Iterable[Any], pods: Iterable[Any], source: str = "") -> Cluster:
    """Read nodes and pods, as the API gives them. Errors name the object."""
    read_nodes = [node_of(_read(value, NodeObject, source)) for value in nodes]
    if not read_nodes:
        raise InvalidInput(f"at least one node, as in the output of {COMMAND}", found="none", file=source or None)
    return Cluster(tuple(read_nodes), tuple(pod_of(_read(value, PodObject, source)) for value in pods), source)


def _read(value: Any, model: Any, source: str) -> Any:
    try:
        return checked(Tree(value, {(): (None, None)}), model)
    except InvalidInput as error:
        metadata = value.get("metadata") if isinstance(value, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        kind = model.__name__.removesuffix("Object").lower()
        raise error.at(key=f"{kind} {name}" if name else kind, file=source or None) from None


def read_live(kubeconfig: Path | None = None, context: str | None = None) -> Cluster:
    """Read all nodes and pods of a live cluster, with read rights alone."""
    api = connect(kubeconfig, context)
    try:
        return cluster_of(api.list("/api/v1/nodes")[0], api.list("/api/v1/pods")[0], api.host)
    finally:
        api.close()


def read_cluster(text: str | bytes, file: str) -> Cluster:
    """Read the output of `kubectl get nodes,pods -A -o json`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"JSON, the output of {COMMAND}", found=f"other text ({error})", file=file) from None
    items = value.get("items") if isinstance(value, dict) else None
    if not isinstance(items, list):
        raise InvalidInput(f"a list of objects, the output of {COMMAND}", found="no key items", key="items", file=file)
    by_kind: dict[str, list[Any]] = {"Node": [], "Pod": []}
    for item in _flat(items):
        if isinstance(item, dict) and (kind := item.get("kind")) in by_kind:
            by_kind[str(kind)].append(item)
    return cluster_of(by_kind["Node"], by_kind["Pod"], file)


def _flat(items: Sequence[Any]) -> Iterable[Any]:
    """Objects of a list, and of lists inside it."""
    for item in items:
        if isinstance(item, dict) and isinstance(item.get("items"), list):
            kind = str(item.get("kind", "")).removesuffix("List")
            yield from ({"kind": kind, **inner} for inner in item["items"] if isinstance(inner, dict))
        else:
            yield item
