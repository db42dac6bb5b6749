"""How much a client may ask: the size of a request, and how many in a second."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from berth.service.problems import problem

__all__ = ["Limits", "RateLimit"]

CLIENTS = 10_000
"""So many clients are remembered; the one that was quiet longest is forgotten."""


class RateLimit:
    """A bucket for each client: `rate` tokens a second, `burst` at most.

    >>> now = [0.0]
    >>> limit = RateLimit(rate=1.0, burst=2, clock=lambda: now[0])
    >>> [limit.wait("ann") for _ in range(3)]
    [0.0, 0.0, 1.0]
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst, self._clock = rate, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Take a token; 0 where there was one, else the seconds until there is."""
        now = self._clock()
        left, then = self._buckets.pop(client, (float(self.burst), now))
        left = min(left + (now - then) * self.rate, float(self.burst))
        granted = left >= 1.0
        self._buckets[client] = (left - 1.0 if granted else left), now
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if granted else (1.0 - left) / self.rate


class Limits:
    """Middleware that refuses requests that are too large or too many."""

    def __init__(self, app: ASGIApp, largest: int, rate: RateLimit) -> None:
        self._app, self._largest, self._rate = app, largest, rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope.get("client") or ("?", 0)
        if scope["path"] not in ("/healthz", "/readyz"):
            wait = self._rate.wait(str(client[0]))
            if wait > 0:
                refused = problem(429, "too many requests", headers={"Retry-After": str(int(wait) + 1)})
                await refused(scope, receive, send)
                return
        told = dict(scope["headers"]).get(b"content-length", b"")
        if told.isdigit():
            large, read = int(told) > self._largest, receive
        else:  # its size is not known before it is there
            large, read = await self._read(receive)
        if large:
            await problem(413, "request too large", f"at most {self._largest} bytes")(scope, receive, send)
            return
        await self._app(scope, read, send)

    async def _read(self, receive: Receive) -> tuple[bool, Receive]:
        """Read a request up to the limit: whether it is larger, and how it can be read again."""
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
