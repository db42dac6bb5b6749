"""Requests that are repeated until the API server answers, and objects that are followed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from berth.live.kubernetes_api import Api, ApiError, Stop

__all__ = ["LISTED", "follow", "insist"]

ANSWER_SECONDS, RETRY_SECONDS = 30.0, 0.3
LISTED = "LISTED"
"""The type of an event with all objects: the first one, and the first one after a gap."""


async def insist(api: Api, method: str, path: str, body: object = None, **more: Any) -> Any:
    """Send a request until the API server accepts or refuses it."""
    while True:
        try:
            return await api.ask(method, path, body, seconds=ANSWER_SECONDS, **more)
        except ApiError as error:
            if not error.passing:
                raise
        await asyncio.sleep(RETRY_SECONDS)


async def follow(api: Api, path: str, query: Mapping[str, str]) -> AsyncIterator[tuple[str, Any]]:
    """List objects, then yield their changes, for ever."""
    loop, events = asyncio.get_running_loop(), asyncio.Queue[tuple[str, Any]]()

    def put(kind: str, told: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(events.put_nowait, (kind, told))

    def watch() -> None:
        while True:
            with suppress(ApiError):
                listed, version = api.list(path, query)
                put(LISTED, listed)
                for kind, told in api.watch(path, query, version, Stop()):
                    put(kind, told)
            time.sleep(RETRY_SECONDS)

    threading.Thread(target=watch, daemon=True).start()
    while True:
        yield await events.get()
