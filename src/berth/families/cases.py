"""What the checks of `berth.testing.policy_checks` need to know of a family: its instances and its random policy.

Each family makes one `CheckFamily`, in its module `checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from berth.model import Floats, Ints
from berth.protocols import Environment, Policy

__all__ = ["SLOTS", "Case", "CheckFamily", "Style", "no_such_array"]

SLOTS = 20
"""Slots of a random or edge case: a few hundred over all of them."""


@dataclass(frozen=True)
class Case:
    """A named instance; `make` gives a new environment of it, the same every time."""

    name: str
    make: Callable[[], Environment]


@dataclass(frozen=True)
class CheckFamily:
    """The instances of one family, and how to look at its decisions. Each maker of cases takes a seed."""

    name: str
    random_cases: Callable[[int], Iterable[Case]]
    """Random instances, for feasibility: a few hundred slots in all."""
    edge_cases: Callable[[int], Iterable[Case]]
    """Instances at the edge of what is allowed, for feasibility."""
    plain_cases: Callable[[int], Iterable[Case]]
    """Ordinary small instances of at least 300 slots, one or more for each information setting."""
    easy_cases: Callable[[int], Iterable[Case]]
    """Instances where any sensible policy earns more than `random_policy`."""
    random_policy: Callable[[Any, np.random.Generator], Policy[Any, Any, Any]]
    """A random feasible policy, which must serve every easy case."""
    floor: tuple[type[Any], ...]
    """Policies that are themselves the random floor, and so cannot be above it."""
    malformed: Callable[[Any, Any], str | None]
    """What makes this not even look like a decision of this problem; None when it does."""
    well_formed: str
    """In words, what a decision looks like."""
    parts: Callable[[Any], Any]
    """All data of a problem that a policy could change by accident."""


@dataclass(frozen=True)
class Style:
    """A style of random instance: sizes, the share of possible channels that exist, that of zero capacities."""

    ports: int = 4
    servers: int = 3
    resources: int = 2
    density: float = 0.6
    no_capacity: float = 0.0
    gangs: int = 0
    """Jobs that the ports are roles of; 0 where there are no gangs."""

    def capacity(self, rng: np.random.Generator) -> Floats:
        """What the servers have, (R, K)."""
        shape = (self.servers, self.resources)
        drawn: Floats = rng.uniform(2.0, 8.0, shape) * (rng.random(shape) >= self.no_capacity)
        return drawn

    def channels(self, rng: np.random.Generator) -> Ints:
        """Pairs of port and server, (E, 2)."""
        return np.argwhere(rng.random((self.ports, self.servers)) < self.density)

    def jobs(self, rng: np.random.Generator) -> Ints:
        """The job of each port, (L,): each of the `gangs` has at least one."""
        return np.concatenate([np.arange(self.gangs), rng.integers(0, self.gangs, self.ports - self.gangs)])


def no_such_array(decision: Any, kind: type[Any], shape: tuple[int, ...]) -> str | None:
    """What makes this no array of this kind and shape; None when it is one."""
    if not isinstance(decision, np.ndarray):
        return f"a {type(decision).__name__}"
    if not np.issubdtype(decision.dtype, kind):
        return f"an array of {decision.dtype}"
    return None if decision.shape == shape else f"an array of shape {decision.shape}, not {shape}"
