"""When a job that has no room now is expected to have some, and on which servers; and levels, which respect that.

Axes: p places of running jobs, R servers, K resources.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from berth.live.core.kernels import Placed, earliest
from berth.live.core.records import JobRecord
from berth.live.core.runtimes import seconds_left, slowest, works
from berth.live.core.state import State
from berth.live.core.table import Running
from berth.live.core.view import Allowed, Mask, Placing, View, placed_in_order
from berth.model import Floats, Ints

__all__ = [
    "IN_ORDER",
    "Releases",
    "Reservation",
    "Reservations",
    "Room",
    "begun_by",
    "first_room",
    "in_order",
    "in_time",
    "kept_from",
    "latest_ends",
    "level_by_level",
    "releases_of",
    "reservations_above",
    "respecting",
    "take",
]

ROOMIEST = 16
"""The most servers of which none has less free than another one that a job is compared with, one by one."""
IN_ORDER = 64
"""The most levels that a policy which decides in order of levels is asked about one by one."""


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


def begun_by(view: View, placing: Placing) -> Running:
    """The jobs that a placing starts now, as running jobs, in the order of the view."""
    order = np.argsort(placing.job, kind="stable")
    jobs, places = np.unique(placing.job[order], return_counts=True)
    start = np.concatenate([[0], np.cumsum(places)])
    server, count = placing.server[order], placing.count[order]
    amount = count[:, None] * view.gangs.demand[placing.role[order]]
    began, started = np.full(len(jobs), view.time), np.zeros(len(jobs), dtype=bool)
    return Running(view.rows[jobs], began, started, start, server, count, amount)


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
    reach, fit = view.reach & view.usable, view.fit
    after = int(earliest(gangs, fit, reach, free, releases.server, releases.amount, placed))
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
    """The reservations of a decision, which jobs of lower levels respect.

    A simulated decision says what is `used` (R, K) then, and what its running jobs release.
    """

    def __init__(self, view: View, used: Ints | None = None, releases: Callable[[], Releases] | None = None) -> None:
        state = view.state
        self._state, self._time = state, view.time
        self._lacking = np.minimum(state.capacity - (state.used if used is None else used), 0)
        self._running = releases or partial(releases_of, state, state.table.running, view.time)
        self._releases: Releases | None = None
        self._begun: list[Running] = []
        """Jobs that start in this decision, whose releases are not in `_releases` yet."""
        self.until = np.full(len(view.servers), np.inf)
        """Until when the servers (R,) are free for jobs of lower levels."""
        self.made: list[Reservation] = []

    def starts(self, view: View, placing: Placing) -> None:
        """Note that jobs of a view start."""
        self._begun.append(begun_by(view, placing))

    def _coming(self) -> Releases:
        """The releases of all jobs that run or start."""
        found = self._running() if self._releases is None else self._releases
        for begun in self._begun:
            found = found.and_(releases_of(self._state, begun, self._time))
        self._releases, self._begun = found, []
        return found

    def reserve(self, view: View, place: int, free: Ints) -> None:
        """Reserve servers for a job of a view, unless it has room now, or it is not known when it will have some."""
        found = first_room(self.respected(view.only([place])), free + self._lacking, self._coming())
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
        found.reserve(view, int(np.argmax(levels == above)), view.free)
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
        found.reserve(view, int(mine[0]), view.free)
    return view.allowing(Allowed(row, np.concatenate(servers))) if found.made else view


def level_by_level(
    view: View,
    propose: Callable[[View], Placing],
    most: int,
    made: Callable[[View], Reservations] = Reservations,
    may_fit: Callable[[View, Ints], Mask] = lambda view, free: np.ones(len(view.records), dtype=bool),
) -> Placing:
    """What starts of each level, from the highest on, with what the levels above leave.

    Where the first job of a level that does not start has no room, servers are reserved for it, on which it has room
    first. Jobs of lower levels may use them if they have ended by then almost surely. From the last of `most`
    questions on, all levels are decided together. `made` makes the reservations, which are none at first. `may_fit`
    says which jobs (n,) of a view are worth asking about, with this much free (R, K).
    """
    first = np.flatnonzero(np.diff(view.level, prepend=np.nan))[:most]
    if len(first) <= 1:
        return propose(view)
    free, parts, reservations = view.free.copy(), list[Placing](), made(view)
    fit = may_fit(view, free)
    blocked: list[int] = []  # jobs that servers are reserved for before the next question
    for begin, end in pairwise([*first.tolist(), len(view.records)]):
        chosen = begin + np.flatnonzero(fit[begin:end])
        waits = np.ones(end - begin, dtype=bool)
        if len(chosen):
            for place in blocked:
                reservations.reserve(view, place, free)
            blocked = []
            part = reservations.respected(view.only(chosen, free))
            placing = propose(part)
            waits[chosen[placing.job] - begin] = False
            take(free, view, parts, chosen, placing, part)
            if len(placing.job):
                reservations.starts(part, placing)
                fit = may_fit(view, free)
        if waits.any():
            blocked.append(begin + int(waits.argmax()))
    return Placing.joined(parts)


def in_order(view: View, made: Callable[[View], Reservations] = Reservations) -> Placing:
    """What the fallback policy starts."""
    return level_by_level(view, placed_in_order, IN_ORDER, made, each_role_fits)


def each_role_fits(view: View, free: Ints) -> Mask:
    """Jobs (n,) for which servers may have room, with this much free (R, K), for a task of each role that they need.

    It is certain that the other jobs do not fit.
    """
    gangs = view.gangs
    fits = gangs.minimum == 0
    for left in range(ROOMIEST, 0, -1):  # servers that have less free of everything than another one need no look
        if not len(free):
            break
        most = free[free.sum(axis=1).argmax()] if left > 1 else free.max(axis=0)
        fits |= np.logical_and.reduce([demand <= there for demand, there in zip(gangs.demand.T, most, strict=True)])
        free = free[(free > most).any(axis=1)]
    fit: Mask = np.logical_and.reduceat(fits, gangs.start[:-1])
    return fit


def take(free: Ints, view: View, parts: list[Placing], chosen: Ints, placing: Placing, part: View) -> None:
    """Add a placing of some jobs of a view to those of the others, and take its places."""
    np.subtract.at(free, placing.server, placing.count[:, None] * part.gangs.demand[placing.role])
    parts.append(view.whole(chosen, placing))


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
