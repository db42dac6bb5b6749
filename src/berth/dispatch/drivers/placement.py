"""Placement policies on a live cluster: waiting jobs are tasks, their tasks are pieces.

A job of one role with a fixed number of tasks is what this family knows; some policies know only single tasks that may
use any server. All other jobs are placed after those that the policy was asked about, in what is left, in order, where
they leave least.

Axes: n jobs, R servers, K resources.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from berth.dispatch.drivers.fleet import Fleet, fleet_of, reach_of
from berth.dispatch.jobs import Job
from berth.dispatch.state import Outcome
from berth.dispatch.view import Placing, View, rest_in_order
from berth.errors import UnsupportedProblem
from berth.model import Floats, Instance, Ints, JobType
from berth.problems.placement import (
    Berths,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
    Tasks,
)
from berth.random import stream
from berth.registry import PolicySpec

__all__ = ["PlacementDriver"]

FOREVER = 1e15
ENDED = 10_000
"""The most ends that are told with a slot."""
Needs = tuple[tuple[str, str], ...]


class PlacementDriver:
    """Shows a placement policy the queue as it stands."""

    def __init__(self, spec: PolicySpec, seed: int, memory: Iterable[Outcome]) -> None:
        self._spec, self._seed = spec, seed
        self._key: object = None
        self._ports: dict[Needs, int] = {(): 0}
        self._fleet: Fleet | None = None
        self._policy: Any = None
        self._slot = 0
        self._single = False
        """The policy knows only single tasks that may use any server."""
        self._ended: deque[int] = deque(maxlen=ENDED)
        self._value = 0.0

    def learn(self, outcome: Outcome, /) -> None:
        """What ended is told with the next slot."""
        self._ended.append(outcome.number)
        self._value += outcome.job.value

    def propose(self, view: View, /) -> Placing:
        """The policy's answer, then those that it cannot be asked about."""
        if self._policy is None:
            self._build(view)
        plain = np.array([self._knows(record.job) for record in view.records], dtype=bool)
        chosen = np.flatnonzero(plain)
        left = view.free.copy()
        parts = []
        if len(chosen):
            placing = self._decided(view, chosen)
            np.subtract.at(left, placing.server, placing.count[:, None] * view.gangs.demand[placing.role])
            parts.append(placing)
        others = np.flatnonzero(~plain)
        if len(others) and (left >= 0).all():
            parts.append(rest_in_order(view, others, left))
        return Placing.joined(parts)

    def _decided(self, view: View, chosen: Ints) -> Placing:
        ports = self._prepare(view, chosen)
        slot = self._shown(view, chosen, ports)
        decision: PlacementDecision = self._policy.decide(slot)
        started = slot.ids[np.asarray(decision.server) >= 0]
        ended = np.array(self._ended, dtype=np.int64)
        self._ended.clear()
        value, self._value = self._value, 0.0
        none = np.zeros(0, dtype=np.int64)
        self._policy.observe(PlacementOutcome(self._slot, view.time, started, ended, none, value, 0.0, 0.0))
        self._slot += 1
        return _rows(view, chosen, decision)

    def _knows(self, job: Job) -> bool:
        """Whether the policy can be asked about this job."""
        plain = len(job.roles) == 1 and job.roles[0].minimum == job.roles[0].count
        return plain and not (self._single and (job.needs or job.roles[0].count > 1))

    def _prepare(self, view: View, chosen: Ints) -> Ints:
        """The ports of these jobs, with a problem and a policy that know them."""
        needs: list[Needs] = [tuple(sorted(view.records[i].job.needs.items())) for i in chosen.tolist()]
        known = len(self._ports)
        ports = np.array([self._ports.setdefault(text, len(self._ports)) for text in needs], dtype=np.int64)
        if known < len(self._ports) or fleet_of(view).key != self._key:
            self._build(view)
        return ports

    def _build(self, view: View) -> None:
        """A problem of the servers that there are, and the policy for it."""
        fleet = fleet_of(view)
        problem = _problem(view, fleet, self._ports)
        tries = [problem, problem.replace(gangs=False), problem.replace(gangs=False, exact=True)]
        for attempt, asked in enumerate(tries):
            try:
                self._policy = self._spec.build(asked, stream(self._seed, "live", str(self._spec)))
            except UnsupportedProblem:
                if attempt == len(tries) - 1:
                    raise
            else:
                self._single = attempt > 0
                break
        self._key, self._fleet = fleet.key, fleet

    def _shown(self, view: View, chosen: Ints, ports: Ints) -> PlacementSlot:
        fleet = self._fleet or fleet_of(view)
        records = [view.records[i] for i in chosen.tolist()]
        arrival = np.maximum.accumulate([r.submitted for r in records])  # clocks may have been set back
        demand = fleet.amounts(view.gangs.demand[view.gangs.start[chosen]])
        owners: dict[str, int] = {}
        tasks = Tasks(
            arrival,
            demand,
            np.array([view.state.learned.work(r.job) if r.job.estimate is None else r.job.estimate for r in records]),
            np.array([r.job.value for r in records]),
            np.array([r.job.decay for r in records]),
            np.array([FOREVER if r.job.deadline is None else r.submitted + r.job.deadline for r in records]),
            view.gangs.most[view.gangs.start[chosen]],
            ports,
            np.array([owners.setdefault(r.job.user, len(owners)) for r in records]),
        )
        return PlacementSlot(
            self._slot,
            view.time,
            np.array([r.number for r in records], dtype=np.int64),
            tasks,
            fleet.amounts(view.free),
            np.full(len(view.servers), np.inf),
            view.usable,
            _running(view, fleet),
        )


