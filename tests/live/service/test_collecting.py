"""Garbage is collected at chosen moments, and circles are freed."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from berth.live.service import collecting
from berth.live.service.collecting import NEVER, collect_all, collect_young, collected_apart
from tests.harness.waiting import eventually_async


class Circle:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def circle() -> Callable[[], Circle | None]:
    return weakref.ref(Circle())


def test_old_objects_are_looked_at_once() -> None:
    old = Circle()
    collect_all()
    gone = weakref.ref(old)
    del old
    young = circle()
    collect_young()
    assert young() is None
    assert gone() is not None
    assert not any(isinstance(one, Circle) for one in gc.get_objects())
    collect_all()
    assert gone() is None


def test_many_young_objects_are_set_aside_uncollected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "FEW", -1)
    collect_all()
    young = circle()
    collect_young()
    assert young() is not None
    collect_all()
    assert young() is None


def test_no_full_collection_happens_by_itself_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "EVERY", 0.001)
    before = gc.get_threshold()

    async def run() -> None:
        async with collected_apart():
            assert gc.get_threshold() == (*before[:2], NEVER)
            assert gc.get_freeze_count()
            young = circle()
            await eventually_async(lambda: young() is None)
        assert gc.get_threshold() == before
        assert not gc.get_freeze_count()

    asyncio.run(run())


def test_a_service_in_a_thread_leaves_the_collector_alone() -> None:
    before, seen = gc.get_threshold(), []

    async def run() -> None:
        async with collected_apart():
            seen.append(gc.get_threshold())

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    thread.join()
    assert seen == [before]
