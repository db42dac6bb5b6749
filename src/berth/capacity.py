"""Capacity check of the simulator and the service.

Axes: R servers, K resources, E channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from berth.kernels.small import server_usage
from berth.model import Floats, Instance, Ints

__all__ = ["TOLERANCE", "Found", "Violation", "overfull", "usage"]

TOLERANCE = 1e-9
"""Tolerance of a sum of floats above its limit, relative to 1 + the limit."""


@dataclass(frozen=True)
class Violation:
    """One broken constraint: the place, the amount used, and the amount allowed.

    >>> print(Violation("capacity", "server-3/gpu", 9.5, 8.0))
    capacity of server-3/gpu: 9.5 used, 8 allowed
    """

    kind: str
    where: str
    used: float
    allowed: float

    def __str__(self) -> str:
        return f"{self.kind} of {self.where}: {self.used:g} used, {self.allowed:g} allowed"


class Found(Sequence[Violation]):
    """Lazy sequence of violations.

    A policy that breaks thousands of constraints in every slot has them counted and never read. Each part is an array
    of places and a function that describes the violation at one place.

    >>> found = Found((np.array([3, 5]), lambda place: Violation("capacity", f"server-{place}", 9.0, 8.0)))
    >>> len(found), str(found[1])
    (2, 'capacity of server-5: 9 used, 8 allowed')
    """

    def __init__(self, *parts: tuple[Sequence[Any] | Floats | Ints, Callable[[Any], Violation]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(places) for places, _ in self._parts)

    def __iter__(self) -> Iterator[Violation]:
        return (spelled(place) for places, spelled in self._parts for place in places)

    @overload
    def __getitem__(self, index: int) -> Violation: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Violation]: ...
    def __getitem__(self, index: int | slice) -> Violation | Sequence[Violation]:
        if isinstance(index, slice):
            return list(self)[index]
        left = index if index >= 0 else len(self) + index
        for places, spelled in self._parts:
            if 0 <= left < len(places):
                return spelled(places[left])
            left -= len(places)
        raise IndexError(index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def usage(instance: Instance, amounts: Floats) -> Floats:
    """Amount used on each server, (R, K), when every channel takes `amounts` (E, K)."""
    used = np.empty(instance.capacity.shape)
    server_usage(instance.server_start, amounts, used)
    return used


def overfull(instance: Instance, used: Floats, free: Floats) -> Found:
    """A violation for each server and resource where `used` (R, K) exceeds `free` (R, K).

    >>> graph = Instance.from_arrays([[5.0]], [[4.0], [4.0]], [(0, 0), (1, 0)])
    >>> [str(v) for v in overfull(graph, usage(graph, np.array([[4.0], [2.0]])), graph.capacity)]
    ['capacity of server-0/resource-0: 6 used, 5 allowed']
    """
    cluster = instance.cluster

    def spelled(place: Ints) -> Violation:
        r, k = place
        where = f"{cluster.servers[r]}/{cluster.resources[k].name}"
        return Violation("capacity", where, float(used[r, k]), float(free[r, k]))

    return Found((np.argwhere(~(used <= free + TOLERANCE * (1.0 + free))), spelled))
