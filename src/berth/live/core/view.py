"""Input of a decision as arrays (jobs that may start, in queue order, and free resources), and placings of jobs.

Axes: n jobs, m roles of all jobs, R servers, K resources, C sets of servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from berth.capacity import Violation
from berth.files.quantities import MILLI
from berth.live.core.decisions import may_be_interrupted
from berth.live.core.events import Interrupt, Start
from berth.live.core.jobs import Job, Place
from berth.live.core.kernels import FEW, Fit, Gangs, Placed, berth_in_order
from berth.live.core.kernels.checks import keeps_rules
from berth.live.core.records import JobRecord
from berth.live.core.shapes import part
from berth.live.core.speeds import Learned
from berth.live.core.state import State
from berth.live.core.table import Running
from berth.model import Floats, Ints

__all__ = [
    "Allowed",
    "Chosen",
    "Mask",
    "Placing",
    "View",
    "fit_by",
    "listed_violations",
    "placed",
    "placed_in_order",
    "rest_in_order",
    "spread_out",
    "view_of",
    "violations",
]

Mask = NDArray[np.bool_]
ROWS = 1_000_000
"""The most places of one decision."""
NONE: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Placing:
    """Which job starts where: rows of job, role, server and number of tasks. Jobs and roles are numbers in a view.

    `interrupt` are running jobs to interrupt, by their rows in the table of jobs (`View.running.rows`). What they hold
    is free in a later decision, which is made at the same moment if the engine has ended them by then.
    """

    job: Ints
    role: Ints
    server: Ints
    count: Ints
    interrupt: Ints = field(default_factory=lambda: NONE)

    @classmethod
    def nothing(cls) -> Placing:
        """A placing that starts no job."""
        return cls(NONE, NONE, NONE, NONE)

    @classmethod
    def joined(cls, parts: Sequence[Placing]) -> Placing:
        """All rows of several placings."""
        if not parts:
            return cls.nothing()
        names = ("job", "role", "server", "count", "interrupt")
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))

    def only(self, places: Mask | Ints) -> Placing:
        """Only these places of jobs that start, and all interruptions."""
        return Placing(self.job[places], self.role[places], self.server[places], self.count[places], self.interrupt)


class Allowed(NamedTuple):
    """Servers on which jobs may start now, whatever labels they need: sets (A, R), and the set of each job (n,)."""

    row: Ints
    servers: Mask

    def and_(self, more: Allowed) -> Allowed:
        """The servers that both allow."""
        sets = len(more.servers)
        numbers, row = np.unique(self.row * sets + more.row, return_inverse=True)
        return Allowed(row.reshape(-1), self.servers[numbers // sets] & more.servers[numbers % sets])


class Chosen(Sequence[JobRecord]):
    """Some of these records, by their places; none is looked up before it is asked for."""

    def __init__(self, records: Sequence[JobRecord], places: Ints) -> None:
        self._records, self._places = records, places

    def at(self, places: Ints | slice) -> Chosen:
        """Some of these again."""
        return Chosen(self._records, self._places[places])

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: SupportsIndex) -> JobRecord: ...
    @overload
    def __getitem__(self, place: slice) -> Chosen: ...
    def __getitem__(self, place: SupportsIndex | slice) -> JobRecord | Chosen:
        return self.at(place) if isinstance(place, slice) else self._records[int(self._places[place])]

    def __iter__(self) -> Iterator[JobRecord]:
        return map(self._records.__getitem__, self._places.tolist())


@dataclass(frozen=True, eq=False)
class View:
    """Input of a decision at one moment: `free` (R, K) is what may be assigned, 0 on servers that may not be used.

    `gangs` describes the jobs, `reach` (C, R) the sets of servers that they may use. Where jobs with the same needs may
    not use the same servers now, `allowed` says which, and `reach` and the shapes in `gangs` count them as different.
    """

    time: float
    records: tuple[JobRecord, ...] | Chosen
    rows: Ints
    """Their rows among the waiting jobs; -1 for a job that does not wait."""
    level: Ints
    servers: tuple[str, ...]
    resources: tuple[str, ...]
    capacity: Ints
    free: Ints
    usable: Mask
    gangs: Gangs
    reach: Mask
    state: State = field(repr=False)
    enough: Callable[[], bool] = field(default=lambda: False, repr=False)
    """Whether the time to decide is over: what is decided so far stands, and the other jobs wait."""

    overdue: Learned | None = field(default=None, repr=False)
    """Learned speeds, corrected by running jobs that take longer than expected."""
    allowed: Allowed | None = None

    @property
    def learned(self) -> Learned:
        """Learned speeds, as decisions use them."""
        return self.overdue or self.state.learned

    @property
    def running(self) -> Running:
        """The jobs that hold places, and these."""
        return self.state.table.running

    @property
    def weight(self) -> Floats:
        """Weights (K,) that make amounts comparable: 1 / the largest capacity of a server."""
        weight: Floats = self.fit.weight
        return weight

    @property
    def fit(self) -> Fit:
        """How the fallback policy finds servers: as few as possible."""
        return fit_by(FEW, self.capacity)

    @property
    def unit(self) -> Ints:
        """How many whole numbers are one unit of each resource (K,)."""
        return np.array([self.state.units.get(name, MILLI) for name in self.resources], dtype=np.int64)

    def only(self, places: Sequence[int] | Ints, free: Ints | None = None) -> View:
        """The view with only some of its jobs, and with other free resources if they are given."""
        chosen = np.asarray(places, dtype=np.int64)
        kept = self.records.at(chosen) if isinstance(self.records, Chosen) else Chosen(self.records, chosen)
        gangs, given = part(self.gangs, chosen), self.free if free is None else free
        allowed = None if self.allowed is None else self.allowed._replace(row=self.allowed.row[chosen])
        rows, level = self.rows[chosen], self.level[chosen]
        return replace(self, records=kept, rows=rows, level=level, gangs=gangs, free=given, allowed=allowed)

    def whole(self, places: Sequence[int] | Ints, placing: Placing) -> Placing:
        """A placing of `only(places)` as one of this view."""
        chosen = np.asarray(places, dtype=np.int64)
        first = self.gangs.start[chosen]
        length = self.gangs.start[chosen + 1] - first
        shift = first - (np.cumsum(length) - length)
        job, role = chosen[placing.job], placing.role + shift[placing.job]
        return Placing(job, role, placing.server, placing.count, placing.interrupt)

    def within(self, servers: Mask) -> View:
        """The view with only these servers (R,)."""
        usable = self.usable & servers
        return replace(self, usable=usable, reach=self.reach & servers, free=np.where(usable[:, None], self.free, 0))

    def allowing(self, allowed: Allowed) -> View:
        """The view with only the servers on which each job may start now."""
        sets, row, gangs = len(allowed.servers), allowed.row, self.gangs
        numbers, reach = np.unique(gangs.reach * sets + row, return_inverse=True)
        shape = np.unique(gangs.shape * sets + row, return_inverse=True)[1]
        servers = self.reach[numbers // sets] & allowed.servers[numbers % sets]
        changed = gangs._replace(reach=reach.reshape(-1), shape=shape.reshape(-1))
        both = allowed if self.allowed is None else self.allowed.and_(allowed)
        return replace(self, gangs=changed, reach=servers, allowed=both)

    def starts(self, placing: Placing) -> tuple[Start, ...]:
        """The start commands of a placing, in the order of the jobs."""
        places: dict[int, dict[tuple[str, str], int]] = {}
        for job, role, server, count in zip(
            placing.job.tolist(), placing.role.tolist(), placing.server.tolist(), placing.count.tolist(), strict=True
        ):
            record = self.records[job]
            name = record.job.roles[role - int(self.gangs.start[job])].name
            mine = places.setdefault(job, {})
            key = self.servers[server], name
            mine[key] = mine.get(key, 0) + count
        return tuple(
            Start(
                self.records[job].job.id,
                self.records[job].attempt + 1,
                tuple(Place(*key, count) for key, count in places[job].items()),
            )
            for job in sorted(places)
        )

    def interrupts(self, placing: Placing) -> tuple[Interrupt, ...]:
        """The commands that interrupt jobs."""
        return tuple(Interrupt(one.job.id, one.attempt) for one in self.state.table.records(placing.interrupt))


def view_of(state: State, time: float, records: Sequence[JobRecord], free: Ints | None = None) -> View:
    """A view of only these jobs, in this order, whether or not limits hold them back."""
    usable = state.reachable(())
    there = state.free() if free is None else np.where(usable[:, None], free, 0)
    return _view(state, time, records, [0] * len(records), usable, there)


def _view(
    state: State, time: float, records: Sequence[JobRecord], levels: Sequence[int], usable: Mask, free: Ints
) -> View:
    names = tuple(state.servers)
    needs: dict[tuple[tuple[str, str], ...], int] = {}
    shapes: dict[object, int] = {}
    reach_of, shape_of, start = [], [], [0]
    demand: list[list[int]] = []
    minimum: list[int] = []
    most: list[int] = []
    each: list[int] = []
    columns = state.resources
    kept: list[JobRecord] = []
    level_of: list[int] = []
    for record, level in zip(records, levels, strict=True):
        job = record.job
        rows = _rows(job, columns)
        if rows is None:  # no server has the resource
            continue
        kept.append(record)
        level_of.append(level)
        reach_of.append(needs.setdefault(tuple(sorted(job.needs.items())), len(needs)))
        shape_of.append(shapes.setdefault(job.shape, len(shapes)))
        demand.extend(rows)
        minimum.extend(role.minimum for role in job.roles)
        most.extend(role.count for role in job.roles)
        each.extend(role.each for role in job.roles)
        start.append(len(minimum))
    sets = [state.reachable(wanted)[None] for wanted in needs]
    reach = sets[0] if len(sets) == 1 else np.concatenate([np.zeros((0, len(names)), dtype=bool), *sets])
    whole = np.int64
    gangs = Gangs(
        np.array(start, dtype=whole),
        np.array(reach_of, dtype=whole),
        np.array(shape_of, dtype=whole),
        np.array(demand, dtype=whole).reshape(len(minimum), len(columns)),
        np.array(minimum, dtype=whole),
        np.array(most, dtype=whole),
        np.array(each, dtype=whole),
    )
    shown = tuple(kept), state.table.rows(kept), np.array(level_of, dtype=whole), names, tuple(columns)
    return View(time, *shown, state.capacity, free, usable, gangs, reach, state)


def _rows(job: Job, columns: Mapping[str, int]) -> list[list[int]] | None:
    rows = []
    for role in job.roles:
        row = [0] * len(columns)
        for name, milli in role.demand.items():
            if milli and name not in columns:
                return None
            if milli:
                row[columns[name]] = milli
        rows.append(row)
    return rows


def placed_in_order(view: View, free: Ints | None = None) -> Placing:
    """Place every job that fits, in queue order, on the tightest fit: the fallback policy."""
    if not view.records or not view.servers:
        return Placing.nothing()
    left = view.free.copy() if free is None else free
    return placed(view.gangs, view.reach, view.capacity, left)


def placed(gangs: Gangs, reach: Mask, capacity: Ints, left: Ints) -> Placing:
    """The same as `placed_in_order` for arrays; `left` is reduced to what remains free.

    Servers where no task fits, most of them on a full cluster, are left out before jobs are tried one by one.
    """
    least = gangs.demand.min(axis=0)
    open_ = np.flatnonzero((left >= least).all(axis=1))
    if not len(open_):
        return Placing.nothing()
    rows = int(min(np.minimum(gangs.most, len(open_) + 1).sum() + len(gangs.reach), ROWS))

    def whole(size: int) -> Ints:
        return np.zeros(size, dtype=np.int64)

    shapes = int(gangs.shape.max()) + 1
    placed = Placed(whole(rows), whole(rows), whole(rows), whole(rows), whole(1), np.zeros(shapes, dtype=bool))
    free = left[open_]
    order, there = np.arange(len(gangs.reach)), np.ascontiguousarray(reach[:, open_])
    berth_in_order(gangs, fit_by(FEW, capacity), order, there, free, placed)
    left[open_] = free
    size = int(placed.size[0])
    return Placing(placed.job[:size], placed.role[:size], open_[placed.server[:size]], placed.count[:size])


def fit_by(rule: int, capacity: Ints) -> Fit:
    """A rule that finds servers among those with this capacity (R, K)."""
    most = capacity.max(axis=0, initial=0).astype(np.float64)
    return Fit(rule, most, np.divide(1.0, most, out=np.zeros(len(most)), where=most > 0))


def rest_in_order(view: View, places: Sequence[int] | Ints, free: Ints) -> Placing:
    """The same as `placed_in_order` for some jobs of a view, in the resources that the other jobs left."""
    chosen = np.asarray(places, dtype=np.int64)
    rest = view.only(chosen, free)
    return view.whole(chosen, placed_in_order(rest))


def _crowded(view: View, placing: Placing) -> Mask:
    """Rows of a placing with more tasks of a role on a server than `per_server` allows."""
    key = placing.role * len(view.servers) + placing.server
    _, same = np.unique(key, return_inverse=True)
    together = np.bincount(same.reshape(-1), weights=placing.count)[same.reshape(-1)] if len(key) else np.zeros(0)
    crowded: Mask = together > view.gangs.each[placing.role]
    return crowded


def spread_out(view: View, placing: Placing) -> Placing:
    """Place anew, in order, the jobs of which too many tasks would share a server; the others keep their places.

    Policies do not know the `per_server` limit of a role. Mostly tasks with such a limit are too large to share a
    server anyway.
    """
    jobs, roles, servers = len(view.records), len(view.gangs.each), len(view.servers)
    if (view.gangs.each == view.gangs.most).all():
        return placing
    inside = (placing.job >= 0) & (placing.job < jobs) & (placing.role >= 0) & (placing.role < roles)
    if not (inside & (placing.server >= 0)).all():
        return placing
    if (placing.server >= servers).any() or not (crowded := _crowded(view, placing)).any():
        return placing
    again = np.unique(placing.job[crowded])
    rows = ~np.isin(placing.job, again)
    kept = placing.only(rows)
    free = view.free.copy()
    np.subtract.at(free, kept.server, kept.count[:, None] * view.gangs.demand[kept.role])
    return Placing.joined([kept, rest_in_order(view, again, np.maximum(free, 0))])


def violations(view: View, placing: Placing) -> list[Violation]:
    """All constraints that a placing breaks: whole gangs, usable servers, capacities, which jobs may be interrupted."""
    if broken := _uninterruptible(view, placing):
        return broken
    rows = placing.job, placing.role, placing.server, placing.count
    if all(row.dtype == np.int64 and row.shape == rows[0].shape for row in rows) and rows[0].ndim == 1:
        job, role, server, count, reach, free = (np.ascontiguousarray(part) for part in (*rows, view.reach, view.free))
        if keeps_rules(job, role, server, count, view.gangs, reach, free):
            return []
    return listed_violations(view, placing)


def listed_violations(view: View, placing: Placing) -> list[Violation]:
    """The same, rule by rule, without that of which jobs may be interrupted."""
    jobs, roles, servers = len(view.records), len(view.gangs.minimum), len(view.servers)
    wrong = (placing.job < 0) | (placing.job >= jobs) | (placing.role < 0) | (placing.role >= roles)
    wrong |= (placing.server < 0) | (placing.server >= servers) | (placing.count < 1)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        return [Violation("row", f"{row} of a placing", float(placing.server[row]), float(servers))]
    first, last = view.gangs.start[placing.job], view.gangs.start[placing.job + 1]
    broken_rules = [
        Violation("role", f"job {view.records[placing.job[i]].job.id}", float(placing.role[i]), float(last[i] - 1))
        for i in np.flatnonzero((placing.role < first) | (placing.role >= last))
    ]
    if broken_rules:
        return broken_rules
    away = ~view.reach[view.gangs.reach[placing.job], placing.server]
    broken_rules = [
        Violation(
            "server", f"{view.servers[placing.server[i]]} for job {view.records[placing.job[i]].job.id}", 1.0, 0.0
        )
        for i in np.flatnonzero(away)
    ]
    for i in np.flatnonzero(_crowded(view, placing)).tolist():
        where = f"{view.servers[placing.server[i]]} for job {view.records[placing.job[i]].job.id}"
        broken_rules.append(Violation("tasks together", where, np.inf, float(view.gangs.each[placing.role[i]])))
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
            broken_rules.append(Violation("gang", where, float(tasks[role]), float(limit[role])))
    used = np.zeros_like(view.free)
    np.add.at(used, placing.server, placing.count[:, None] * view.gangs.demand[placing.role])
    unit = view.unit
    broken_rules += [
        Violation("capacity", f"{view.servers[r]}/{view.resources[k]}", used[r, k] / unit[k], view.free[r, k] / unit[k])
        for r, k in np.argwhere(used > view.free)
    ]
    return broken_rules


def _uninterruptible(view: View, placing: Placing) -> list[Violation]:
    """Rows of `Placing.interrupt` that are no running job, or one that began at this moment, or that occur twice."""
    rows, count = np.unique(placing.interrupt, return_counts=True)
    running = set(view.running.rows.tolist()) if len(rows) else set()
    by_row = view.state.table.by_row
    return [
        Violation("interruption", f"row {row} of the table of jobs", float(times), 1.0)
        for row, times in zip(rows.tolist(), count.tolist(), strict=True)
        if times > 1 or row not in running or not may_be_interrupted(by_row[row], view.time)
    ]
