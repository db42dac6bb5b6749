"""Jobs that wait at the engine are explained there, in turn, and again only when the reason changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import ServerJoined, Submitted
from berth.live.core.jobs import Job, Role, Server
from berth.live.service import noting


def dispatcher_with(jobs: int) -> Dispatcher:
    made = Dispatcher()
    made.handle(ServerJoined(0.0, Server("n1", {"cpu": 1000})))
    for i in range(jobs):
        made.handle(Submitted(1.0, Job(f"k{i:02}", "t", (Role("pod", 1, {"cpu": 2000}),), origin="kubernetes")))
    made.handle(Submitted(1.0, Job("own", "t", (Role("task", 1, {"cpu": 2000}),))))
    return made


def test_each_waiting_job_has_its_turn_and_nothing_is_said_twice() -> None:
    dispatcher = dispatcher_with(noting.MANY + 3)
    said: list[tuple[str, str]] = []

    async def think(look: Callable[[Dispatcher], Any], answer: Callable[[Any, float], Any]) -> Any:
        return answer(look(dispatcher), 10.0)

    async def note(job: str, text: str) -> None:
        said.append((job, text))

    async def run() -> None:
        noted: dict[str, str] = {}
        for _ in range(4):
            noted = await noting.note_some(think, note, noted)

    asyncio.run(run())
    assert sorted(job for job, _ in said) == [f"k{i:02}" for i in range(noting.MANY + 3)]
    assert all("it would not fit even if nothing ran" in text for _, text in said)


def test_nothing_waits_and_nothing_is_said() -> None:
    async def think(look: Callable[[Dispatcher], Any], answer: Callable[[Any, float], Any]) -> Any:
        return answer(look(dispatcher_with(0)), 10.0)

    async def note(job: str, text: str) -> None:
        raise AssertionError(job)

    assert asyncio.run(noting.note_some(think, note, {"gone": "text"})) == {}
