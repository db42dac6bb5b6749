"""Engines run jobs, or simulate them. An engine executes commands and reports events; it decides nothing.

The scheduler calls `snapshot` first, reconciles the journal with it, and then listens to `events`: they
are all that happened since, and perhaps some of what the snapshot has already. When the connection to an engine breaks,
`events` raises, and so it begins again with `snapshot`. Names of engines are `simulated`, `simulated:FILE` and
`simulated:unix:PATH` (`berth.live.engines.registry`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from berth.errors import BerthError
from berth.live.core.events import Command, Event, Failed, Finished
from berth.live.core.jobs import Job, Place, Server

__all__ = ["Attempt", "Engine", "EngineError", "Owner", "Refusing", "Snapshot"]


class EngineError(BerthError):
    """The engine cannot be reached, or could not do it now; the caller tries again later."""


@dataclass(frozen=True)
class Owner:
    """Whose attempts an engine keeps: the `name` of a store, which no other store has, and `where` that is.

    What one store started is nothing that another may end, though it is not on its paper.
    """

    name: str
    where: str = ""


@dataclass(frozen=True)
class Attempt:
    """An attempt of a job that an engine knows: where it is, and how it ended if it has.

    It may not have `began` yet where an engine takes its time after a start. `details` are as in `Started`.
    """

    job: str
    attempt: int
    places: tuple[Place, ...] = ()
    end: Finished | Failed | None = None
    began: bool = True
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """All that an engine knows at a moment: servers that are there, and attempts, running and lately ended.

    `waiting` are jobs that people gave to the engine itself, for the scheduler to place; their `origin` says so.
    """

    servers: tuple[Server, ...]
    attempts: tuple[Attempt, ...] = ()
    waiting: tuple[Job, ...] = ()


class Engine(Protocol):
    """Where jobs run."""

    async def snapshot(self) -> Snapshot:
        """What is there now; connects where there is a connection to make.

        `EngineError` where it cannot be known now, and `InvalidInput` where the engine's settings cannot be right.
        """
        ...

    def events(self) -> AsyncIterator[Event]:
        """What happens from the snapshot on: attempts start and end, servers come and go.

        Where people give jobs to the engine itself, `Submitted` and `Cancelled` tell of those that wait there.
        """
        ...

    async def execute(self, command: Command, job: Job | None, /) -> None:
        """Do as told. Doing it twice is doing it once: an attempt is started at most once, ended ones included.

        The end of an attempt that is to be cancelled is told by an event, even where it never began. Only a `Cancel` of
        something that is not on paper comes without its job.
        """
        ...

    async def close(self) -> None:
        """Let go of it; what runs goes on running where the engine is another process."""
        ...


@runtime_checkable
class Refusing(Protocol):
    """An engine that knows before a job is accepted that it could never run it."""

    def refusal(self, job: Job) -> str | None:
        """Why the engine could never run a job, and what to do instead; None where it could."""
        ...
