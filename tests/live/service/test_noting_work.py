"""The work of a round of explanations grows with the number of jobs, not with its square."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import ServerJoined, Submitted
from berth.live.core.jobs import Job, Role, Server
from berth.live.service import noting

JOBS = 400


class CountedId(str):
    """A job id that counts how often its hash is computed."""

    __slots__ = ()
    hashes = 0

    def __hash__(self) -> int:
        CountedId.hashes += 1
        return super().__hash__()


def test_a_round_looks_at_each_job_a_few_times() -> None:
    dispatcher = Dispatcher()
    dispatcher.handle(ServerJoined(0.0, Server("n1", {"cpu": 1000})))
    ids = [CountedId(f"k{i:03}") for i in range(JOBS)]
    for name in ids:
        dispatcher.handle(Submitted(1.0, Job(name, "t", (Role("pod", 1, {"cpu": 2000}),), origin="kubernetes")))

    async def think(look: Callable[[Dispatcher], Any], answer: Callable[[Any, float], Any]) -> Any:
        question = look(dispatcher)
        return [(job, "why") for job in question[1]]

    async def note(job: str, text: str) -> None:
        pass

    CountedId.hashes = 0
    noted = asyncio.run(noting.note_some(think, note, dict.fromkeys(ids, "why")))
    assert len(noted) == JOBS
    assert CountedId.hashes < 20 * JOBS
