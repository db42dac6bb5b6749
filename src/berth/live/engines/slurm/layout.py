"""The servers of a job as Slurm allocations: which nodes, and how much of each.

A gang whose servers all give the same is one ordinary Slurm job. Other gangs are laid out in one of two ways:

* One allocation. Slurm is told the nodes and the total number of tasks, and chooses how many tasks each node runs: it
  goes through the nodes in the order of its node table and puts as many tasks as fit on each, one at least on every
  later node. Slurm 22.05 has no option for exact counts on each node: `--distribution=arbitrary` does not change what
  is allocated, and `--ntasks-per-node` makes every node give the largest count.
* A heterogeneous job: servers that give the same are one component. The counts are exact, but a plain `srun` or
  `mpirun` in a batch script uses the first component only, and only the backfill scheduler starts such jobs.

A script always gets one allocation, so that `srun` and `mpirun` in it see all tasks. A command gets one if Slurm
will choose the counts that berth chose, and a heterogeneous job otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from berth.files.quantities import MILLI, Amounts, format_quantity
from berth.files.wording import spoken
from berth.live.core.jobs import Job, Place
from berth.live.engines.slurm.environment import NotPossible
from berth.live.engines.slurm.partitions import Partition

__all__ = ["MIB", "Component", "check", "layout"]

MIB = 1024**2 * MILLI
COMPONENTS = 128
"""The most components that a heterogeneous job may have."""


@dataclass(frozen=True)
class Component:
    """Nodes of one allocation, and what each gives: tasks, CPUs a task, memory in MiB (None: Slurm's default), GRES.

    `tasks` is None if Slurm chooses how many tasks each node runs; `memory_mib` is then per CPU, and `gres` per task.
    """

    places: tuple[Place, ...]
    nodes: tuple[str, ...]
    tasks: int | None
    cpus: int
    memory_mib: int | None
    gres: tuple[tuple[str, int], ...] = ()
    alike: bool = True
    """Whether each Slurm task is one of the job's tasks; else a node has one Slurm task for all that share it."""

    @property
    def total(self) -> int:
        """The number of the job's tasks."""
        return sum(place.count for place in self.places)


def check(job: Job, partition: Partition | None = None) -> None:
    """Raise `NotPossible` if Slurm cannot run a job in a partition, wherever berth places it."""
    if job.limit and partition is not None and job.limit > (partition.max_time or math.inf):
        raise NotPossible(
            f"its time limit of {spoken(job.limit)} is longer than partition {partition.name} of Slurm allows: "
            f"give it at most {spoken(partition.max_time)} (MaxTime)"
        )
    for role in job.roles:
        for name, milli in role.demand.items():
            if name != "memory":
                _whole(name, milli, role.name)
    if job.payload.get("script") is not None and len(job.roles) > 1:
        names = ", ".join(role.name for role in job.roles)
        raise NotPossible(
            f"a script needs all tasks in one Slurm allocation, and several roles ({names}) need one each: give a "
            "command, which runs in every task and finds its role in BERTH_ROLE, or give all tasks one role"
        )


def layout(
    job: Job,
    places: Sequence[Place],
    *,
    default_memory: bool = False,
    script: bool = False,
    room: Mapping[str, Amounts] | None = None,
) -> tuple[Component, ...]:
    """What is taken of each server, as components of servers with equal shares.

    Memory is rounded up to whole MiB on each server. With `default_memory`, jobs that ask for none get Slurm's
    default; without, the minimum, because Slurm would give them all of it. `room` is what each server has free, in the
    order of Slurm's node table.
    """
    demands = {role.name: role.demand for role in job.roles}
    counts: dict[str, dict[str, int]] = {}
    for place in places:
        if place.role not in demands or place.count < 1:
            raise NotPossible(f"a place for role {place.role}, which the job does not have")
        there = counts.setdefault(place.server, {})
        there[place.role] = there.get(place.role, 0) + place.count
    groups: dict[_Share, list[str]] = {}
    for server, roles in counts.items():
        groups.setdefault(_share(demands, roles, default_memory), []).append(server)
    if len(groups) > 1 and len(demands) == 1:
        one = _one_allocation(demands, places, default_memory)
        if one is not None and (script or _is_exact(one, demands, room or {})):
            return (one,)
        if script:
            raise NotPossible(
                "a script needs all tasks in one Slurm allocation, and Slurm cannot give different amounts of "
                f"{_other_gres(next(iter(demands.values())))} of each server: give it --ntasks-per-node=1 "
                "(per_server: 1), so that all servers give the same"
            )
    if len(groups) > COMPONENTS:
        raise NotPossible(f"Slurm allows at most {COMPONENTS} components, and the servers' shares need more")
    return tuple(
        Component(
            tuple(place for place in places if place.server in servers),
            tuple(servers),
            share.tasks,
            share.cpus,
            share.memory_mib,
            share.gres,
            share.role != "",
        )
        for share, servers in groups.items()
    )


class _Share(NamedTuple):
    """What a job takes of a server; `role` if all of its tasks there are of one role."""

    role: str
    tasks: int
    cpus: int
    memory_mib: int | None
    gres: tuple[tuple[str, int], ...]


def _share(demands: Mapping[str, Amounts], roles: Mapping[str, int], default_memory: bool) -> _Share:
    cpus, memory, gres = 0, 0, dict[str, int]()
    for role, count in roles.items():
        for name, milli in demands[role].items():
            if name == "memory":
                memory += milli * count
            elif name == "cpu":
                cpus += _whole(name, milli, role) * count
            elif milli:
                gres[name] = gres.get(name, 0) + _whole(name, milli, role) * count
    if not cpus:
        raise NotPossible("Slurm gives a job at least one CPU of each server: ask for cpu: 1 or more")
    asked = math.ceil(memory / MIB) or (None if default_memory else 1)
    if len(roles) == 1:
        ((role, count),) = roles.items()
        return _Share(role, count, cpus // count, asked, tuple(sorted(gres.items())))
    return _Share("", 1, cpus, asked, tuple(sorted(gres.items())))


def _whole(name: str, milli: int, role: str) -> int:
    if milli % MILLI:
        raise NotPossible(f"Slurm gives whole units of {name}, and a task of {role} asks for {format_quantity(milli)}")
    return milli // MILLI


def _other_gres(demand: Amounts) -> str:
    """A resource for which sbatch has no per-task option."""
    return next((name for name, milli in demand.items() if milli and name not in ("cpu", "memory", "gpu")), "")


def _one_allocation(demands: Mapping[str, Amounts], places: Sequence[Place], default_memory: bool) -> Component | None:
    """A gang of one role as one allocation whose total is exact; None if Slurm cannot express it."""
    ((role, demand),) = demands.items()
    if _other_gres(demand):
        return None
    share = _share(demands, {role: 1}, default_memory)
    memory = None if share.memory_mib is None else math.ceil(demand.get("memory", 0) / (MIB * share.cpus)) or 1
    nodes = tuple(dict.fromkeys(place.server for place in places))
    return Component(tuple(places), nodes, None, share.cpus, memory, share.gres)


def _is_exact(one: Component, demands: Mapping[str, Amounts], room: Mapping[str, Amounts]) -> bool:
    """Whether Slurm will put as many tasks on each node as berth did, with the memory that they asked for."""
    (demand,) = demands.values()
    if demand.get("memory", 0) % (MIB * one.cpus):
        return False
    counts = {name: sum(place.count for place in one.places if place.server == name) for name in one.nodes}
    nodes = [name for name in room if name in counts]
    left = one.total
    for later, name in zip(reversed(range(len(nodes))), nodes, strict=True):
        fitting = min(room[name].get(what, 0) // milli for what, milli in demand.items() if milli)
        if min(fitting, left - later) != counts[name]:
            return False
        left -= counts[name]
    return len(nodes) == len(counts)
