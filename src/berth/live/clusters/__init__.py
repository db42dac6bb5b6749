"""Local clusters for trying and testing: real daemons of Slurm, Ray or Kubernetes on the loopback
addresses of one machine.

A cluster has its own directory, and everything that it starts carries the directory's name in its environment; so
stopping it stops exactly what it started, even if the process that started it is gone.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from berth.errors import BerthError

__all__ = ["MARK", "NODE", "ClusterError", "LocalCluster", "alive", "end", "free_ports", "marked", "stopped"]

MARK, NODE = "BERTH_CLUSTER", "BERTH_CLUSTER_NODE"
"""Environment variables: the directory of the cluster that a process belongs to, and its node there."""
PATIENCE = 10.0
PORTS = range(10_000, 32_000)


class ClusterError(BerthError):
    """A local cluster could not be started or stopped."""


class LocalCluster(Protocol):
    """A cluster on this machine."""

    def start(self) -> None:
        """Start all of it, and wait until it answers."""
        ...

    def stop(self) -> None:
        """End everything that was started."""
        ...

    def daemons(self) -> dict[str, int]:
        """The process of each running daemon."""
        ...

    def how_to_use(self) -> list[str]:
        """Commands that a user may type to use it."""
        ...


def marked(directory: Path, node: str | None = None) -> set[int]:
    """Processes of the cluster in this directory, or of one of its nodes, and all their descendants."""
    wanted = {f"{MARK}={directory}"} | (set() if node is None else {f"{NODE}={node}"})
    children: dict[int, list[int]] = {}
    roots = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):  # it is gone, or another user's
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
            if wanted <= set((folder / "environ").read_bytes().decode(errors="replace").split("\0")):
                roots.append(int(folder.name))
    found: set[int] = set()
    while roots:
        one = roots.pop()
        if one not in found:
            found.add(one)
            roots.extend(children.get(one, ()))
    return found - {os.getpid()}


def stopped(directory: Path, node: str) -> set[int]:
    """The processes of a node, each stopped, so that none sees another end or starts another."""
    found = set[int]()
    while more := marked(directory, node) - found:
        found |= more
        for one in more:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGSTOP)
    return found


def alive(process: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def end(processes: Iterable[int], how: int = signal.SIGTERM) -> None:
    """Signal them, and make sure that they end."""
    waiting = set(processes)
    for one in waiting:
        with suppress(ProcessLookupError):
            os.kill(one, how)
    end_by = time.monotonic() + PATIENCE
    while waiting := {one for one in waiting if alive(one)}:
        if time.monotonic() > end_by:
            if how == signal.SIGKILL:
                raise ClusterError(f"processes do not end: {', '.join(map(str, sorted(waiting)))}")
            return end(waiting, signal.SIGKILL)
        time.sleep(0.02)
    return None


def free_ports(count: int) -> list[int]:
    """Ports that are free now, and that the system does not give to outgoing connections."""
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(PORTS)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found
