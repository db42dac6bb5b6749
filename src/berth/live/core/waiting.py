"""Waiting jobs as columns of arrays, written once, on submission, so that a decision need not collect them.

Axes: n jobs, m roles of all shapes, K resources, R servers, C sets of servers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth.live.core.jobs import Job, Server
from berth.live.core.kernels import Gangs
from berth.live.core.records import JobRecord
from berth.model import Floats, Ints

__all__ = ["Shapes", "WaitingJobs", "own_copy", "part"]

Needs = tuple[tuple[str, str], ...]
UNKNOWN = -1
Table = TypeVar("Table")


def _longer(table: NDArray[Any], rows: int) -> NDArray[Any]:
    """A copy with room for at least this many rows."""
    if len(table) >= rows:
        return table
    new = np.zeros((max(rows, 2 * len(table), 64), *table.shape[1:]), dtype=table.dtype)
    new[: len(table)] = table
    return new


def own_copy(table: Table) -> Table:
    """A copy with its own dictionaries, lists and arrays."""
    made = copy.copy(table)
    for name, value in vars(table).items():
        if isinstance(value, dict | list | np.ndarray):
            setattr(made, name, value.copy())
    return made


class Shapes:
    """Every shape of a waiting job, by number, with a row for each of its roles; and the sets of servers it may use.

    Rows of unused shapes are removed once they are the majority.
    """

    def __init__(self) -> None:
        self._number: dict[tuple[Any, ...], int] = {}
        self._example: dict[int, Job] = {}
        self._uses: dict[int, int] = {}
        self._gone: list[int] = []
        self._columns: dict[str, int] = {}
        self._needs: dict[Needs, int] = {}
        self._reach: list[NDArray[np.bool_]] = []
        self._clear()

    def _clear(self) -> None:
        whole = np.int64
        self._first, self._roles, self._set = (np.zeros(0, dtype=whole) for _ in range(3))
        self._fits = np.zeros(0, dtype=np.int8)
        self._possible = np.zeros(0, dtype=bool)
        self._demand, self._total = (np.zeros((0, len(self._columns)), dtype=whole) for _ in range(2))
        self._minimum, self._most, self._each = (np.zeros(0, dtype=whole) for _ in range(3))
        self._size = self._live = 0

    def take(self, job: Job) -> int:
        """Count a new job; returns the number of its shape."""
        shape = job.shape
        number = self._number.get(shape)
        if number is None:
            number = self._gone.pop() if self._gone else len(self._number)
            self._number[shape] = number
            self._uses[number] = 0
            self._example[number] = job
            self._write(number, job)
        self._uses[number] += 1
        return number

    def release(self, number: int) -> None:
        """Count a job of this shape that no longer waits."""
        self._uses[number] -= 1
        if not self._uses[number]:
            job = self._example.pop(number)
            del self._number[job.shape], self._uses[number]
            self._gone.append(number)
            self._live -= len(job.roles)
            if self._size > 1000 + 2 * self._live:
                self._rewrite()

    def _write(self, number: int, job: Job) -> None:
        rows, end = len(job.roles), self._size + len(job.roles)
        for name in ("_first", "_roles", "_set", "_fits", "_possible", "_total"):
            setattr(self, name, _longer(getattr(self, name), number + 1))
        for name in ("_demand", "_minimum", "_most", "_each"):
            setattr(self, name, _longer(getattr(self, name), end))
        self._first[number], self._roles[number] = self._size, rows
        self._set[number] = self._needs.setdefault(tuple(sorted(job.needs.items())), len(self._needs))
        self._fits[number], self._possible[number] = UNKNOWN, True
        for row, role in enumerate(job.roles, self._size):
            self._minimum[row], self._most[row], self._each[row] = role.minimum, role.count, role.each
            self._demand[row] = 0
            for resource, milli in role.demand.items():
                if resource in self._columns:
                    self._demand[row, self._columns[resource]] = milli
                elif milli:
                    self._possible[number] = False  # no server has the resource
        self._total[number] = self._most[self._size : end] @ self._demand[self._size : end]
        self._size = end
        self._live += rows

    def _rewrite(self) -> None:
        self._clear()
        self._needs, self._reach = {}, []
        for number, job in self._example.items():
            self._write(number, job)

    def fleet_changed(self, columns: Mapping[str, int]) -> None:
        """Servers changed, and have these resources now."""
        self._reach = []
        if len(columns) != len(self._columns):
            self._columns = dict(columns)
            self._rewrite()

    def reach(self, servers: Sequence[Server]) -> NDArray[np.bool_]:
        """The sets of servers, (C, R)."""
        rows = list(self._reach)
        for needs in list(self._needs)[len(rows) :]:
            wanted = dict(needs)
            rows.append(np.array([server.has(wanted) for server in servers], dtype=bool))
        self._reach = rows  # assigned at once: another thread may be reading
        return np.array(rows, dtype=bool).reshape(len(rows), len(servers))

    def fits(self, shapes: Ints) -> NDArray[np.int8]:
        """Whether these shapes fit on an empty cluster: 1 or 0, or `UNKNOWN`."""
        return self._fits[shapes]

    def write_fits(self, shapes: Ints, fit: NDArray[np.bool_]) -> None:
        """Cache the answers until servers change."""
        self._fits[shapes] = fit

    def forget_fits(self) -> None:
        """Clear that cache: the usable servers changed."""
        self._fits[:] = UNKNOWN

    def possible(self, shapes: Ints) -> NDArray[np.bool_]:
        """Whether some server has each resource that these shapes ask for."""
        return self._possible[shapes]

    def total(self, shapes: Ints) -> Ints:
        """What jobs of these shapes take with all of their tasks (n, K)."""
        return self._total[shapes]

    def gangs(self, shapes: Ints) -> Gangs:
        """Jobs of these shapes."""
        start, rows = _ragged(self._first[shapes], self._roles[shapes])
        parts = self._demand[rows], self._minimum[rows], self._most[rows], self._each[rows]
        return Gangs(start, self._set[shapes], shapes, *parts)


def _ragged(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Where each run of rows begins when they are concatenated (n+1,), and all of these rows."""
    start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    rows = np.repeat(first - start[:-1], count) + np.arange(start[-1])
    return start, rows


