"""Who may do what: bearer tokens, of which the store keeps digests alone.

A token has 32 random bytes, so that its plain SHA-256 cannot be guessed back. Roles include one another: whoever may
`operate` may submit, whoever may `submit` may read. Jobs belong to the user of the token that submitted them; only that
user, or an operator, may cancel one.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Literal

from berth.errors import InvalidInput

__all__ = ["ANYBODY", "ROLES", "Caller", "RoleName", "digest", "new_secret"]

RoleName = Literal["read", "submit", "operate"]
ROLES: tuple[RoleName, ...] = ("read", "submit", "operate")
PREFIX = "berth_"


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
