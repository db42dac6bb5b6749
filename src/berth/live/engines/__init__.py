"""Engines run jobs, or simulate them. An engine executes commands and reports events; it decides nothing.

The scheduler calls `snapshot` first, reconciles the journal with it, and then listens to `events`: they
are all that happened since, and perhaps some of what the snapshot has already. When the connection to an engine breaks,
`events` raises, and so it begins again with `snapshot`. Engines have names (`berth.live.engines.registry`).
This module has all that an engine needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from berth.errors import BerthError
from berth.live.core.events import Cancel, Command, Event, Failed, Finished, ServerJoined, ServerLost, Start, Started
from berth.live.core.jobs import Job, Place, Role, Server
from berth.live.engines.clock import Clock

__all__ = ["Attempt", "Engine", "EngineError", "EngineKind", "Owner", "Refusing", "Snapshot"]
__all__ += ["Cancel", "Command", "Event", "Failed", "Finished", "ServerJoined", "ServerLost", "Start", "Started"]
__all__ += ["Clock", "Job", "Place", "Role", "Server"]


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


@dataclass(frozen=True)
class EngineKind:
    """An engine by name; what an entry point of the group `berth.engines` names.

    A person writes `name` or `name:rest`. `settings` checks the rest, which is empty where there is none: it raises
    `InvalidInput`, makes nothing and connects to nothing. `make` makes the engine from what `settings` returned, with a
    clock, a file in which the engine may remember what runs, and the owner of its attempts. With `reads_file`, the rest
    is the path of a file (or `unix:` and that of a socket), which a configuration file names relative to its folder.
    """

    settings: Callable[[str], Any]
    make: Callable[[Any, Clock, Path | None, Owner | None], Engine]
    reads_file: bool = False
