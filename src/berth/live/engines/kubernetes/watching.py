"""Follows objects of the cluster: a list at first, then every change, from threads into the event loop.

A watch that breaks off goes on from where it was. If that is too old for the API server, objects of this kind alone are
listed again, and what differs counts as changes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from berth.errors import BerthError
from berth.live.kubernetes_api import BOOKMARK, Api, ApiError, Stop, WatchExpired

__all__ = ["Followed", "Watching"]

PATIENCE = 10.0
"""Seconds after which a watch that does not go on counts as broken, and the connection with it."""
STEADY = 5.0
"""Seconds after which a watch counts as going on."""
FIRST_WAIT, LONGEST_WAIT = 0.1, 2.0
"""Seconds until the next try, at first and at most; they double in between."""
Known = dict[str, tuple[str, Any]]
"""The version of each object and what is kept of it, by uid."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Followed:
    """Objects to follow: where they are, which of them, and what is kept of each, given what was kept before."""

    name: str
    path: str
    query: Mapping[str, str]
    keep: Callable[[dict[str, Any], Any], Any]


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
        lists = await asyncio.gather(*(asyncio.to_thread(self._listed, one, {}) for one in self._followed))
        loop = asyncio.get_running_loop()
        for one, (known, version) in zip(self._followed, lists, strict=True):
            self.objects[one.name] = {uid: kept for uid, (_, kept) in known.items()}
            given = loop, one, known, version
            threading.Thread(target=self._follow, args=given, name=f"watch-{one.name}", daemon=True).start()

    def _listed(self, one: Followed, known: Known) -> tuple[Known, str]:
        """All objects, of which page by page is kept what is needed."""

        def keep(found: dict[str, Any]) -> tuple[str, tuple[str, Any]]:
            uid, version = _named(found)
            before = known.get(uid, ("", None))
            return uid, before if version and version == before[0] else (version, one.keep(found, before[1]))

        found, version = self._api.list(one.path, one.query, keep)
        return dict(found), version

    def _follow(self, loop: asyncio.AbstractEventLoop, one: Followed, known: Known, version: str | None) -> None:
        since: float | None = None
        wait = FIRST_WAIT
        while not self._stop:
            began, trouble = time.monotonic(), cast(BerthError | None, None)
            try:
                if version is None:
                    version = self._list_again(loop, one, known)
                for kind, found in self._api.watch(one.path, one.query, version, self._stop, bookmarks=True):
                    version = _named(found)[1] or version
                    if kind != BOOKMARK:
                        self._change(loop, one, known, found, kind == "DELETED")
            except WatchExpired as error:
                trouble, version = error, None
            except Exception as error:  # the loop must hear of it, whatever it is
                trouble = error if isinstance(error, BerthError) else _unexpected(one, error)
            if trouble is None or self._stop:
                continue
            if since is None or time.monotonic() - began > STEADY:
                since, wait = time.monotonic(), FIRST_WAIT
            passing = isinstance(trouble, WatchExpired) or (isinstance(trouble, ApiError) and trouble.passing)
            if not passing or time.monotonic() - since > PATIENCE:
                self._put(loop, trouble)
                return
            log.info("%s; trying again in %.2g s", trouble, wait)
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def _change(
        self, loop: asyncio.AbstractEventLoop, one: Followed, known: Known, found: dict[str, Any], gone: bool
    ) -> None:
        uid, version = _named(found)
        _, before = known.pop(uid, ("", None))
        kept = None if gone else one.keep(found, before)
        if not gone:
            known[uid] = version, kept
        self._put(loop, (one.name, uid, kept))

    def _list_again(self, loop: asyncio.AbstractEventLoop, one: Followed, known: Known) -> str:
        """List the objects of one kind again, and put what has changed."""
        found, version = self._listed(one, known)
        for uid in known.keys() - found.keys():
            self._put(loop, (one.name, uid, None))
        for uid, (its, kept) in found.items():
            if not its or its != known.get(uid, ("", None))[0]:
                self._put(loop, (one.name, uid, kept))
        known.clear()
        known.update(found)
        return version

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


def _named(found: dict[str, Any]) -> tuple[str, str]:
    """The uid and the version of an object; a bookmark has no uid."""
    metadata = found.get("metadata") or {}
    return str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or "")


def _unexpected(one: Followed, error: Exception) -> BerthError:
    return BerthError(f"{one.name}: {type(error).__name__}: {error}")
