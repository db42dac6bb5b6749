"""The most that queues, teams and users may hold at a time.

Running jobs count against a limit, waiting jobs do not. The one exception is a job that has waited longer than
`patience`: for each limit, the first such job has its need set aside, so that smaller jobs of the same owner do not
overtake it for ever.

Axes: n jobs, o owners with limits, K resources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from berth.files.quantities import Amounts
from berth.live.core.records import JobRecord
from berth.live.core.state import State
from berth.live.core.view import Mask, Placing, View
from berth.model import Ints

__all__ = ["OWNERS", "Headroom", "blocked_by_limits", "held_back", "limits_of"]

NO_LIMIT = np.iinfo(np.int64).max
OWNERS = "queue", "team", "user"


def limits_of(state: State) -> dict[str, Amounts]:
    """The most that queues, teams and users may hold, as `queue:NAME`, `team:NAME` and `user:NAME`."""
    limits = {f"queue:{name}": queue.limit for name, queue in state.queues.queues.items() if queue.limit}
    return {**limits, **state.queues.quotas}


class Headroom:
    """What each owner may hold and holds (o + 1, K). The last row, which has no limits, stands for all other owners.

    Jobs are rows of `state.table`. Limits of resources that no server has are left out: a job that asks for such a
    resource fits nowhere.
    """

    def __init__(self, state: State) -> None:
        self._state, self._limits = state, limits_of(state)
        self._row = {owner: row for row, owner in enumerate(self._limits)}
        shape = len(self._limits) + 1, len(state.resources)
        self._most, self.held = np.full(shape, NO_LIMIT), np.zeros(shape, dtype=np.int64)
        for row, (owner, limit) in enumerate(self._limits.items()):
            for table, amounts in ((self._most, limit), (self.held, state.held.get(owner, {}))):
                for name, milli in amounts.items():
                    if name in state.resources:
                        table[row, state.resources[name]] = milli

    def __bool__(self) -> bool:
        return bool(self._limits)

    def owners(self, rows: Ints) -> Ints:
        """The owners (n, 3) of jobs: queue, team and user."""
        table, none = self._state.table, len(self._limits)
        columns = []
        for field in OWNERS:
            names = (f"{field}:{name}" for name in table.names[field].names)
            numbers = np.array([self._row.get(name, none) for name in names], dtype=np.int64)
            columns.append(numbers[table.named(field, rows)])
        return np.stack(columns, axis=1)

    def asked(self, rows: Ints) -> Ints:
        """What jobs ask for with all of their tasks (n, K)."""
        table = self._state.table
        return table.shapes.total(table.shape(rows))

    def over(self, owners: Ints, asked: Ints, held: Ints | None = None) -> Mask:
        """Which jobs (n,) would break a limit beside what is held, which is `self.held` unless given."""
        room = self._most - (self.held if held is None else held)
        broken = np.zeros(len(asked), dtype=bool)
        for mine in owners.T:
            broken |= ((asked > 0) & (asked > room[mine])).any(axis=1)
        return broken

    def first_broken(self, row: int) -> tuple[int, str]:
        """The first limit, such as `team:a/gpu`, that a job which is `over` one would break, and its owner."""
        rows = np.array([row])
        (owners,), (asked,), columns = self.owners(rows), self.asked(rows), self._state.resources
        names = list(self._limits)
        return next(
            (owner, f"{names[owner]}/{name}")
            for owner in owners.tolist()
            for name in (self._limits[names[owner]] if owner < len(names) else ())
            if name in columns and 0 < asked[columns[name]] > (self._most - self.held)[owner, columns[name]]
        )

    def take(self, rows: Ints) -> None:
        """Count what these jobs ask for against the limits of their owners."""
        asked = self.asked(rows)
        for mine in self.owners(rows).T:
            np.add.at(self.held, mine, asked)
        self.held[-1] = 0

    def keep_within(self, view: View, placing: Placing) -> Placing:
        """Drop from a placing the jobs that would break a limit, counting the jobs ahead of them in the view."""
        if not self:
            return placing
        jobs = np.unique(placing.job)
        before = self.held.copy()
        self.take(view.rows[jobs])
        if not ((self.held > before) & (self.held > self._most)).any():
            return placing
        self.held, over = before, np.zeros(len(jobs), dtype=bool)
        owners, asked = self.owners(view.rows[jobs]), self.asked(view.rows[jobs])
        for i in range(len(jobs)):
            over[i] = self.over(owners[i : i + 1], asked[i : i + 1]).any()
            if not over[i]:
                self.held[owners[i]] += asked[i]
                self.held[-1] = 0
        kept = ~np.isin(placing.job, jobs[over])
        return placing.only(kept)


class _Held(NamedTuple):
    """Jobs (n,) that would break a limit, jobs that would break one beside what is set aside, and that headroom.

    `keeper` (o + 1,) has the row of the job for which each owner's limit is set aside, or -1.
    """

    over: Mask
    beside: Mask
    after: Headroom
    keeper: Ints


def _held(room: Headroom, state: State, rows: Ints, late: Ints) -> _Held:
    """Which of these jobs a limit holds back; `late` are all jobs that have waited longer than the patience."""
    owners, asked = room.owners(rows), room.asked(rows)
    over, keeper, after = room.over(owners, asked), np.full(len(room.held), -1), Headroom(state)
    late = late[~room.over(room.owners(late), room.asked(late), np.zeros_like(room.held))]
    if len(late):
        late = state.table.earliest_first(late)
        theirs, first = np.unique(room.owners(late), axis=0, return_index=True)
        for i in np.argsort(first).tolist():  # the first job of each set of owners
            mine = theirs[i][theirs[i] < len(keeper) - 1]
            if (keeper[mine] < 0).all():
                keeper[mine] = late[first[i]]
        after.take(np.unique(keeper[keeper >= 0]))
    beside = after.over(owners, asked) & ~over & ~(keeper[owners] == rows[:, None]).any(axis=1)
    return _Held(over, beside, after, keeper)


def held_back(state: State, rows: Ints, time: float) -> Mask:
    """Which of the jobs in these rows of `state.table` no decision may start now because of a limit."""
    if not limits_of(state):
        return np.zeros(len(rows), dtype=bool)
    room = Headroom(state)
    found = _held(room, state, rows, state.table.late_of(rows, time, state.queues.patience))
    return found.over | found.beside


def blocked_by_limits(
    state: State, waiting: Sequence[JobRecord], time: float, late: Sequence[JobRecord] | None = None
) -> dict[str, str]:
    """The same for waiting jobs that fit on an empty cluster, by their ids, and why, in words.

    `late` are all jobs that have waited longer than the patience; by default those among `waiting`.
    """
    room, rows = Headroom(state), state.table.rows(waiting)
    if not room or not len(rows):
        return {}
    found = _held(
        room,
        state,
        rows,
        state.table.late_of(rows, time, state.queues.patience) if late is None else state.table.rows(late),
    )
    why = {}
    for i in np.flatnonzero(found.over).tolist():
        why[waiting[i].job.id] = f"limit of {room.first_broken(int(rows[i]))[1]} reached"
    for i in np.flatnonzero(found.beside).tolist():
        owner, limit = found.after.first_broken(int(rows[i]))
        (keeper,) = state.table.records(found.keeper[[owner]])
        words = f"the rest of {limit} is reserved for job {keeper.job.id}, which waits longest"
        why[waiting[i].job.id] = words
    return why
