"""HTTP client of a running service, for the command line and `berth.ray`.

The address of the service is read from `--url` or `BERTH_URL`, the token from `BERTH_TOKEN`, from the file that
`BERTH_TOKEN_FILE` names, or from the file that a service of the same user made (`berth.live.local_token`).
There is no option for the token: every user of the machine can see command lines. Only Python's own library is used, so
that a login node needs nothing but berth.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from http.client import BadStatusLine, HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

from berth.errors import BerthError, InvalidInput
from berth.live.local_token import local_token

__all__ = ["DEFAULT_URL", "Client", "Code", "ServiceRefused", "ServiceSilent", "ServiceUnreachable"]

DEFAULT_URL = "http://127.0.0.1:8642"
TIMEOUT = 30.0
MAY_BE = "may still be done"
"""Words of an answer after which the request may still be carried out."""
REPEAT_SECONDS = 10.0
"""Seconds after which a request is no longer retried."""
PAUSES = (0.5, 1.0, 2.0)
"""Seconds before each retry of a request."""


class Code:
    """Exit codes of the commands that talk to a service; 1 is for errors without a code of their own."""

    failed = 1
    bad_input = 2
    unreachable = 3
    not_allowed = 4
    not_there = 5
    conflict = 6
    not_now = 7
    job_failed = 8
    not_in_time = 9
    would_wait = 10


CODES = {
    400: Code.bad_input,
    401: Code.not_allowed,
    403: Code.not_allowed,
    404: Code.not_there,
    409: Code.conflict,
    413: Code.bad_input,
    422: Code.bad_input,
    429: Code.not_now,
    503: Code.not_now,
}
"""Exit codes by HTTP status: the same as for errors that the command itself finds."""


class ServiceUnreachable(BerthError):
    """There is no service at this address."""

    code = Code.unreachable


class ServiceSilent(BerthError):
    """The service took a request and did not answer it; the request may have been carried out."""

    code = Code.not_now


class ServiceRefused(BerthError):
    """The service answered with a problem."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status, self.body = status, body
        self.code = CODES.get(status, Code.bad_input if 400 <= status < 500 else Code.failed)
        title, detail = body.get("title", "refused"), body.get("detail") or ""
        if status == 401:
            detail += "; a token is read from BERTH_TOKEN, from the file that BERTH_TOKEN_FILE names, or from the file "
            detail += "that a service of the same user made"
        plain = detail and title in ("invalid request", "unknown name")  # then the detail suffices
        super().__init__(detail if plain else f"{title}{f': {detail}' if detail else ''}")


def _token(url: str) -> str | None:
    if token := os.environ.get("BERTH_TOKEN"):
        return token.strip()
    file = os.environ.get("BERTH_TOKEN_FILE")
    if not file:
        return local_token(url)
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("a file with a token", found=str(error), key="BERTH_TOKEN_FILE") from None


class Client:
    """A connection to a service."""

    def __init__(self, url: str | None = None, timeout: float = TIMEOUT) -> None:
        self._timeout, self._warned = timeout, False
        self.url = (url or DEFAULT_URL).rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput("an address such as http://127.0.0.1:8642", value=self.url, key="--url")
        self._token = _token(self.url)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool = False,
    ) -> Any:
        """Send a request; returns the answer, read from JSON.

        With `repeat`, a request that the service cannot serve now is retried a few times. Only idempotent requests may
        be retried.
        """
        given = {key: value for key, value in (query or {}).items() if value not in (None, [])}
        address = f"{self.url}{path}{'?' + urlencode(given, doseq=True) if given else ''}"
        sent = {"Accept": "application/json", **(headers or {})}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            try:
                data = json.dumps(body, allow_nan=False).encode()
            except ValueError:
                raise InvalidInput("finite numbers", value=body) from None
        if method != "GET":  # the service demands it of requests that change something, even without a body
            sent["Content-Type"] = "application/json"
        request = Request(address, data, sent, method=method)
        end = time.monotonic() + REPEAT_SECONDS
        pauses = iter(PAUSES if repeat else ())
        earlier = doubt = False
        while True:
            try:
                return self._send(request)
            except (ServiceRefused, ServiceSilent, ServiceUnreachable) as error:
                if earlier and isinstance(error, ServiceUnreachable):
                    error = ServiceSilent(f"the service went away: {error}")
                pause = next(pauses, None)
                doubt = doubt or isinstance(error, ServiceSilent) or MAY_BE in str(error)
                if error.code != Code.not_now or pause is None or time.monotonic() > end:
                    raise (ServiceSilent(f"it may still be done: {error}") if doubt else error) from None
                earlier = True
            time.sleep(pause)

    def _send(self, request: Request) -> Any:
        try:
            with urlopen(request, timeout=self._timeout) as answer:
                self._warn(answer.headers.get("Berth-Trouble"))
                return json.loads(answer.read())
        except HTTPError as error:
            raise ServiceRefused(error.code, _problem(error)) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            if isinstance(reason, TimeoutError):
                raise ServiceSilent(f"no answer from {self.url} within {self._timeout:g} s") from None
            lost = isinstance(reason, ConnectionError) and not isinstance(reason, ConnectionRefusedError)
            cut = isinstance(reason, HTTPException) and not isinstance(reason, BadStatusLine)
            if lost or cut:
                raise ServiceSilent(f"the connection to {self.url} was lost: {reason}") from None
            raise ServiceUnreachable(
                f"no berth service at {self.url} ({reason}); start one with: berth serve"
            ) from None

    def _warn(self, trouble: str | None) -> None:
        """Warn once that answers may be out of date."""
        if trouble and not self._warned:
            self._warned = True
            print(f"berth: warning: {trouble}; what follows may be out of date", file=sys.stderr)

    def get(self, path: str, **query: Any) -> Any:
        """Send a GET request."""
        return self.ask("GET", path, query=query)


def _problem(error: HTTPError) -> dict[str, Any]:
    try:
        body = json.loads(error.read())
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {"title": f"HTTP {error.code}", "detail": str(error.reason)}


def path(*parts: str) -> str:
    """A path of the API; parts are names, and cannot lead elsewhere.

    >>> path("jobs", "a b")
    '/v1/jobs/a%20b'
    """
    for part in parts:
        if part in ("", ".", "..") or "/" in part:
            raise InvalidInput("a name without a slash", value=part)
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)
