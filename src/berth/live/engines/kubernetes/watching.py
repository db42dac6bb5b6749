"""Follows objects of the cluster: a list at first, then every change, from threads into the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from berth.errors import BerthError
from berth.live.kubernetes_api import Api, Stop

__all__ = ["Followed", "Watching"]


@dataclass(frozen=True)
class Followed:
    """Objects to follow: where they are, which of them, and what is kept of each."""

    name: str
    path: str
    query: Mapping[str, str]
    keep: Callable[[dict[str, Any]], Any]


class Watching:
    """Objects of several kinds, by kind and uid.

    `changes` has what happened since the lists: kind, uid and the object, which is None when it was deleted; or the
    error that ended it. `wake` is set when there are some.
    """

    def __init__(self, api: Api, followed: tuple[Followed, ...], wake: asyncio.Event) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.changes: deque[tuple[str, str, Any] | BerthError] = deque()
        self._api, self._followed, self._wake = api, followed, wake
        self._stop = Stop()

    async def start(self) -> None:
        """Read all lists, and follow them from there."""
        lists = await asyncio.gather(*(asyncio.to_thread(self._listed, one) for one in self._followed))
        loop = asyncio.get_running_loop()
        for one, (objects, version) in zip(self._followed, lists, strict=True):
            self.objects[one.name] = objects
            follow = threading.Thread(
                target=self._follow, args=(loop, one, version), name=f"watch-{one.name}", daemon=True
            )
            follow.start()

    def _listed(self, one: Followed) -> tuple[dict[str, Any], str]:
        found, version = self._api.list(one.path, one.query)
        return {each["metadata"]["uid"]: one.keep(each) for each in found}, version

    def _follow(self, loop: asyncio.AbstractEventLoop, one: Followed, version: str) -> None:
        try:
            for kind, found in self._api.watch(one.path, one.query, version, self._stop):
                kept = None if kind == "DELETED" else one.keep(found)
                self._put(loop, (one.name, found["metadata"]["uid"], kept))
        except BerthError as error:
            self._put(loop, error)
        except Exception as error:  # the loop must hear of it, whatever it is
            self._put(loop, BerthError(f"{one.name}: {type(error).__name__}: {error}"))

    def _put(self, loop: asyncio.AbstractEventLoop, change: Any) -> None:
        if not self._stop:
            self.changes.append(change)
            try:
                loop.call_soon_threadsafe(self._wake.set)
            except RuntimeError:  # the loop has ended
                self._stop.set()

    def stop(self) -> None:
        """End all watches."""
        self._stop.set()
