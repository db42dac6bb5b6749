"""Selection policies on a live cluster: they learn on which servers jobs of a type run fast.

A port is a role of a job type, a channel that role on a server. When a job has ended, its speed gives the gain of each
of its tasks on each of its channels: half the speed, at most 1. So a channel of the stated speed has gain .5, and twice
as fast is the best possible. In a moment the policy is asked repeatedly, with one job of each type, until it starts no
more or the time is over. Two kinds of jobs are placed after the others, in order: those with a task that demands
nothing (this family could not see that a server may not be used), and those whose types and sizes would make more than
`CHANNELS` channels.

Axes: J types, L roles of all types, R servers, E channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from berth.families.selection.problem import Roles, SelectionOutcome, SelectionProblem, SelectionSlot
from berth.families.selection.solvers.gang import warm
from berth.live.core.drivers.base import Driver
from berth.live.core.drivers.deferral import Waits
from berth.live.core.drivers.fleet import asked_by_servers, fleet_of, forget_old, reach_of
from berth.live.core.records import JobRecord, Outcome
from berth.live.core.view import Placing, View, rest_in_order
from berth.model import Instance, Ints, JobType
from berth.random import stream
from berth.registry import PolicySpec

__all__ = ["SelectionDriver", "gain_of"]

Kind = tuple[str, tuple[Any, ...]]
CHANNELS = 20_000
"""The most channels that a policy is asked about."""


def gain_of(speed: float) -> float:
    """The gain of a task that ran at this speed.

    >>> gain_of(1.0), gain_of(5.0)
    (0.5, 1.0)
    """
    return min(0.5 * speed, 1.0)


class SelectionDriver(Driver):
    """Shows a selection policy one job of each type at a time, and reports the speeds of the channels it opened."""

    def __init__(self, spec: PolicySpec, seed: int, memory: Iterable[Outcome], waits: Waits) -> None:
        self._spec, self._seed, self.waits = spec, seed, waits
        self._memory = memory
        self._key: object = None
        self._kinds: dict[Kind, tuple[JobRecord, int]] = {}
        """The first job of each type and shape, and the number of its first role."""
        self._problem: SelectionProblem | None = None
        self._policy: Any = None
        self._ports: dict[tuple[str, str], list[int]] = {}
        """The ports of each type and role: what is learned from a job serves all jobs of its type, of any size."""
        self._rows: dict[str, int] = {}
        self._channel: list[list[int]] = []
        """The channel of each port and server (L, R), -1 where there is none; lists, as single entries are read."""
        self._slot = 0

    def __str__(self) -> str:
        return str(self._spec)

    def warm(self) -> None:
        """Compile the gang solver."""
        warm()

    def learn(self, outcome: Outcome, /) -> None:
        """Report the gain of each task to the policy."""
        if self._policy is not None:
            self._tell(outcome)

    def _tell(self, outcome: Outcome) -> None:
        tasks: dict[int, int] = {}
        gains: dict[int, float] = {}
        for place in outcome.places:
            ports = self._ports.get((outcome.job.type, place.role))
            if ports is None:
                continue
            gain = outcome.gains.get(place.server, gain_of(outcome.speed))
            rows = [self._rows[name] for name in outcome.alike.get(place.server, (place.server,)) if name in self._rows]
            for channel in (self._channel[port][row] for port in ports for row in rows):
                if channel >= 0:
                    tasks[channel] = tasks.get(channel, 0) + place.count
                    gains[channel] = gains.get(channel, 0.0) + place.count * gain
        if tasks:
            told = np.array(list(gains.values()), dtype=np.float64)
            channels, counts = (np.array(list(one), dtype=np.int64) for one in (tasks, tasks.values()))
            self._policy.observe(SelectionOutcome(max(self._slot - 1, 0), channels, counts, told, float(told.sum())))

    def propose(self, view: View, /) -> Placing:
        """Ask until no more job starts, then place the jobs with a task that demands nothing."""
        return asked_by_servers(view, self._proposed)

    def _proposed(self, view: View) -> Placing:
        waiting, others = self._asked(view)
        free = np.where(view.usable[:, None], view.free, 0)
        parts = self._rounds(view, waiting, free) if waiting else []
        if len(others) and (free >= 0).all():
            parts.append(rest_in_order(view, others, free))
        return Placing.joined(parts)

    def _asked(self, view: View) -> tuple[dict[Kind, list[int]], Ints]:
        """The jobs that the policy is asked about, by type and shape in their order; and all others."""
        names = [record.job.type for record in view.records]
        types = {name: i for i, name in enumerate(dict.fromkeys(names))}
        type_ = np.fromiter(map(types.__getitem__, names), dtype=np.int64, count=len(names))
        _, first, number = np.unique(type_ + len(types) * view.gangs.shape, return_index=True, return_inverse=True)
        number, ports = number.reshape(-1), 0
        asked = np.zeros(len(first), dtype=bool)
        for kind in np.argsort(first).tolist():
            roles = view.records[first[kind]].job.roles
            if all(any(role.demand.values()) for role in roles):
                asked[kind] = not ports or (ports + len(roles)) * len(view.servers) <= CHANNELS
                ports += len(roles) if asked[kind] else 0
            if ports and (ports + 1) * len(view.servers) > CHANNELS:
                break
        waiting: dict[Kind, list[int]] = {}
        for i in np.flatnonzero(asked[number]).tolist():
            job = view.records[i].job
            waiting.setdefault((job.type, job.shape), []).append(i)
        return waiting, np.flatnonzero(~asked[number])

    def _rounds(self, view: View, waiting: dict[Kind, list[int]], free: Ints) -> list[Placing]:
        problem = self._prepare(view, waiting)
        fleet_unit = self._unit
        kinds = list(self._kinds)
        parts: list[Placing] = []
        while waiting and not view.enough():
            there = np.array([float(kind in waiting) for kind in kinds])
            tasks = np.asarray(self._policy.decide(SelectionSlot(self._slot, free / fleet_unit, there)))
            self._slot += 1
            opened = np.flatnonzero(tasks)
            if not len(opened):
                break
            placing = self._placing(view, problem, waiting, tasks, opened)
            np.subtract.at(free, placing.server, placing.count[:, None] * view.gangs.demand[placing.role])
            parts.append(placing)
            if (free < 0).any():  # the dispatcher's check reports it
                break
            for kind in {kinds[j] for j in problem.channel_job[opened]}:
                waiting[kind].pop(0)
                if not waiting[kind]:
                    del waiting[kind]
        return parts

    def _placing(
        self, view: View, problem: SelectionProblem, waiting: dict[Kind, list[int]], tasks: Any, opened: Ints
    ) -> Placing:
        kinds = list(self._kinds)
        ports, servers = problem.instance.channel_port[opened], problem.instance.channel_server[opened]
        jobs = np.array([waiting[kinds[j]][0] for j in problem.channel_job[opened]], dtype=np.int64)
        first = np.array([self._kinds[kinds[j]][1] for j in problem.channel_job[opened]], dtype=np.int64)
        return Placing(jobs, view.gangs.start[jobs] + ports - first, servers, tasks[opened].astype(np.int64))

    def _prepare(self, view: View, waiting: dict[Kind, list[int]]) -> SelectionProblem:
        """A problem and a policy that know these servers and types."""
        fleet = fleet_of(view)
        new = [kind for kind in waiting if kind not in self._kinds]
        if self._problem is not None and fleet.key == self._key and not new:
            return self._problem
        self._key, self._problem = fleet.key, None  # stays None if the policy refuses the new problem
        for kind in new:
            self._kinds[kind] = view.records[waiting[kind][0]], 0
        forget_old(self._kinds, waiting, CHANNELS // len(view.servers))
        ports: list[JobType] = []
        pairs: list[Ints] = []
        job_of_port, minimum, most = [], [], []
        for j, (kind, (record, _)) in enumerate(list(self._kinds.items())):
            self._kinds[kind] = record, len(ports)
            reach = np.flatnonzero(reach_of(view, record.job.needs))
            for role in record.job.roles:
                row = np.zeros(len(view.resources), dtype=np.int64)
                for name, milli in role.demand.items():
                    row[view.state.resources[name]] = milli
                pairs.append(np.stack([np.full(len(reach), len(ports)), reach], axis=1))
                ports.append(JobType(f"{record.job.type}/{role.name}#{j}", fleet.amounts(row)))
                job_of_port.append(j)
                minimum.append(role.minimum)
                most.append(role.count)
        graph = Instance(fleet.cluster, tuple(ports), np.concatenate(pairs))
        roles = Roles(np.array(job_of_port), np.array(minimum), np.array(most))
        problem = SelectionProblem(graph, np.zeros(len(graph.channel_port)), roles=roles)
        self._unit = fleet.unit
        self._policy = self._spec.build(problem, stream(self._seed, "live", str(self._spec)))
        kinds = list(self._kinds)
        self._ports = {}
        for port, (type_, role) in enumerate((k[0], r) for k in kinds for r in self._kinds[k][0].job.roles):
            self._ports.setdefault((type_, role.name), []).append(port)
        self._rows = {name: r for r, name in enumerate(fleet.cluster.servers)}
        channel = np.full((len(ports), len(self._rows)), -1, dtype=np.int64)
        channel[graph.channel_port, graph.channel_server] = np.arange(len(graph.channel_port))
        self._channel = channel.tolist()
        for outcome in self._memory:
            self._tell(outcome)
        self._problem = problem
        return problem
