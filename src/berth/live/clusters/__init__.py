"""Local clusters for trying and testing: real daemons of Slurm or Ray on the loopback addresses of one machine.

A cluster lives in a directory of its own, and everything that it starts carries the directory's name in its
environment; so stopping one stops exactly what it started, whatever became of the process that started it.
"""

from __future__ import annotations

from typing import Protocol

from berth.errors import BerthError

__all__ = ["ClusterError", "LocalCluster"]


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
        """The process of each daemon that runs."""
        ...

    def how_to_use(self) -> list[str]:
        """Lines that a person may type to use it."""
        ...
