"""What a caller may see of a job: its environment, command and output are for its owner and for operators.

A hidden value is null: other callers see that a job has a command, and the names of its environment variables. The
setting `show_commands` shows commands, scripts, callables and working directories to every reader; values of the
environment and output stay hidden.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from berth.live.core.events import Event, Failed, Submitted
from berth.live.core.jobs import Job
from berth.live.core.records import JobRecord
from berth.live.service.tokens import Caller

__all__ = ["Visibility"]

QUOTED = re.compile(r"(exit code \d+|by signal \d+|could not be run): .*", re.DOTALL)


@dataclass(frozen=True)
class Visibility:
    """What one caller may see; `show_commands` is the setting of the service."""

    caller: Caller
    show_commands: bool = False

    def record(self, record: JobRecord) -> JobRecord:
        """The record of a job, without what this caller may not see."""
        if self.caller.may_see(record.job.user):
            return record
        return replace(record, job=self._job(record.job), reason=_without_output(record.reason), last_output="")

    def event(self, event: Event) -> Event:
        """An event of the journal, without what this caller may not see.

        The end of an attempt does not name the owner of its job, so only operators see output here.
        """
        if isinstance(event, Submitted) and not self.caller.may_see(event.job.user):
            return replace(event, job=self._job(event.job))
        if isinstance(event, Failed) and not self.caller.may("operate"):
            return replace(event, reason=_without_output(event.reason), last_output="")
        return event

    def _job(self, job: Job) -> Job:
        shown = {key: self._hidden(key, value) for key, value in job.payload.items()}
        return job.replace(payload=shown)

    def _hidden(self, key: str, value: Any) -> Any:
        if key == "environment" and isinstance(value, dict):
            return dict.fromkeys(value)
        return value if self.show_commands and key in ("command", "script", "callable", "workdir") else None


def _without_output(reason: str) -> str:
    """A reason without the output that earlier versions of berth quoted at its end.

    >>> _without_output("attempt 1: it ended with exit code 3: no such model")
    'attempt 1: it ended with exit code 3'
    """
    return QUOTED.sub(r"\1", reason)
