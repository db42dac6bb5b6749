"""Whether a job completes earlier by waiting for faster servers than by starting where there is room now.

A policy that starts whatever fits lets a job hold servers that are slow for it for long, and so is in the way of those
that are fast there. A job waits exactly while it is expected to complete earlier by waiting: the time until faster
servers are expected to be free, plus its run there, is less than its run here. How long it has waited does not count:
that would turn the rule off just when the cluster is full. What keeps jobs from starving is their order (levels, age)
and `patience`, after which servers are reserved for a job wherever it fits.

Speeds are the estimates of `berth.live.core.speeds`, so there is one for every type and server. What is left of a
running job is the median of its run time given that it has lasted as long as it has: the longer it has run, the longer
it may take. Jobs that wait for the same release are counted: the second gets the next one.

Axes: n jobs, R servers, K resources, T types, L tiers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from berth.live.core.kernels import Paces, Placed, Releases, ends_later
from berth.live.core.records import JobRecord
from berth.live.core.runtimes import expected, remaining
from berth.live.core.speeds import EQUAL
from berth.live.core.view import Placing, View, holdings
from berth.live.core.waiting import part
from berth.model import Floats, Ints

__all__ = ["Waits", "known_speeds", "paces_of"]

SPARE = 4_000
"""The most releases that are noted of jobs that start or wait in this decision."""
HALF = 0.5
"""The quantile of what is left of run times."""


def known_speeds(view: View) -> Callable[[JobRecord], Floats]:
    """How fast a job is expected to run on each server (R,)."""
    return lambda record: view.state.learned.speeds(record.job.type)


def paces_of(view: View, records: Sequence[JobRecord]) -> tuple[Paces, Ints]:
    """The tiers of servers for the types of these jobs, and the number of each job's type (n,)."""
    learned = view.state.learned
    types: dict[str, int] = {}
    kind = np.array([types.setdefault(record.job.type, len(types)) for record in records], dtype=np.int64)
    tiers = [learned.tiers(type_) for type_ in types]
    pace = np.zeros((len(types), max((len(one) for _, one in tiers), default=1)))
    for row, (_, one) in enumerate(tiers):
        pace[row, : len(one)] = one
    tier = np.array([one for one, _ in tiers], dtype=np.int64).reshape(len(types), len(view.servers))
    return Paces(tier, pace, np.array([learned.apart(type_) for type_ in types])), kind


class Waits:
    """What running jobs are expected to give back; what is known of a job is kept while it runs."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[object, float, float, Ints, Ints]] = {}
        self._version = -1

    def releases(self, view: View) -> Releases:
        """When running jobs give back what they hold, the first at the front."""
        state = view.state
        before, self._held = self._held if self._version == state.learned.version else {}, {}
        self._version = state.learned.version
        running = [record for record in state.jobs.values() if record.places]
        new = [record for record in running if before.get(record.job.id, (None,))[0] is not record.places]
        fresh = {record.job.id: i for i, record in enumerate(new)}
        whose, server, amount = holdings(state, new)
        cut = np.searchsorted(whose, np.arange(len(new) + 1))
        for record in running:
            i = fresh.get(record.job.id)
            if i is None:
                self._held[record.job.id] = before[record.job.id]
            else:
                seconds, wide = expected(state, record.job, [place.server for place in record.places])
                rows = slice(cut[i], cut[i + 1])
                self._held[record.job.id] = record.places, seconds, wide, server[rows], amount[rows]
        held = list(self._held.values())
        began = np.array([r.since if r.started is None else r.started for r in running], dtype=np.float64)
        seconds_, wide_ = (np.array([one[i] for one in held], dtype=np.float64) for i in (1, 2))
        elapsed = np.maximum(view.time - began, 0.0)
        left = remaining(seconds_, wide_, elapsed, HALF) if len(held) else np.zeros(0)
        limit = [np.inf if r.job.limit is None else r.job.limit for r in running]
        left = np.minimum(left, np.maximum(np.array(limit, dtype=np.float64) - elapsed, 0.0))
        each = np.repeat(left, [len(one[3]) for one in held]) if held else left
        size = len(each)
        order = np.argsort(each, kind="stable")
        time, where = np.zeros(size + SPARE), np.zeros(size + SPARE, dtype=np.int64)
        much = np.zeros((size + SPARE, len(state.resources)), dtype=np.int64)
        if size:
            time[:size] = each[order]
            where[:size] = np.concatenate([one[3] for one in held])[order]
            much[:size] = np.concatenate([one[4] for one in held])[order]
        return Releases(time, where, much, np.array([size], dtype=np.int64))

    def without_those_who_wait(self, view: View, placing: Placing) -> Placing:
        """The placing without jobs that do better to wait for faster servers."""
        if not len(placing.job):
            return placing
        jobs, ends = self._ends(view, placing)
        kept = ~np.isin(placing.job, jobs[np.isfinite(ends)])
        return Placing(placing.job[kept], placing.role[kept], placing.server[kept], placing.count[kept])

    def seconds_to_wait(self, view: View, placing: Placing) -> float | None:
        """How long the first job of a view does better to wait than to start so; None where it should start."""
        jobs, ends = self._ends(view, placing)
        if not len(jobs) or jobs[0] != 0 or not np.isfinite(ends[0]):
            return None
        job = view.records[0].job
        return max(float(ends[0] - view.state.learned.work(job) / view.state.learned.speeds(job.type).max()), 0.0)

    def _ends(self, view: View, placing: Placing) -> tuple[Ints, Floats]:
        """The jobs of a placing, and when each ends if it waits; infinity where it does better to start."""
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
        work = np.array([view.state.learned.work(record.job) for record in records], dtype=np.float64)
        free = np.where(view.usable[:, None], view.free, 0)
        ends = ends_later(
            gangs, kind, work, view.reach, free, paces, self.releases(view), given, first, EQUAL
        )
        return jobs, ends
