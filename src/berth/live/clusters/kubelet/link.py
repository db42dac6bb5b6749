"""Requests to the API server from coroutines, in threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from berth.live.clusters.kubernetes_api import Api, ApiError

__all__ = ["LISTED", "Link"]

RETRY_SECONDS = 0.3
LISTED = "LISTED"
"""The type of an event with all objects: the first one, and the first one after a gap."""


class Link:
    """The API server, with threads of its own."""

    def __init__(self, api: Api, threads: int = 8) -> None:
        self._api, self._threads = api, ThreadPoolExecutor(threads)

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Send a request once."""
        asking = partial(self._api.ask, method, path, body, **more)
        return await asyncio.get_running_loop().run_in_executor(self._threads, asking)

    async def insist(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Send a request until the API server accepts or refuses it."""
        while True:
            try:
                return await self.ask(method, path, body, **more)
            except ApiError as error:
                if not error.passing:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    async def follow(self, path: str, **query: Any) -> AsyncIterator[tuple[str, Any]]:
        """List objects, then yield their changes, for ever."""
        loop, events = asyncio.get_running_loop(), asyncio.Queue[tuple[str, Any]]()

        def put(kind: str, told: Any) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(events.put_nowait, (kind, told))

        threading.Thread(target=self._follow, args=(path, query, put), daemon=True).start()
        while True:
            yield await events.get()

    def _follow(self, path: str, query: dict[str, Any], put: Callable[[str, Any], None]) -> None:
        while True:
            with suppress(ApiError):
                listed = self._api.ask("GET", path, **query)
                put(LISTED, listed["items"])
                version = listed["metadata"]["resourceVersion"]
                while True:
                    for kind, told in self._api.watch(path, version, allowWatchBookmarks="true", **query):
                        version = told["metadata"]["resourceVersion"]
                        if kind != "BOOKMARK":
                            put(kind, told)
            time.sleep(RETRY_SECONDS)
