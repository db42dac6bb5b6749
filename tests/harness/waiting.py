"""Wait for a condition, with one generous deadline; at the deadline the test says what it last saw."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar, overload

__all__ = ["DEADLINE", "eventually", "eventually_async"]

DEADLINE = 240.0
"""Seconds until a condition that does not hold counts as a failure. It is never the time that a test takes: Slurm
itself may take 66 s to end a gang that was cancelled while its tasks were launched."""
Seen = TypeVar("Seen")


def _pauses() -> Iterator[float]:
    """Pauses between two looks: short at first, so that a quick test is quick, then up to a quarter of a second."""
    pause = 0.01
    while True:
        yield pause
        pause = min(1.5 * pause, 0.25)


def _missed(what: str, last: object, deadline: float) -> AssertionError:
    return AssertionError(f"{what}: not within {deadline:g} s; last seen: {str(last)[-3000:]}")


def eventually(
    look: Callable[[], Seen], good: Callable[[Seen], object] = bool, what: str = "", deadline: float = DEADLINE
) -> Seen:
    """Look again and again until what is seen is good, and return it."""
    end = time.monotonic() + deadline
    for pause in _pauses():
        if good(seen := look()):
            return seen
        if time.monotonic() > end:
            raise _missed(what or "the condition does not hold", seen, deadline)
        time.sleep(pause)
    raise AssertionError


@overload
async def eventually_async(
    look: Callable[[], Awaitable[Seen]],
    good: Callable[[Seen], object] = bool,
    what: str = "",
    deadline: float = DEADLINE,
) -> Seen: ...


@overload
async def eventually_async(
    look: Callable[[], Seen],
    good: Callable[[Seen], object] = bool,
    what: str = "",
    deadline: float = DEADLINE,
) -> Seen: ...


async def eventually_async(
    look: Callable[[], Awaitable[Seen] | Seen],
    good: Callable[[Seen], object] = bool,
    what: str = "",
    deadline: float = DEADLINE,
) -> Seen:
    """Like `eventually`, in a coroutine; `look` may be a coroutine function."""
    end = time.monotonic() + deadline
    for pause in _pauses():
        found = look()
        seen: Seen = await found if isinstance(found, Awaitable) else found
        if good(seen):
            return seen
        if time.monotonic() > end:
            raise _missed(what or "the condition does not hold", seen, deadline)
        await asyncio.sleep(pause)
    raise AssertionError
