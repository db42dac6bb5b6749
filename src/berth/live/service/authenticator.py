"""Authenticate callers by the tokens of the store, and let routes demand a role.

Tokens are read again every few seconds, so that new and revoked tokens take effect while the service runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from berth.errors import BerthError, InvalidInput
from berth.live.core.jobs import check_id
from berth.live.local_token import is_loopback, token_file
from berth.live.service.problems import Refused
from berth.live.service.store import Store, Token
from berth.live.service.tokens import ANYBODY, LOCAL, PREFIX, ROLES, Caller, RoleName, digest, new_secret
from berth.live.service.views import iso

if TYPE_CHECKING:
    from berth.live.service.store import Store
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi import Path as InPath

from berth.files.wording import NAME
from berth.live.core.jobs import Job
from berth.live.core.records import JobRecord
from berth.live.service.scheduler import Scheduler

__all__ = ["Allow", "Authenticator", "Name", "check_ceilings", "check_open", "ensure_local_token", "known_job"]

log = logging.getLogger(__name__)
FRESH = 3.0
"""Seconds for which tokens are cached."""
STALE = 600.0
"""Seconds for which cached tokens stay valid when the store does not answer, so that the state can still be read."""
AGAIN = 15.0
"""Seconds between retries while the store does not answer."""
READ_SECONDS = 5.0
"""Seconds after which a read of the tokens times out."""
LONGEST = 200
"""The most characters of a token."""
Name = Annotated[str, InPath(pattern=NAME)]


def check_open(host: str) -> None:
    """Refuse to listen beyond this machine while there is no token."""
    if not is_loopback(host):
        raise InvalidInput(
            "a token to exist first: berth token create NAME --role operate",
            found=f"{host}, which other machines can reach, and there is no token",
            key="host",
        )


def _role(text: str) -> RoleName:
    for role in ROLES:
        if role == text:
            return role
    raise InvalidInput(f"one of {', '.join(ROLES)}", value=text, key="role")


class Authenticator:
    """Knows the tokens of a store; while it is `open`, every caller is the operator until there is a token."""

    def __init__(self, store: Store, *, open_: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self.open, self._clock = store, open_, clock
        self._tokens: dict[str, Token] = {}
        self._read = -FRESH
        self._read_well: float | None = None
        self._reading = asyncio.Lock()

    @classmethod
    def at(cls, store: Store, host: str) -> Authenticator:
        """The authenticator of a service on this host: open on loopback while there is no token."""
        some = any(token.revoked is None for token in store.tokens())
        if not some:
            check_open(host)
        return cls(store, open_=not some)

    async def caller(self, authorization: str | None) -> Caller:
        """The caller who sent this header; `Refused` if the token is unknown."""
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
            raise Refused(401, "unknown token", "it never existed, or is revoked", WWW_Authenticate="Bearer")
        _check_time(token, hash_, time.time())
        return Caller(token.user, _role(token.role), token.name)

    async def _closes(self) -> bool:
        """Whether a token was created since the open service started: from then on tokens are demanded."""
        try:
            self.open = not await self._known()
        except Refused:  # the store cannot be reached now
            return False
        return not self.open

    async def _known(self) -> dict[str, Token]:
        """Tokens by the hashes of their secrets, also of secrets before a rotation; includes expired tokens."""
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
    """Refuse a secret that was replaced, and a token that has expired."""
    if hash_ != token.hash and now >= (token.previous_until or 0.0):
        said = f"token {token.name} was rotated on {iso(token.rotated)}: use the new secret"
        raise Refused(401, "replaced token", said, WWW_Authenticate="Bearer")
    if token.expires is not None and now >= token.expires:
        said = f"token {token.name} expired on {iso(token.expires)}: an operator renews it with berth token rotate"
        raise Refused(401, "expired token", f"{said} {token.name}", WWW_Authenticate="Bearer")


def ensure_local_token(store: Store, url: str) -> Path | None:
    """Create the local operator's token, or renew it if its file is lost; returns the file.

    If an operator has created other tokens and there is no such token, none is created, and the answer is None.
    """
    live = {token.name: token for token in store.tokens() if token.revoked is None}
    if live and LOCAL not in live:
        return None
    file = token_file(url)
    with contextlib.suppress(OSError, UnicodeDecodeError, InvalidInput):
        if LOCAL in live and digest(file.read_text(encoding="utf-8").strip()) == live[LOCAL].hash:
            return file
    secret = new_secret()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = file.with_name(f"{file.name}.new")
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as written:
            written.write(f"{secret}\n")
        beside.replace(file)
    except OSError as error:
        raise InvalidInput(
            "a folder for the operator's token that can be written (set XDG_STATE_HOME), "
            "or a token before the first start: berth token create NAME --role operate",
            found=f"{file.parent} ({error.strerror})",
        ) from None
    store.replace_token(Token(LOCAL, digest(secret), "operate", _user(), time.time()))
    return file


def _user() -> str:
    """The name of the user who runs this process; `local` if it is no valid user of a job."""
    try:
        return check_id(getpass.getuser(), "user")
    except (InvalidInput, KeyError, OSError):
        return "local"


class Allow:
    """Dependencies that give the caller, if it has the role."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self.metrics, self.read = self._needs("metrics"), self._needs("read")
        self.submit, self.operate = self._needs("submit"), self._needs("operate")

    async def caller(self, request: Request, role: RoleName) -> Caller:
        """The caller of a request; `Refused` if it does not have this role, or its token is no longer valid."""
        caller = await self._authenticator.caller(request.headers.get("authorization"))
        if not caller.may(role):
            raise Refused(403, "not allowed", f"this needs a token with the role {role}")
        return caller

    def _needs(self, role: RoleName) -> Any:
        async def allowed(request: Request) -> Caller:
            return await self.caller(request, role)

        return Depends(allowed)


async def known_job(scheduler: Scheduler, job: str) -> JobRecord:
    """The record of a job; `Refused` if there is none."""
    record = await scheduler.get(job)
    if record is None:
        raise Refused(404, "no such job", f"{job!r} was never submitted", "job")
    return record


def check_ceilings(scheduler: Scheduler, job: Job, caller: Caller) -> None:
    """Refuse a job that is above a ceiling for its user; operators have none."""
    if not caller.may("operate") and (refusal := scheduler.dispatcher.state.queues.refusal(job)) is not None:
        field, said = refusal
        raise Refused(403, "not allowed", said, field)
