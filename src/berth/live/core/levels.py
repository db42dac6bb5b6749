"""Levels of what is learned of speeds: the groups that runs of a type on a server belong to, one for each factor; and
what is known of a type on a server.

A type `train/resnet50/b64` has the path `train` and the longer path `train/resnet50`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["FACTORS", "LEAST", "SERVER", "SPREAD", "TYPE_SERVER", "Group", "Speed", "groups_of"]

LEAST = 0.05
"""The smallest spread of logarithms."""
FACTORS = (
    "all", "path", "longer path", "type", "class", "path × class", "longer path × class", "type × class", "server",
    "type × server", "spread", "path × spread", "type × spread",
)  # fmt: skip
SERVER, TYPE_SERVER, SPREAD = (FACTORS.index(name) for name in ("server", "type × server", "spread"))
Group = tuple[int, str, str]
"""A factor, and what it is of: type or path, and class or server."""


@dataclass(frozen=True)
class Speed:
    """Runs seen there (`cut` of them were cut off), and the estimate of all runs with its 95 % interval.

    `deviation` is the spread of the logarithm of one run's speed; `level` is the nearest level with runs to speak of.
    """

    runs: int
    mean: float
    deviation: float
    cut: int = 0
    low: float = 0.0
    high: float = math.inf
    level: str = "all"

    @property
    def spread(self) -> float:
        """The spread of the logarithm of the next run's speed, with the estimate's own uncertainty."""
        sure = 0.0 if self.low <= 0 or self.high == math.inf else math.log(self.high / self.low) / 3.92
        return max(math.hypot(self.deviation, sure), LEAST)


@lru_cache(maxsize=1 << 16)
def groups_of(type_: str, server: str, class_: str, spread: bool) -> tuple[Group | None, ...]:
    """The group of each factor; None where a factor says nothing."""
    parts = type_.split("/")
    path = parts[0] if len(parts) > 1 else None
    longer = "/".join(parts[:-1]) if len(parts) > 2 else None
    found: list[tuple[str | None, str]] = [("", ""), (path, ""), (longer, ""), (type_, "")]
    found += [("", class_), (path, class_), (longer, class_), (type_, class_), ("", server), (type_, server)]
    found += [("" if spread else None, ""), (path if spread else None, ""), (type_ if spread else None, "")]
    return tuple(None if one is None else (factor, one, other) for factor, (one, other) in enumerate(found))
