"""Test site of an engine: a cluster, jobs that really run there, and a witness.

The author of an engine writes one subclass of `Site`. Three methods are required; if the tasks of a cluster can write
to a folder that the tests can read, `berth.testing.engines.ledger.Ledger` provides two of them. The rest are optional
abilities: a check that needs a missing ability is reported as not tried, never as passed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from berth.live.core.jobs import Job, Role
from berth.live.engines import Engine

__all__ = ["ABILITIES", "Script", "Sighting", "Site"]

LEFT_OUT = "this site leaves it out: checks that need it are reported as not tried (Site.lacks)"
ABILITIES = ("lose", "restore", "restart", "cancel_behind")
"""Optional methods of a site."""


@dataclass(frozen=True)
class Script:
    """What each task of a job does: it runs for `seconds` and succeeds.

    If `fails` names a role, its tasks fail after these seconds, and tasks of other roles would run for an hour.
    `arguments` come last on the command line of each task, and the payload adds `environment` to that of the task.
    """

    seconds: float
    fails: str | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sighting:
    """A task that really began, as the witness saw it, and its state.

    A task `runs`, has `ended` by itself, successfully or not, or is `gone`: it stopped before its end. `arguments` are
    the last ones of its command line, and `environment` has at least those variables of its script that the task has.
    """

    job: str
    attempt: int
    role: str
    server: str
    state: Literal["runs", "ended", "gone"]
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Site(ABC):
    """A cluster of at least 3 servers with at least 2 cpus each, reserved for the test."""

    name: str = ""
    """Name of the engine in reports; default: the name of the class."""
    short: float = 1.0
    """Run time of a short job in seconds: less for instant clusters, more if starting takes long."""
    patience: float = 60.0
    """Timeout in seconds for every expected event."""
    runs_payload: bool = True
    """Whether tasks really get the arguments and the environment of their job's payload."""
    another_process: bool = True
    """Whether jobs go on when the engine is closed."""

    @abstractmethod
    async def engine(self) -> Engine:
        """Make a new driver of the same cluster. At most one is open at a time: the last is closed before the next is
        made.

        So closing one and making another is a restart of the scheduler.
        """

    @abstractmethod
    def job(self, id: str, roles: tuple[Role, ...], script: Script) -> Job:
        """Make a job of this id and these roles, whose tasks follow the script; demands may be added to."""

    @abstractmethod
    async def begun(self) -> Sequence[Sighting]:
        """Every task that began since the site was made, once for each time, by a witness other than the engine."""

    async def lose(self, server: str) -> None:
        """Take a server away, with or without what runs there; return when done, not when the engine notices."""
        raise NotImplementedError(LEFT_OUT)

    async def restore(self, server: str) -> None:
        """Bring the server back."""
        raise NotImplementedError(LEFT_OUT)

    async def restart(self) -> None:
        """Restart the cluster's side (controller, head node, server process) while jobs run; it is up at the end."""
        raise NotImplementedError(LEFT_OUT)

    async def cancel_behind(self, job: str, attempt: int) -> None:
        """End an attempt without the engine, as the cluster's operator would."""
        raise NotImplementedError(LEFT_OUT)

    def lacks(self, *abilities: str) -> list[str]:
        """Abilities among these that the site lacks."""
        return [name for name in abilities if getattr(type(self), name) is getattr(Site, name)]
