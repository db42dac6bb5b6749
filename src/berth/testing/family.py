"""What the checks of `berth.testing.checks` need to know of a family: its instances and its random policy.

A new family adds a module like `berth.testing.allocation`, which makes one `Family`, and a line to
`berth.testing.checks.FAMILIES`; no check changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from berth.protocols import Environment, Policy

__all__ = ["Case", "Family"]


@dataclass(frozen=True)
class Case:
    """A named instance; `make` gives a new environment of it, the same every time."""

    name: str
    make: Callable[[], Environment]


@dataclass(frozen=True)
class Family:
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
    spoil: Callable[[Any], None]
    """Overwrite a decision in place, to see whether anybody else still uses its memory."""
    parts: Callable[[Any], Any]
    """All data of a problem that a policy could change by accident."""
