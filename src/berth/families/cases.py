"""Interface of a family to `berth.testing.policy_checks`: its instances and its random policy.

Each family has one `CheckFamily`, in its module `checks`.
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
"""Slots of a random or edge case; a few hundred over all cases."""


@dataclass(frozen=True)
class Case:
    """A named instance; `make` builds the same environment each time."""

    name: str
    make: Callable[[], Environment]


@dataclass(frozen=True)
class CheckFamily:
    """Instances of one family, and functions to inspect its decisions. Each case maker takes a seed."""

    name: str
    random_cases: Callable[[int], Iterable[Case]]
    """Random instances for feasibility: a few hundred slots in all."""
    edge_cases: Callable[[int], Iterable[Case]]
    """Edge cases for feasibility."""
    plain_cases: Callable[[int], Iterable[Case]]
    """Ordinary small instances of at least 300 slots, one or more for each information setting."""
    easy_cases: Callable[[int], Iterable[Case]]
    """Instances where any sensible policy earns more than `random_policy`."""
    random_policy: Callable[[Any, np.random.Generator], Policy[Any, Any, Any]]
    """A random feasible policy that can serve every easy case."""
    floor: tuple[type[Any], ...]
    """Policies that are the random floor themselves, and so cannot beat it."""
    malformed: Callable[[Any, Any], str | None]
    """Reason why an object is not a decision of this problem; None if it is."""
    well_formed: str
    """Description of a decision, for messages."""
    parts: Callable[[Any], Any]
    """All data of a problem that a policy could modify by accident."""


@dataclass(frozen=True)
class Style:
    """Sizes of a random instance, the share of possible channels that exist, and the share of zero capacities."""

    ports: int = 4
    servers: int = 3
    resources: int = 2
    density: float = 0.6
    no_capacity: float = 0.0
    gangs: int = 0
    """Number of jobs whose roles are the ports; 0 without gangs."""

    def capacity(self, rng: np.random.Generator) -> Floats:
        """Capacity of the servers, (R, K)."""
        shape = (self.servers, self.resources)
        drawn: Floats = rng.uniform(2.0, 8.0, shape) * (rng.random(shape) >= self.no_capacity)
        return drawn

    def channels(self, rng: np.random.Generator) -> Ints:
        """Pairs of port and server, (E, 2)."""
        return np.argwhere(rng.random((self.ports, self.servers)) < self.density)

    def jobs(self, rng: np.random.Generator) -> Ints:
        """Job of each port, (L,): each of the `gangs` has at least one port."""
        return np.concatenate([np.arange(self.gangs), rng.integers(0, self.gangs, self.ports - self.gangs)])


def no_such_array(decision: Any, kind: type[Any], shape: tuple[int, ...]) -> str | None:
    """Reason why this is not an array of this kind and shape; None if it is."""
    if not isinstance(decision, np.ndarray):
        return f"a {type(decision).__name__}"
    if not np.issubdtype(decision.dtype, kind):
        return f"an array of {decision.dtype}"
    return None if decision.shape == shape else f"an array of shape {decision.shape}, not {shape}"
