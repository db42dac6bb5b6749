"""Garbage collection at chosen moments.

Most memory is freed by counting references; the collector frees what refers to itself in a circle. A full collection
looks at all objects, and nothing else runs meanwhile: with 100,000 waiting jobs, for most of a second. So full
collections do not happen by themselves. Every few seconds the objects that are left of the latest requests are
collected if they are few, and set aside with all others (`gc.freeze`). All objects are looked at when the service has
just started, and again and again in a small share of the time.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

__all__ = ["collected_apart"]

EVERY = 5.0
"""Seconds between two looks."""
FEW = 20
"""Collections of young objects, each of which leaves at most about 7,000 older ones, whose remains are few."""
SHARE = 1e-4
"""The share of time in which all objects are looked at."""
NEVER = 2**31 - 1


@asynccontextmanager
async def collected_apart() -> AsyncIterator[None]:
    """Collect at chosen moments, if the process is that of this main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = gc.get_threshold()
    gc.set_threshold(*before[:2], NEVER)
    looking = asyncio.create_task(_look_on(collect_all()))
    try:
        yield
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
        gc.set_threshold(*before)
        gc.unfreeze()


def collect_all() -> float:
    """Look at all objects; the seconds that it took."""
    began = time.monotonic()
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    return time.monotonic() - began


def collect_young() -> None:
    """Set aside what is left of the latest objects, first collected if they are few."""
    if gc.get_count()[2] <= FEW:
        gc.collect()
    gc.freeze()


async def _look_on(took: float) -> None:
    due = time.monotonic() + took / SHARE
    while True:
        await asyncio.sleep(EVERY)
        collect_young()
        if time.monotonic() >= due:
            due = time.monotonic() + collect_all() / SHARE
