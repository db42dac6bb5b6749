"""The servers of a live cluster as the problem of a policy; shared by the drivers of all families.

Axes: R servers, K resources, C sets of servers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from berth.live.core.view import Placing, View, rest_in_order
from berth.model import Cluster, Floats, Ints, Resource

__all__ = ["ServerFleet", "asked_by_servers", "fleet_of", "forget_old", "reach_of"]

LARGE = 4096.0
"""If the largest server has more units of a resource than this, the resource is counted in larger units."""
KINDS = 64
"""The most job kinds without a waiting job that a problem has when it is built."""
SETS = 8
"""The most sets of allowed servers that a policy is asked about one after another."""
Kind = TypeVar("Kind", bound=Hashable)
Known = TypeVar("Known")


@dataclass(frozen=True, eq=False)
class ServerFleet:
    """The servers of a problem; `unit` (K,) is how many whole numbers of each resource are 1 in it.

    Units are 1000 times powers of two, so that no amount is rounded. `key` changes whenever the fleet does.
    """

    cluster: Cluster
    unit: Floats
    speed: Floats
    key: Hashable

    def amounts(self, milli: Ints) -> Floats:
        """Amounts in the units of the problem."""
        converted: Floats = milli / self.unit
        return converted


def fleet_of(view: View) -> ServerFleet:
    """The fleet of a view; made once, until servers change."""
    return view.state.known("fleet", lambda: _fleet(view))


def _fleet(view: View) -> ServerFleet:
    most = view.capacity.max(axis=0, initial=0) / view.unit
    steps = np.ceil(np.log2(np.maximum(most / LARGE, 1.0)) / 10.0)
    unit = view.unit * 2.0 ** (10.0 * steps)
    speed = view.state.speed.copy()
    cluster = Cluster(tuple(Resource(name) for name in view.resources), view.servers, view.capacity / unit)
    labels = tuple(tuple(sorted(record.server.labels.items())) for record in view.state.servers.values())
    key = (view.servers, view.capacity.tobytes(), view.resources, speed.tobytes(), labels)
    return ServerFleet(cluster, unit, speed, key)


def reach_of(view: View, needs: Mapping[str, str]) -> NDArray[np.bool_]:
    """The servers (R,) with these labels, whether or not they may be used now."""
    return view.state.having(tuple(sorted(needs.items())))


def asked_by_servers(view: View, propose: Callable[[View], Placing]) -> Placing:
    """What a policy starts that has one set of servers for all jobs: it is asked about each set of allowed servers.

    The set of the first job comes first; jobs of sets after the first `SETS` are placed in order in the end.
    """
    if view.allowed is None:
        return propose(view)
    free, parts = view.free.copy(), list[Placing]()
    numbers, first, row = np.unique(view.allowed.row, return_index=True, return_inverse=True)
    order = np.argsort(first)
    for number in order[:SETS].tolist():
        chosen = np.flatnonzero(row == number)
        part = view.only(chosen, free).within(view.allowed.servers[numbers[number]])
        placing = view.whole(chosen, propose(replace(part, allowed=None)))
        np.subtract.at(free, placing.server, placing.count[:, None] * view.gangs.demand[placing.role])
        parts.append(placing)
        if (free < 0).any():  # the dispatcher's check reports it
            return Placing.joined(parts)
    rest = np.flatnonzero(np.isin(row, order[SETS:]))
    return Placing.joined([*parts, rest_in_order(view, rest, free)] if len(rest) else parts)


def forget_old(kinds: dict[Kind, Known], waiting: Collection[Kind], most: int = KINDS) -> None:
    """Move waiting kinds to the end, and drop the first of the others if they are too many.

    >>> kinds = {number: "" for number in range(100)}
    >>> forget_old(kinds, [0, 99])
    >>> len(kinds), list(kinds)[0], list(kinds)[-2:]
    (66, 35, [0, 99])
    """
    for kind in waiting:
        kinds[kind] = kinds.pop(kind)
    for kind in list(kinds)[: max(len(kinds) - len(waiting) - min(most, KINDS), 0)]:
        del kinds[kind]
