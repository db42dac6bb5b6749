"""Leader election: of several berths on one cluster, the holder of a Lease object schedules.

The rules are those of client-go. The clocks of other machines are not trusted: a lease has expired when it has not
changed for its duration on the local monotonic clock. A holder that cannot renew its lease gives up after two thirds of
that duration, before another process may take it. Every write names the version that it replaces, so that of two
processes that write at once, one is refused.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Protocol

from berth.errors import InvalidInput
from berth.live.engines import EngineError
from berth.live.kubernetes_api import ApiError, ClusterRefused, ClusterSilent

__all__ = ["NAME", "Lease", "Requests", "own_identity"]

NAME = "berth"
DURATION, RENEW = 15.0, 5.0
"""Seconds that a lease lasts, and seconds between two renewals."""
TRIES = 3
"""How often a write is tried when another process has changed the object in between."""
log = logging.getLogger(__name__)


class Requests(Protocol):
    """The part of `berth.live.kubernetes_api.Api` that a lease needs."""

    def request(self, method: str, path: str, body: object = None) -> Any:
        """The answer to a request. Raises `ClusterSilent` or `ClusterRefused`."""
        ...


def own_identity(store: str = "") -> str:
    """The identity of this process: the name of its pod (POD_NAME), or host and store, or host and process id.

    A store has one process at a time, so the next one after a crash need not wait until the lease expires.
    """
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}_{store or os.getpid()}"


class Lease:
    """A lease of the API group `coordination.k8s.io`, held by at most one identity.

    `on_lost` is called in the event loop with the reason when a lease that was held is lost. Durations are in seconds.
    """

    def __init__(
        self,
        api: Requests,
        namespace: str,
        name: str = NAME,
        identity: str = "",
        *,
        duration: float = DURATION,
        renew: float = RENEW,
        on_lost: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.identity = name, identity or own_identity()
        self._api, self._namespace, self._on_lost, self._clock = api, namespace, on_lost, clock
        self._seconds, self._every = max(1, math.ceil(duration)), renew
        self._deadline = 2 / 3 * self._seconds
        self._renewed: float | None = None
        """When the last successful write began; None before the first one and after a loss."""
        self._seen: dict[str, Any] = {}
        self._since = 0.0
        """The lease as it was last seen, and since when it has been like that."""
        self._reason = "the lease was not acquired"
        self._renewing: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @property
    def held(self) -> bool:
        """Whether this process leads; it turns false by itself when the lease was not renewed in time."""
        return self._left > 0

    @property
    def _left(self) -> float:
        """Seconds until this process has to give up."""
        return 0.0 if self._renewed is None else max(0.0, self._renewed + self._deadline - self._clock())

    def check(self) -> None:
        """Raise `EngineError` unless the lease is held."""
        if not self.held:
            raise EngineError(f"this berth does not lead: {self._reason}")

    async def acquire(self) -> None:
        """Take the lease and renew it in the background; nothing happens if it is held.

        Raises `EngineError` while another process holds it, and `InvalidInput` if berth has no right to it.
        """
        if self.held and self._renewing is not None and not self._renewing.done():
            return
        await self._stop()
        try:
            holder = await self._take()
        except ClusterRefused as error:
            if error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise InvalidInput("the rights that berth needs", found=str(error), key="kubernetes") from None
            raise EngineError(str(error)) from None
        except ClusterSilent as error:
            raise EngineError(str(error)) from None
        except TimeoutError:
            raise EngineError(f"lease {self.name}: the API server does not answer") from None
        if holder != self.identity:
            self._reason = f"another berth leads: {holder}"
            raise EngineError(self._reason)
        self._stopping = asyncio.Event()
        self._renewing = asyncio.create_task(self._renew(), name=f"lease-{self.name}")

    async def release(self) -> None:
        """Stop renewing, and let another process take the lease at once."""
        await self._stop()
        held, self._renewed, self._reason = self.held, None, "the lease was released"
        if not held:
            return
        try:
            async with asyncio.timeout(self._deadline):
                found = await asyncio.to_thread(self._read)
                spec = dict((found or {}).get("spec") or {})
                if found is not None and spec.pop("holderIdentity", None) == self.identity:
                    await asyncio.to_thread(self._write, found, {**spec, "renewTime": _now()})
        except (ApiError, TimeoutError) as error:
            log.warning("lease %s was not released and expires in %d s: %s", self.name, self._seconds, error)

    async def _stop(self) -> None:
        """End the renewals; one that is under way ends first, since its write could come after a release."""
        self._stopping.set()
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            await asyncio.wait({renewing})

    async def _renew(self) -> None:
        pause, trouble = self._every, ""
        while self.held:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(pause, self._left))
            if self._stopping.is_set():
                return
            if not self.held:
                break
            try:
                holder = await self._take()
            except (ApiError, TimeoutError) as error:
                pause, trouble = self._every / 2, str(error) or trouble or "the API server does not answer"
                log.warning("lease %s was not renewed: %s", self.name, trouble)
                continue
            pause = self._every
            if holder != self.identity:
                self._lose(f"another berth leads: {holder}")
                return
        self._lose(f"the lease was not renewed for {self._deadline:.3g} s{f' ({trouble})' if trouble else ''}")

    def _lose(self, reason: str) -> None:
        self._renewed, self._reason = None, reason
        log.warning("lease %s is lost: %s", self.name, reason)
        if self._on_lost is not None:
            self._on_lost(reason)

    async def _take(self) -> str:
        """Create, take or renew the lease if no other process holds it; returns the holder."""
        async with asyncio.timeout(self._left if self.held else self._deadline):
            for _ in range(TRIES):
                found = await asyncio.to_thread(self._read)
                spec = dict((found or {}).get("spec") or {})
                current = self._holder(spec)
                if current not in ("", self.identity):
                    return current
                began = self._clock()
                if await asyncio.to_thread(self._write, found, self._ours(spec)):
                    self._renewed = began
                    return self.identity
        return "a process that has just taken the lease"

    def _holder(self, spec: dict[str, Any]) -> str:
        """The holder of a lease as it was just read; empty if it is free or has expired."""
        now = self._clock()
        if spec != self._seen:
            self._seen, self._since = spec, now
        expired = now - self._since >= float(spec.get("leaseDurationSeconds") or self._seconds)
        return "" if expired else str(spec.get("holderIdentity") or "")

    def _ours(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The lease as this process writes it."""
        now = _now()
        ours = {**spec, "holderIdentity": self.identity, "leaseDurationSeconds": self._seconds, "renewTime": now}
        if spec.get("holderIdentity") != self.identity:
            ours |= {"acquireTime": now, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + bool(spec)}
        return ours

    def _read(self) -> dict[str, Any] | None:
        """The object; None if there is none."""
        try:
            return dict(self._api.request("GET", f"{self._path}/{self.name}"))
        except ClusterRefused as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def _write(self, found: dict[str, Any] | None, spec: dict[str, Any]) -> bool:
        """Create the object, or replace the version that was read; false if another process was faster."""
        about = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        new = {"name": self.name, "namespace": self._namespace}
        try:
            if found is None:
                self._api.request("POST", self._path, {**about, "metadata": new})
            else:
                self._api.request("PUT", f"{self._path}/{self.name}", {**about, "metadata": found["metadata"]})
        except ClusterRefused as error:
            removed = found is not None and error.status == HTTPStatus.NOT_FOUND
            if error.status != HTTPStatus.CONFLICT and not removed:
                raise
            return False
        return True

    @property
    def _path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"


def _now() -> str:
    """The wall clock as a MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
