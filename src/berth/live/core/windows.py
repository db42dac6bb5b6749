"""Servers on which a job may not start now, or only if it ends in time.

* A server is reserved for a job that has waited too long. Others may start there (backfill) if, by their calibrated
  run time, they end before the reservation is expected to start; so it keeps its start.
* Servers are reserved for the first job of a level that has no room now: jobs of lower levels may backfill them.
* An engine closes a server at a time (`Server.until`), for example for maintenance. Only jobs whose time limit ends
  before may start there.
* A server refused jobs of its kind lately (`berth.live.core.refusals`), and is left out for a while.

Axes: n jobs, R servers, A sets of servers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from berth.files.wording import counted, spoken
from berth.live.core.order import refused_kinds
from berth.live.core.records import JobRecord
from berth.live.core.refusals import ANYWHERE, Refusal
from berth.live.core.reservations import Reservation, first_room, in_time, kept_from, latest_ends, releases_of
from berth.live.core.runtimes import latest_end, slowest
from berth.live.core.state import State
from berth.live.core.view import Allowed, Mask, View, view_of
from berth.model import Ints

__all__ = ["Windows"]

NAMED = 4
"""The most reserved servers that are named."""


class Windows:
    """Until when jobs may run on each server; `reserved` names the job for which servers are reserved.

    `above` has the reservations of levels above, where it is asked about one job.
    """

    def __init__(
        self,
        state: State,
        time: float,
        reserved: Mapping[str, str] | None = None,
        above: Sequence[Reservation] = (),
    ) -> None:
        self._state, self.time, self._above = state, time, above
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
        view = view_of(state, self.time, (record,)).within(self.kept)
        found = first_room(view, state.capacity - state.used, releases_of(state, running, self.time))
        return self.time + (found.seconds if found else 0.0)  # else it waits for foreign jobs, whose ends are unknown

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
        for reservation in self.in_its_way(record):
            found[reservation.servers] = False
        return found

    def in_its_way(self, record: JobRecord) -> list[Reservation]:
        """The reservations of levels above whose start a job would delay."""
        names = list(self._state.servers)
        servers = [names[row] for row in dict.fromkeys(row for one in self._above for row in one.servers.tolist())]
        if not servers:
            return []
        ends = self.time + latest_end(self._state, record.job, slowest(self._state, record.job.type, servers))
        return [reservation for reservation in self._above if ends > reservation.start]

    def free(self, record: JobRecord) -> Ints:
        """What is free for a job (R, K): 0 on servers that it may not use now."""
        free = np.maximum(self._state.capacity - self._state.used, 0)
        found: Ints = np.where(self.allows(record)[:, None], free, 0)
        return found

    def deadlines(self) -> list[float]:
        """The times at which windows end, the latest first."""
        times = set(self.until[np.isfinite(self.until)].tolist()) | ({self.start} if self.reserved else set())
        times |= {reservation.start for reservation in self._above}
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
        for reservation in self.in_its_way(record):
            many, start = counted(len(reservation.servers), "server"), spoken(reservation.start - self.time)
            first = f"job {reservation.record.job.id}, the first of a higher level"
            said.append(f"{many} reserved for {first}, which is expected to start in {start}")
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
        if not (self.reserved or self._owners or self._state.closes):
            return view
        table, rows = self._state.table, view.rows
        there = in_time(self.until, self.time + table.said(rows)[2])
        if self.reserved:
            owners = table.rows([self._state.jobs[job] for job in self.jobs])
            ends = self.time + latest_ends(self._state, rows, np.flatnonzero(self.kept))
            there = there.and_(kept_from(self.kept, ~np.isin(rows, owners) & (ends > self.start)))
        if self._owners:
            there = self._unrefused(view, there)
        if there.servers.all():
            return view
        return view.within(np.bitwise_or.reduce(there.servers)).allowing(there)

    def _unrefused(self, view: View, there: Allowed) -> Allowed:
        """The same without the servers that refused jobs of their kinds."""
        kinds, firsts = refused_kinds(self._state, view, self.time)
        tried = np.array([~self._among(names) for names in ((), *(self.refused(first) for first in firsts))])
        return there.and_(Allowed(kinds + 1, tried))

    def _among(self, names: Iterable[str]) -> Mask:
        """These servers (R,)."""
        found = np.zeros(len(self._state.servers), dtype=bool)
        found[[self._state.servers[name].index for name in names if name in self._state.servers]] = True
        return found
