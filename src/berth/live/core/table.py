"""Jobs that have not ended as columns of arrays, so that a decision need not collect them from records.

What a job asks for is written once, on submission. Where it holds places, there is a row for each place, from the
decision that starts the job until its attempt ends.

Axes: n jobs, p places, R servers, K resources.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from berth.live.core.kernels.holding import Held, held_by
from berth.live.core.kernels.waiting import First, Standings, Waiting, first_waiting
from berth.live.core.records import JobRecord
from berth.live.core.shapes import Shapes, longer, own_copy, ragged
from berth.model import Floats, Ints

__all__ = ["JobTable", "Running"]


class Names:
    """Numbers of the names in use. Once a name is no longer used, its number is given to another name."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """Every name, by its number; numbers that are free have the empty name."""
        self._number: dict[str, int] = {}
        self._uses: list[int] = []
        self._free: list[int] = []

    def get(self, name: str) -> int:
        """The number of a name; -1 if it is not in use."""
        return self._number.get(name, -1)

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


@dataclass(frozen=True, eq=False)
class Running:
    """Jobs that hold places, in the order of submission, and their places, one job after another.

    `rows` (n,) are rows of the table, `start` (n + 1,) says where the places of each job begin. Of each place there is
    the server (p,), the number of tasks (p,), and what they hold (p, K). A job began its attempt at `began` (n,), or
    was given its places then if its engine has not reported the start (`started`).
    """

    rows: Ints
    began: Floats
    started: NDArray[np.bool_]
    start: Ints
    server: Ints
    count: Ints
    amount: Ints

    @cached_property
    def places(self) -> Ints:
        """How many places each job has (n,)."""
        return np.diff(self.start)

    @cached_property
    def job(self) -> Ints:
        """The number of the job of each place (p,)."""
        return np.repeat(np.arange(len(self.rows)), self.places)

    def only(self, jobs: Ints) -> Running:
        """Only these jobs, by their numbers."""
        start, place = ragged(self.start[jobs], self.places[jobs])
        places = self.server[place], self.count[place], self.amount[place]
        return Running(self.rows[jobs], self.began[jobs], self.started[jobs], start, *places)


NUMBERED = "queue", "team", "user", "type"
"""The fields of jobs whose values are numbered."""
WHOLE = *NUMBERED, "shape", "number", "priority", "first", "places", "term"
"""Columns of whole numbers; places are rows from `first` on; `term` counts the times that places were taken."""
REAL = "submitted", "began", "work", "estimate", "limit", "ran", "done"
"""Columns of numbers: 0 where there is no work or estimate, infinity where there is no limit."""
SHORTEST = 1e-9
"""Seconds that are left at least of a time limit."""
SPARE = 1_000
"""Rows of places that have been given back are removed once they are that many more than twice the others."""


class JobTable:
    """Jobs that have not ended, each in its own row, and the places of those that hold some."""

    _queue: Ints
    _team: Ints
    _user: Ints
    _type: Ints
    _shape: Ints
    _number: Ints
    _priority: Ints
    _first: Ints
    _places: Ints
    _term: Ints
    _submitted: Floats
    _began: Floats
    _work: Floats
    _estimate: Floats
    _limit: Floats
    _ran: Floats
    _done: Floats

    def __init__(self) -> None:
        self.shapes = Shapes()
        self.names = {field: Names() for field in NUMBERED}
        self._row: dict[str, int] = {}
        self._records: list[JobRecord | None] = []
        self._free: list[int] = []
        for name in WHOLE:
            setattr(self, f"_{name}", np.zeros(0, dtype=np.int64))
        for name in REAL:
            setattr(self, f"_{name}", np.zeros(0))
        self._waits, self._started, self._limited, self._told = (np.zeros(0, dtype=bool) for _ in range(4))
        self._waiting = self._limits = 0
        """How many jobs wait, and how many run up to a time limit."""
        self._server, self._role, self._count = (np.zeros(0, dtype=np.int64) for _ in range(3))
        self._size = self._held = self._terms = 0
        """Rows of places, how many of them are held, and how often places were taken."""
        self._holding = np.zeros(0, dtype=np.int64)
        """Rows of jobs that hold places, in the order of submission."""
        self._running: Running | None = None
        """Cleared whenever a job, a place, or the resources of servers change."""

    def copied(self) -> JobTable:
        """A copy that may be changed."""
        made = own_copy(self)
        made.shapes = own_copy(self.shapes)
        made.names = {field: own_copy(names) for field, names in self.names.items()}
        return made

    # ------------------------------------------------------------------ changes

    def put(self, record: JobRecord) -> None:
        """Add a job, or note that its record has changed."""
        row = self._row.get(record.job.id)
        if row is None:
            row = self._new(record)
        waits = record.phase == "waiting"
        self._waiting += int(waits) - int(self._waits[row])
        self._records[row], self._waits[row] = record, waits
        self._started[row] = record.started is not None
        self._told[row] = record.phase in ("starting", "ending")
        # the engine itself ends jobs that were submitted to it directly
        limited = record.job.limit is not None and record.phase == "running" and not record.job.origin
        self._limit_row(row, limited and record.started is not None)
        self._began[row] = record.since if record.started is None else record.started
        self._ran[row], self._done[row] = record.ran, record.done
        self._running = None

    def _limit_row(self, row: int, limited: bool) -> None:
        """Note whether the job in a row runs up to a time limit."""
        self._limits += int(limited) - int(self._limited[row])
        self._limited[row] = limited

    def _new(self, record: JobRecord) -> int:
        job = record.job
        row = self._free.pop() if self._free else len(self._records)
        if row == len(self._records):
            self._records.append(None)
            for name in (*WHOLE, *REAL, "waits", "started", "limited", "told"):
                setattr(self, f"_{name}", longer(getattr(self, f"_{name}"), row + 1))
        self._row[job.id] = row
        for field, names in self.names.items():
            getattr(self, f"_{field}")[row] = names.take(getattr(job, field))
        self._shape[row], self._places[row] = self.shapes.take(job), 0
        self._number[row], self._priority[row], self._submitted[row] = record.number, job.priority, record.submitted
        self._work[row], self._estimate[row] = job.work or 0.0, job.estimate or 0.0
        self._limit[row] = np.inf if job.limit is None else job.limit
        return row

    def drop(self, job: str) -> None:
        """Remove a job that has ended."""
        row = self._row.pop(job, None)
        if row is not None:
            self._give_back(row)
            self._waiting -= int(self._waits[row])
            self._limit_row(row, False)
            self._records[row], self._waits[row], self._told[row] = None, False, False
            self._free.append(row)
            self.shapes.release(int(self._shape[row]))
            for field, names in self.names.items():
                names.release(int(getattr(self, f"_{field}")[row]))

    def hold(self, record: JobRecord, servers: Sequence[int]) -> None:
        """Note the places of a job; `servers` are their rows."""
        row, end = self._row[record.job.id], self._size + len(servers)
        role = {role.name: number for number, role in enumerate(record.job.roles)}
        for name in ("_server", "_role", "_count"):
            setattr(self, name, longer(getattr(self, name), end))
        self._server[self._size : end] = servers
        self._role[self._size : end] = [role[place.role] for place in record.places]
        self._count[self._size : end] = [place.count for place in record.places]
        self._terms += 1
        self._first[row], self._places[row], self._term[row] = self._size, len(servers), self._terms
        self._size, self._held, self._running = end, self._held + len(servers), None
        at = np.searchsorted(self._number[self._holding], self._number[row])
        self._holding = np.concatenate([self._holding[:at], [row], self._holding[at:]])

    def release(self, job: str) -> None:
        """Remove the places of a job."""
        self._give_back(self._row[job])

    def _give_back(self, row: int) -> None:
        if not self._places[row]:
            return
        self._held -= int(self._places[row])
        self._places[row], self._running = 0, None
        at = np.searchsorted(self._number[self._holding], self._number[row])
        self._holding = np.concatenate([self._holding[:at], self._holding[at + 1 :]])
        if self._size > SPARE + 3 * self._held:
            rows = self._holding
            start, place = ragged(self._first[rows], self._places[rows])
            self._first[rows] = start[:-1]
            for name in ("_server", "_role", "_count"):
                setattr(self, name, getattr(self, name)[place])
            self._size = len(place)

    def move(self, seconds: float, records: Mapping[str, JobRecord]) -> None:
        """Move all times, because the system clock was set; `records` are those of all jobs now."""
        self._submitted, self._began = self._submitted + seconds, self._began + seconds
        self._running = None
        for job, row in self._row.items():
            self._records[row] = records[job]

    def fleet_changed(self, columns: Mapping[str, int]) -> None:
        """Servers changed, and have these resources now."""
        self.shapes.fleet_changed(columns)
        self._running = None

    # ------------------------------------------------------------------ jobs that wait

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return self._waiting

    def standing(self, time: float, standings: Standings) -> tuple[Ints, Ints]:
        """Rows of jobs that may start, in queue order, and their levels."""
        rows = self.startable(standings.starts)
        waited = standings.aging * (time - self._submitted[rows]) / 3600.0
        queue, team = standings.queues[self._queue[rows]], standings.teams[self._team[rows]]
        level = np.floor(queue + self._priority[rows] + waited - team).astype(np.int64)
        order = np.lexsort((self._number[rows], -level))
        return rows[order], level[order]

    def first_standing(self, time: float, standings: Standings, most: int) -> tuple[Ints, Ints]:
        """The same of only the first jobs, quickly enough for the event loop."""
        first = First(*(np.zeros(min(most, self._waiting), dtype=np.int64) for _ in range(3)))
        jobs = self._waits, self._queue, self._team, self._priority, self._submitted, self._number
        count = first_waiting(Waiting(*jobs), standings, float(time), first)
        return first.row[:count], first.level[:count]

    def startable(self, starts: Ints) -> Ints:
        """Rows of jobs in queues that start jobs, in no order; `starts` as in `Standings`."""
        rows = np.flatnonzero(self._waits)
        startable: Ints = rows[starts[self._queue[rows]] != 0]
        return startable

    def paused(self, starts: Ints) -> Ints:
        """Rows of jobs in queues that start none, in the order of submission; `starts` as in `Standings`."""
        rows = np.flatnonzero(self._waits)
        return self.earliest_first(rows[starts[self._queue[rows]] == 0])

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
        return float(self._submitted[self._waits].min(initial=np.inf))

    def late(self, time: float, patience: float) -> bool:
        """Whether a job has waited longer than `patience`."""
        return bool((time - self._submitted[self._waits] > patience).any())

    def rows(self, records: Iterable[JobRecord]) -> Ints:
        """The rows of these jobs; -1 for those that do not wait."""
        found = (self._row.get(record.job.id, -1) for record in records)
        return np.array([row if row >= 0 and self._waits[row] else -1 for row in found], dtype=np.int64)

    # ------------------------------------------------------------------ jobs that hold places

    @property
    def running(self) -> Running:
        """The jobs that hold places."""
        if self._running is None:
            rows, shapes = self._holding, self.shapes
            places = self._first, self._places, self._shape, self._server, self._role, self._count
            found = held_by(rows, Held(*places, *shapes.roles))
            self._running = Running(rows, self._began[rows], self._started[rows], *found)
        return self._running

    @property
    def next_limit(self) -> float:
        """When the next running job reaches its time limit; infinity if none has one."""
        if not self._limits:
            return math.inf
        rows = np.flatnonzero(self._limited)
        return float(self._limit_at(rows).min(initial=np.inf))

    def over_limit(self, time: float) -> tuple[JobRecord, ...]:
        """The running jobs that have reached their time limits, in the order of submission."""
        if not self._limits:
            return ()
        rows = np.flatnonzero(self._limited)
        return self.records(self.earliest_first(rows[self._limit_at(rows) <= time]))

    def _limit_at(self, rows: Ints) -> Floats:
        """When running jobs reach their time limits, which count what interrupted attempts ran."""
        at: Floats = self._began[rows] + (self._limit[rows] - self._ran[rows])
        return at

    @property
    def told(self) -> tuple[JobRecord, ...]:
        """The jobs that the engine was told to start or to end and that it has not, in the order of submission."""
        return self.records(self.earliest_first(np.flatnonzero(self._told)))

    # ------------------------------------------------------------------ what they are

    def named(self, field: str, rows: Ints) -> Ints:
        """The numbers of queues, teams, users or types in these rows; names are in `names[field]`."""
        numbers: Ints = getattr(self, f"_{field}")[rows]
        return numbers

    def types(self, rows: Ints) -> tuple[list[str], Ints]:
        """The types of the jobs in these rows, each once, and which of them each job has (n,)."""
        names = self.names["type"].names
        used = np.zeros(len(names), dtype=bool)
        used[self._type[rows]] = True
        there = np.flatnonzero(used)
        place = np.zeros(len(names), dtype=np.int64)
        place[there] = np.arange(len(there))
        return [names[number] for number in there.tolist()], place[self._type[rows]]

    @property
    def by_row(self) -> Sequence[JobRecord]:
        """The record in each row that is in use; it changes with the table."""
        return cast(Sequence[JobRecord], self._records)

    def records(self, rows: Ints) -> tuple[JobRecord, ...]:
        """The records in these rows."""
        return tuple(filter(None, map(self._records.__getitem__, rows.tolist())))

    def shape(self, rows: Ints) -> Ints:
        """The shapes in these rows."""
        return self._shape[rows]

    def number(self, rows: Ints) -> Ints:
        """The numbers of submission in these rows."""
        return self._number[rows]

    def terms(self, rows: Ints) -> Ints:
        """Numbers (n,) that change when other places are held in these rows."""
        return self._term[rows]

    def submitted(self, rows: Ints) -> Floats:
        """When the jobs in these rows were submitted."""
        return self._submitted[rows]

    def said(self, rows: Ints) -> tuple[Floats, Floats, Floats]:
        """What is left (n,) of what owners said: the work and the estimate, or 0, and the time limit, or infinity."""
        left = self.left(rows)
        return (
            self._work[rows] * left,
            self._estimate[rows] * left,
            np.maximum(self._limit[rows] - self._ran[rows], SHORTEST),
        )

    def left(self, rows: Ints) -> Floats:
        """The share of the work (n,) that is left to do."""
        left: Floats = 1.0 - self._done[rows]
        return left

    def ran(self, rows: Ints) -> Floats:
        """How many seconds (n,) interrupted attempts of these jobs ran."""
        return self._ran[rows]
