"""Engines run jobs, or simulate them. An engine executes commands and reports events; it decides nothing.

The scheduler calls `snapshot` first, reconciles the journal with it, and then listens to `events`: everything that
happened since, perhaps repeating some of the snapshot. When the connection to an engine breaks, `events` raises, and
the scheduler begins again with `snapshot`. Engines have names (`berth.live.engines.registry`). This module has all
that an engine needs.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from berth.errors import BerthError, InvalidInput
from berth.live.core.events import (
    Cancel,
    Command,
    Event,
    Failed,
    Finished,
    Interrupt,
    ServerJoined,
    ServerLost,
    Start,
    Started,
)
from berth.live.core.jobs import Job, Place, Role, Server
from berth.live.engines.clock import Clock

__all__ = [
    "ADOPTED",
    "Attempt",
    "Engine",
    "EngineError",
    "EngineKind",
    "Interrupting",
    "Logging",
    "NoLogs",
    "Noting",
    "Owner",
    "Paused",
    "Pausing",
    "Recalling",
    "Refusing",
    "Remembering",
    "Sizing",
    "Snapshot",
    "check_name",
]
__all__ += [
    "Cancel",
    "Command",
    "Event",
    "Failed",
    "Finished",
    "Interrupt",
    "ServerJoined",
    "ServerLost",
    "Start",
    "Started",
]
__all__ += ["Clock", "Job", "Place", "Role", "Server"]

ADOPTED = {
    "slurm": re.compile(r"slurm-\d+-\d+", re.ASCII),
    "kubernetes": re.compile(r"kubernetes-[a-z0-9.-]+-[0-9a-f]{12}", re.ASCII),
}
"""The names of jobs that users submit to an engine itself, by engine."""


def check_name(job: str) -> None:
    """Refuse a name that an engine gives to its own jobs: a user who took it first could act on such a job.

    >>> check_name("train-1")
    >>> check_name("slurm-17-1700000000")
    Traceback (most recent call last):
        ...
    berth.errors.InvalidInput: name: got 'slurm-17-1700000000', expected another form: berth gives such names to jobs \
that users submit to slurm itself
    """
    for engine, names in ADOPTED.items():
        if names.fullmatch(job):
            expected = f"another form: berth gives such names to jobs that users submit to {engine} itself"
            raise InvalidInput(expected, value=job, key="name")


class EngineError(BerthError):
    """The engine cannot be reached, or failed for now; the caller retries later."""


class Paused(EngineError):
    """The engine takes no starts now, and the start had no effect; the caller retries after `seconds`."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


@dataclass(frozen=True)
class Owner:
    """The owner of an engine's attempts: the unique `name` of a store, and `where` the store is.

    A store must not end attempts of another store, though they are absent from its journal.
    """

    name: str
    where: str = ""


@dataclass(frozen=True)
class Attempt:
    """An attempt that an engine knows: its places while it runs, and its end if it has ended.

    `began` is False until an engine that takes its time has started it. `details` are as in `Started`.
    """

    job: str
    attempt: int
    places: tuple[Place, ...] = ()
    end: Finished | Failed | None = None
    began: bool = True
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """An engine's state at a moment: servers that are present, and attempts, running and recently ended.

    `waiting` are jobs that users submitted to the engine itself, for the scheduler to place; their `origin` says so.
    """

    servers: tuple[Server, ...]
    attempts: tuple[Attempt, ...] = ()
    waiting: tuple[Job, ...] = ()


class Engine(Protocol):
    """The interface of an engine."""

    async def snapshot(self) -> Snapshot:
        """The current state; connects first if necessary.

        Raises `EngineError` if it cannot be known now, and `InvalidInput` if the engine's settings are wrong.
        """
        ...

    def events(self) -> AsyncIterator[Event]:
        """Events from the snapshot on: attempts start and end, servers join and leave.

        If users submit jobs to the engine itself, `Submitted` and `Cancelled` report those that wait there.
        """
        ...

    async def execute(self, command: Command, job: Job | None, /) -> None:
        """Execute a command, idempotently: an attempt is started at most once, ended attempts included.

        The end of a cancelled attempt is reported by an event, even if it never began. Only the `Cancel` of an attempt
        that is not in the journal comes without its job.
        """
        ...

    async def close(self) -> None:
        """Disconnect; if the engine is another process, jobs go on running."""
        ...


@runtime_checkable
class Refusing(Protocol):
    """An engine that can refuse a job before it is accepted."""

    def refusal(self, job: Job) -> str | None:
        """Why the engine could never run a job, and what to do instead; None if it could."""
        ...


@runtime_checkable
class Pausing(Protocol):
    """An engine that may take no starts for a while; its `execute` then raises `Paused`."""

    @property
    def paused(self) -> str | None:
        """Why the engine takes no starts now; None if it takes them."""
        ...


@runtime_checkable
class Interrupting(Protocol):
    """An engine that executes `Interrupt`: it ends the attempt, and the next attempt of the job continues its work.

    It reports `Failed` with the fault "interrupted". Without this, the scheduler takes no policy that interrupts jobs.
    """

    @property
    def interrupts(self) -> bool:
        """Whether it can do so as it is set up."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """An engine that must remember the ends of attempts until the journal has them, or it would start them again."""

    def settled(self, ended: Iterable[tuple[str, int]], /) -> None:
        """Forget these attempts whenever it suits: the journal has their ends."""
        ...


@runtime_checkable
class Recalling(Protocol):
    """An engine that says which jobs it still knows. Their records stay; with other engines, those of all jobs do.

    A job that the engine knows must not be deleted: a new job of the same name would not start, because its attempt
    has ended before, and a job that waits at the engine would be accepted as a new one.
    """

    async def recalled(self) -> Collection[str]:
        """The ids of jobs with an attempt that the engine remembers, and of those that wait at the engine."""
        ...


@runtime_checkable
class Sizing(Protocol):
    """An engine on which a task may take more of its server than its owner asks for."""

    def sized(self, job: Job) -> Job:
        """The job with what its tasks really take as `demand`, and what its owner asked for as `asked`."""
        ...


class NoLogs(BerthError):
    """There is no output to show; the message says why."""


@runtime_checkable
class Noting(Protocol):
    """An engine that can show why a job waits to the users who submitted it there."""

    async def note(self, job: str, text: str, /) -> None:
        """Show why a job that waits at the engine has not started."""
        ...


@runtime_checkable
class Logging(Protocol):
    """An engine that can show what the tasks of an attempt wrote."""

    async def logs(self, job: str, attempt: int, task: int | None, tail: int) -> str:
        """The last `tail` lines of each task of an attempt, or of one task.

        Tasks are numbered from 0 in the order of the places. If the output of several tasks is shown, each line begins
        with `role-rank: `. Raises `NoLogs` if there is none, and `EngineError` if it cannot be read now.
        """
        ...


@dataclass(frozen=True)
class EngineKind:
    """An engine by name: the object of an entry point in the group `berth.engines`.

    A user writes `name` or `name:rest`. `settings` validates the rest, which may be empty: it raises `InvalidInput`,
    and neither creates anything nor connects. `make` makes the engine from the result of `settings`, with a clock, a
    file in which the engine may remember what runs, and the owner of its attempts. With `reads_file`, the rest is the
    path of a file (or `unix:` and that of a socket), relative to the folder of a configuration file that names it.
    """

    settings: Callable[[str], Any]
    make: Callable[[Any, Clock, Path | None, Owner | None], Engine]
    reads_file: bool = False
