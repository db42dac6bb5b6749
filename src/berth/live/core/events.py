"""Events that the dispatcher handles, and commands that it gives.

Every event has a `time` and can be written as JSON and read back, so a restart needs only the journal of events.
`Decided` is an event too: a replay of the journal does not decide again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from berth.errors import BerthError, InvalidInput
from berth.live.core.jobs import Job, Place, Server
from berth.live.core.queues import Queues

__all__ = [
    "Cancel",
    "Cancelled",
    "ClockStepped",
    "Command",
    "Decided",
    "Event",
    "Failed",
    "Finished",
    "Foretold",
    "Interrupt",
    "Overran",
    "PolicyChanged",
    "QueuesChanged",
    "ServerChanged",
    "ServerDrained",
    "ServerJoined",
    "ServerLost",
    "ServerResumed",
    "ShadowChanged",
    "Start",
    "Started",
    "Submitted",
    "last_line",
    "read_event",
    "write_event",
]

LONGEST = 300
"""The most characters of a last line of output."""


@dataclass(frozen=True)
class Start:
    """Start a job on these places, all of them or none. The command is idempotent."""

    job: str
    attempt: int
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Cancel:
    """End an attempt, wherever it is; the engine then reports how it ended.

    A job that waits at the engine too ends there with its latest attempt, 0 before the first.
    """

    job: str
    attempt: int


@dataclass(frozen=True)
class Interrupt(Cancel):
    """End a running attempt so that the next one continues its work.

    The engine then reports `Failed` with the fault "interrupted". An engine that cannot keep the work cancels.
    """


Command = Start | Cancel


@dataclass(frozen=True)
class Submitted:
    """A job was accepted."""

    time: float
    job: Job
    kind: Literal["submitted"] = "submitted"


@dataclass(frozen=True)
class Cancelled:
    """A user or an operator cancelled a job."""

    time: float
    job: str
    by: str = ""
    kind: Literal["cancelled"] = "cancelled"


@dataclass(frozen=True)
class Started:
    """All tasks of an attempt run; `details` are facts for users, such as where its output is."""

    time: float
    job: str
    attempt: int
    details: Mapping[str, str] = field(default_factory=dict)
    kind: Literal["started"] = "started"


@dataclass(frozen=True)
class Finished:
    """An attempt finished.

    `seconds` is how long it ran by the engine's clock; by default the time between the events. An engine that measures
    each server gives one number a server in `gains`.
    """

    time: float
    job: str
    attempt: int
    seconds: float | None = None
    gains: Mapping[str, float] = field(default_factory=dict)
    kind: Literal["finished"] = "finished"


@dataclass(frozen=True)
class Failed:
    """An attempt failed, by its own `fault` ("job"), that of a "server" or the "engine", or because it was
    "cancelled" or "interrupted".

    Only the job's own faults count against its retries. `seconds` is how long it ran, as for `Finished`: a run that
    was cut off was no faster than that, unless the engine lost track of it. The next attempt continues the work of an
    interrupted one: `done` is the share of the job's whole work that is done, None if the engine does not know it, and
    `seconds` leaves out the time that the attempt itself needed to continue. `last_output` is text of the job itself,
    such as the last line it printed: only the job's owner and operators may see it. `refused_by` are the servers that
    would not take an attempt that never began, empty if that was the cluster as a whole; by default all its servers if
    the fault is "server", and the cluster as a whole if it is "engine".
    """

    time: float
    job: str
    attempt: int
    reason: str = ""
    fault: Literal["job", "server", "engine", "cancelled", "interrupted"] = "job"
    seconds: float | None = None
    last_output: str = ""
    refused_by: tuple[str, ...] | None = None
    done: float | None = None
    kind: Literal["failed"] = "failed"


@dataclass(frozen=True)
class Overran:
    """An attempt reached the time limit of its job and is to end; that counts as the job's own failure."""

    time: float
    job: str
    attempt: int
    kind: Literal["overran"] = "overran"


@dataclass(frozen=True)
class ServerJoined:
    """A server joined the cluster."""

    time: float
    server: Server
    kind: Literal["server-joined"] = "server-joined"


