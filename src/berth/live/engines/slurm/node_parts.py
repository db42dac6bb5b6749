"""What a job has of each of its nodes, in the formats of several versions of Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["NodePart", "read_parts"]


class NodePart(NamedTuple):
    """What a job has of a node, as Slurm reports; 0 if it does not say."""

    node: str
    cpus: int = 0
    cores: int = 0
    memory_mib: int = 0


def read_parts(resources: object) -> Iterator[NodePart]:
    """The nodes of Slurm's `job_resources`: a list of nodes, or since 24.05 an object that has one."""
    if not isinstance(resources, Mapping):
        return
    nodes = resources.get("nodes")
    newer = nodes.get("allocation") if isinstance(nodes, Mapping) else None
    for node in newer or resources.get("allocated_nodes") or ():
        if isinstance(node, Mapping) and isinstance(name := node.get("name", node.get("nodename")), str):
            cpus, memory = node.get("cpus"), node.get("memory")
            yield NodePart(
                name,
                _count(cpus.get("count")) if isinstance(cpus, Mapping) else 0,
                sum(_cores(socket) for socket in _each(node.get("sockets"))),
                _count(memory.get("allocated") if isinstance(memory, Mapping) else node.get("memory_allocated")),
            )


def _cores(socket: object) -> int:
    """Allocated cores of a socket: each says "allocated", or has a status that does; others say "UNALLOCATED"."""
    cores = _each(socket.get("cores")) if isinstance(socket, Mapping) else ()
    said = (str(core.get("status") if isinstance(core, Mapping) else core) for core in cores)
    return sum(re.search(r"\ballocated", text, re.IGNORECASE) is not None for text in said)


def _each(value: Any) -> Sequence[Any]:
    return list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else ()


def _count(value: object) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0
