"""Records of jobs and servers, and the results of handling an event; all of them immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from berth.live.core.events import Command
from berth.live.core.jobs import Job, Place, Server
from berth.live.core.queues import Queues
from berth.live.core.refusals import Refusal

__all__ = ["ENDED", "HOLDING", "DumpedState", "Handled", "JobRecord", "Outcome", "Phase", "ServerRecord"]

Phase = Literal["waiting", "starting", "running", "ending", "finished", "failed", "cancelled"]
ENDED = frozenset({"finished", "failed", "cancelled"})
HOLDING = frozenset({"starting", "running", "ending"})


@dataclass(frozen=True)
class JobRecord:
    """A job and its phase; `number` counts submissions. `reason` says why it ended, or waits again."""

    job: Job
    number: int
    submitted: float
    phase: Phase = "waiting"
    attempt: int = 0
    failures: int = 0
    unlucky: int = 0
    places: tuple[Place, ...] = ()
    since: float = 0.0
    """When it entered this phase."""
    started: float | None = None
    ended: float | None = None
    unwanted: bool = False
    """It was cancelled, and is removed when its attempt has ended."""
    overran: bool = False
    """Its attempt reached the time limit and is ending."""
    interrupting: bool = False
    """Its attempt is ending so that the next one continues its work."""
    reason: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    """What its engine reports for users about its latest attempt that ran."""
    last_output: str = ""
    """Text of the job itself about its latest failure; only its owner and operators may see it."""
    submitted_moved: float = 0.0
    started_moved: float = 0.0
    """By how many seconds these times were moved, so that durations from them are right although the system clock was
    set later: less that, they are the moments that the system clock showed."""
    interruptions: int = 0
    ran: float = 0.0
    """Seconds that its interrupted attempts ran, without the time that they needed to continue."""
    done: float = 0.0
    """The share of its work that they did, as far as the engine knows. After a failure of its own it begins anew."""

    def moved(self, seconds: float) -> JobRecord:
        """The record after a step of the system clock."""
        started, before = self.started, self.started_moved
        return replace(
            self,
            submitted=self.submitted + seconds,
            submitted_moved=self.submitted_moved + seconds,
            since=self.since + seconds,
            started=None if started is None else started + seconds,
            started_moved=before if started is None else before + seconds,
        )


@dataclass(frozen=True)
class ServerRecord:
    """A server and whether it may be used."""

    server: Server
    index: int
    lost: bool = False
    drained: bool = False

    @property
    def standing(self) -> Literal["up", "closed", "drained", "lost"]:
        """Whether it may be used, and if not why: the engine lost or closed it, or an operator drained it."""
        return "lost" if self.lost else "drained" if self.drained else "closed" if self.server.closed else "up"

    @property
    def usable(self) -> bool:
        """Whether a new job may start there."""
        return self.standing == "up"


@dataclass(frozen=True)
class Outcome:
    """A run to learn from: the job, its places, and its speed, or one speed a server.

    A run that was `cut` off was slower than that speed. `alike` are the servers that share what is learned with each
    of its servers.
    """

    number: int
    job: Job
    places: tuple[Place, ...]
    speed: float
    gains: Mapping[str, float] = field(default_factory=dict)
    cut: bool = False
    alike: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Handled:
    """The result of an event: commands to carry out, changed records, and what was learned."""

    commands: tuple[Command, ...] = ()
    changed: tuple[JobRecord, ...] = ()
    outcome: Outcome | None = None


@dataclass(frozen=True)
class DumpedState:
    """An immutable snapshot of all of a state that is not computed from the rest."""

    queues: Queues
    policy: str
    jobs: tuple[JobRecord, ...]
    servers: tuple[ServerRecord, ...]
    reserved: Mapping[str, str]
    learned: Mapping[str, Any]
    submissions: int
    time: float
    resources: tuple[str, ...]
    usage: Mapping[str, tuple[float, float]]
    shadow: str | None = None
    foresight: Mapping[str, Any] = field(default_factory=dict)
    calibration: tuple[float, ...] = ()
    refusals: Mapping[str, Mapping[str, Refusal]] = field(default_factory=dict)
