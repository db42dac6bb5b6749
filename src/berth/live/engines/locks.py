"""Locks by key, for what must not happen twice at a time to one of many things."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["Locks"]

Key = TypeVar("Key", bound=Hashable)


@dataclass
class _Held:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    """How many hold the lock or wait for it."""


class Locks(Generic[Key]):
    """A lock for each key. It is dropped when nothing holds it or waits for it, and not before."""

    def __init__(self) -> None:
        self._held: dict[Key, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    @asynccontextmanager
    async def of(self, key: Key) -> AsyncIterator[None]:
        """Hold the lock of a key."""
        held = self._held.setdefault(key, _Held())
        held.users += 1
        try:
            async with held.lock:
                yield
        finally:
            held.users -= 1
            if not held.users:
                del self._held[key]
