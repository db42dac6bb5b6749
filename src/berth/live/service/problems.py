"""Errors of the API: problem+json (RFC 9457), with the offending field if it is known."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from berth.errors import BerthError, InvalidInput, UnknownName
from berth.files.wording import plain_words
from berth.live.service.database import StoreDamaged, StoreError
from berth.live.service.journal_loop import Closed
from berth.live.service.rounds import Unsettled

__all__ = ["PROBLEM", "SHAPES", "Refused", "answer_problems", "problem"]

PROBLEM = "application/problem+json"
SHOWN = 200
"""The most characters of a refused value that are shown."""
SAID = 2000
"""The most characters of its explanation, which may list all valid values."""

SHAPES = ("one job", "several jobs")
"""The shapes of a body; in the location of an error they are not fields."""

WHERE = ("body", "query", "path", "header")
"""Parts of a request; left out of messages."""

NOT_NOW: dict[type[BerthError], str] = {
    Unsettled: "the store does not answer, and this may still be done when it does; a submission with an"
    " Idempotency-Key can be sent again safely, one without is cancelled",
    StoreError: "the store cannot be used now; nothing was changed by this request",
    StoreDamaged: "the store cannot be used",
    Closed: "the service is stopping",
}
"""The client's message for each kind of error; the log has the details."""

log = logging.getLogger("berth.service")


class Refused(Exception):
    """A request that is refused: its status, a short title, details, and the field."""

    def __init__(self, status: int, title: str, detail: str = "", field: str | None = None, **headers: str) -> None:
        self.status, self.title, self.detail, self.field, self.headers = status, title, detail, field, headers
        super().__init__(f"{title}: {detail}")


def problem(
    status: int,
    title: str,
    detail: str = "",
    errors: list[dict[str, Any]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """A problem as a response."""
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status}
    if detail:
        body["detail"] = detail
    if errors:
        body["errors"] = errors
    return JSONResponse(body, status, dict(headers or {}), media_type=PROBLEM)


def _shown(value: object, most: int = SHOWN) -> object:
    """A value as JSON can show it, shortened."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bool | int | float | None):
        return value
    text = value if isinstance(value, str) else repr(value)
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= most else f"{text[:most]}…"


def answer_problems(app: FastAPI) -> None:
    """Turn every error of the app into a problem."""

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        errors = [{"field": error.field, "detail": error.detail}] if error.field else None
        headers = {name.replace("_", "-"): value for name, value in error.headers.items()}
        return problem(error.status, error.title, error.detail, errors, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        found = [(detail, plain_words(detail, *SHAPES, *WHERE)) for detail in error.errors()[:20]]
        errors = [
            {
                "field": ".".join(part for part in (str(detail["loc"][0]), words.key) if part),
                "detail": str(_shown(f"expected {words.expected}", SAID)),
                "value": _shown(detail.get("input") if words.value is ... else words.value),
            }
            for detail, words in found
        ]
        return problem(422, "invalid request", str(_shown(str(found[0][1]), SAID)), errors)

    @app.exception_handler(StoreError)
    @app.exception_handler(StoreDamaged)
    @app.exception_handler(Closed)
    async def unable(request: Request, error: BerthError) -> JSONResponse:
        log.error("temporarily unavailable: %s", error, extra={"path": request.url.path})
        detail = next(text for kind, text in NOT_NOW.items() if isinstance(error, kind))
        return problem(503, "temporarily unavailable", detail, headers={"Retry-After": "5"})

    @app.exception_handler(BerthError)
    async def berth(_: Request, error: BerthError) -> JSONResponse:
        status = 404 if isinstance(error, UnknownName) and error.what in ("policy", "server") else 422
        field = error.key if isinstance(error, InvalidInput) else None
        said = str(_shown(str(error), SAID))
        errors = [{"field": field, "detail": said}] if field else None
        return problem(status, "unknown name" if status == 404 else "invalid request", said, errors)

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("failed", extra={"path": request.url.path}, exc_info=error)
        return problem(500, "internal error", "see the log of the service")
