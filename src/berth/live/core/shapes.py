"""Shapes of jobs as rows of arrays: what each role asks for, and which servers a job may use.

Axes: n jobs, m roles of all shapes, K resources, R servers, C sets of servers.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth.live.core.holdings import Holdings, Needs
from berth.live.core.jobs import Job
from berth.live.core.kernels import Gangs
from berth.model import Ints

__all__ = ["Shapes", "longer", "own_copy", "part", "ragged"]

UNKNOWN = -1
Table = TypeVar("Table")


def longer(table: NDArray[Any], rows: int) -> NDArray[Any]:
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
    """Every shape of a job that has not ended, by number, with a row for each of its roles and the servers it may use.

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
        """Count a job of this shape that has ended."""
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
            setattr(self, name, longer(getattr(self, name), number + 1))
        for name in ("_demand", "_minimum", "_most", "_each"):
            setattr(self, name, longer(getattr(self, name), end))
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

    def reach(self, servers: Holdings) -> NDArray[np.bool_]:
        """The sets of servers, (C, R)."""
        rows = [*self._reach, *(servers.having(needs) for needs in list(self._needs)[len(self._reach) :])]
        self._reach = rows  # assigned at once: another thread may be reading
        return np.array(rows, dtype=bool).reshape(len(rows), len(servers.usable))

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

    @property
    def roles(self) -> tuple[Ints, Ints]:
        """The row of the first role of each shape, and what a task of each role takes of its server (m, K)."""
        return self._first, self._demand

    def gangs(self, shapes: Ints) -> Gangs:
        """Jobs of these shapes."""
        start, rows = ragged(self._first[shapes], self._roles[shapes])
        parts = self._demand[rows], self._minimum[rows], self._most[rows], self._each[rows]
        return Gangs(start, self._set[shapes], shapes, *parts)


def ragged(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Where each run of rows begins when they are concatenated (n+1,), and all of these rows."""
    start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    rows = np.repeat(first - start[:-1], count) + np.arange(start[-1])
    return start, rows


def part(gangs: Gangs, chosen: Ints) -> Gangs:
    """A subset of these jobs."""
    first = gangs.start[chosen]
    start, rows = ragged(first, gangs.start[chosen + 1] - first)
    parts = gangs.demand[rows], gangs.minimum[rows], gangs.most[rows], gangs.each[rows]
    return Gangs(start, gangs.reach[chosen], gangs.shape[chosen], *parts)
