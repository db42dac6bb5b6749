"""What there is to decide at a moment, as arrays: the jobs that may start, in their order, and what is free.

Axes: n jobs, m roles of all jobs, R servers, K resources, C sets of servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from berth.capacity import Violation
from berth.dispatch.events import Start
from berth.dispatch.jobs import Place
from berth.dispatch.queues import Queue
from berth.dispatch.state import JobRecord, State
from berth.dispatch.waiting import part
from berth.kernels.berthing import Gangs, Placed, berth_in_order
from berth.model import Floats, Ints

__all__ = ["Placing", "View", "blocked_by_limits", "make_view", "ordered", "placed_in_order", "violations"]

Mask = NDArray[np.bool_]
ROWS = 1_000_000
"""The most places that are given out at a moment."""


@dataclass(frozen=True, eq=False)
class Placing:
    """Who starts where: rows of job, role, server and number of tasks. Jobs and roles are numbers in a view."""

    job: Ints
    role: Ints
    server: Ints
    count: Ints

    @classmethod
    def nothing(cls) -> Placing:
        """Nobody starts."""
        none = np.zeros(0, dtype=np.int64)
        return cls(none, none, none, none)

    @classmethod
    def joined(cls, parts: Sequence[Placing]) -> Placing:
        """All of several."""
        if not parts:
            return cls.nothing()
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("job", "role", "server", "count")))


@dataclass(frozen=True, eq=False)
class View:
    """A moment: `free` (R, K) is what may be given out, nothing of servers that may not be used.

    `gangs` describes the jobs, `reach` (C, R) the sets of servers that they may use.
    """

    time: float
    records: tuple[JobRecord, ...]
    level: Ints
    servers: tuple[str, ...]
    resources: tuple[str, ...]
    capacity: Ints
    free: Ints
    usable: Mask
    gangs: Gangs
    reach: Mask
    state: State = field(repr=False)

    @property
    def weight(self) -> Floats:
        """What makes amounts comparable, (K,): one over the most that a server has."""
        most = self.capacity.max(axis=0, initial=0).astype(np.float64)
        weight: Floats = np.divide(1.0, most, out=np.zeros(len(most)), where=most > 0)
        return weight

    def only(self, places: Sequence[int] | Ints, free: Ints | None = None) -> View:
        """The same moment with some of the jobs, and perhaps with less free."""
        chosen = np.asarray(places, dtype=np.int64)
        kept = tuple(self.records[i] for i in chosen.tolist())
        gangs, given = part(self.gangs, chosen), self.free if free is None else free
        return replace(self, records=kept, level=self.level[chosen], gangs=gangs, free=given)

    def starts(self, placing: Placing) -> tuple[Start, ...]:
        """The commands of a placing, in the order of the jobs."""
        places: dict[int, list[Place]] = {}
        for job, role, server, count in zip(
            placing.job.tolist(), placing.role.tolist(), placing.server.tolist(), placing.count.tolist(), strict=True
        ):
            record = self.records[job]
            name = record.job.roles[role - int(self.gangs.start[job])].name
            places.setdefault(job, []).append(Place(self.servers[server], name, count))
        return tuple(
            Start(self.records[job].job.id, self.records[job].attempt + 1, tuple(places[job])) for job in sorted(places)
        )


def make_view(state: State, time: float, closed: Mapping[str, str] | None = None) -> View:
    """What may be decided now; servers that are `closed` are kept for others."""
    usable = np.array([record.usable for record in state.servers.values()], dtype=bool)
    free = np.where(usable[:, None], np.maximum(state.capacity - state.used, 0), 0)
    for server in closed or ():
        free[state.servers[server].index] = 0
        usable[state.servers[server].index] = False
    rows, level = _standing(state, time)
    shapes = state.waiting.shapes
    there = shapes.possible(state.waiting.shape(rows))  # of the others nobody has what they need
    rows, level = rows[there], level[there]
    records = state.waiting.records(rows)
    blocked = blocked_by_limits(state, records)
    if blocked:
        kept = np.array([record.job.id not in blocked for record in records], dtype=bool)
        rows, level = rows[kept], level[kept]
        records = state.waiting.records(rows)
    gangs = shapes.gangs(state.waiting.shape(rows))
    reach = shapes.reach([record.server for record in state.servers.values()])
    names, resources = tuple(state.servers), tuple(state.resources)
    return View(time, records, level, names, resources, state.capacity, free, usable, gangs, reach & usable, state)


def ordered(state: State, time: float) -> list[tuple[int, JobRecord]]:
    """Everybody who waits in a queue that starts jobs, with their level; whoever comes first is at the front."""
    rows, level = _standing(state, time)
    return list(zip(level.tolist(), state.waiting.records(rows), strict=True))


def _standing(state: State, time: float) -> tuple[Ints, Ints]:
    """Rows of those who wait, in their order, and their levels."""
    queues, waiting = state.queues, state.waiting
    shares = queues.shares
    total = sum(shares.get(team, 1.0) for team in state.teams) or 1.0
    used = {team: state.usage(team, time) for team in state.teams}
    whole = sum(used.values())
    over = {team: used[team] / whole - shares.get(team, 1.0) / total for team in used} if whole > 0 else {}
    known = [queues.queues.get(name) or Queue(accepts=False) for name in waiting.queues]
    return waiting.standing(
        time,
        np.array([queue.priority for queue in known], dtype=np.float64),
        np.array([queue.starts for queue in known], dtype=np.int64),
        np.array([queues.fairness * over.get(team, 0.0) for team in waiting.teams], dtype=np.float64),
        queues.aging,
    )


def blocked_by_limits(state: State, waiting: Sequence[JobRecord]) -> dict[str, str]:
    """Jobs that may not start because a queue, team or user would hold too much, and whose limit it is.

    Those before in the order are taken to start, so that whatever part of the others starts, limits hold.
    """
    limits = {f"queue:{name}": queue.limit for name, queue in state.queues.queues.items() if queue.limit}
    limits.update(state.queues.quotas)
    if not limits:
        return {}
    held = {owner: dict(state.held.get(owner, {})) for owner in limits}
    blocked: dict[str, str] = {}
    for record in waiting:
        owners = [owner for owner in state.owners(record.job) if owner in limits]
        if not owners:
            continue
        total: dict[str, int] = {}
        for role in record.job.roles:
            for name, milli in role.demand.items():
                total[name] = total.get(name, 0) + milli * role.count
        for owner in owners:
            limit = limits[owner]
            for name in total.keys() & limit.keys():
                if held[owner].get(name, 0) + total[name] > limit[name]:
                    blocked[record.job.id] = f"{owner}/{name}"
        if record.job.id not in blocked:
            for owner in owners:
                for name, milli in total.items():
                    held[owner][name] = held[owner].get(name, 0) + milli
    return blocked


def placed_in_order(view: View, free: Ints | None = None) -> Placing:
    """Everybody who fits, in order, where they leave least: what serves when no policy does."""
    count = len(view.records)
    if not count or not len(view.servers):
        return Placing.nothing()
    rows = int(min(np.minimum(view.gangs.most, len(view.servers) + 1).sum() + count, ROWS))

    def whole(size: int) -> Ints:
        return np.zeros(size, dtype=np.int64)

    shapes = int(view.gangs.shape.max()) + 1
    placed = Placed(whole(rows), whole(rows), whole(rows), whole(rows), whole(1), np.zeros(shapes, dtype=bool))
    left = view.free.copy() if free is None else free
    berth_in_order(view.gangs, view.reach, view.weight, left, placed)
    size = int(placed.size[0])
    return Placing(placed.job[:size], placed.role[:size], placed.server[:size], placed.count[:size])


def violations(view: View, placing: Placing) -> list[Violation]:
    """Every constraint that a placing breaks: whole gangs, servers that may be used, capacities."""
    jobs, roles, servers = len(view.records), len(view.gangs.minimum), len(view.servers)
    wrong = (placing.job < 0) | (placing.job >= jobs) | (placing.role < 0) | (placing.role >= roles)
    wrong |= (placing.server < 0) | (placing.server >= servers) | (placing.count < 1)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        return [Violation("row", f"{row} of a placing", float(placing.server[row]), float(servers))]
    first, last = view.gangs.start[placing.job], view.gangs.start[placing.job + 1]
    found = [
        Violation("role", f"job {view.records[placing.job[i]].job.id}", float(placing.role[i]), float(last[i] - 1))
        for i in np.flatnonzero((placing.role < first) | (placing.role >= last))
    ]
    if found:
        return found
    away = ~view.reach[view.gangs.reach[placing.job], placing.server]
    found = [
        Violation(
            "server", f"{view.servers[placing.server[i]]} for job {view.records[placing.job[i]].job.id}", 1.0, 0.0
        )
        for i in np.flatnonzero(away)
    ]
    tasks = np.bincount(placing.role, weights=placing.count, minlength=roles)
    job_of_role = np.repeat(np.arange(jobs), np.diff(view.gangs.start))
    begun = np.zeros(jobs, dtype=bool)
    begun[placing.job] = True
    few, many = begun[job_of_role] & (tasks < view.gangs.minimum), tasks > view.gangs.most
    for broken, limit in ((few, view.gangs.minimum), (many, view.gangs.most)):
        for role in np.flatnonzero(broken):
            job = int(job_of_role[role])
            name = view.records[job].job.roles[role - int(view.gangs.start[job])].name
            where = f"job {view.records[job].job.id}, role {name}"
            found.append(Violation("gang", where, float(tasks[role]), float(limit[role])))
    used = np.zeros_like(view.free)
    np.add.at(used, placing.server, placing.count[:, None] * view.gangs.demand[placing.role])
    found += [
        Violation("capacity", f"{view.servers[r]}/{view.resources[k]}", used[r, k] / 1000, view.free[r, k] / 1000)
        for r, k in np.argwhere(used > view.free)
    ]
    return found
