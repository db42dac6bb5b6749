"""Who is at the door: tokens of the store, looked up by their digests.

Tokens are read again every few seconds, so that one that was made or revoked while the service runs counts soon.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from berth.errors import BerthError, InvalidInput
from berth.live.service.local_token import is_loopback
from berth.live.service.problems import Refused
from berth.live.service.store import Store, Token
from berth.live.service.tokens import ANYBODY, PREFIX, ROLES, Caller, RoleName, digest
from berth.live.service.views import iso

__all__ = ["Doorkeeper", "check_open"]

log = logging.getLogger(__name__)
FRESH = 3.0
"""Seconds for which what was read counts."""
STALE = 600.0
"""Seconds for which it still counts when the store does not answer, so that the state can be read meanwhile."""
AGAIN = 15.0
"""Seconds after which they are read again when the store did not answer."""
READ_SECONDS = 5.0
"""Seconds after which a read of the tokens is given up."""
LONGEST = 200
"""Characters of a token."""


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
        self._tokens: dict[str, Token] = {}
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
        token, hash_ = None, ""
        if secret.startswith(PREFIX) and len(secret) <= LONGEST and secret.isascii():
            hash_ = digest(secret)
            token = (await self._known()).get(hash_)
        if token is None:
            raise Refused(401, "unknown token", "it was never made, or is revoked", WWW_Authenticate="Bearer")
        _check_time(token, hash_, time.time())
        return Caller(token.user, _role(token.role), token.name)

    async def _closes(self) -> bool:
        """Whether a token was made since the service is open: from then on it counts."""
        try:
            self.open = not await self._known()
        except Refused:  # the store cannot be reached now
            return False
        return not self.open

    async def _known(self) -> dict[str, Token]:
        """Tokens by the hashes of their secrets, also of secrets before a rotation; expired ones are among them."""
        async with self._reading:
            if self._clock() - self._read >= FRESH:
                try:
                    reading = asyncio.wait_for(asyncio.to_thread(self._store.tokens), READ_SECONDS)
                    tokens = [token for token in await reading if token.revoked is None]
                except (BerthError, TimeoutError) as error:
                    if self._read_well is None or self._clock() - self._read_well > STALE:
                        log.error("the tokens cannot be read: %s", error)
                        detail = "the tokens cannot be read"
                        raise Refused(503, "the store cannot be reached", detail, Retry_After="5") from None
                    self._read = self._clock() + AGAIN
                    return self._tokens
                self._tokens = {token.previous: token for token in tokens if token.previous}
                self._tokens |= {token.hash: token for token in tokens}
                self._read = self._read_well = self._clock()
        return self._tokens


def _check_time(token: Token, hash_: str, now: float) -> None:
    """Refuse a secret that was rotated away, and a token that has expired."""
    if hash_ != token.hash and now >= (token.previous_until or 0.0):
        said = f"token {token.name} was rotated on {iso(token.rotated)}: use the new secret"
        raise Refused(401, "replaced token", said, WWW_Authenticate="Bearer")
    if token.expires is not None and now >= token.expires:
        said = f"token {token.name} expired on {iso(token.expires)}: an operator renews it with berth token rotate"
        raise Refused(401, "expired token", f"{said} {token.name}", WWW_Authenticate="Bearer")
