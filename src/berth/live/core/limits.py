"""Limits: the most that queues, teams and users may hold at a time.

A limit is spent by jobs that hold something, not by jobs that wait. The one exception is a job that has waited longer
than `patience`: for each limit, what the first such job needs is kept for it, so that smaller jobs of the same owner do
not pass it for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from berth.files.quantities import Amounts
from berth.live.core.jobs import Job
from berth.live.core.records import JobRecord
from berth.live.core.state import State
from berth.live.core.view import Placing, View, make_view

__all__ = ["Headroom", "blocked_by_limits", "limits_of", "view_within_limits"]


def limits_of(state: State) -> dict[str, Amounts]:
    """The most that queues, teams and users may hold, as `queue:NAME`, `team:NAME` and `user:NAME`."""
    limits = {f"queue:{name}": queue.limit for name, queue in state.queues.queues.items() if queue.limit}
    return {**limits, **state.queues.quotas}


class Headroom:
    """What owners may still take."""

    def __init__(self, state: State) -> None:
        self._state, self.limits = state, limits_of(state)
        self.held = {owner: dict(state.held.get(owner, {})) for owner in self.limits}

    def owners(self, job: Job) -> list[str]:
        """Those of a job's owners that have limits."""
        return [owner for owner in self._state.owners(job) if owner in self.limits]

    def broken(self, job: Job) -> str | None:
        """A limit, such as `team:a/gpu`, that a job would break now."""
        for owner in self.owners(job):
            for name, most in self.limits[owner].items():
                asked = job.total.get(name, 0)
                if asked and self.held[owner].get(name, 0) + asked > most:
                    return f"{owner}/{name}"
        return None

    def possible(self, job: Job) -> bool:
        """Whether its limits allow a job while nothing else is held."""
        return all(
            job.total.get(name, 0) <= most for owner in self.owners(job) for name, most in self.limits[owner].items()
        )

    def take(self, job: Job) -> None:
        """A job holds what it asks for."""
        for owner in self.owners(job):
            for name, milli in job.total.items():
                self.held[owner][name] = self.held[owner].get(name, 0) + milli

    def keep_within(self, view: View, placing: Placing) -> Placing:
        """The placing without the jobs that, after those before them in the view, would break a limit."""
        if not self.limits:
            return placing
        over = []
        for job in sorted(set(placing.job.tolist())):
            if self.broken(view.records[job].job) is None:
                self.take(view.records[job].job)
            else:
                over.append(job)
        rows = ~np.isin(placing.job, over)
        return Placing(placing.job[rows], placing.role[rows], placing.server[rows], placing.count[rows])


def blocked_by_limits(state: State, waiting: Sequence[JobRecord], time: float) -> dict[str, str]:
    """Jobs that no decision may start now because of a limit, and why, in words."""
    room = Headroom(state)
    if not room.limits:
        return {}
    late = [r for r in waiting if time - r.submitted > state.queues.patience and room.possible(r.job)]
    first: dict[str, JobRecord] = {}
    """The job for which something is kept, by owner."""
    for record in sorted(late, key=lambda r: r.number):
        owners = room.owners(record.job)
        if not any(owner in first for owner in owners):
            first.update(dict.fromkeys(owners, record))
    after = Headroom(state)
    for record in {record.number: record for record in first.values()}.values():
        after.take(record.job)
    blocked: dict[str, str] = {}
    for record in waiting:
        if limit := room.broken(record.job):
            blocked[record.job.id] = f"limit of {limit} reached"
        elif not any(first.get(owner) is record for owner in room.owners(record.job)):
            limit = after.broken(record.job)
            if limit and (keeper := first.get(limit.rpartition("/")[0])) is not None:
                blocked[record.job.id] = f"what is left of {limit} is kept for job {keeper.job.id}, which waits longest"
    return blocked


def view_within_limits(state: State, time: float) -> View:
    """What may be decided now: everybody who waits and whom no limit holds back."""
    view = make_view(state, time)
    blocked = blocked_by_limits(state, view.records, time)
    if not blocked:
        return view
    return view.only([i for i, record in enumerate(view.records) if record.job.id not in blocked])
