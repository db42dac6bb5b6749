"""When a job that has no room now is expected to have some, and on which servers.

Axes: p places of running jobs, R servers, K resources.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from berth.live.core.kernels import Placed, earliest
from berth.live.core.records import JobRecord
from berth.live.core.runtimes import seconds_left, slowest, works
from berth.live.core.state import State
from berth.live.core.table import Running
from berth.live.core.view import Allowed, Mask, Placing, View, weight_of
from berth.model import Floats, Ints

__all__ = [
    "Releases",
    "Reservation",
    "Reservations",
    "Room",
    "first_room",
    "in_time",
    "kept_from",
    "latest_ends",
    "releases_of",
    "reservations_above",
    "respecting",
]


class Releases(NamedTuple):
    """What running jobs hold (p, K) of servers (p,), and in how many seconds they are expected to give it back (p,)."""

    time: Floats
    server: Ints
    amount: Ints

    def and_(self, more: Releases) -> Releases:
        """These and more, the first at the front."""
        joined = [np.concatenate(pair) for pair in zip(self, more, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        return Releases(*(column[order] for column in joined))


def releases_of(state: State, running: Running, time: float) -> Releases:
    """The releases of these jobs, the first at the front."""
    left = seconds_left(state, running, time)[running.job]
    order = np.argsort(left, kind="stable")
    return Releases(left[order], running.server[order], running.amount[order])


class Room(NamedTuple):
    """Room for a job once `after` of the releases have come, in how many seconds that is, and the servers (r,)."""

    after: int
    seconds: float
    servers: Ints


def first_room(view: View, free: Ints, releases: Releases) -> Room | None:
    """When and where the only job of a view first has room; None if it has none after all releases either.

    `free` (R, K) is what is free now, below 0 where others hold more than there is.
    """
    gangs, servers = view.gangs, len(view.servers)
    rows = int(np.minimum(gangs.most, servers).sum() + len(gangs.most))
    job, role, server, count = (np.zeros(rows, dtype=np.int64) for _ in range(4))
    placed = Placed(job, role, server, count, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=bool))
    reach, weight = view.reach & view.usable, weight_of(view.capacity)
    after = int(earliest(gangs, reach, weight, free, releases.server, releases.amount, placed))
    if after < 0:
        return None
    return Room(after, float(releases.time[after - 1]) if after else 0.0, np.unique(server[: placed.size[0]]))


@dataclass(frozen=True)
class Reservation:
    """A job that is the first of its level to have no room, when it is expected to start, and its servers then."""

    record: JobRecord
    start: float
    servers: Ints


class Reservations:
    """The reservations of a decision, which jobs of lower levels respect."""

    def __init__(self, view: View) -> None:
        state = view.state
        self._state, self._time = state, view.time
        self._lacking = np.minimum(state.capacity - state.used, 0)
        self._releases = releases_of(state, state.table.running, view.time)
        self.until = np.full(len(view.servers), np.inf)
        """Until when the servers (R,) are free for jobs of lower levels."""
        self.made: list[Reservation] = []

    def starts(self, view: View, placing: Placing) -> None:
        """Note that jobs of a view start."""
        order = np.argsort(placing.job, kind="stable")
        jobs, places = np.unique(placing.job[order], return_counts=True)
        start = np.concatenate([[0], np.cumsum(places)])
        server, count = placing.server[order], placing.count[order]
        amount = count[:, None] * view.gangs.demand[placing.role[order]]
        began, started = np.full(len(jobs), self._time), np.zeros(len(jobs), dtype=bool)
        begun = Running(view.rows[jobs], began, started, start, server, count, amount)
        self._releases = self._releases.and_(releases_of(self._state, begun, self._time))

    def reserve(self, view: View, place: int, free: Ints) -> None:
        """Reserve servers for a job of a view, unless it has room now, or it is not known when it will have some."""
        alone = view.only([place])
        found = first_room(alone, free + self._lacking, self._releases)
        if found is None or not found.after:
            return
        start = self._time + found.seconds
        self.made.append(Reservation(view.records[place], start, found.servers))
        self.until[found.servers] = np.minimum(self.until[found.servers], start)

    def respected(self, view: View) -> View:
        """A view of jobs of lower levels, with the servers that each may use."""
        kept = np.flatnonzero(np.isfinite(self.until))
        if not len(kept):
            return view
        ends = self._time + latest_ends(self._state, view.rows, kept)
        return view.allowing(in_time(self.until, ends))


def reservations_above(view: View, level: int) -> Reservations:
    """The reservations that the first waiting jobs of the levels above this one have, if nothing starts now."""
    found, levels = Reservations(view), view.level
    for above in np.unique(levels[levels > level])[::-1]:
        part = found.respected(view.only(np.flatnonzero(levels == above)[:1]))
        found.reserve(part, 0, view.free)
    return found


def respecting(view: View) -> View:
    """A view whose jobs respect the reservations of the levels above theirs, if nothing starts now."""
    found, levels = Reservations(view), view.level
    row, servers = np.zeros(len(levels), dtype=np.int64), [np.ones((1, len(view.servers)), dtype=bool)]
    for level in np.unique(levels)[::-1]:
        mine = np.flatnonzero(levels == level)
        part = found.respected(view.only(mine))
        if part.allowed is not None and found.made:
            row[mine] = part.allowed.row + sum(map(len, servers))
            servers.append(part.allowed.servers)
        found.reserve(part, 0, view.free)
    return view.allowing(Allowed(row, np.concatenate(servers))) if found.made else view


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


def in_time(until: Floats, ends: Floats) -> Allowed:
    """Servers that must be free at a time (R,), for jobs that end at others (n,)."""
    times = np.unique(until)
    numbers, row = np.unique(np.searchsorted(times, ends), return_inverse=True)
    return Allowed(row.reshape(-1), until >= np.append(times, np.inf)[numbers, None])


def kept_from(servers: Mask, jobs: Mask) -> Allowed:
    """All servers (R,), but for these jobs (n,) not these servers."""
    return Allowed(jobs.astype(np.int64), np.stack([np.ones_like(servers), ~servers]))
