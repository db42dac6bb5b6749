"""How a trace is replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ReplaySetting"]


@dataclass(frozen=True)
class ReplaySetting:
    """How a trace is replayed: on one pool of `processors` units of `resource`, or on its own machines.

    `exact`: policies know the run times. `stopped`: jobs end when their estimate is over. `outages`: machines are away
    when the trace says so. `first`: the number of jobs to play. `load`: the offered load of the scarcest resource to
    which inter-arrival times are rescaled. `size`: the size of a job in a log of the Standard Workload Format,
    "requested" (default), "allocated" or "larger". `zero_run_times`: jobs of zero run time are played; else left out.
    `types`: columns that tell the type of a job, such as "user+size". `speeds`: a table of true speeds by type and
    class of machine, "gavel" or a file. `cluster`: a service's configuration, whose queues and limits hold.
    `whole_gpus`: a job that shares a GPU gets a whole one.
    """

    processors: float | None = None
    resource: str | None = None
    exact: bool = False
    stopped: bool = False
    outages: bool = False
    first: int | None = None
    load: float | None = None
    seed: int = 0
    size: str | None = None
    zero_run_times: bool = False
    types: str | None = None
    speeds: str | None = None
    cluster: str | None = None
    whole_gpus: bool = False

    def stated(self) -> dict[str, Any]:
        """The setting for a manifest, as earlier versions wrote it where it has nothing new."""
        new = ("types", "speeds", "cluster", "whole_gpus")
        return {name: value for name, value in vars(self).items() if value or name not in new}
