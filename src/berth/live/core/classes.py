"""Classes of servers that are expected to be equally fast.

Servers of one class have the same resources, stated speed and labels; labels with a different value on most servers,
such as an address, do not count. With `learn_by`, that label alone makes the classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from berth.files.quantities import format_amounts
from berth.live.core.jobs import Server
from berth.live.core.records import ServerRecord

__all__ = ["classes_of"]


def classes_of(servers: Mapping[str, ServerRecord], learn_by: str | None = None) -> dict[str, str]:
    """The class of each server, as text."""
    there = {name: record.server for name, record in servers.items()}
    if learn_by is not None:
        return {
            name: f"{learn_by}={server.labels[learn_by]}" if learn_by in server.labels else name
            for name, server in there.items()
        }
    values: dict[str, list[str]] = {}
    for server in there.values():
        for label, value in server.labels.items():
            values.setdefault(label, []).append(value)
    telling = {label for label, seen in values.items() if 2 * len(set(seen)) <= max(len(seen), 2)}
    return {name: _class(server, telling) for name, server in there.items()}


def _class(server: Server, telling: set[str]) -> str:
    words = [f"{label}={value}" for label, value in sorted(server.labels.items()) if label in telling]
    words += _amounts(tuple(server.capacity.items()))
    return " ".join([*words, *([f"speed:{server.speed:g}"] if server.speed != 1.0 else [])])


@lru_cache(maxsize=1000)
def _amounts(capacity: tuple[tuple[str, int], ...]) -> list[str]:
    """The resources of a server, in words; many servers have the same."""
    return [f"{name}:{amount}" for name, amount in sorted(format_amounts(dict(capacity)).items())]
