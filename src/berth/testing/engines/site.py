"""What `check_engine` needs of the world outside an engine: a cluster, jobs that really run there, and a witness.

The author of an engine writes one class on top of `Site`. Three methods must be there; where the tasks of a cluster can
write to a folder that the tests can read, `berth.testing.engines.ledger.Ledger` has two of them ready. The rest are
abilities: a check whose ability a site does not have is reported as not tried, never as passed.
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
"""Methods that a site may leave out."""


@dataclass(frozen=True)
class Script:
    """What each task of a job does: it runs for so many seconds and ends well.

    Where `fails` names a role, its tasks fail after these seconds, and tasks of other roles would run for an hour.
    `arguments` come last on the command line of each task, and `environment` is what the payload adds to its own.
    """

    seconds: float
    fails: str | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sighting:
    """A task that really began, as the witness saw it, and what became of it.

    It `runs`, has `ended` by itself, well or not, or is `gone`: it does not run any more and did not come to its end.
    `arguments` are the last ones of its command line, and `environment` has at least those variables of its script that
    the task has.
    """

    job: str
    attempt: int
    role: str
    server: str
    state: Literal["runs", "ended", "gone"]
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Site(ABC):
    """A cluster of at least 3 servers with at least 2 cpus each, which nobody else uses meanwhile."""

    name: str = ""
    """What the engine is called in reports; the name of the class where it is left out."""
    short: float = 1.0
    """Seconds that a short job runs: less where everything happens at once, more where starting takes long."""
    patience: float = 60.0
    """Seconds after which something that has not happened is taken not to happen at all."""
    runs_payload: bool = True
    """Whether tasks really get the arguments and the environment of their job's payload."""
    another_process: bool = True
    """Whether jobs go on when the engine is closed."""

    @abstractmethod
    async def engine(self) -> Engine:
        """A new driver of the same cluster. At most one is open at a time: the last is closed before the next is made.

        So closing one and making another is a restart of the scheduler's side.
        """

    @abstractmethod
    def job(self, id: str, roles: tuple[Role, ...], script: Script) -> Job:
        """A job of this id and these roles, whose tasks do what the script says; demands may be added to."""

    @abstractmethod
    async def begun(self) -> Sequence[Sighting]:
        """Every task that began since the site was made, once for each time, by a witness that is not the engine."""

    async def lose(self, server: str) -> None:
        """Take a server away, with what runs there or without; return when that is done, not when it is noticed."""
        raise NotImplementedError(LEFT_OUT)

    async def restore(self, server: str) -> None:
        """Bring it back."""
        raise NotImplementedError(LEFT_OUT)

    async def restart(self) -> None:
        """Restart the other side (a controller, a head node, a server process) under what runs; it is up at the end."""
        raise NotImplementedError(LEFT_OUT)

    async def cancel_behind(self, job: str, attempt: int) -> None:
        """End an attempt as somebody would who does not use the engine, such as the cluster's operator."""
        raise NotImplementedError(LEFT_OUT)

    def lacks(self, *abilities: str) -> list[str]:
        """Those of these abilities that this site does not have."""
        return [name for name in abilities if getattr(type(self), name) is getattr(Site, name)]
