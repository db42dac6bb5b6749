"""Servers on which a job may not start now, or only if it ends in time.

* A server is reserved for a job that has waited too long. Others may start there (backfill) if, by their calibrated
  run time, they end before the reservation is expected to start; so it keeps its start.
* An engine closes a server at a time (`Server.until`), for example for maintenance. Only jobs whose time limit ends
  before may start there.
* A server refused jobs of its kind lately (`berth.live.core.refusals`), and is left out for a while.

Axes: R servers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import groupby

import numpy as np

from berth.files.wording import counted, spoken
from berth.live.core.records import JobRecord
from berth.live.core.refusals import ANYWHERE, Refusal
from berth.live.core.runtimes import latest_end, seconds_left, slowest
from berth.live.core.state import State
from berth.live.core.view import Mask, View, placed_in_order, view_of
from berth.model import Ints

__all__ = ["Windows"]

PARTS = 8
"""The most sets of servers with different windows, or of jobs with different refusals, that are decided one after
another."""
CANDIDATES = 1000
"""The number of waiting jobs, in their order, that are considered for a window."""
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

    @property
    def open(self) -> Mask:
        """Servers without a window."""
        found: Mask = ~self.kept & np.isinf(self.until)
        return found

    @cached_property
    def parts(self) -> list[Mask]:
        """The other servers, by when they must be free; those with the latest times first."""
        found = []
        for kept in (False, True):
            there = (self.kept == kept) & ~self.open
            times = np.unique(self.until[there])[::-1]
            for i, time in enumerate(times[:PARTS]):
                same = self.until <= time if i == PARTS - 1 else self.until == time
                found.append(there & same)
        return found

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

    def views(self, view: View) -> list[View]:
        """The inputs of the decision, one after another: servers without a window, then those of each window.

        Each has the jobs that may use its servers; the caller drops jobs that an earlier one started, and takes what
        they hold from the servers of the next. The job with a reservation is in none: it starts as soon as it fits,
        before all others.
        """
        if self.reserved:
            view = view.only([i for i, record in enumerate(view.records) if record.job.id not in self.jobs])
        found = self._without_refusals(view.within(self.open))
        if self.open.all():
            return found
        allowed = [(i, self._in_time(record)) for i, record in enumerate(view.records[:CANDIDATES])]
        for part in self.parts:
            rows = [i for i, mask in allowed if mask[part].all()]
            if rows:
                found += self._without_refusals(view.within(part).only(rows))
        return found

    def _without_refusals(self, view: View) -> list[View]:
        """Split a view, so that no server of a part refused one of its jobs.

        Levels are kept apart, from the highest on, while that gives few parts; all lower levels are taken together.
        """
        refused = {i: names for i, record in enumerate(view.records) if (names := frozenset(self.refused(record)))}
        if not refused:
            return [view]
        groups: list[tuple[frozenset[str], list[int]]] = []
        rest: dict[frozenset[str], list[int]] = {}
        for _, level in groupby(range(len(view.records)), key=view.level.tolist().__getitem__):
            alike: dict[frozenset[str], list[int]] = {}
            for i in level:
                alike.setdefault(refused.get(i, frozenset()), []).append(i)
            for names, rows in alike.items():
                if groups and not rest and groups[-1][0] == names:
                    groups[-1][1].extend(rows)
                elif len(groups) < PARTS:
                    groups.append((names, rows))
                else:
                    rest.setdefault(names, []).extend(rows)
        return [view.within(~self._among(names)).only(rows) for names, rows in (*groups, *rest.items())]

    def _among(self, names: Iterable[str]) -> Mask:
        """These servers (R,)."""
        found = np.zeros(len(self._state.servers), dtype=bool)
        found[[self._state.servers[name].index for name in names if name in self._state.servers]] = True
        return found
