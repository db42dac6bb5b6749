"""Refuse requests that a web page of another origin makes a browser send.

A browser on the operator's machine can reach the service, and any page that it shows may send forms and simple requests
there. Such a page can neither set the content type `application/json` nor hide where it comes from.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from berth.live.service.problems import problem

__all__ = ["SameOrigin"]

READING = ("GET", "HEAD", "OPTIONS")
JSON = "application/json"


class SameOrigin:
    """Middleware for requests that may change something: JSON alone, and from no foreign page.

    `names` are hosts by which a proxy in front of the service is called.
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
                detail = f"send Content-Type: {JSON}, also where there is no body"
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
