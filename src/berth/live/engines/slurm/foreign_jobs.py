"""Resources of each node that foreign jobs hold, or that berth's jobs hold beyond their requests.

Slurm lists the cores, memory and GRES of each job node by node. What it leaves out, as some versions do, is estimated
as equal parts of the job's request. 22.05 lists cores, each of which may be several CPUs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from berth.files.quantities import MILLI, Amounts
from berth.live.core.jobs import Place, Server
from berth.live.engines.slurm.node_parts import NodePart
from berth.live.engines.slurm.parsing import SlurmJob, parse_gres
from berth.live.engines.slurm.submission import MIB

__all__ = ["Taken", "asked_for", "room", "shares"]


class Taken:
    """Adds up what is taken of each node."""

    def __init__(self) -> None:
        self._amounts: dict[str, dict[str, int]] = {}

    def add(self, job: SlurmJob, asked: Mapping[str, Amounts] | None = None) -> None:
        """Add what a job holds; of berth's own jobs, what they hold beyond their requests."""
        for node, share in shares(job).items():
            there = self._amounts.setdefault(node, {})
            for name, milli in share.items():
                more = milli - (asked or {}).get(node, {}).get(name, 0)
                if more > 0:
                    there[name] = there.get(name, 0) + more

    def of(self, server: Server) -> Server:
        """A server with what is taken of it."""
        there = self._amounts.get(server.name, {})
        taken = {name: milli for name, milli in there.items() if server.capacity.get(name)}
        return server if server.taken == taken else replace(server, taken=taken)


def asked_for(places: Sequence[Place], demands: Mapping[str, Amounts]) -> dict[str, dict[str, int]]:
    """What tasks in these places ask for, server by server."""
    found: dict[str, dict[str, int]] = {}
    for place in places:
        there = found.setdefault(place.server, {})
        for name, milli in demands.get(place.role, {}).items():
            there[name] = there.get(name, 0) + milli * place.count
    return found


def room(servers: Iterable[Server], asked: Iterable[Mapping[str, Amounts]]) -> dict[str, dict[str, int]]:
    """What each server has free beside the requests of berth's jobs."""
    free = {one.name: {name: milli - one.taken.get(name, 0) for name, milli in one.capacity.items()} for one in servers}
    for job in asked:
        for server, amounts in job.items():
            there = free.get(server, {})
            there.update({name: there[name] - milli for name, milli in amounts.items() if name in there})
    return free


def shares(job: SlurmJob) -> dict[str, dict[str, int]]:
    """What a job that runs, or is being cleaned up, holds of each of its nodes."""
    parts = job.allocated or [NodePart(node) for node in job.nodes]
    cores = sum(part.cores for part in parts)
    details = job.gres if len(job.gres) == len(parts) else [job.tres_per_node] * len(parts)
    found = {}
    for part, gres in zip(parts, details, strict=True):
        if part.node not in job.nodes:  # already cleaned up there
            continue
        cpus = part.cpus or math.ceil(job.cpus * (part.cores / cores if cores else 1 / len(parts)))
        memory = part.memory_mib or job.memory_per_node or (job.memory_per_cpu or 0) * cpus
        share = {"cpu": cpus * MILLI, "memory": memory * MIB}
        for name, _, count in parse_gres(re.sub(r"\(CNT:(\d+)\)", r":\1", gres)):
            share[name] = share.get(name, 0) + count * MILLI
        found[part.node] = share
    return found