@dataclass(frozen=True)
class ServerChanged:
    """The capacity, labels or speed of a server changed."""

    time: float
    server: Server
    kind: Literal["server-changed"] = "server-changed"


@dataclass(frozen=True)
class ServerLost:
    """A server was lost; attempts that use it are ended on all their servers."""

    time: float
    server: str
    kind: Literal["server-lost"] = "server-lost"


@dataclass(frozen=True)
class ServerDrained:
    """No new job may start on a server."""

    time: float
    server: str
    by: str = ""
    kind: Literal["server-drained"] = "server-drained"


@dataclass(frozen=True)
class ServerResumed:
    """A drained server may be used again."""

    time: float
    server: str
    by: str = ""
    kind: Literal["server-resumed"] = "server-resumed"


@dataclass(frozen=True)
class QueuesChanged:
    """New settings of queues, shares and quotas."""

    time: float
    queues: Queues
    by: str = ""
    kind: Literal["queues-changed"] = "queues-changed"


@dataclass(frozen=True)
class PolicyChanged:
    """A new policy decides from now on."""

    time: float
    policy: str
    by: str = ""
    reason: str = ""
    kind: Literal["policy-changed"] = "policy-changed"


@dataclass(frozen=True)
class ShadowChanged:
    """A new shadow policy runs beside the policy from now on, or none."""

    time: float
    policy: str | None
    by: str = ""
    kind: Literal["shadow-changed"] = "shadow-changed"


@dataclass(frozen=True)
class ClockStepped:
    """The system clock was set ahead by `seconds` (back if negative): times from now on are those of the new clock.

    Durations do not count it. So the state moves all times that durations are measured from.
    """

    time: float
    seconds: float
    kind: Literal["clock-stepped"] = "clock-stepped"


@dataclass(frozen=True)
class Decided:
    """A decision of the policy, or of the fallback: `refused` says why the policy's own decision was refused.

    `waiting` is how many jobs it chose from, `seconds` how long it took, `reserved` the servers reserved for a job
    that has waited too long. The attempts in `interrupts` end, and their places are free once the engine has said so.
    """

    time: float
    by: str
    starts: tuple[Start, ...]
    waiting: int = 0
    seconds: float = 0.0
    refused: str | None = None
    reserved: Mapping[str, str] = field(default_factory=dict)
    interrupts: tuple[Interrupt, ...] = ()
    kind: Literal["decided"] = "decided"


@dataclass(frozen=True)
class Foretold:
    """A waiting job was forecast to start in `low` to `high` seconds; its start scores the forecast.

    This is the simulated interval; users see it widened by the errors of earlier forecasts.
    """

    time: float
    job: str
    low: float
    middle: float
    high: float
    kind: Literal["foretold"] = "foretold"


Event = (
    Submitted
    | Cancelled
    | Started
    | Finished
    | Failed
    | Overran
    | ServerJoined
    | ServerChanged
    | ServerLost
    | ServerDrained
    | ServerResumed
    | QueuesChanged
    | PolicyChanged
    | ShadowChanged
    | ClockStepped
    | Decided
    | Foretold
)

_EVENT: TypeAdapter[Any] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


def last_line(output: str) -> str:
    """The last line of an output, as text for a terminal: without control characters, and not too long.

    >>> last_line("loading\\n\\x1b[31mno such file\\n\\n")
    '[31mno such file'
    """
    lines = [line for line in output.splitlines() if line.strip()]
    return " ".join("".join(c if c.isprintable() else " " for c in lines[-1]).split())[:LONGEST] if lines else ""


def write_event(event: Event) -> str:
    """Write an event as one line of JSON.

    >>> write_event(ServerLost(3.0, "n1"))
    '{"time":3.0,"server":"n1","kind":"server-lost"}'
    """
    return _EVENT.dump_json(event).decode()


def read_event(text: str | bytes) -> Event:
    """Read an event from JSON.

    >>> read_event('{"time":3.0,"server":"n1","kind":"server-lost"}')
    ServerLost(time=3.0, server='n1', kind='server-lost')
    """
    try:
        return _EVENT.validate_json(text)  # type: ignore[no-any-return]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(f"an event ({first['msg']})", key=place, found=str(text)[:80]) from None
    except BerthError as error:
        raise InvalidInput("an event", found=str(error)) from None
