"""Settings of a service, and queues, shares and quotas as users write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, InstanceOf

from berth.files.quantities import amounts, format_amounts
from berth.files.wording import NAME, Amounts, Part, Spec, Switch, by
from berth.live.core.queues import Queue, Queues
from berth.live.core.specs import Duration

__all__ = ["QueueSpec", "QueuesSpec", "ServiceSettings"]


def _queues(value: object) -> object:
    return value if isinstance(value, Queues | None) else QueuesSpec.model_validate(value).queues_()


class ServiceSettings(Part):
    """The settings of `Scheduler.open`.

    `store` is the path of an SQLite file or `postgresql://…`; `engine` is where jobs run (`berth.live.engines`).
    Without `policy` or `queues` the store's values stay, or the defaults of a new store. `faster` is how many seconds
    of the clock pass in one. A decision is made every `tick` seconds, and `soon` after something happened. A snapshot
    is written every `snapshot_every` events. Events and ended jobs are kept for ever, or for `retention` seconds.
    `engine_state` is a file in which a simulated engine keeps its running jobs. Servers with the same value of the
    label `learn_by` share what is learned. With `show_commands`, every reader sees the commands of all jobs. A service
    with a real engine and no token creates one for its own user, unless it is `open` to all local users.
    """

    store: str = "berth.db"
    engine: str = "simulated"
    policy: str | None = None
    queues: Annotated[InstanceOf[Queues] | None, by(_queues)] = None
    seed: int = 0
    budget: Annotated[float, Field(ge=0)] = 1.0
    faster: Annotated[float, Field(ge=1e-6)] = 1.0
    tick: Annotated[float, Field(ge=1e-3)] = 1.0
    soon: Annotated[float, Field(ge=0)] = 0.02
    snapshot_every: Annotated[int, Field(ge=1)] = 20_000
    retention: Annotated[float, Field(ge=0)] | None = None
    engine_state: str | None = None
    learn_by: str | None = None
    show_commands: Switch = False
    open: Switch = False

    @property
    def guarded(self) -> bool:
        """Whether the service demands a token from the first start on; a simulated cluster needs none."""
        return not self.open and self.engine.partition(":")[0] != "simulated"


Number = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Name = Annotated[str, Field(pattern=NAME)]
Priority = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]
Names = Annotated[list[Name], Field(max_length=10_000)]


class QueueSpec(Spec):
    """A queue: its priority, whether it accepts jobs and starts them, and the most that its jobs may hold.

    For users who are not operators, `max_priority` is the highest priority of a job. With `users` or `teams`, only
    these users and the members of these teams may use the queue.
    """

    priority: Priority = 0
    accepts: bool = True
    starts: bool = True
    limit: Amounts = Field(default_factory=dict)
    default_time: Annotated[Duration, Field(description="time limit of jobs without one")] = None
    max_time: Annotated[Duration, Field(description="the longest time limit that a job may have")] = None
    max_priority: Priority = 0
    users: Names = Field(default_factory=list)
    teams: Names = Field(default_factory=list)


class QueuesSpec(Spec):
    """All settings that order waiting jobs, and who may use which queue and team.

    If any team has `members`, users who are not operators may only submit for teams that list them, and for the team
    `default`.
    """

    queues: Annotated[dict[Name, QueueSpec], Field(min_length=1, max_length=1000)]
    shares: Annotated[dict[Name, Annotated[float, Field(gt=0, le=1e12)]], Field(max_length=10_000)] = Field(
        default_factory=dict
    )
    quotas: Annotated[dict[str, Amounts], Field(max_length=10_000)] = Field(default_factory=dict)
    aging: Number = 1.0
    fairness: Number = 1.0
    half_life: Annotated[float, Field(ge=1, le=1e12, allow_inf_nan=False)] = 604800.0
    patience: Number = 3600.0
    members: Annotated[dict[Name, Names], Field(max_length=10_000)] = Field(default_factory=dict)

    def queues_(self) -> Queues:
        """Convert to the dispatcher's type."""
        limits: Mapping[str, Queue] = {
            name: Queue(
                queue.priority,
                queue.accepts,
                queue.starts,
                amounts(queue.limit, f"queues.{name}.limit"),
                queue.default_time,
                queue.max_time,
                max_priority=queue.max_priority,
                users=tuple(queue.users),
                teams=tuple(queue.teams),
            )
            for name, queue in self.queues.items()
        }
        quotas = {owner: amounts(limit, f"quotas.{owner}") for owner, limit in self.quotas.items()}
        members = {team: tuple(users) for team, users in self.members.items()}
        weights = self.aging, self.fairness, self.half_life, self.patience
        return Queues(limits, dict(self.shares), quotas, *weights, members=members)

    @classmethod
    def of(cls, queues: Queues) -> QueuesSpec:
        """Convert from the dispatcher's type."""
        return cls(
            queues={
                name: QueueSpec(
                    priority=queue.priority,
                    accepts=queue.accepts,
                    starts=queue.starts,
                    limit=dict(format_amounts(queue.limit)),
                    default_time=queue.default_time,
                    max_time=queue.max_time,
                    max_priority=queue.max_priority,
                    users=list(queue.users),
                    teams=list(queue.teams),
                )
                for name, queue in queues.queues.items()
            },
            shares=dict(queues.shares),
            quotas={owner: dict(format_amounts(limit)) for owner, limit in queues.quotas.items()},
            aging=queues.aging,
            fairness=queues.fairness,
            half_life=queues.half_life,
            patience=queues.patience,
            members={team: list(users) for team, users in queues.members.items()},
        )
