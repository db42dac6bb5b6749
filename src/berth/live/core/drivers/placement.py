"""Placement policies on a live cluster: waiting jobs are tasks, their tasks are pieces.

This family knows jobs of one role with a fixed number of tasks; some policies know only single tasks that may use any
server. All other jobs are placed after those that the policy was asked about, in what is left, in order, on the
tightest fit.

Axes: n jobs, R servers, K resources.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from berth.errors import UnsupportedProblem
from berth.families.placement.problem import (
    Berths,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
    Tasks,
)
from berth.live.core.drivers.base import Driver
from berth.live.core.drivers.deferral import Waits
from berth.live.core.drivers.fleet import ServerFleet, asked_by_servers, fleet_of, reach_of
from berth.live.core.records import Outcome
from berth.live.core.runtimes import works
from berth.live.core.view import Placing, View, rest_in_order
from berth.model import Instance, Ints, JobType
from berth.random import stream
from berth.registry import PolicySpec

__all__ = ["PlacementDriver"]

FOREVER = 1e15
SOON = 1.0
"""The earliest time, in seconds, after which an occupied place may be free."""
ENDED = 10_000
"""The most ends that are reported with a slot."""
PORTS = 64
"""The most ports that a problem keeps when a new one comes; beyond that, only those of waiting jobs."""
Port = tuple[tuple[tuple[str, str], ...], bytes]
"""Needed labels, and the allowed servers, empty where these are all."""


class PlacementDriver(Driver):
    """Shows a placement policy the current queue."""

    def __init__(self, spec: PolicySpec, seed: int, memory: Iterable[Outcome], waits: Waits) -> None:
        self._spec, self._seed, self.waits = spec, seed, waits
        self._key: object = None
        self._ports: dict[Port, int] = {((), b""): 0}
        self._fleet: ServerFleet | None = None
        self._policy: Any = None
        self._slot = 0
        self._single = False
        """The policy knows only single tasks that may use any server."""
        self._exact = False
        """The policy treats the expected ends of jobs as exact."""
        self._ended: deque[int] = deque(maxlen=ENDED)
        self._value = 0.0

    def __str__(self) -> str:
        return str(self._spec)

    def learn(self, outcome: Outcome, /) -> None:
        """Keep the end of a job, to report it with the next slot."""
        if outcome.cut:
            return
        self._ended.append(outcome.number)
        self._value += outcome.job.value

    def propose(self, view: View, /) -> Placing:
        """The policy's answer, then the jobs that it cannot be asked about."""
        if self._policy is None:
            self._build(view)
        return asked_by_servers(view, self._proposed) if self._single else self._proposed(view)

    def _proposed(self, view: View) -> Placing:
        plain = self._known(view)
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

    def _known(self, view: View) -> NDArray[np.bool_]:
        """Which jobs (n,) the policy can be asked about."""
        first = view.gangs.start[:-1]
        most = view.gangs.most[first]
        plain: NDArray[np.bool_] = (np.diff(view.gangs.start) == 1) & (view.gangs.minimum[first] == most)
        if self._single:
            plain &= (most == 1) & np.array([not record.job.needs for record in view.records], dtype=bool)
        return plain

    def _prepare(self, view: View, chosen: Ints) -> Ints:
        """The ports of these jobs, with a problem and a policy that know them."""
        _, first, which = np.unique(view.gangs.reach[chosen], return_index=True, return_inverse=True)
        wanted = [_port(view, place) for place in chosen[np.sort(first)].tolist()]
        new, changed = any(port not in self._ports for port in wanted), fleet_of(view).key != self._key
        full = new and len(self._ports) + len(wanted) > PORTS
        if full or changed:
            kept = (port for port in self._ports if not any(port) or (not full and not port[1]))
            self._ports = {port: number for number, port in enumerate(kept)}
        for port in wanted:
            self._ports.setdefault(port, len(self._ports))
        if new or changed:
            self._build(view)
        ports: Ints = np.array([self._ports[_port(view, place)] for place in chosen[first].tolist()])[which.reshape(-1)]
        return ports

    def _build(self, view: View) -> None:
        """Build a problem from the current servers, and the policy for it."""
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
                self._single, self._exact = attempt > 0, asked.exact
                break
        self._key, self._fleet = fleet.key, fleet

    def _shown(self, view: View, chosen: Ints, ports: Ints) -> PlacementSlot:
        fleet = self._fleet or fleet_of(view)
        records = [view.records[i] for i in chosen.tolist()]
        arrival = np.maximum.accumulate([r.submitted for r in records])  # the clock may have been set back
        demand = fleet.amounts(view.gangs.demand[view.gangs.start[chosen]])
        owners: dict[str, int] = {}
        tasks = Tasks(
            arrival,
            demand,
            np.array([r.job.said_seconds or view.learned.work(r.job) for r in records]),
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
            _lumped(view, fleet, _running(view, fleet)) if self._exact else _running(view, fleet),
        )


def _running(view: View, fleet: ServerFleet) -> Berths:
    """Running jobs, a row for each place."""
    table, running = view.state.table, view.state.table.running
    _, estimate, limit = table.said(running.rows)
    said = np.where(estimate > 0, estimate, limit)
    seconds = np.where(np.isfinite(said), said, works(table, running.rows, view.learned))
    slowest = np.minimum.reduceat(fleet.speed[running.server], running.start[:-1]) if len(seconds) else seconds
    return Berths(
        table.number(running.rows)[running.job],
        running.server,
        running.began[running.job],
        (running.began + seconds / slowest)[running.job],
        fleet.amounts(running.amount),
    )


def _lumped(view: View, fleet: ServerFleet, held: Berths) -> Berths:
    """What is not free of each server as one berth, which ends with the last of the server's jobs and not before now.

    A policy that treats ends as exact would use the place of a job that is late, and of one that this decision starts.
    """
    servers = np.arange(len(view.servers))
    end = np.full(len(servers), view.time + SOON)
    np.maximum.at(end, held.server, held.end)
    demand = fleet.amounts(np.maximum(view.capacity - view.free, 0))
    return Berths(np.full(len(servers), -1), servers, np.full(len(servers), view.time), end, demand)


def _port(view: View, place: int) -> Port:
    """The port of a job of a view."""
    needs, allowed = tuple(sorted(view.records[place].job.needs.items())), view.allowed
    there = None if allowed is None else allowed.servers[allowed.row[place]]
    return needs, b"" if there is None or there.all() else there.tobytes()


def _problem(view: View, fleet: ServerFleet, ports: Mapping[Port, int]) -> PlacementProblem:
    reach = np.array([reach_of(view, dict(needs)) for needs, _ in ports], dtype=bool)
    for row, (_, servers) in zip(reach, ports, strict=True):
        row &= np.frombuffer(servers, dtype=bool) if servers else True
    pairs = np.argwhere(reach)
    most = fleet.cluster.capacity.max(axis=0)
    kinds = tuple(JobType(f"needs-{port}", most) for port in range(len(ports)))
    graph = Instance(fleet.cluster, kinds, pairs)
    weight = np.divide(1.0, most, out=np.zeros(len(most)), where=most > 0)
    nothing = np.zeros(len(fleet.speed))
    return PlacementProblem(graph, fleet.speed, nothing, nothing, weight, np.inf, gangs=True, exact=False)


def _rows(view: View, chosen: Ints, decision: PlacementDecision) -> Placing:
    """The decision as a placing; jobs that it delays or rejects wait."""
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
