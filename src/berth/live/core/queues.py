"""Queues, priorities, aging, fair shares and quotas.

A job's standing is the priority of its queue and its own, plus `aging` for each hour that it waits, less `fairness`
times the share of all usage by which its team exceeds its fair share. Rounded down it is the job's level. Higher levels
are served first; inside a level the policy decides, and sees earlier jobs first. A job's usage is its dominant share of
the cluster, times how long it held its resources; usage decays by half every `half_life`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from berth.errors import InvalidInput
from berth.files.quantities import Amounts
from berth.live.core.jobs import Job, check_id

__all__ = ["Queue", "Queues"]


@dataclass(frozen=True)
class Queue:
    """A queue: its priority, whether it accepts jobs, and whether they may start.

    Jobs without a time limit get `default_time` seconds; no time limit may be longer than `max_time`. Users who are
    not operators have ceilings: `max_priority` is the highest priority of a job. With `users` or `teams`, only these
    users and the members of these teams may use the queue.
    """

    priority: int = 0
    accepts: bool = True
    starts: bool = True
    limit: Amounts = field(default_factory=dict)
    default_time: float | None = None
    max_time: float | None = None
    max_priority: int = 0
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("default_time", "max_time"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidInput("a finite number > 0", value=value, key=name)
        if self.max_time is not None and (self.default_time or 0.0) > self.max_time:
            raise InvalidInput(f"at most `max_time`, {self.max_time:g}", value=self.default_time, key="default_time")


@dataclass(frozen=True)
class Queues:
    """All settings that order waiting jobs.

    `shares` are weights of teams, 1 by default; `quotas` are the most that a team (`team:NAME`) or a user
    (`user:NAME`) may hold at a time. Servers are reserved for a job that waits longer than `patience` seconds, one job
    at a time, so that no job starves. `members` are the users of each team; if any team has members, a user may only
    submit for teams that list the user, and for the team `default`.
    """

    queues: Mapping[str, Queue] = field(default_factory=lambda: {"default": Queue()})
    shares: Mapping[str, float] = field(default_factory=dict)
    quotas: Mapping[str, Amounts] = field(default_factory=dict)
    aging: float = 1.0
    fairness: float = 1.0
    half_life: float = 7 * 86400.0
    patience: float = 3600.0
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.queues:
            raise InvalidInput("at least one queue", key="queues")
        for name in self.queues:
            check_id(name, "queues")
        for team, share in self.shares.items():
            if not (math.isfinite(share) and share > 0):
                raise InvalidInput("a finite number > 0", value=share, key=f"shares.{team}")
        for owner in self.quotas:
            kind, _, name = owner.partition(":")
            if kind not in ("team", "user") or not name:
                raise InvalidInput("team:NAME or user:NAME", value=owner, key="quotas")
        for setting, low in (("aging", 0.0), ("fairness", 0.0), ("half_life", 1.0), ("patience", 0.0)):
            value = getattr(self, setting)
            if not (math.isfinite(value) and value >= low):
                raise InvalidInput(f"a finite number ≥ {low:g}", value=value, key=setting)
        for name, queue in self.queues.items():
            for team in queue.teams:
                if team not in self.members:
                    there = ", ".join(self.members) or "there is none"
                    raise InvalidInput(f"a team with members: {there}", value=team, key=f"queues.{name}.teams")

    def limited(self, job: Job) -> Job:
        """The job with the default time limit of its queue, if it has none of its own."""
        queue = self.queues.get(job.queue)
        if job.limit is not None or job.origin or queue is None:
            return job
        limit = queue.default_time or queue.max_time
        return job if limit is None else job.replace(limit=limit)

    def refusal(self, job: Job) -> tuple[str, str] | None:
        """The field of a job that is above a ceiling for its user, and the ceiling; None if the job is allowed.

        >>> from berth.live.core.jobs import Job, Role
        >>> job = Job("a", "t", (Role("task", 1, {}),), user="ann", priority=5)
        >>> Queues().refusal(job)
        ('priority', 'queue default allows priority up to 0 (max_priority), and the job asks for 5')
        """
        queue = self.queues.get(job.queue)
        if queue is None:
            return None
        if self.members and job.team != "default" and job.user not in self.members.get(job.team, ()):
            mine = ", ".join(["default", *(team for team, users in self.members.items() if job.user in users)])
            return "team", f"user {job.user} is not a member of team {job.team} (members); teams of this user: {mine}"
        if (queue.users or queue.teams) and job.user not in queue.users and job.team not in queue.teams:
            allowed = [f"users {', '.join(queue.users)}"] * bool(queue.users)
            allowed += [f"teams {', '.join(queue.teams)}"] * bool(queue.teams)
            return "queue", f"queue {job.queue} is for {' and '.join(allowed)}; this is {job.user} of team {job.team}"
        if job.priority > queue.max_priority:
            return "priority", (
                f"queue {job.queue} allows priority up to {queue.max_priority} (max_priority), "
                f"and the job asks for {job.priority}"
            )
        return None

    def capped(self, job: Job) -> Job:
        """Cap the priority of a job that was not submitted to the service, at what its queue allows."""
        queue = self.queues.get(job.queue)
        return job if queue is None or job.priority <= queue.max_priority else job.replace(priority=queue.max_priority)
