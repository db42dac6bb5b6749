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

from dataclasses import replace

import numpy as np

from berth.live.core.attempts import Attempts
from berth.live.core.kernels import Paces, Placed, Releases, ends_later
from berth.live.core.kernels.holding import released
from berth.live.core.overdue import overdue_runs
from berth.live.core.runtimes import elapsed, remaining, run_times, works
from berth.live.core.shapes import part
from berth.live.core.speeds import EQUAL, Learned
from berth.live.core.table import Running
from berth.live.core.view import Placing, View
from berth.model import Floats, Ints

__all__ = ["Waits", "paces_of"]

SPARE = 4_000
"""The most releases that are recorded for jobs that start or wait in this decision."""
HALF = 0.5
"""The quantile of remaining run times."""


def paces_of(view: View, rows: Ints) -> tuple[Paces, Ints]:
    """The speed tiers of servers for the types of jobs, by their rows, and the number of each job's type (n,)."""
    types, kind = view.state.table.types(rows)
    return Paces(*view.learned.tiers_of(types)), kind


class Waits:
    """The expected releases of running jobs."""

    def __init__(self) -> None:
        self._attempts = Attempts()
        self._releases: Releases | None = None
        self._spread: dict[str, float] = {}
        self._spread_of: tuple[Learned | None, int] = None, -1
        self._begun: tuple[Learned, Running, Floats] | None = None
        """At the beginning of the decision: speeds, running jobs, and how long they are expected to run."""
        self._supposed: tuple[Learned, int, object, Learned] | None = None
        """The assumed speeds of the last decision: from which speeds, at which version, and by which running jobs."""

    def begin(self, view: View) -> View:
        """Begin a decision, with the current running jobs; returns the view, with the speeds that they suggest."""
        self._releases = None
        table, learned = view.state.table, view.state.learned
        running = table.running
        seconds = self._attempts.look(table, learned, running)
        self._begun = learned, running, seconds
        key, told = overdue_runs(table, learned, running, view.time, self._attempts)
        if told is None:
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
        if self._begun is None:
            self.begin(view)
        assert self._begun is not None
        known, running, seconds = self._begun
        if view.learned is not known:
            seconds = run_times(view.state.table, running, view.learned)
        left = self._left(view, running, seconds)
        order, places = np.argsort(left, kind="stable"), len(running.server)
        time, server, amount = released(order, left, running.start, running.server, running.amount, SPARE)
        return Releases(time, server, amount, np.array([places], dtype=np.int64))

    def _left(self, view: View, running: Running, seconds: Floats) -> Floats:
        """The remaining seconds of jobs that are expected to run `seconds`: the median, given how long each has run."""
        learned, table = view.learned, view.state.table
        if self._spread_of != (learned, learned.version):
            self._spread_of, self._spread = (learned, learned.version), {}
        types, kind = table.types(running.rows)
        new = set(types) - self._spread.keys()
        self._spread.update(learned.deviations(new) if new else {})
        wide = np.array([self._spread[type_] for type_ in types])[kind]
        past, (*_, limit) = elapsed(running, view.time), table.said(running.rows)
        ends: Floats = np.minimum(remaining(seconds, wide, past, HALF), np.maximum(limit - past, 0.0))
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
        paces, kind = paces_of(view, view.rows[jobs])
        number = np.searchsorted(jobs, placing.job[rows])
        role = placing.role[rows] - (view.gangs.start[jobs] - gangs.start[:-1])[number]
        size = np.array([len(rows)], dtype=np.int64)
        given = Placed(number, role, placing.server[rows], placing.count[rows], size, np.zeros(1, dtype=bool))
        first = np.searchsorted(number, np.arange(len(jobs) + 1))
        work = works(view.state.table, view.rows[jobs], view.learned)
        free = np.where(view.usable[:, None], view.free, 0)
        ends = ends_later(gangs, kind, work, view.reach, free, paces, self.releases(view), given, first, EQUAL)
        return jobs, ends
