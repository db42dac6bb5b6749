"""Deferral: whether a job completes earlier by waiting for faster servers than by starting where there is room now.

A policy that starts whatever fits lets jobs hold servers that are slow for them for long, in the way of jobs that are
fast there. A job waits exactly while waiting is expected to complete it earlier: the time until faster servers are
expected to be free, plus its run there, is less than its run here. How long it has waited does not count: that would
switch the rule off just when the cluster is full. The queue order (levels, age) keeps jobs from starving, and so does
`patience`, after which servers are reserved for a job wherever it fits.

Speeds are the estimates of `berth.live.core.speeds`, so there is one for every type and server. The remaining time of a
running job is the median of its run time given how long it has lasted: the longer it has run, the longer it may take.
Jobs that wait for the same release are counted: the second job gets the next one.

Axes: n jobs, R servers, K resources, T types, L tiers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from berth.live.core.kernels import Paces, Placed, Releases, ends_later
from berth.live.core.overdue import overdue_runs
from berth.live.core.records import JobRecord
from berth.live.core.runtimes import remaining
from berth.live.core.speeds import EQUAL, Learned
from berth.live.core.view import Placing, View, holdings
from berth.live.core.waiting import part
from berth.model import Floats, Ints

__all__ = ["Waits", "paces_of"]

SPARE = 4_000
"""The most releases that are recorded for jobs that start or wait in this decision."""
HALF = 0.5
"""The quantile of remaining run times."""


def paces_of(view: View, records: Sequence[JobRecord]) -> tuple[Paces, Ints]:
    """The speed tiers of servers for the types of these jobs, and the number of each job's type (n,)."""
    learned = view.learned
    types: dict[str, int] = {}
    kind = np.array([types.setdefault(record.job.type, len(types)) for record in records], dtype=np.int64)
    tiers = [learned.tiers(type_) for type_ in types]
    pace = np.zeros((len(types), max((len(one) for _, one in tiers), default=1)))
    for row, (_, one) in enumerate(tiers):
        pace[row, : len(one)] = one
    tier = np.array([one for one, _ in tiers], dtype=np.int64).reshape(len(types), len(view.servers))
    return Paces(tier, pace, np.array([learned.apart(type_) for type_ in types])), kind


def _running(view: View) -> list[JobRecord]:
    return [record for record in view.state.jobs.values() if record.places]


def _elapsed(view: View, running: Sequence[JobRecord]) -> Floats:
    """How long each has run."""
    began = np.array([record.since if record.started is None else record.started for record in running])
    return np.maximum(view.time - began, 0.0)


def _expected(learned: Learned, running: Sequence[JobRecord], server: Ints, each: Ints) -> Floats:
    """The expected run time of each running job on the servers that it has."""
    if not running:
        return np.zeros(0)
    types: dict[str, int] = {}
    kind = np.array([types.setdefault(record.job.type, len(types)) for record in running], dtype=np.int64)
    first = np.concatenate([[0], np.cumsum(each)[:-1]])
    speed = np.stack([learned.speeds(type_) for type_ in types])[np.repeat(kind, each), server]
    several = np.maximum.reduceat(server, first) > np.minimum.reduceat(server, first)
    apart = np.array([learned.apart(type_) for type_ in types])[kind]
    slowest = np.minimum.reduceat(speed, first) * np.where(several, apart, 1.0)
    seconds: Floats = np.array([learned.work(record.job) for record in running]) / slowest
    return seconds


