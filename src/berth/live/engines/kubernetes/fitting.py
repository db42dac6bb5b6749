"""Where the pods of a gang fit: nodes as servers, pods as tasks, placed by berth's own placement in order.

A pod may use some nodes only. That is a resource too: each kind of pods has one of its own, which the nodes have that
it may use.

Axes: m kinds of pods, R nodes, K resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from berth.errors import InvalidInput
from berth.files.quantities import Amounts
from berth.live.core.jobs import Place, Role
from berth.live.core.kernels import Gangs
from berth.live.core.view import Mask, placed
from berth.live.engines.kubernetes.affinity import Rules
from berth.live.engines.kubernetes.cluster import Cluster
from berth.live.engines.kubernetes.groups import Gang
from berth.live.engines.kubernetes.nodes import Node
from berth.model import Ints

__all__ = ["Fitting", "may_use"]

MOST = 2**62
"""Largest sum of amounts: sums are 64-bit numbers."""


def may_use(
    rules: Rules,
    nodes: Sequence[Node],
    dropped: frozenset[str] = frozenset(),
    tolerated: frozenset[str] = frozenset(),
) -> Mask:
    """The nodes (R,) that pods with these rules may use; `dropped` rules and `tolerated` taints do not count."""
    keys, seen = rules.keys, dict[object, bool]()
    found = np.zeros(len(nodes), dtype=bool)
    for r, node in enumerate(nodes):
        facts = node.facts
        look = node.taints, tuple((key, facts.get(key)) for key in keys)
        if look not in seen:  # most nodes look like another one
            taints = [taint for taint in rules.untolerated(node.taints) if str(taint) not in tolerated]
            seen[look] = not taints and not rules.unmatched(facts, dropped)
        found[r] = seen[look]
    return found


@dataclass(frozen=True, eq=False)
class Fitting:
    """A gang and the nodes of a cluster: what they have (R, K), what is free (R, K), and which may be used (m, R)."""

    gang: Gang
    nodes: tuple[Node, ...]
    resources: tuple[str, ...]
    capacity: Ints
    free: Ints
    may: Mask

    @classmethod
    def of(cls, cluster: Cluster, gang: Gang) -> Fitting:
        """Read what is free: allocatable less the requests of pods that have not ended."""
        asked = (name for pods in gang.pods for name in pods.role.demand)
        resources = tuple(dict.fromkeys([*cluster.resources, *asked]))
        columns = {name: k for k, name in enumerate(resources)}
        capacity = np.zeros((len(cluster.nodes), len(resources)), dtype=np.int64)
        free = np.zeros_like(capacity)
        for r, node in enumerate(cluster.nodes):
            left = dict(node.allocatable)
            held = [pod.requests for pod in cluster.holding.get(node.name, ())]
            for amounts in (*held, cluster.taken.get(node.name, {})):
                for name, milli in amounts.items():
                    left[name] = left.get(name, 0) - milli
            for name, milli in node.allocatable.items():
                capacity[r, columns[name]] = milli
                free[r, columns[name]] = max(left[name], 0)
        for pods in gang.pods:
            for name, milli in pods.role.demand.items():
                if milli * pods.role.count > MOST // max(len(gang.pods), 1):
                    expected = f"less of {name} for {pods.role.count} pods together"
                    raise InvalidInput(expected, value=milli, key=f"{gang}: {pods.role.name}")
        may = np.array([may_use(pods.rules, cluster.nodes) for pods in gang.pods], dtype=bool)
        return cls(gang, cluster.nodes, resources, capacity, free, may)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The kinds of pods, as roles of a job."""
        return tuple(pods.role for pods in self.gang.pods)

    def vector(self, amounts: Amounts) -> Ints:
        """Amounts as a vector (K,)."""
        return np.array([amounts.get(name, 0) for name in self.resources], dtype=np.int64)

    def demand(self, roles: Iterable[Role]) -> Ints:
        """What each pod takes (m, K)."""
        return np.array([self.vector(role.demand) for role in roles], dtype=np.int64)

    def places(
        self, roles: Sequence[Role] | None = None, free: Ints | None = None, may: Mask | None = None
    ) -> tuple[Place, ...]:
        """Places for all pods that the gang needs, on few nodes; empty if they do not fit.

        `roles`, `free` and `may` replace those of the gang. For equal pods this is exact. For pods of several kinds
        there may be places that it does not find.
        """
        given, left = roles or self.roles, self.free if free is None else free
        allowed, count = self.may if may is None else may, len(given)
        most = np.array([role.count for role in given], dtype=np.int64)
        own = np.where(allowed, most[:, None], 0).T  # each kind's own resource: the nodes that it may use
        demand = np.hstack([self.demand(given), np.eye(count, dtype=np.int64)])
        gangs = Gangs(
            np.array([0, count], dtype=np.int64),
            np.zeros(1, dtype=np.int64),
            np.zeros(1, dtype=np.int64),
            demand,
            np.array([role.minimum for role in given], dtype=np.int64),
            most,
            np.array([role.each for role in given], dtype=np.int64),
        )
        reach = np.ones((1, len(self.nodes)), dtype=bool)
        placing = placed(gangs, reach, np.hstack([self.capacity, own]), np.hstack([left, own]))
        counts: dict[tuple[int, int], int] = {}
        for role, node, tasks in zip(
            placing.role.tolist(), placing.server.tolist(), placing.count.tolist(), strict=True
        ):
            counts[node, role] = counts.get((node, role), 0) + tasks
        return tuple(Place(self.nodes[r].name, given[m].name, tasks) for (r, m), tasks in sorted(counts.items()))

    def fits(self, roles: Sequence[Role] | None = None, free: Ints | None = None, may: Mask | None = None) -> bool:
        """Whether the gang fits, with these changes."""
        return bool(self.places(roles, free, may))

    def rooms(self, free: Ints | None = None, may: Mask | None = None) -> Ints:
        """How many pods of each kind each node has room for (m, R), each kind alone."""
        left = self.free if free is None else free
        demand = self.demand(self.roles)[:, None, :]
        each = np.where(demand > 0, left[None] // np.maximum(demand, 1), np.iinfo(np.int64).max).min(axis=2)
        limit = np.array([role.each for role in self.roles], dtype=np.int64)
        found: Ints = np.where(self.may if may is None else may, np.minimum(each, limit[:, None]), 0)
        return found

    def may_with(self, dropped: frozenset[str] = frozenset(), tolerated: frozenset[str] = frozenset()) -> Mask:
        """The nodes that the pods may use (m, R) without some of their rules and with more tolerations."""
        return np.array([may_use(pods.rules, self.nodes, dropped, tolerated) for pods in self.gang.pods], dtype=bool)

    def with_role(self, place: int, **how: object) -> list[Role]:
        """The roles, one of them changed."""
        roles = list(self.roles)
        roles[place] = replace(roles[place], **how)  # type: ignore[arg-type]
        return roles
