"""Commands, snapshots and jobs as JSON, for files and sockets of engines.

A message is a line of JSON; one that is too long for a line comes in parts, `{"part": text, "more": true or false}`.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter, ValidationError

from berth.errors import InvalidInput
from berth.live.core.events import Cancel, Command, Interrupt, Start
from berth.live.core.jobs import Job
from berth.live.engines import Snapshot

__all__ = ["LINE", "Messages", "read_order", "read_snapshot", "write_message", "write_order", "write_snapshot"]

LINE = 64 * 2**20
"""The longest line in bytes."""
PART = 8 * 2**20
"""The most characters of a message in a line."""
_START, _CANCEL, _INTERRUPT = TypeAdapter(Start), TypeAdapter(Cancel), TypeAdapter(Interrupt)
_JOB: TypeAdapter[Job | None] = TypeAdapter(Job | None)
_SNAPSHOT = TypeAdapter(Snapshot)


def write_message(message: dict[str, Any]) -> str:
    """Write a message as a line, or as several if it is long.

    >>> write_message({"id": 1})
    '{"id": 1}\\n'
    """
    text = json.dumps(message)
    if len(text) <= PART:
        return f"{text}\n"
    parts = (text[at : at + PART] for at in range(0, len(text), PART))
    return "".join(
        json.dumps({"part": part, "more": (number + 1) * PART < len(text)}) + "\n" for number, part in enumerate(parts)
    )


class Messages:
    """Reads messages line by line."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def read(self, line: bytes) -> dict[str, Any] | None:
        """The message that ends with this line; None if the line is a part of a message that goes on."""
        message: dict[str, Any] = json.loads(line)
        if "part" not in message:
            return message
        self._parts.append(message["part"])
        if message["more"]:
            return None
        whole, self._parts = "".join(self._parts), []
        message = json.loads(whole)
        return message


def write_order(time: float, command: Command, job: Job | None) -> dict[str, Any]:
    """Write a command, with its job if it is a start."""
    if isinstance(command, Start):
        start, given = _START.dump_python(command, mode="json"), _JOB.dump_python(job, mode="json")
        return {"time": time, "start": start, "job": given}
    if isinstance(command, Interrupt):
        return {"time": time, "interrupt": _INTERRUPT.dump_python(command, mode="json")}
    return {"time": time, "cancel": _CANCEL.dump_python(command, mode="json")}


def read_order(found: dict[str, Any]) -> tuple[float, Command, Job | None]:
    """Read the time, the command and the job."""
    try:
        if "start" in found:
            return float(found["time"]), _START.validate_python(found["start"]), _JOB.validate_python(found["job"])
        if "interrupt" in found:
            return float(found["time"]), _INTERRUPT.validate_python(found["interrupt"]), None
        return float(found["time"]), _CANCEL.validate_python(found["cancel"]), None
    except (ValidationError, KeyError, TypeError) as error:
        raise InvalidInput("a command", found=str(found)[:80]) from error


def write_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """Write a snapshot."""
    return _SNAPSHOT.dump_python(snapshot, mode="json")  # type: ignore[no-any-return]


def read_snapshot(found: object) -> Snapshot:
    """Read a snapshot."""
    try:
        return _SNAPSHOT.validate_python(found)
    except ValidationError as error:
        raise InvalidInput("a snapshot of an engine", found=str(error)[:80]) from error
