"""Who is at the door: tokens of the store, looked up by their digests.

Tokens are read again every few seconds, so that one that was made or revoked while the service runs counts soon.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Callable

from berth.errors import BerthError, InvalidInput
from berth.service.problems import Refused
from berth.service.store import Store
from berth.service.tokens import ANYBODY, PREFIX, ROLES, Caller, RoleName, digest

__all__ = ["Doorkeeper", "check_open", "is_loopback"]

log = logging.getLogger(__name__)
FRESH = 3.0
"""Seconds for which what was read counts."""
STALE = 600.0
"""Seconds for which it still counts when the store does not answer, so that the state can be read meanwhile."""
READ_SECONDS = 5.0
"""Seconds after which a read of the tokens is given up."""
LONGEST = 200
"""Characters of a token."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a service that listens there.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("::1")
    (True, True, False, True)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_open(host: str) -> None:
    """Refuse to listen there while there is no token, unless only this machine can reach it."""
    if not is_loopback(host):
        raise InvalidInput(
            "a token before others may reach the service: berth token create NAME --role operate",
            found=f"none, and {host} is not this machine alone",
            key="host",
        )


def _role(text: str) -> RoleName:
    for role in ROLES:
        if role == text:
            return role
    raise InvalidInput(f"one of {', '.join(ROLES)}", value=text, key="role")


class Doorkeeper:
    """Knows the tokens of a store, or, `open`, lets in everybody as the operator until there is a token."""

    def __init__(self, store: Store, *, open_: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self.open, self._clock = store, open_, clock
        self._callers: dict[str, Caller] = {}
        self._read = -FRESH
        self._read_well: float | None = None
        self._reading = asyncio.Lock()

    @classmethod
    def at(cls, store: Store, host: str) -> Doorkeeper:
        """The one for a service that listens there: open on the machine itself while there is no token."""
        some = any(token.revoked is None for token in store.tokens())
        if not some:
            check_open(host)
        return cls(store, open_=not some)

    async def caller(self, authorization: str | None) -> Caller:
        """Whoever sent this header; `Refused` where it is nobody that is known."""
        if self.open and not await self._closes():
            return ANYBODY
        kind, _, secret = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or not secret:
            raise Refused(401, "no token", "send Authorization: Bearer TOKEN", WWW_Authenticate="Bearer")
        found = None
        if secret.startswith(PREFIX) and len(secret) <= LONGEST and secret.isascii():
            found = (await self._known()).get(digest(secret))
        if found is None:
            raise Refused(401, "unknown token", "it was never made, or is revoked", WWW_Authenticate="Bearer")
        return found

    async def _closes(self) -> bool:
        """Whether a token was made since the service is open: from then on it counts."""
        try:
            self.open = not await self._known()
        except Refused:  # the store cannot be reached now
            return False
        return not self.open

    async def _known(self) -> dict[str, Caller]:
        async with self._reading:
            if self._clock() - self._read >= FRESH:
                try:
                    tokens = await asyncio.wait_for(asyncio.to_thread(self._store.tokens), READ_SECONDS)
                except (BerthError, TimeoutError) as error:
                    if self._read_well is None or self._clock() - self._read_well > STALE:
                        log.error("the tokens cannot be read: %s", error)
                        detail = "the tokens cannot be read"
                        raise Refused(503, "the store cannot be reached", detail, Retry_After="5") from None
                    self._read = self._clock()
                    return self._callers
                self._callers = {
                    token.hash: Caller(token.user, _role(token.role), token.name)
                    for token in tokens
                    if token.revoked is None
                }
                self._read = self._read_well = self._clock()
        return self._callers
