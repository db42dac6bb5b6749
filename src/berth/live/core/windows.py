"""Servers on which a job may not start now, or only if it ends in time.

* A server is reserved for a job that has waited too long. Others may start there (backfill) if, by their calibrated
  run time, they end before the reservation is expected to start; so it keeps its start.
* An engine closes a server at a time (`Server.until`), for example for maintenance. Only jobs whose time limit ends
  before may start there.
* A server refused jobs of its kind lately (`berth.live.core.refusals`), and is left out for a while.

Axes: n jobs, R servers, A sets of servers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from berth.files.wording import counted, spoken
from berth.live.core.order import refused_kinds
from berth.live.core.records import JobRecord
from berth.live.core.refusals import ANYWHERE, Refusal
from berth.live.core.runtimes import latest_end, seconds_left, slowest, works
from berth.live.core.state import State
from berth.live.core.view import Allowed, Mask, View, placed_in_order, view_of
from berth.model import Floats, Ints

__all__ = ["Windows", "in_time"]

NAMED = 4
"""The most reserved servers that are named."""


class Windows:
    """Until when jobs may run on each server; `reserved` names the job for which servers are reserved."""

    def __init__(self, state: State, time: float, reserved: Mapping[str, str] | None = None) -> None:
        self._state, self.time = state, time
        self.reserved = state.reserved if reserved is None else reserved
        self.jobs = frozenset(self.reserved.values())
        self._speed: dict[str, tuple[float, float]] = {}
        self.kept: Mask = np.zeros(len(state.servers), dtype=bool)
        self.kept[[state.servers[name].index for name in self.reserved]] = True
        self.until = state.until
        self._owners = state.refusals.owners(time)

    @cached_property
    def start(self) -> float:
        """When the reserved servers are expected to be free for their job."""
        state = self._state
        record = state.jobs.get(next(iter(self.reserved.values()), ""))
        if record is None:
            return self.time
        running = state.table.running
        running = running.only(np.unique(running.job[self.kept[running.server]]))
        left = seconds_left(state, running, self.time)[running.job]
        order = np.argsort(left, kind="stable")
        view = view_of(state, self.time, (record,)).within(self.kept)

        def fits_after(rows: int) -> bool:
            """Whether the job fits on its reserved servers once the first of these rows are free."""
            free = state.capacity - state.used
            np.add.at(free, running.server[order[:rows]], running.amount[order[:rows]])
            free = np.where(view.usable[:, None], np.maximum(free, 0), 0)
            return bool(len(placed_in_order(view, free).job))

        few, many = -1, len(order)
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (few, middle) if fits_after(middle) else (middle, many)
        if many == len(order) and not fits_after(many):
            return self.time  # it waits for foreign jobs, and their ends are unknown
        return self.time + (float(left[order[many - 1]]) if many else 0.0)

    def latest_end(self, record: JobRecord) -> float:
        """The time by which a job that starts on reserved servers now has almost surely ended."""
        type_ = record.job.type
        if type_ not in self._speed:
            self._speed[type_] = slowest(self._state, type_, self.reserved)
        return self.time + latest_end(self._state, record.job, self._speed[type_])

    def backfills(self, record: JobRecord) -> bool:
        """Whether a job ends before the reservation starts, or owns the reservation."""
        return record.job.id in self.jobs or self.latest_end(record) <= self.start

    def refused(self, record: JobRecord) -> Mapping[str, Refusal]:
        """The servers that are left out for a job because they refused its kind; also `ANYWHERE`, while it rests."""
        if (record.job.user, record.job.type) not in self._owners:  # mostly so, and quicker
            return {}
        return self._state.refusals.of(record.job, self.time)

    def allows(self, record: JobRecord) -> Mask:
        """Servers (R,) that a job may use now, or once it has rested."""
        found: Mask = self._in_time(record) & ~self._among(self.refused(record))
        return found

    def _in_time(self, record: JobRecord) -> Mask:
        """Servers (R,) on which a job would end in time."""
        limit = math.inf if record.job.limit is None else record.job.limit
        found: Mask = np.isinf(self.until) | (self.until >= self.time + limit)
        if self.reserved and not self.backfills(record):
            found &= ~self.kept
        return found

    def free(self, record: JobRecord) -> Ints:
        """What is free for a job (R, K): 0 on servers that it may not use now."""
        free = np.maximum(self._state.capacity - self._state.used, 0)
        found: Ints = np.where(self.allows(record)[:, None], free, 0)
        return found

    def deadlines(self) -> list[float]:
        """The times at which windows end, the latest first."""
        times = set(self.until[np.isfinite(self.until)].tolist()) | ({self.start} if self.reserved else set())
        return sorted((time for time in times if time > self.time), reverse=True)

    def why(self, record: JobRecord) -> list[str]:
        """Why a job may not use some servers now, in words, or that servers are reserved for it."""
        said = []
        if record.job.id in self.jobs:
            many, start = counted(len(self.reserved), "server"), spoken(self.start - self.time)
            names = ", ".join(list(self.reserved)[:NAMED]) + (", …" if len(self.reserved) > NAMED else "")
            said.append(f"{many} reserved for it ({names}); it is expected to start in {start}")
        if self.reserved and not self.backfills(record):
            ends = self.latest_end(record) - self.time
            long = "its run time is unknown" if math.isinf(ends) else f"it may run for {spoken(ends)}"
            job, many = next(iter(self.reserved.values())), counted(len(self.reserved), "server")
            start = spoken(self.start - self.time)
            said.append(f"{many} reserved for job {job}, which is expected to start in {start}; {long}")
        limit = "it has no time limit" if record.job.limit is None else f"its time limit is {spoken(record.job.limit)}"
        closing: dict[tuple[float, str], int] = {}
        for server, allowed in zip(self._state.servers.values(), self.allows(record).tolist(), strict=True):
            if server.usable and server.server.until is not None and not allowed and not self.kept[server.index]:
                key = server.server.until, server.server.until_reason or "closed by the engine"
                closing[key] = closing.get(key, 0) + 1
        for (until, reason), number in sorted(closing.items()):
            left = spoken(max(until - self.time, 0.0))
            said.append(f"{counted(number, 'server')} must be free in {left} ({reason}); {limit}")
        return [*said, *self.why_refused(record)]

    def why_refused(self, record: JobRecord) -> list[str]:
        """Who refused a job, in words, why, and when it is tried there again."""
        refused = dict(self.refused(record))
        rest, said = refused.pop(ANYWHERE, None), []
        for reason in dict.fromkeys(refusal.reason for refusal in refused.values()):
            same = {name: refusal for name, refusal in refused.items() if refusal.reason == reason}
            names = ", ".join(list(same)[:NAMED]) + (", …" if len(same) > NAMED else "")
            again = spoken(min(refusal.until for refusal in same.values()) - self.time)
            many = counted(len(same), "server")
            said.append(f"{many} refused such jobs ({names}), the next try is in {again}: {reason or 'no reason'}")
        if rest is not None and (rest.reason or not said):
            times, again = counted(rest.count, "time"), spoken(rest.until - self.time)
            why = rest.reason or "no reason"
            said.append(f"the cluster refused such jobs {times} in a row, the next try is in {again}: {why}")
        return said

    def allowed(self, view: View) -> View:
        """A view of waiting jobs with the servers that each may use now."""
        if not (self.reserved or self._owners or np.isfinite(self.until).any()):
            return view
        table, rows = self._state.table, view.rows
        blocked = np.zeros(len(rows), dtype=bool)
        if self.reserved:
            owners = table.rows([self._state.jobs[job] for job in self.jobs])
            ends = self.time + latest_ends(self._state, rows, np.flatnonzero(self.kept))
            blocked = ~np.isin(rows, owners) & (ends > self.start)
        there = in_time(self.until, self.kept, self.time + table.said(rows)[2], blocked)
        if self._owners:
            there = self._unrefused(view, there)
        if there.servers.all():
            return view
        return view.within(np.bitwise_or.reduce(there.servers)).allowing(there)

    def _unrefused(self, view: View, there: Allowed) -> Allowed:
        """The same without the servers that refused jobs of their kinds."""
        kinds, firsts = refused_kinds(self._state, view, self.time)
        tried = np.array([~self._among(names) for names in ((), *(self.refused(first) for first in firsts))])
        numbers, row = np.unique(there.row * len(tried) + kinds + 1, return_inverse=True)
        return Allowed(row.reshape(-1), there.servers[numbers // len(tried)] & tried[numbers % len(tried)])

    def _among(self, names: Iterable[str]) -> Mask:
        """These servers (R,)."""
        found = np.zeros(len(self._state.servers), dtype=bool)
        found[[self._state.servers[name].index for name in names if name in self._state.servers]] = True
        return found


def latest_ends(state: State, rows: Ints, servers: Ints) -> Floats:
    """`latest_end` of waiting jobs in these rows (n,) on these servers."""
    table, learned, names = state.table, state.learned, list(state.servers)
    types, kind = table.types(rows)
    speed, longer, known = (np.ones(len(types)) for _ in range(3))
    for i, type_ in enumerate(types):
        last = servers[np.argmin(learned.speeds(type_)[servers])]
        slow, wide = slowest(state, type_, (names[last],))
        speed[i] = slow * (learned.apart(type_) if len(servers) > 1 else 1.0)
        longer[i], known[i] = math.exp(wide * state.calibration.high), learned.reference(type_)
    work, estimate, limit = table.said(rows)
    unknown = (work == 0) & (estimate == 0) & np.isinf(limit) & (known[kind] == 0)
    seconds = np.where(unknown, np.inf, works(table, rows, learned) / speed[kind] * longer[kind])
    return np.minimum(limit, seconds)


def in_time(until: Floats, kept: Mask, ends: Floats, blocked: Mask) -> Allowed:
    """Servers on which jobs end in time: where `until` (R,) is not before their latest `ends` (n,).

    `blocked` jobs (n,) may not use the servers that are `kept` (R,).
    """
    times = np.unique(until)
    numbers, row = np.unique(2 * np.searchsorted(times, ends) + blocked, return_inverse=True)
    after = np.append(times, np.inf)[numbers // 2]
    return Allowed(row.reshape(-1), (until >= after[:, None]) & ~(kept & (numbers % 2 == 1)[:, None]))
