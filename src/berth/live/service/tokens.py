"""Roles, bearer tokens, and what a caller may see of a job; the store keeps only digests of tokens.

A token has 32 random bytes, so its plain SHA-256 cannot be reversed by guessing. Each role includes the ones before it:
`metrics` reads the numbers for Prometheus, `read` reads everything that is not private to a job's owner, `submit`
submits jobs, `operate` does everything. A job belongs to the user of the token that submitted it; only that user or an
operator may cancel it or see its command, environment and output.

A hidden value is null: other callers see that a job has a command, and the names of its environment variables. The
setting `show_commands` shows commands, scripts, callables, images and working directories to every reader; values of
the environment, pod templates and output stay hidden.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, replace
from typing import Any, Literal

from berth.errors import InvalidInput
from berth.live.core.events import Event, Failed, Submitted
from berth.live.core.jobs import Job
from berth.live.core.records import JobRecord

__all__ = ["ANYBODY", "LOCAL", "ROLES", "Caller", "RoleName", "Visibility", "digest", "new_secret"]

RoleName = Literal["metrics", "read", "submit", "operate"]
ROLES: tuple[RoleName, ...] = ("metrics", "read", "submit", "operate")
PREFIX = "berth_"
LOCAL = "local-operator"
"""The name of the token that a service creates for its own user."""
SHOWN = ("command", "script", "callable", "workdir", "image")
"""What the setting `show_commands` shows; a pod template is not in it: it may hold values of variables."""
QUOTED = re.compile(r"(exit code \d+|by signal \d+|could not be run): .*", re.DOTALL)


@dataclass(frozen=True)
class Caller:
    """The user and role that sent a request."""

    user: str
    role: RoleName
    token: str = ""

    def may(self, role: RoleName) -> bool:
        """Whether the role includes this one.

        >>> Caller("ann", "submit").may("read"), Caller("ann", "submit").may("operate")
        (True, False)
        """
        return ROLES.index(self.role) >= ROLES.index(role)

    def may_see(self, owner: str) -> bool:
        """Whether the caller may see what is private to the jobs of this user.

        >>> Caller("ann", "read").may_see("ann"), Caller("ann", "submit").may_see("bob")
        (True, False)
        """
        return self.may("operate") or (self.may("read") and self.user == owner)

    def may_change(self, owner: str) -> bool:
        """Whether the jobs of this user are the caller's to change."""
        return self.may("operate") or (self.may("submit") and self.user == owner)


ANYBODY = Caller("local", "operate")
"""The caller without authentication: on the machine itself, every caller is the operator."""


def new_secret() -> str:
    """A new token."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """The stored digest of a token.

    >>> digest("x")
    Traceback (most recent call last):
    berth.errors.InvalidInput: got 'a text of 1 characters', expected a token that begins with berth_
    """
    if not secret.startswith(PREFIX) or len(secret) > 200:
        raise InvalidInput(f"a token that begins with {PREFIX}", value=f"a text of {len(secret)} characters")
    return hashlib.sha256(secret.encode()).hexdigest()


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
        return value if self.show_commands and key in SHOWN else None


def _without_output(reason: str) -> str:
    """A reason without the output that earlier versions of berth quoted at its end.

    >>> _without_output("attempt 1: it ended with exit code 3: no such model")
    'attempt 1: it ended with exit code 3'
    """
    return QUOTED.sub(r"\1", reason)
