"""Limits on connections: their number, and how long a client may take to send a request or read an answer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import os
import socket
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

__all__ = ["Guarded", "Listener", "most_connections"]

MOST = 1000
"""The most connections at a time."""
LOOK = 2.0
"""Seconds between two checks of a connection."""
PATIENCE = {"head": 10.0, "body": 10.0, "reading": 60.0}
"""Seconds for the client to send the head of a request, and to send any part of a body or read any of an answer."""
BODY_SECONDS = 120.0
"""Seconds for the client to send a whole body."""
BATCH = 16
"""Connections that are taken before those already open get their turn."""
REFUSALS = {408: b"Request Timeout", 503: b"Service Unavailable"}

log = logging.getLogger(__name__)


def most_connections() -> int:
    """The limit on connections: half of the process's file descriptors, so that the store has some too."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, max(soft // 2, 8))


class Guarded(H11Protocol):
    """An HTTP connection that is closed when its client takes too long.

    A new connection beyond the limit (`limit_concurrency` of uvicorn) replaces the oldest one whose client has not
    sent a whole request. If there is none, the new one is refused.
    """

    _numbers = itertools.count()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._number = next(self._numbers)
        self._state: tuple[str, int] | None = None
        self._looks = self._body_looks = self._received = 0
        self._timer = self.loop.call_later(LOOK, self._look)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            others = (one for one in self.connections if isinstance(one, Guarded) and one is not self)
            slow = [one for one in others if one._owes() in ("head", "body")]
            log.warning("%d connections are open; dropping the oldest that waits for its client", len(self.connections))
            min(slow, key=lambda one: one._number, default=self).drop(503)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)

    def drop(self, status: int) -> None:
        """Close the connection; a client that has not sent its whole request gets the reason."""
        self.connections.discard(self)
        if self._owes() in ("head", "body"):
            head = b"HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: 0\r\n" % (status, REFUSALS[status])
            self.transport.write(head + b"Retry-After: 5\r\n\r\n")
            self.transport.close()
        else:
            self.transport.abort()

    def _owes(self) -> str | None:
        """What the client has to do next; None while it is the service's turn."""
        cycle = cast(RequestResponseCycle | None, self.cycle)  # None before the first request
        if cycle is None or cycle.response_complete:
            return "head"
        if cycle.more_body and not cycle.response_started:
            return "body"
        return "reading" if self.flow.write_paused else None

    def _look(self) -> None:
        """Close the connection after too many checks without progress; checks, not seconds: this process may stall."""
        owed = self._owes()
        moved = {"head": id(self.cycle), "body": self._received, "reading": self.transport.get_write_buffer_size()}
        state = None if owed is None else (owed, moved[owed])
        self._looks = self._looks + 1 if state == self._state else 0
        self._body_looks = self._body_looks + 1 if owed == "body" else 0
        self._state = state
        if owed is not None and (self._looks * LOOK >= PATIENCE[owed] or self._body_looks * LOOK >= BODY_SECONDS):
            log.debug("closing a connection whose client is too slow (%s)", owed)
            self.drop(408)
        else:
            self._timer = self.loop.call_later(LOOK, self._look)


class Listener(socket.socket):
    """A listening socket that drops new connections while the process has no file descriptor left for them.

    It keeps a descriptor in reserve for that. Otherwise the connections would stay in the kernel's queue, and keep
    waking the event loop. It takes connections in small batches: the event loop would take a whole queue of them
    before the limit on connections closes any.
    """

    _spare: int | None = None
    _taken = 0

    def listen(self, *arguments: Any) -> None:
        super().listen(*arguments)
        self._reserve()

    def accept(self) -> tuple[socket.socket, Any]:
        if self._taken == BATCH:
            self._taken = 0
            raise BlockingIOError(errno.EAGAIN, "the connections that are open come first")
        try:
            found = super().accept()
            self._taken += 1
            return found
        except BlockingIOError:
            self._taken = 0
            raise
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or self._spare is None:
                raise
        os.close(self._spare)
        self._spare = None
        try:
            super().accept()[0].close()
            log.error("out of file descriptors: a new connection is dropped")
        finally:
            self._reserve()
        raise BlockingIOError(errno.EAGAIN, "out of file descriptors")

    def _reserve(self) -> None:
        with contextlib.suppress(OSError):
            self._spare = self._spare or os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        super().close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
