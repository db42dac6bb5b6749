"""The one capacity check, used by simulator and service alike.

Axes: R servers, K resources, E channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from berth.kernels.capacity import server_usage
from berth.model import Floats, Instance

__all__ = ["TOLERANCE", "Violation", "overfull", "usage"]

TOLERANCE = 1e-9
"""How far, relative to 1 + the limit, a sum of floats may exceed its limit before it counts."""


@dataclass(frozen=True)
class Violation:
    """One broken constraint: where, how much was used, and how much was allowed.

    >>> print(Violation("capacity", "server-3/gpu", 9.5, 8.0))
    capacity of server-3/gpu: 9.5 used, 8 allowed
    """

    kind: str
    where: str
    used: float
    allowed: float

    def __str__(self) -> str:
        return f"{self.kind} of {self.where}: {self.used:g} used, {self.allowed:g} allowed"


def usage(instance: Instance, amounts: Floats) -> Floats:
    """What each server gives out, (R, K), when every channel takes `amounts` (E, K)."""
    used = np.empty(instance.capacity.shape)
    server_usage(instance.server_start, amounts, used)
    return used


def overfull(instance: Instance, used: Floats, free: Floats) -> list[Violation]:
    """A violation for each server and resource where `used` (R, K) exceeds `free` (R, K).

    >>> graph = Instance.from_arrays([[5.0]], [[4.0], [4.0]], [(0, 0), (1, 0)])
    >>> [str(v) for v in overfull(graph, usage(graph, np.array([[4.0], [2.0]])), graph.capacity)]
    ['capacity of server-0/resource-0: 6 used, 5 allowed']
    """
    places = np.argwhere(~(used <= free + TOLERANCE * (1.0 + free)))
    cluster = instance.cluster
    return [
        Violation("capacity", f"{cluster.servers[r]}/{cluster.resources[k].name}", float(used[r, k]), float(free[r, k]))
        for r, k in places
    ]
