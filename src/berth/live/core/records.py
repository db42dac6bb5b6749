"""Records of jobs and servers, and the results of handling an event; all of them immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from berth.live.core.events import Command
from berth.live.core.jobs import Job, Place, Server
from berth.live.core.queues import Queues

__all__ = ["ENDED", "HOLDING", "DumpedState", "Handled", "JobRecord", "Outcome", "Phase", "ServerRecord"]

Phase = Literal["waiting", "starting", "running", "ending", "finished", "failed", "cancelled"]
ENDED = frozenset({"finished", "failed", "cancelled"})
HOLDING = frozenset({"starting", "running", "ending"})


@dataclass(frozen=True)
class JobRecord:
    """A job and how it stands; `number` counts submissions. `reason` says why it ended, or waits again."""

    job: Job
    number: int
    submitted: float
    phase: Phase = "waiting"
    attempt: int = 0
    failures: int = 0
    unlucky: int = 0
    places: tuple[Place, ...] = ()
    since: float = 0.0
    """When it came to this phase."""
    started: float | None = None
    ended: float | None = None
    unwanted: bool = False
    """It was cancelled; it is gone when its attempt has ended."""
    overran: bool = False
    """Its attempt reached the time limit and is ending."""
    reason: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    """What its engine says of its latest attempt that ran, for people."""
    last_output: str = ""
    """Text of the job itself about its latest failure; only its owner and operators may see it."""


@dataclass(frozen=True)
class ServerRecord:
    """A server and whether it may be used."""

    server: Server
    index: int
    lost: bool = False
    drained: bool = False

    @property
    def standing(self) -> Literal["up", "closed", "drained", "lost"]:
        """Whether it may be used, and if not why: its engine lost it or closed it, or an operator drained it."""
        return "lost" if self.lost else "drained" if self.drained else "closed" if self.server.closed else "up"

    @property
    def usable(self) -> bool:
        """Whether something new may start there."""
        return self.standing == "up"


@dataclass(frozen=True)
class Outcome:
    """A run that teaches: the job, where it ran, and its speed, or one for each server.

    One that was `cut` off did not reach that speed. `alike` are servers that count as one, by each of its servers.
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
    """What came of an event: what is to be done, whose records changed, and what was learned."""

    commands: tuple[Command, ...] = ()
    changed: tuple[JobRecord, ...] = ()
    outcome: Outcome | None = None


@dataclass(frozen=True)
class DumpedState:
    """All of a state that is not computed from the rest; nothing changes it any more."""

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
