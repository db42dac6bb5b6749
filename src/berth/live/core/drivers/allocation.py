"""Allocation policies on a live cluster: they decide how much each job gets, and so with how many tasks it starts.

A port is a type of job; what it can use on a server is the total demand of its tasks, as far as the server has it. The
driver turns an allocation into as many whole tasks as fit into it, but not fewer than the job needs, on the servers of
the allocation. A job with an empty allocation, or without room, waits. This family cannot express jobs of several
roles: they are placed after the others, in order, on the tightest fit.

Axes: L types, R servers, K resources, E channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.families.allocation.utility import Utilities
from berth.live.core.drivers.base import Driver
from berth.live.core.drivers.deferral import Waits
from berth.live.core.drivers.fleet import ServerFleet, asked_by_servers, fleet_of, forget_old, reach_of
from berth.live.core.records import JobRecord, Outcome
from berth.live.core.view import Placing, View, rest_in_order
from berth.model import Instance, Ints, JobType
from berth.random import stream
from berth.registry import PolicySpec

__all__ = ["AllocationDriver"]

UNITS = 8.0
"""The capacity of the largest server in each resource, in the units that utilities are made for."""
OVERHEAD = 0.3
"""The communication cost of a unit of the dominant resource."""
ROUNDING = 1e-6
"""The rounding error by which a sum of floats may miss a whole task."""
Kind = tuple[str, tuple[Any, ...]]


class AllocationDriver(Driver):
    """Shows an allocation policy one job of each type at a time, until it starts no more."""

    def __init__(self, spec: PolicySpec, seed: int, memory: Iterable[Outcome], waits: Waits) -> None:
        self._spec, self._seed, self.waits = spec, seed, waits
        self._key: object = None
        self._kinds: dict[Kind, JobRecord] = {}
        self._problem: AllocationProblem | None = None
        self._policy: Any = None
        self._fleet: ServerFleet | None = None
        self._slot = 0

    def __str__(self) -> str:
        return str(self._spec)

    def learn(self, outcome: Outcome, /) -> None:
        """Learn nothing: this family learns from arrivals, which it sees when it decides."""

    def propose(self, view: View, /) -> Placing:
        """Ask until no more job starts, then place jobs of several roles."""
        return asked_by_servers(view, self._proposed)

    def _proposed(self, view: View) -> Placing:
        waiting: dict[Kind, list[int]] = {}
        others = []
        for i, record in enumerate(view.records):
            if len(record.job.roles) == 1:
                waiting.setdefault((record.job.type, record.job.shape), []).append(i)
            else:
                others.append(i)
        free = view.free.copy()
        parts = self._rounds(view, waiting, free) if waiting else []
        if others:
            parts.append(rest_in_order(view, others, free))
        return Placing.joined(parts)

    def _rounds(self, view: View, waiting: dict[Kind, list[int]], free: Ints) -> list[Placing]:
        problem = self._prepare(view, waiting)
        unit = view.capacity.max(axis=0) / UNITS
        unit[unit == 0] = 1.0
        kinds = list(self._kinds)
        parts: list[Placing] = []
        while waiting and not view.enough():
            arrivals = np.array([float(kind in waiting) for kind in kinds])
            slot = AllocationSlot(self._slot, free / unit, arrivals)
            amounts = np.asarray(self._policy.decide(slot))
            gain, overhead = problem.reward(arrivals, amounts)
            self._policy.observe(AllocationOutcome(self._slot, arrivals, gain - overhead, gain, overhead))
            self._slot += 1
            round_ = []
            for port, kind in enumerate(kinds):
                if kind in waiting:
                    placing = self._whole(view, problem, port, waiting[kind][0], amounts * unit, free)
                    if len(placing.job):
                        round_.append(placing)
                        waiting[kind].pop(0)
                        if not waiting[kind]:
                            del waiting[kind]
            if not round_:
                break
            parts.extend(round_)
        return parts

    def _whole(self, view: View, problem: AllocationProblem, port: int, job: int, amounts: Any, free: Ints) -> Placing:
        """Whole tasks of a job within its allocation, taken from `free`; none if they are too few."""
        graph, role = problem.instance, int(view.gangs.start[job])
        channels = np.flatnonzero(graph.channel_port == port)
        servers = graph.channel_server[channels]
        demand = view.gangs.demand[role]
        some = demand > 0
        given = np.minimum(amounts[channels], free[servers])
        tasks = np.where(view.usable[servers], view.gangs.most[role], 0)
        if some.any():
            share = (given[:, some] / demand[some]).min(axis=1)
            share = np.where(view.usable[servers] & (share > 0), share, 0.0)
            room = (free[servers][:, some] // demand[some]).min(axis=1)
            tasks = np.minimum(np.floor(share + ROUNDING).astype(np.int64), room)
            wanted = max(int(share.sum() + ROUNDING), int(view.gangs.minimum[role]))
            order = np.argsort(tasks - share, kind="stable")
            rest = np.where(share > 0, room - tasks, 0)[order]
            more = max(wanted - int(tasks.sum()), 0)
            tasks[order] += np.diff(np.minimum(np.concatenate([[0], np.cumsum(rest)]), more))
        tasks = np.diff(np.minimum(np.concatenate([[0], np.cumsum(tasks)]), view.gangs.most[role]))
        if tasks.sum() < view.gangs.minimum[role]:
            return Placing.nothing()
        used = np.flatnonzero(tasks)
        free[servers[used]] -= tasks[used, None] * demand
        rows = np.full(len(used), job, dtype=np.int64)
        return Placing(rows, np.full(len(used), role), servers[used], tasks[used])

    def _prepare(self, view: View, waiting: dict[Kind, list[int]]) -> AllocationProblem:
        fleet = fleet_of(view)
        new = [kind for kind in waiting if kind not in self._kinds]
        if self._problem is not None and fleet.key == self._key and not new:
            return self._problem
        self._key, self._problem = fleet.key, None  # stays None if the policy refuses the new problem
        self._kinds.update({kind: view.records[waiting[kind][0]] for kind in new})
        forget_old(self._kinds, waiting)
        most = view.capacity.max(axis=0)
        unit = np.where(most > 0, most / UNITS, 1.0)
        cluster = fleet.cluster.replace(capacity=view.capacity / unit)
        ports: list[JobType] = []
        pairs: list[tuple[int, int]] = []
        for port, ((name, _), record) in enumerate(self._kinds.items()):
            role = record.job.roles[0]
            row = np.zeros(len(view.resources), dtype=np.int64)
            for resource, milli in role.demand.items():
                row[view.state.resources[resource]] = milli * role.count
            reach = np.flatnonzero(reach_of(view, record.job.needs))
            there = view.capacity[reach].max(axis=0, initial=0)
            ports.append(JobType(f"{name}#{port}", np.minimum(row, there) / unit))
            pairs.extend((port, r) for r in reach.tolist())
        graph = Instance(cluster, tuple(ports), np.array(pairs, dtype=np.int64).reshape(-1, 2))
        choice = np.zeros(graph.capacity.shape, dtype=np.int64)
        utilities = Utilities(("log",), choice, np.ones(graph.capacity.shape))
        problem = AllocationProblem(graph, utilities, np.full(len(most), OVERHEAD), arrivals_known=True)
        self._policy = self._spec.build(problem, stream(self._seed, "live", str(self._spec)))
        self._problem = problem
        return problem
