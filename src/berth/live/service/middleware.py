"""Middleware: limits on a client's requests, and protection against web pages of another origin.

A browser on the operator's machine can reach the service, and any page that it shows may send forms and simple
requests there. Such a page can neither set the content type `application/json` nor hide its origin.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from berth.live.service.connections import most_connections
from berth.live.service.problems import problem

__all__ = ["Limits", "RateLimit", "SameOrigin"]

CLIENTS = 10_000
"""The most clients remembered; the one that was quiet longest is dropped."""
STREAM = "/v1/events"
STREAMS = 50
"""The most event streams of one client; those of all clients take at most half of the connections."""
READING = ("GET", "HEAD", "OPTIONS")
JSON = "application/json"


class RateLimit:
    """A token bucket for each client: `rate` tokens a second, `burst` at most.

    >>> now = [0.0]
    >>> limit = RateLimit(rate=1.0, burst=2, clock=lambda: now[0])
    >>> [limit.wait("ann") for _ in range(3)]
    [0.0, 0.0, 1.0]
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst, self._clock = rate, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Take a token; 0 if there was one, else the seconds until there is one."""
        now = self._clock()
        left, then = self._buckets.pop(client, (float(self.burst), now))
        left = min(left + (now - then) * self.rate, float(self.burst))
        granted = left >= 1.0
        self._buckets[client] = (left - 1.0 if granted else left), now
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if granted else (1.0 - left) / self.rate


class Clients:
    """Tells clients apart: by their token if the service has accepted it before, else by their address.

    So users behind one proxy do not share a limit, and invented tokens do not raise it.
    """

    def __init__(self) -> None:
        self._accepted: OrderedDict[str, None] = OrderedDict()

    def name(self, scope: Scope) -> str:
        """The name of the client that sends this request."""
        address = str((scope.get("client") or ("?", 0))[0])
        token = self._token(scope)
        return token if token is not None and token in self._accepted else address

    def note(self, scope: Scope, status: int) -> None:
        """Note how a request was answered."""
        token = self._token(scope)
        if token is not None and status < 400:
            self._accepted[token] = None
            self._accepted.move_to_end(token)
            if len(self._accepted) > CLIENTS:
                self._accepted.popitem(last=False)
        elif token is not None and status == 401:
            self._accepted.pop(token, None)

    @staticmethod
    def _token(scope: Scope) -> str | None:
        given = dict(scope["headers"]).get(b"authorization")
        return None if given is None else hashlib.sha256(given).hexdigest()


class Limits:
    """Middleware that refuses requests that are too large or too many."""

    def __init__(self, app: ASGIApp, largest: int, rate: RateLimit) -> None:
        self._app, self._largest, self._rate = app, largest, rate
        self._clients, self._streams = Clients(), Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = self._clients.name(scope)
        if scope["path"] not in ("/healthz", "/readyz"):
            wait = self._rate.wait(client)
            if wait > 0:
                refused = problem(429, "too many requests", headers={"Retry-After": str(int(wait) + 1)})
                await refused(scope, receive, send)
                return

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._clients.note(scope, message["status"])
            await send(message)

        if scope["path"] == STREAM:
            await self._stream(client, scope, receive, noted)
        else:
            await self._serve(scope, receive, noted)

    async def _stream(self, client: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a stream, if the client may open one more."""
        each, together = STREAMS, most_connections() // 2
        if self._streams[client] >= each or self._streams.total() >= together:
            detail = f"at most {each} of one client and {together} of all"
            await problem(429, "too many streams", detail, headers={"Retry-After": "30"})(scope, receive, send)
            return
        self._streams[client] += 1
        try:
            await self._serve(scope, receive, send)
        finally:
            self._streams[client] -= 1
            self._streams += Counter()  # drops clients without a stream

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = dict(scope["headers"]).get(b"content-length", b"")
        if told.isdigit():
            large, read = int(told) > self._largest, receive
        else:  # its size is not known in advance
            large, read = await self._read(receive)
        if large:
            await problem(413, "request too large", f"at most {self._largest} bytes")(scope, receive, send)
            return
        await self._app(scope, read, send)

    async def _read(self, receive: Receive) -> tuple[bool, Receive]:
        """Read a request up to the limit: whether it is larger, and how to read it again."""
        seen: list[Message] = []
        size = 0
        while True:
            message = await receive()
            seen.append(message)
            size += len(message.get("body", b""))
            if size > self._largest:
                return True, receive
            if message["type"] != "http.request" or not message.get("more_body", False):
                break
        again = iter(seen)

        async def replay() -> Message:
            message = next(again, None)
            return await receive() if message is None else message

        return False, replay


class SameOrigin:
    """Middleware for requests that may change something: only JSON, and not from a foreign page.

    `names` are host names of a proxy in front of the service.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self._app, self._names = app, frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in READING:
            headers = Headers(scope=scope)
            if self._is_foreign(headers):
                detail = "a web page of another origin may not change anything here"
                await problem(403, "foreign origin", detail)(scope, receive, send)
                return
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != JSON and scope["method"] != "DELETE":  # no form sends DELETE
                detail = f"send Content-Type: {JSON}, even without a body"
                await problem(415, "unsupported content type", detail)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_foreign(self, headers: Headers) -> bool:
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return True
        origin = headers.get("origin")
        if origin is None:
            return False
        try:
            parts = urlsplit(origin)
        except ValueError:
            return True
        return parts.netloc != headers.get("host") and parts.hostname not in self._names