class Waits:
    """The expected releases of running jobs; what is known of a job's places is cached while it has them."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[object, Ints, Ints]] = {}
        self._releases: Releases | None = None
        self._spread: dict[str, float] = {}
        self._spread_of: tuple[Learned | None, int] = None, -1
        self._begun: tuple[Learned, Sequence[JobRecord], Ints, Ints, Floats] | None = None
        """At the beginning of the decision: speeds, running jobs, their servers, how many each has, and run times."""
        self._supposed: tuple[Learned, int, object, Learned] | None = None
        """The assumed speeds of the last decision: from which speeds, at which version, and by which running jobs."""

    def begin(self, view: View) -> View:
        """Begin a decision, with the current running jobs; returns the view, with the speeds that they suggest."""
        self._releases = None
        learned, running = view.state.learned, _running(view)
        server, each = self._places(view, running)
        seconds = _expected(learned, running, server, each)
        self._begun = learned, running, server, each, seconds
        key, told = overdue_runs(learned, running, seconds, _elapsed(view, running))
        if not told:
            return view
        if self._supposed is None or self._supposed[:3] != (learned, learned.version, key):
            self._supposed = learned, learned.version, key, learned.supposing(told)
        return replace(view, overdue=self._supposed[-1])

    def releases(self, view: View) -> Releases:
        """When running jobs release what they hold, earliest first, less what jobs ahead wait for."""
        if self._releases is None:
            self._releases = self._coming(view)
        return self._releases

    def _coming(self, view: View) -> Releases:
        state = view.state
        if self._begun is None:
            self.begin(view)
        assert self._begun is not None
        known, running, server, each, seconds = self._begun
        if view.learned is not known:
            seconds = _expected(view.learned, running, server, each)
        held = [self._held[record.job.id] for record in running]
        left = np.repeat(self._left(view, running, seconds), each)
        size, order = len(left), np.argsort(left, kind="stable")
        time, where = np.zeros(size + SPARE), np.zeros(size + SPARE, dtype=np.int64)
        much = np.zeros((size + SPARE, len(state.resources)), dtype=np.int64)
        time[:size], where[:size] = left[order], server[order]
        if size:
            much[:size] = np.concatenate([amount for _, _, amount in held])[order]
        return Releases(time, where, much, np.array([size], dtype=np.int64))

    def _places(self, view: View, running: Sequence[JobRecord]) -> tuple[Ints, Ints]:
        """The servers of running jobs, one job after another, and how many each has; holdings are cached."""
        before, self._held = self._held, {}
        new = [record for record in running if before.get(record.job.id, (None,))[0] is not record.places]
        whose, server, amount = holdings(view.state, new)
        first = np.searchsorted(whose, np.arange(len(new) + 1)).tolist()
        for i, record in enumerate(new):
            rows = slice(first[i], first[i + 1])
            self._held[record.job.id] = record.places, server[rows], amount[rows]
        for record in running:
            self._held.setdefault(record.job.id, before.get(record.job.id, (None, whose, amount)))
        servers = [self._held[record.job.id][1] for record in running]
        each = np.array([len(one) for one in servers], dtype=np.int64)
        return np.concatenate(servers) if servers else np.zeros(0, dtype=np.int64), each

    def _left(self, view: View, running: Sequence[JobRecord], seconds: Floats) -> Floats:
        """The remaining seconds of jobs that are expected to run `seconds`: the median, given how long each has run."""
        if not running:
            return np.zeros(0)
        learned = view.learned
        if self._spread_of != (learned, learned.version):
            self._spread_of, self._spread = (learned, learned.version), {}
        new = {record.job.type for record in running} - self._spread.keys()
        self._spread.update(learned.deviations(new) if new else {})
        wide = np.array([self._spread[record.job.type] for record in running])
        elapsed = _elapsed(view, running)
        left = remaining(seconds, wide, elapsed, HALF)
        limit = np.array([np.inf if record.job.limit is None else record.job.limit for record in running])
        ends: Floats = np.minimum(left, np.maximum(limit - elapsed, 0.0))
        return ends

    def divided(self, view: View, placing: Placing) -> tuple[Placing, Ints]:
        """Split a placing: the jobs that start, and those that wait for faster servers and claim their releases."""
        if not len(placing.job):
            return placing, np.zeros(0, dtype=np.int64)
        jobs, ends = self._ends(view, placing)
        waiting = jobs[np.isfinite(ends)]
        kept = ~np.isin(placing.job, waiting)
        return Placing(placing.job[kept], placing.role[kept], placing.server[kept], placing.count[kept]), waiting

    def seconds_to_wait(self, view: View, placing: Placing) -> float | None:
        """How long the first job of a view should wait instead of starting as placed; None if it should start."""
        jobs, ends = self._ends(view, placing)
        if not len(jobs) or jobs[0] != 0 or not np.isfinite(ends[0]):
            return None
        job = view.records[0].job
        return max(float(ends[0] - view.learned.work(job) / view.learned.speeds(job.type).max()), 0.0)

    def _ends(self, view: View, placing: Placing) -> tuple[Ints, Floats]:
        """The jobs of a placing, and when each ends if it waits; infinity if it should start."""
        jobs = np.unique(placing.job)
        rows = np.argsort(placing.job, kind="stable")
        gangs = part(view.gangs, jobs)
        records = [view.records[i] for i in jobs.tolist()]
        paces, kind = paces_of(view, records)
        number = np.searchsorted(jobs, placing.job[rows])
        role = placing.role[rows] - (view.gangs.start[jobs] - gangs.start[:-1])[number]
        size = np.array([len(rows)], dtype=np.int64)
        given = Placed(number, role, placing.server[rows], placing.count[rows], size, np.zeros(1, dtype=bool))
        first = np.searchsorted(number, np.arange(len(jobs) + 1))
        work = np.array([view.learned.work(record.job) for record in records], dtype=np.float64)
        free = np.where(view.usable[:, None], view.free, 0)
        ends = ends_later(gangs, kind, work, view.reach, free, paces, self.releases(view), given, first, EQUAL)
        return jobs, ends