def _problem(view: View, fleet: Fleet, ports: Mapping[Needs, int]) -> PlacementProblem:
    pairs = [(port, r) for text, port in ports.items() for r in np.flatnonzero(reach_of(view, dict(text))).tolist()]
    most = fleet.cluster.capacity.max(axis=0)
    kinds = tuple(JobType(f"needs-{port}", most) for port in range(len(ports)))
    graph = Instance(fleet.cluster, kinds, np.array(pairs, dtype=np.int64).reshape(-1, 2))
    weight = np.divide(1.0, most, out=np.zeros(len(most)), where=most > 0)
    nothing = np.zeros(len(fleet.speed))
    return PlacementProblem(graph, fleet.speed, nothing, nothing, weight, np.inf, gangs=True, exact=False)


def _running(view: View, fleet: Fleet) -> Berths:
    """What runs, a row for each place."""
    place: Mapping[str, int] = {name: r for r, name in enumerate(view.servers)}
    task, server, start, end, demand = [], [], [], [], []
    columns = view.state.resources
    for record in view.state.jobs.values():
        if not record.places:
            continue
        began = record.started if record.started is not None else record.since
        roles = {role.name: role.demand for role in record.job.roles}
        slowest = min(fleet.speed[place[p.server]] for p in record.places)
        for held in record.places:
            row = np.zeros(len(columns), dtype=np.int64)
            for name, milli in roles[held.role].items():
                row[columns[name]] = milli * held.count
            task.append(record.number)
            server.append(place[held.server])
            start.append(began)
            end.append(began + (record.job.estimate or view.state.learned.work(record.job)) / slowest)
            demand.append(row)
    amounts: Floats = fleet.amounts(np.array(demand, dtype=np.int64).reshape(len(task), len(columns)))
    whole = np.int64
    return Berths(np.array(task, whole), np.array(server, whole), np.array(start), np.array(end), amounts)


def _rows(view: View, chosen: Ints, decision: PlacementDecision) -> Placing:
    """The decision as a placing; what is to wait, to start later or not at all waits."""
    job, server, count = [], [], []
    now = np.asarray(decision.server) >= 0
    if decision.start is not None:
        now &= np.asarray(decision.start) <= view.time
    for i in np.flatnonzero(now).tolist():
        pieces = decision.gangs.get(i, np.asarray(decision.server)[i : i + 1])
        where, many = np.unique(np.asarray(pieces), return_counts=True)
        job.append(np.full(len(where), chosen[i]))
        server.append(where)
        count.append(many)
    if not job:
        return Placing.nothing()
    jobs = np.concatenate(job).astype(np.int64)
    whole = np.int64
    return Placing(
        jobs, view.gangs.start[jobs], np.concatenate(server).astype(whole), np.concatenate(count).astype(whole)
    )
