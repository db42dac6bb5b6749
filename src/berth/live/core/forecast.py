"""Forecast when a waiting job starts: simulate the queue many times, with run times drawn from predictions.

A running job ends after a remaining time drawn given how long it has run. A job ahead in the queue starts in order on
the tightest fit, runs, and ends. Levels reserve servers as in decisions. Run times are drawn from
`berth.live.core.runtimes`.

Axes: S samples, n jobs that run, p places, R servers, K resources.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from berth.files.wording import spoken
from berth.live.core.learning import ENOUGH, Range
from berth.live.core.limits import OWNERS, held_back, limits_of
from berth.live.core.order import may_be_tried, ordered
from berth.live.core.records import JobRecord
from berth.live.core.refusals import ANYWHERE
from berth.live.core.reservations import Releases, Reservations, begun_by, in_order, in_time, kept_from
from berth.live.core.runtimes import Means, elapsed, expected, left_after, lengths, remaining, speeds
from berth.live.core.state import State
from berth.live.core.table import Running
from berth.live.core.view import View, placed_in_order, view_of
from berth.live.core.windows import Windows
from berth.model import Floats, Ints
from berth.random import stream

__all__ = ["Eta", "Standing", "eta", "played"]

SAMPLES = 16
GROWTH = 3
"""A step of a sample takes the next end, and later 1/GROWTH as many ends as came before."""
AHEAD = 30
"""The most jobs ahead of it that are simulated, but for the first ones of `FIRSTS` levels."""
FIRSTS = 8


Standing = tuple[int, JobRecord]
"""A waiting job with its level."""


@dataclass(frozen=True)
class Eta:
    """Seconds until a job starts: the 10%, 50% and 90% quantiles; or the reason why there is no forecast.

    `left_out` jobs far ahead of it are not simulated. The job may fit into gaps that they leave, so the low end adds
    nothing for them. The median adds the time they take if all servers are always full. The high end adds twice that,
    the worst case of a greedy order of single tasks. `held` is the share of the `checked` forecasts that held.
    """

    low: float | None
    middle: float | None
    high: float | None
    reason: str = ""
    left_out: int = 0
    checked: int = 0
    held: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        if self.middle is None:
            return self.reason
        words = f"in {spoken(self.low)} to {spoken(self.high)}, most likely about {spoken(self.middle)}"
        if self.held is not None and self.checked >= ENOUGH:
            words += f"; {self.held:.0%} of the last {self.checked} such forecasts held"
        return (
            f"{words} ({self.left_out} jobs far ahead of it are estimated, not simulated)" if self.left_out else words
        )


def eta(state: State, record: JobRecord, time: float, *, seed: int = 0, order: Sequence[Standing] | None = None) -> Eta:
    """Forecast when a waiting job starts that can start at all; `order` is the queue, if the caller has it.

    The interval is calibrated against earlier forecasts.
    """
    order = ordered(state, time) if order is None else order
    found, left_out = played(state, record, time, order, seed=seed)
    if isinstance(found, str):
        return Eta(None, None, None, found, left_out)
    foresight = state.foresight.at(time)
    told = foresight.corrected(found)
    late = None if math.isinf(told.high) else told.high
    held = foresight.held if foresight.checked else None
    return Eta(told.low, told.middle, late, "", left_out, foresight.checked, held)


def played(
    state: State,
    record: JobRecord,
    time: float,
    order: Sequence[Standing],
    *,
    seed: int = 0,
    samples: int = SAMPLES,
) -> tuple[Range | str, int]:
    """Simulate its start without later submissions: the interval or why there is none, and how many are left out.

    `order` is what `ordered` gives.
    """
    place = next((i for i, (_, r) in enumerate(order) if r.number == record.number), None)
    if place is None:
        return f"queue {record.job.queue} is paused", 0
    ahead, left_out = _near(order[:place])
    rng = stream(seed, "eta", record.job.id)
    means = speeds(state)
    running = state.table.running
    guesses = [expected(state, r.job, [p.server for p in r.places]) for r in state.table.records(running.rows)]
    seconds = np.array([guess[0] for guess in guesses])
    spread, luck = np.array([guess[1] for guess in guesses]), rng.random((samples, len(seconds)))
    ends = remaining(seconds, spread, elapsed(running, time), luck)
    held = held_back(state, state.table.rows([waiting for _, waiting in order]), time)
    crowd = _Crowd(state, time, [*ahead, order[place]], running, [order[i][1] for i in np.flatnonzero(held).tolist()])
    starts = [crowd.sample(ends[s], stream(seed, "eta", record.job.id, s)) for s in range(samples)]
    low, middle, high = (float(np.quantile(starts, q, method="higher")) for q in (0.1, 0.5, 0.9))
    if math.isinf(middle):
        return _why_not(state, record, time), len(left_out)
    least, soonest = _backlog(state, left_out, means), _tried_in(state, record, time)
    range_ = Range(max(low, soonest), max(middle + least, soonest), max(high + 2.0 * least, soonest))
    return range_, len(left_out)


def _near(before: Sequence[Standing]) -> tuple[list[Standing], list[JobRecord]]:
    """The jobs ahead of a job that are simulated, and those that are left out.

    The first of each of the highest levels is simulated too, because servers are reserved for it.
    """
    far = max(len(before) - AHEAD, 0)
    levels = [level for level, _ in before[:far]]
    firsts = [i for i in range(far) if not i or levels[i] != levels[i - 1]][:FIRSTS]
    left_out = [record for i, (_, record) in enumerate(before[:far]) if i not in firsts]
    return [*(before[i] for i in firsts), *before[far:]], left_out


def _tried_in(state: State, record: JobRecord, time: float) -> float:
    """Seconds until a job that was refused is tried again; the simulation does not know refusals."""
    if may_be_tried(state, record, time):
        return 0.0
    refused = state.refusals.of(record.job, time)
    rest = refused.get(ANYWHERE)
    return (min(one.until for one in refused.values()) if rest is None else rest.until) - time


def _why_not(state: State, record: JobRecord, time: float) -> str:
    """Why a job did not start in the simulation: perhaps foreign jobs are in its way even at the end."""
    left = view_of(state, time, (record,), np.maximum(state.capacity - state.taken, 0))
    if state.taken.any() and not len(placed_in_order(left).job):
        return "it has to wait for jobs outside berth, and it is not known when they end"
    return next(iter(Windows(state, time).why(record)), "it did not start in the simulated queue")


def _backlog(state: State, records: Sequence[JobRecord], means: Means) -> float:
    """Seconds that all servers together need for these jobs, if they are always full."""
    there = dict(zip(state.resources, state.capacity[state.usable].sum(axis=0).tolist(), strict=True))
    asked = dict.fromkeys(there, 0.0)
    for record in records:
        seconds = state.learned.work(record.job) / means.get(record.job.type, (1.0, 0))[0]
        for name, milli in record.job.total.items():
            if name in asked:
                asked[name] += milli * seconds
    return max((asked[name] / milli for name, milli in there.items() if milli), default=0.0)


def _quota(state: State, record: JobRecord, running: Running) -> tuple[Ints, Ints]:
    """What running jobs hold (n, c) of each limit of a job, and how much they may hold for it to start (c,)."""
    limits, table, job = limits_of(state), state.table, record.job
    pairs = [
        (field, name, milli)
        for field, owner in zip(OWNERS, state.owners(job), strict=True)
        for name, milli in limits.get(owner, {}).items()
        if job.total.get(name)
    ]
    held = np.zeros((len(running.rows), len(pairs)), dtype=np.int64)
    for c, (field, name, _) in enumerate(pairs):
        if name in state.resources and len(running.rows):
            mine = table.named(field, running.rows) == table.names[field].get(getattr(job, field))
            theirs = np.add.reduceat(running.amount[:, state.resources[name]], running.start[:-1])
            held[:, c] = np.where(mine, theirs, 0)
    return held, np.array([milli - job.total[name] for _, name, milli in pairs], dtype=np.int64)


class _Runs:
    """Jobs that run in a simulation: when each began and ends, its `lengths` (n,), and its places (p,).

    `used` (R, K) is what they and others hold, `there` (n,) says which have not ended.
    """

    def __init__(self, state: State, time: float, running: Running) -> None:
        self._state, self._began = state, -elapsed(running, time)
        self._seconds, self._limit = lengths(state, running)
        self._job, self._server, self._amount = running.job, running.server, running.amount
        self.ends, self.there, self.used = np.zeros(0), np.zeros(0, dtype=bool), state.used

    def ending(self, ends: Floats) -> _Runs:
        """A copy to be changed, where they end at these times."""
        made = copy(self)
        made.ends, made.there, made.used = ends, np.ones(len(ends), dtype=bool), self._state.used.copy()
        return made

    def begin(self, begun: Running, now: float, ends: Floats) -> None:
        """Add jobs that begin now."""
        self._job = np.concatenate([self._job, len(self.ends) + begun.job])
        seconds, limit = lengths(self._state, begun)
        self.ends, self.there = np.append(self.ends, ends), np.append(self.there, np.ones(len(ends), dtype=bool))
        self._began = np.append(self._began, np.full(len(ends), now))
        self._seconds, self._limit = np.append(self._seconds, seconds), np.append(self._limit, limit)
        self._server = np.append(self._server, begun.server)
        self._amount = np.concatenate([self._amount, begun.amount])
        np.add.at(self.used, begun.server, begun.amount)

    def end(self, now: float) -> None:
        """Remove those that end up to now."""
        gone = self.there & (self.ends <= now)
        rows = gone[self._job]
        np.subtract.at(self.used, self._server[rows], self._amount[rows])
        self.there &= ~gone

    def releases(self, now: float) -> Releases:
        """When they are expected to give back what they hold, as a decision at that time would expect it."""
        rows = np.flatnonzero(self.there[self._job])
        left = left_after(now - self._began, self._seconds, self._limit)[self._job[rows]]
        order = np.argsort(left, kind="stable")
        return Releases(left[order], self._server[rows[order]], self._amount[rows[order]])


class _Crowd:
    """The jobs of a simulation: those that wait, of which the last is forecast, and those that run.

    Those that limits hold back now are not part of the first decision; later the simulation does not know limits.
    """

    def __init__(
        self, state: State, time: float, queue: Sequence[Standing], running: Running, held: Sequence[JobRecord]
    ) -> None:
        self._state, self._time = state, time
        self._record = record = queue[-1][1]
        self._held = {waiting.job.id for waiting in held}
        self._level = {waiting.job.id: level for level, waiting in queue}
        self._quota, self._slack = _quota(state, record, running)
        self._windows = windows = Windows(state, time)
        reserved = {name for name in state.reserved.values() if name != record.job.id}
        self._first = next((state.jobs[name] for name in reserved if name in state.jobs), None)
        """The job that servers are reserved for, if it is another one."""
        self._ahead = [*([self._first] if self._first else []), *(waiting for _, waiting in queue[:-1])]
        longest = {r.job.id: windows.latest_end(r) - time for r in (*self._ahead, record)} if reserved else {}
        self._longest, self._runs = longest, _Runs(state, time, running)

    def _views(
        self, queue: Sequence[JobRecord], runs: _Runs, now: float, waiting: Mapping[str, JobRecord]
    ) -> Iterator[View]:
        """What is decided at a simulated time: the job with reserved servers, if it fits now, and then all others."""
        windows, first = self._windows, self._first
        if first is not None and first.job.id in waiting:
            yield self._view([first], runs, now)
        view = self._view([record for record in queue if record is not first], runs, now)
        view = replace(view, level=np.array([self._level[r.job.id] for r in view.records], dtype=np.int64))
        kept = first is not None and first.job.id in waiting
        if kept or np.isfinite(windows.until).any():
            limits = np.array([math.inf if r.job.limit is None else r.job.limit for r in view.records])
            late = [kept and view.time + self._longest[r.job.id] > windows.start for r in view.records]
            there = in_time(windows.until, view.time + limits).and_(kept_from(windows.kept, np.array(late, dtype=bool)))
            view = view.allowing(there)
        yield view

    def _view(self, records: Sequence[JobRecord], runs: _Runs, now: float) -> View:
        return view_of(self._state, self._time + now, records, np.maximum(self._state.capacity - runs.used, 0))

    def sample(self, ends: Floats, rng: np.random.Generator) -> float:
        """Seconds until the job starts in one simulation of the queue; infinity if it does not."""
        state, runs = self._state, self._runs.ending(ends)
        waiting = {record.job.id: record for record in self._ahead}
        now, past = 0.0, 0

        def made(view: View) -> Reservations:
            return Reservations(view, runs.used, lambda: runs.releases(now))

        while True:
            queue = [record for name, record in waiting.items() if now or name not in self._held]
            if (runs.there[: len(ends)] @ self._quota <= self._slack).all():
                queue.append(self._record)
            for view in self._views(queue, runs, now, waiting):
                placing = in_order(view, made)
                begun, last = begun_by(view, placing), list[float]()
                for i, record in enumerate(view.records[j] for j in np.unique(placing.job).tolist()):
                    if record is self._record:
                        return now
                    del waiting[record.job.id]
                    servers = begun.server[begun.start[i] : begun.start[i + 1]].tolist()
                    mean, wide = expected(state, record.job, [view.servers[server] for server in servers])
                    last.append(now + mean * math.exp(wide * rng.standard_normal()))
                runs.begin(begun, now, np.array(last))
            coming = np.sort(runs.ends[runs.there])
            if not len(coming):
                return math.inf
            step = min(max(past // GROWTH, 1), len(coming))
            now, past = float(coming[step - 1]), past + step
            runs.end(now)
