"""Where a gang would go on a Kubernetes cluster, or what it waits for and which change would let it start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from berth.files.quantities import format_quantity
from berth.files.wording import counted
from berth.live.core.explain import Group
from berth.live.core.jobs import Place
from berth.live.engines.kubernetes.changes import PodChange, listed, pods_text, smallest_changes
from berth.live.engines.kubernetes.cluster import Cluster
from berth.live.engines.kubernetes.fitting import Fitting
from berth.live.engines.kubernetes.groups import Gang, gang_of_pods, group_of, members
from berth.live.engines.kubernetes.pods import Pod

__all__ = ["PodPlan", "explain_pod", "plan_gang", "plan_gangs"]

NAMED = 3
"""How many nodes of a group are named."""
FEW = 4
"""The most groups of nodes that lack the same resources; of more, a line says from how much to how much is free."""


@dataclass(frozen=True)
class NodeGroup(Group):
    """Nodes that are the same to pods of a kind."""

    of: int = 0
    """The number of all nodes."""
    kind: str = "pod"

    def __str__(self) -> str:
        more = f" and {self.servers - len(self.names)} more" if self.servers > len(self.names) else ""
        return f"{self.servers} of {counted(self.of, 'node')}: {self.text} ({', '.join(self.names)}{more})"


@dataclass(frozen=True)
class PodPlan:
    """The places of a gang; if it would wait, `blocks` and `nodes` say for what, and `changes` what would help.

    `notes` say what is not modelled, and so what the answer does not know.
    """

    gang: str
    phase: str
    pods: int
    places: tuple[Place, ...] = ()
    blocks: tuple[str, ...] = ()
    nodes: tuple[NodeGroup, ...] = ()
    changes: tuple[PodChange, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def starts(self) -> bool:
        """Whether it would start now."""
        return self.phase == "would start now"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "starts": self.starts, "text": str(self)}

    def __str__(self) -> str:
        lines = [f"{self.gang} {self.phase}", *(f"  {line}" for line in _where(self.places))]
        lines += [f"  {block}" for block in self.blocks]
        kinds = dict.fromkeys(group.kind for group in self.nodes)
        for kind in kinds:
            lines += [f"  for a pod of {kind}:"] if len(kinds) > 1 else []
            lines += [f"  {group}" for group in self.nodes if group.kind == kind]
        lines += [f"  it would start if you {change}" for change in self.changes[:1]]
        lines += [f"  or if you {change}" for change in self.changes[1:]]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _where(places: Sequence[Place]) -> Iterator[str]:
    """Places in words, nodes with equally many pods together."""
    alike: dict[tuple[str, int], list[str]] = {}
    for place in places:
        alike.setdefault((place.role, place.count), []).append(place.server)
    for (kind, count), nodes in alike.items():
        yield f"{pods_text(count, kind)} on {'each of ' if len(nodes) > 1 else ''}{listed(nodes)}"


def plan_gang(cluster: Cluster, gang: Gang, *, waiting: Sequence[Pod] = ()) -> PodPlan:
    """Where a gang would go now, or why it would wait. `waiting` are its own pods, if the cluster has them already."""
    fitting = Fitting.of(cluster, gang)
    places = fitting.places()
    notes = tuple(_notes(cluster, gang, waiting))
    if places:
        return PodPlan(str(gang), "would start now", gang.count, places, notes=notes)
    changes = smallest_changes(cluster, fitting)
    blocks = [_room(fitting)]
    if not changes:
        blocks.append("no single kind of change would let it start")
    groups = tuple(group for m in range(len(gang.pods)) for group in _groups(fitting, m))
    return PodPlan(str(gang), "would wait", gang.count, (), tuple(blocks), groups, changes, notes)


def plan_gangs(cluster: Cluster, gangs: Sequence[Gang]) -> list[PodPlan]:
    """Where gangs would go if they came one after another."""
    plans = []
    for gang in gangs:
        plans.append(plan_gang(cluster, gang))
        cluster = cluster.after((pods.role for pods in gang.pods), plans[-1].places)
    return plans


def explain_pod(cluster: Cluster, name: str, namespace: str = "default") -> PodPlan:
    """Why a pod waits for a node, together with the pods of its group, or where it is."""
    pod = cluster.pod(name, namespace)
    if pod.ended:
        return PodPlan(f"Pod {pod.name}", f"has ended ({pod.phase})", 1)
    if pod.node:
        phase = f"is bound to node {pod.node} ({pod.phase})"
        return PodPlan(f"Pod {pod.name}", phase, 1, (Place(pod.node, "pod", 1),))
    if pod.metadata.deletion_timestamp is not None:
        return PodPlan(f"Pod {pod.name}", "is being deleted", 1)
    group = members(pod, cluster.pods)
    mine = [one for one in group if one.waits]
    kind, own = group_of(pod.metadata, pod.spec) or ("Pod", name)
    gang = gang_of_pods(kind, f"{pod.namespace}/{own}", mine)
    plan = plan_gang(cluster, gang, waiting=mine)
    blocks = list(plan.blocks)
    if len(mine) < len(group):
        bound = sum(bool(one.node) and not one.ended for one in group)
        have = f"{bound} {'has' if bound == 1 else 'have'} a node"
        blocks.insert(0, f"{len(mine)} of {counted(len(group), 'pod')} of the group wait, {have}")
    if len(mine) > 1 and not plan.starts:
        alone = Fitting.of(cluster, gang_of_pods("Pod", pod.name, [pod])).places()
        blocks.append(f"{pod.name} alone would fit on {alone[0].server}" if alone else f"{pod.name} alone does not fit")
    gates = [gate.name for one in mine for gate in one.spec.scheduling_gates]
    if gates:
        blocks.insert(0, f"held by scheduling gates: {', '.join(dict.fromkeys(gates))}")
    elif plan.starts:
        blocks.append("there is room: its scheduler has not bound it yet, or something that is not modelled holds it")
    phase = f"waits ({counted(len(mine), 'pod')})" if not plan.starts else "waits, and would fit now"
    return PodPlan(plan.gang, phase, plan.pods, plan.places, tuple(blocks), plan.nodes, plan.changes, plan.notes)


# ---------------------------------------------------------------------------- words


def _notes(cluster: Cluster, gang: Gang, waiting: Sequence[Pod]) -> Iterator[str]:
    yield from gang.notes
    missing = dict.fromkeys(text for pods in gang.pods for text in pods.missing)
    if missing:
        yield f"not modelled, and used by these pods: {'; '.join(missing)}"
    others = sum(
        bool(pod.spec.affinity.pod_anti_affinity.required) for pods in cluster.holding.values() for pod in pods
    )
    if others:
        yield f"not modelled: required anti-affinity of {counted(others, 'running pod')}, which may keep these away"
    ahead = len(cluster.waiting) - len(waiting)
    if ahead:
        yield f"{counted(ahead, 'other pod')} {'waits' if ahead == 1 else 'wait'} too; the answer ignores them"
    if len(gang.pods) > 1:
        yield "pods of several kinds: there may be places that berth's placement does not find"


def _room(fitting: Fitting) -> str:
    rooms = fitting.rooms().sum(axis=1).tolist()
    parts = [
        f"{min(room, role.minimum)} of {pods_text(role.minimum, role.name)}"
        for role, room in zip(fitting.roles, rooms, strict=True)
    ]
    nodes = counted(len(fitting.nodes), "node")
    fragmented = all(room >= role.minimum for role, room in zip(fitting.roles, rooms, strict=True))
    return f"there is room for {', '.join(parts)} on {nodes}{', each kind alone' if fragmented else ''}"


def _groups(fitting: Fitting, m: int) -> Iterator[NodeGroup]:
    """All nodes, those with the same reason together, the largest group first."""
    pods, rooms = fitting.gang.pods[m], fitting.rooms()[m].tolist()
    demand = fitting.demand([pods.role])[0]
    lacking = ((demand > fitting.free) * np.where(fitting.capacity > 0, 1, 2)).tolist()  # 2: the node has none at all
    groups: dict[tuple[Any, ...], list[int]] = {}
    for r, node in enumerate(fitting.nodes):
        taints = pods.rules.untolerated(node.taints)
        reasons = [taint.condition for taint in taints if taint.condition]
        users = [str(taint) for taint in taints if not taint.condition]
        reasons += [f"tainted {', '.join(users)}, not tolerated"] if users else []
        reasons += pods.rules.unmatched(node.facts)
        key = ("away", *dict.fromkeys(reasons)) if reasons else ("room", rooms[r]) if rooms[r] else tuple(lacking[r])
        groups.setdefault(key, []).append(r)
    parts = [(key, part) for key, rows in groups.items() for part in _parts(fitting, key, rows)]
    for key, rows in sorted(parts, key=lambda item: -len(item[1])):
        if key[0] == "away":
            text = "; ".join(key[1:])
        elif key[0] == "room":
            text = f"room for {pods_text(key[1], 'pod')}"
        else:
            text = ", ".join(_lack(fitting, m, rows, k) for k in np.flatnonzero(key).tolist())
        names = tuple(fitting.nodes[r].name for r in rows[:NAMED])
        yield NodeGroup(len(rows), names, text, len(fitting.nodes), pods.role.name)


def _parts(fitting: Fitting, key: tuple[Any, ...], rows: list[int]) -> list[list[int]]:
    """Nodes that lack the same resources, by how much is free, if there are few different amounts."""
    if key[0] in ("away", "room"):
        return [rows]
    lacking = np.flatnonzero(key)
    parts: dict[tuple[int, ...], list[int]] = {}
    for r in rows:
        amounts = (*fitting.free[r, lacking].tolist(), *fitting.capacity[r, lacking].tolist())
        parts.setdefault(amounts, []).append(r)
    return list(parts.values()) if len(parts) <= FEW else [rows]


def _lack(fitting: Fitting, m: int, rows: Sequence[int], k: int) -> str:
    """How much of a resource nodes have free, of how much, and how much is asked for."""
    name, asked = fitting.resources[k], fitting.roles[m].demand[fitting.resources[k]]
    whole = fitting.capacity[list(rows), k]
    if not whole.any():
        return f"no {name}"
    return f"{_range(fitting.free[list(rows), k])} of {_range(whole)} {name} free, {format_quantity(asked)} asked"


def _range(amounts: Any) -> str:
    least, most = format_quantity(int(amounts.min())), format_quantity(int(amounts.max()))
    return least if least == most else f"{least} to {most}"
