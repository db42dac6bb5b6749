"""A plain twin of `berth.live.core.limits`: one job after another, in Python."""

from __future__ import annotations

from collections.abc import Sequence

from berth.live.core.jobs import Job
from berth.live.core.limits import limits_of
from berth.live.core.records import JobRecord
from berth.live.core.state import State

__all__ = ["Room", "blocked", "kept_within"]


class Room:
    """What each owner may still take."""

    def __init__(self, state: State) -> None:
        self._state, self.limits = state, limits_of(state)
        self.held = {owner: dict(state.held.get(owner, {})) for owner in self.limits}

    def owners(self, job: Job) -> list[str]:
        return [owner for owner in self._state.owners(job) if owner in self.limits]

    def broken(self, job: Job) -> str | None:
        """The first limit, such as `team:a/gpu`, that a job would break now."""
        for owner in self.owners(job):
            for name, most in self.limits[owner].items():
                asked = job.total.get(name, 0)
                if asked and self.held[owner].get(name, 0) + asked > most:
                    return f"{owner}/{name}"
        return None

    def possible(self, job: Job) -> bool:
        return all(
            job.total.get(name, 0) <= most for owner in self.owners(job) for name, most in self.limits[owner].items()
        )

    def take(self, job: Job) -> None:
        for owner in self.owners(job):
            for name, milli in job.total.items():
                self.held[owner][name] = self.held[owner].get(name, 0) + milli


def kept_within(room: Room, jobs: Sequence[Job]) -> list[str]:
    """The jobs, of those that a policy starts in this order, that break no limit."""
    kept = []
    for job in jobs:
        if room.broken(job) is None:
            room.take(job)
            kept.append(job.id)
    return kept


def blocked(state: State, waiting: Sequence[JobRecord], time: float) -> dict[str, str]:
    """Which of these jobs a limit holds back, and why."""
    room = Room(state)
    if not room.limits:
        return {}
    late = [r for r in waiting if time - r.submitted > state.queues.patience and room.possible(r.job)]
    first: dict[str, JobRecord] = {}
    for record in sorted(late, key=lambda r: r.number):
        owners = room.owners(record.job)
        if not any(owner in first for owner in owners):
            first.update(dict.fromkeys(owners, record))
    after = Room(state)
    for record in {record.number: record for record in first.values()}.values():
        after.take(record.job)
    why: dict[str, str] = {}
    for record in waiting:
        if limit := room.broken(record.job):
            why[record.job.id] = f"limit of {limit} reached"
        elif not any(first.get(owner) is record for owner in room.owners(record.job)):
            limit = after.broken(record.job)
            if limit and (keeper := first.get(limit.rpartition("/")[0])) is not None:
                why[record.job.id] = f"the rest of {limit} is reserved for job {keeper.job.id}, which waits longest"
    return why
