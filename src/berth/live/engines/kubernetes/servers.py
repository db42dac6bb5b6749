"""Nodes as servers: what they have for berth, and what others hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from berth.errors import InvalidInput
from berth.files.quantities import Amounts
from berth.live.core.jobs import Server
from berth.live.engines.kubernetes.affinity import CONDITIONS, Taint, tolerates
from berth.live.engines.kubernetes.nodes import NOT_READY, node_of
from berth.live.engines.kubernetes.objects import NodeObject
from berth.live.engines.kubernetes.quantities import MEBI, is_bytes
from berth.live.engines.kubernetes.settings import KubernetesSettings

__all__ = ["server_of", "taken_of"]

COARSE = 64 * MEBI
"""Memory and storage of nodes are rounded down to this, so that nodes that differ by little are of one class."""
LEFT_OUT = ("attachable-volumes-",)


def server_of(given: Mapping[str, Any], settings: KubernetesSettings) -> tuple[Server | None, bool]:
    """A node as a server, with nothing taken (None if it is unreadable), and whether it is ready."""
    try:
        node = node_of(NodeObject.model_validate(given))
        ready = not any(taint.key in NOT_READY.values() for taint in node.taints)
        names = settings.names()
        capacity = {
            names.get(name, name): milli - milli % COARSE if is_bytes(name) else milli
            for name, milli in node.allocatable.items()
            if not name.startswith(LEFT_OUT)
        }
        closed = next((_why(taint) for taint in node.taints if not _tolerated(taint, settings)), "")
        return Server(node.name, capacity, node.labels, closed=closed), ready
    except (InvalidInput, ValueError):
        return None, False


def _tolerated(taint: Taint, settings: KubernetesSettings) -> bool:
    return any(tolerates(one, taint) for one in settings.tolerations)


def _why(taint: Taint) -> str:
    return CONDITIONS.get(taint.key) or f"tainted {taint}"


def taken_of(
    pods: Iterable[tuple[Amounts, str]], servers: Mapping[str, Server], names: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    """What these pods, given by what they hold and their nodes, take of each server, as jobs call it."""
    taken: dict[str, dict[str, int]] = {name: {} for name in servers}
    for amounts, node in pods:
        if node in taken:
            held, capacity = taken[node], servers[node].capacity
            for theirs, milli in amounts.items():
                name = names.get(theirs, theirs)
                if name in capacity:
                    held[name] = min(held.get(name, 0) + milli, capacity[name])
    return taken
