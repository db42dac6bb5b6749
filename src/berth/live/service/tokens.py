"""Roles and bearer tokens; the store keeps only digests of tokens.

A token has 32 random bytes, so its plain SHA-256 cannot be reversed by guessing. Each role includes the ones before it:
`metrics` reads the numbers for Prometheus, `read` reads everything that is not private to a job's owner, `submit`
submits jobs, `operate` does everything. A job belongs to the user of the token that submitted it; only that user or an
operator may cancel it or see its command, environment and output.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Literal

from berth.errors import InvalidInput

__all__ = ["ANYBODY", "LOCAL", "ROLES", "Caller", "RoleName", "digest", "new_secret"]

RoleName = Literal["metrics", "read", "submit", "operate"]
ROLES: tuple[RoleName, ...] = ("metrics", "read", "submit", "operate")
PREFIX = "berth_"
LOCAL = "local-operator"
"""The name of the token that a service makes for its own user."""


@dataclass(frozen=True)
class Caller:
    """Whoever sent a request."""

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
"""Where there is no authentication: on the machine itself, everybody is the operator."""


def new_secret() -> str:
    """A new token."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """What is kept of a token.

    >>> digest("x")
    Traceback (most recent call last):
    berth.errors.InvalidInput: got 'a text of 1 characters', expected a token that begins with berth_
    """
    if not secret.startswith(PREFIX) or len(secret) > 200:
        raise InvalidInput(f"a token that begins with {PREFIX}", value=f"a text of {len(secret)} characters")
    return hashlib.sha256(secret.encode()).hexdigest()
