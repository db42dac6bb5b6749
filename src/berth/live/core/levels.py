"""Levels of what is learned of speeds: the groups that runs of a type on a server belong to, one for each factor.

A type `train/resnet50/b64` has the path `train` and the longer path `train/resnet50`.
"""

from __future__ import annotations

__all__ = ["FACTORS", "SERVER", "SPREAD", "TYPE_SERVER", "Group", "groups_of"]

FACTORS = (
    "all", "path", "longer path", "type", "class", "path × class", "longer path × class", "type × class", "server",
    "type × server", "spread", "path × spread", "type × spread",
)  # fmt: skip
SERVER, TYPE_SERVER, SPREAD = (FACTORS.index(name) for name in ("server", "type × server", "spread"))
Group = tuple[int, str, str]
"""A factor, and what it is of: type or path, and class or server."""


def groups_of(type_: str, server: str, class_: str, spread: bool) -> list[Group | None]:
    """The group of each factor; None where a factor says nothing."""
    parts = type_.split("/")
    path = parts[0] if len(parts) > 1 else None
    longer = "/".join(parts[:-1]) if len(parts) > 2 else None
    found: list[tuple[str | None, str]] = [("", ""), (path, ""), (longer, ""), (type_, "")]
    found += [("", class_), (path, class_), (longer, class_), (type_, class_), ("", server), (type_, server)]
    found += [("" if spread else None, ""), (path if spread else None, ""), (type_ if spread else None, "")]
    return [None if one is None else (factor, one, other) for factor, (one, other) in enumerate(found)]