def part(gangs: Gangs, chosen: Ints) -> Gangs:
    """A subset of these jobs."""
    first = gangs.start[chosen]
    start, rows = _ragged(first, gangs.start[chosen + 1] - first)
    parts = gangs.demand[rows], gangs.minimum[rows], gangs.most[rows], gangs.each[rows]
    return Gangs(start, gangs.reach[chosen], gangs.shape[chosen], *parts)


def _first(level: Ints, number: Ints, most: int) -> Ints:
    """Which rows come first, in any order: those of the highest levels, and in the last level of the lowest numbers."""
    least = np.partition(level, len(level) - most)[len(level) - most]
    above, equal = np.flatnonzero(level > least), np.flatnonzero(level == least)
    kept = most - len(above)
    return np.concatenate([above, equal[np.argpartition(number[equal], kept - 1)[:kept]]])


class Names:
    """Numbers of the names in use. Once a name is no longer used, its number is given to another name."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """Every name, by its number; numbers that are free have the empty name."""
        self._number: dict[str, int] = {}
        self._uses: list[int] = []
        self._free: list[int] = []

    def take(self, name: str) -> int:
        """Count a new use of a name; returns its number."""
        number = self._number.get(name)
        if number is None:
            number = self._free.pop() if self._free else len(self.names)
            if number == len(self.names):
                self.names.append("")
                self._uses.append(0)
            self.names[number], self._number[name] = name, number
        self._uses[number] += 1
        return number

    def release(self, number: int) -> None:
        """Count that a use has ended."""
        self._uses[number] -= 1
        if not self._uses[number]:
            del self._number[self.names[number]]
            self.names[number] = ""
            self._free.append(number)


NUMBERED = "queue", "team", "user", "type"
"""The fields of jobs whose values are numbered."""
TIMES = "_submitted", "_limit", "_work", "_said"


class WaitingJobs:
    """Waiting jobs, each in its own row while it waits."""

    def __init__(self) -> None:
        self.shapes = Shapes()
        self.names = {field: Names() for field in NUMBERED}
        self._row: dict[str, int] = {}
        self._records: list[JobRecord | None] = []
        self._free: list[int] = []
        whole = np.int64
        self._shape, self._queue, self._team, self._user, self._type = (np.zeros(0, dtype=whole) for _ in range(5))
        self._number, self._priority = np.zeros(0, dtype=whole), np.zeros(0, dtype=whole)
        self._submitted, self._limit, self._work, self._said = (np.zeros(0) for _ in range(4))

    def __len__(self) -> int:
        return len(self._row)

    def copied(self) -> WaitingJobs:
        """A copy that may be changed."""
        made = own_copy(self)
        made.shapes = own_copy(self.shapes)
        made.names = {field: own_copy(names) for field, names in self.names.items()}
        return made

    def put(self, record: JobRecord) -> None:
        """Add a job that waits, or waits again."""
        job = record.job
        row = self._row.get(job.id)
        if row is not None:
            self._records[row] = record
            return
        row = self._free.pop() if self._free else len(self._records)
        if row == len(self._records):
            self._records.append(None)
            for name in (*(f"_{field}" for field in NUMBERED), "_shape", "_number", "_priority", *TIMES):
                setattr(self, name, _longer(getattr(self, name), row + 1))
        self._row[job.id], self._records[row] = row, record
        self._shape[row] = self.shapes.take(job)
        for field, names in self.names.items():
            getattr(self, f"_{field}")[row] = names.take(getattr(job, field))
        self._number[row], self._priority[row], self._submitted[row] = record.number, job.priority, record.submitted
        self._limit[row] = np.inf if job.limit is None else job.limit
        self._work[row] = np.nan if job.work is None else job.work
        self._said[row] = np.nan if job.said_seconds is None else job.said_seconds

    def drop(self, job: str) -> None:
        """Remove a job, if it waits."""
        row = self._row.pop(job, None)
        if row is not None:
            self._records[row] = None
            self._free.append(row)
            self.shapes.release(int(self._shape[row]))
            for field, names in self.names.items():
                names.release(int(getattr(self, f"_{field}")[row]))

    def move(self, seconds: float, records: Mapping[str, JobRecord]) -> None:
        """Move the times of submission, because the system clock was set; `records` are those of all jobs now."""
        self._submitted = self._submitted + seconds
        for job, row in self._row.items():
            self._records[row] = records[job]

    def standing(
        self, time: float, queues: Floats, starts: Ints, teams: Floats, aging: float, most: int | None = None
    ) -> tuple[Ints, Ints]:
        """Rows of jobs that may start, in order, and their levels; only of the first ones, if `most` is given.

        `queues` has the priority of each queue, `starts` whether it starts jobs, `teams` the penalty of each team.
        """
        rows = np.fromiter(self._row.values(), dtype=np.int64, count=len(self._row))
        rows = rows[starts[self._queue[rows]] != 0]
        waited = aging * (time - self._submitted[rows]) / 3600.0
        standing = queues[self._queue[rows]] + self._priority[rows] + waited - teams[self._team[rows]]
        level = np.floor(standing).astype(np.int64)
        if most is not None and 0 < most < len(rows):
            first = _first(level, self._number[rows], most)
            rows, level = rows[first], level[first]
        order = np.lexsort((self._number[rows], -level))
        return rows[order], level[order]

    def paused(self, starts: Ints) -> Ints:
        """Rows of jobs in queues that start none, in the order of submission; `starts` as in `standing`."""
        rows = np.fromiter(self._row.values(), dtype=np.int64, count=len(self._row))
        rows = rows[starts[self._queue[rows]] == 0]
        return self.earliest_first(rows)

    def late_of(self, rows: Ints, time: float, patience: float) -> Ints:
        """Those of these rows whose jobs have waited longer than `patience`."""
        late: Ints = rows[time - self._submitted[rows] > patience]
        return late

    def earliest_first(self, rows: Ints) -> Ints:
        """These rows in the order of submission."""
        return rows[np.argsort(self._number[rows], kind="stable")]

    @property
    def oldest(self) -> float:
        """When the job that waits longest was submitted; infinity if none waits."""
        rows = np.fromiter(self._row.values(), dtype=np.int64, count=len(self._row))
        return float(self._submitted[rows].min(initial=np.inf))

    def late(self, time: float, patience: float) -> bool:
        """Whether a job has waited longer than `patience`."""
        rows = np.fromiter(self._row.values(), dtype=np.int64, count=len(self._row))
        return bool((time - self._submitted[rows] > patience).any())

    def rows(self, records: Iterable[JobRecord]) -> Ints:
        """The rows of these jobs; -1 for those that do not wait."""
        return np.array([self._row.get(record.job.id, -1) for record in records], dtype=np.int64)

    def named(self, field: str, rows: Ints) -> Ints:
        """The numbers of queues, teams, users or types in these rows; names are in `names[field]`."""
        numbers: Ints = getattr(self, f"_{field}")[rows]
        return numbers

    def records(self, rows: Ints) -> tuple[JobRecord, ...]:
        """The records in these rows."""
        return tuple(record for row in rows.tolist() if (record := self._records[row]) is not None)

    def shape(self, rows: Ints) -> Ints:
        """The shapes in these rows."""
        return self._shape[rows]

    def limits(self, rows: Ints) -> Floats:
        """The time limits of jobs in these rows; infinity without one."""
        limits: Floats = self._limit[rows]
        return limits

    def seconds(self, rows: Ints, learned: Mapping[str, float]) -> Floats:
        """How much work jobs in these rows are, as `Learned.work` has it, but infinity where nothing is known.

        `learned` has the work of types whose runs said it.
        """
        types, of_type = np.unique(self._type[rows], return_inverse=True)
        names = self.names["type"].names
        known = np.array([learned.get(names[number]) or np.nan for number in types.tolist()])[of_type.reshape(-1)]
        seconds, said = self._work[rows], self._said[rows]
        for instead in (known, said, np.inf):
            seconds = np.where(np.isnan(seconds), instead, seconds)
        return seconds
