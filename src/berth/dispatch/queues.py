"""Who comes first: queues, priorities, aging, fair shares and quotas.

A job's standing is the priority of its queue and its own, plus `aging` for each hour that it waits, less `fairness`
times the part of all usage that its team has beyond its share. Rounded down it is the job's level. Higher levels are
served first; inside a level the policy decides who starts, and hears of the earlier first. Usage is the largest share
of the cluster that a job's resources are, times how long it held them; it is forgotten by half every `half_life`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from berth.dispatch.jobs import Job, check_id
from berth.dispatch.quantities import Amounts
from berth.errors import InvalidInput

__all__ = ["Queue", "Queues"]


@dataclass(frozen=True)
class Queue:
    """A line in which jobs wait: its priority, whether it is open to jobs, and whether they may start.

    Jobs that come without a time limit get `default_time` seconds; no time limit may be longer than `max_time`.
    """

    priority: int = 0
    accepts: bool = True
    starts: bool = True
    limit: Amounts = field(default_factory=dict)
    default_time: float | None = None
    max_time: float | None = None

    def __post_init__(self) -> None:
        for name in ("default_time", "max_time"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidInput("a finite number > 0", value=value, key=name)
        if self.max_time is not None and (self.default_time or 0.0) > self.max_time:
            raise InvalidInput(f"at most `max_time`, {self.max_time:g}", value=self.default_time, key="default_time")


@dataclass(frozen=True)
class Queues:
    """All settings that order the waiting.

    `shares` are weights of teams, 1 where a team has none; `quotas` the most that a team (`team:NAME`) or a user
    (`user:NAME`) may hold at a time. Whoever waits longer than `patience` seconds gets servers kept for it, one job at
    a time, so that nothing starves.
    """

    queues: Mapping[str, Queue] = field(default_factory=lambda: {"default": Queue()})
    shares: Mapping[str, float] = field(default_factory=dict)
    quotas: Mapping[str, Amounts] = field(default_factory=dict)
    aging: float = 1.0
    fairness: float = 1.0
    half_life: float = 7 * 86400.0
    patience: float = 3600.0

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

    def limited(self, job: Job) -> Job:
        """The job with the time limit of its queue, where it has none of its own."""
        queue = self.queues.get(job.queue)
        if job.limit is not None or job.origin or queue is None:
            return job
        limit = queue.default_time or queue.max_time
        return job if limit is None else job.replace(limit=limit)
