"""Tell users at the engine why their jobs wait: `kubectl describe pod` then has the reason and the forecast."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.explain import explain
from berth.live.core.state import State
from berth.live.service.journal_loop import Closed

__all__ = ["note_on", "note_some"]

EVERY = 15.0
"""Seconds between two rounds."""
MANY = 10
"""The most jobs of a round: an explanation takes a while."""
log = logging.getLogger(__name__)
Question = tuple[State, list[str]]
Notes = list[tuple[str, str]]
Think = Callable[[Callable[[Dispatcher], Question | None], Callable[[Question | None, float], Notes]], Awaitable[Notes]]
Note = Callable[[str, str], Awaitable[None]]


async def note_on(think: Think, note: Note, every: float = EVERY) -> None:
    """Explain waiting jobs one after another until the scheduler is closed; `note` tells the engine."""
    noted: dict[str, str] = {}
    while True:
        await asyncio.sleep(every)
        try:
            noted = await note_some(think, note, noted)
        except Closed:
            return
        except Exception:
            log.exception("waiting jobs could not be explained at the engine")


async def note_some(think: Think, note: Note, noted: dict[str, str]) -> dict[str, str]:
    """Explain some of the jobs that wait at the engine, those first whose turn was longest ago.

    `noted` are the jobs that were explained before, in that order, and how; the answer is the next such list.
    """
    waiting: dict[str, None] = {}

    def look(dispatcher: Dispatcher) -> Question | None:
        records = dispatcher.state.jobs.values()
        waiting.update((one.job.id, None) for one in records if one.job.origin and one.phase == "waiting")
        order = {job: place for place, job in enumerate(noted)}
        chosen = heapq.nsmallest(MANY, waiting, key=lambda job: order.get(job, -1))
        return (dispatcher.state.copied(), chosen) if chosen else None

    for job, text in await think(look, _explained):
        if noted.pop(job, None) != text:
            await note(job, text)
        noted[job] = text
    return {job: text for job, text in noted.items() if job in waiting}


def _explained(question: Question | None, now: float) -> Notes:
    if question is None:
        return []
    state, jobs = question
    notes = []
    for job in jobs:
        found = explain(state, job, now)
        when = [f"starts: {found.eta}"] if found.eta is not None else []
        notes.append((job, "; ".join([*found.blocks, *(str(group) for group in found.servers[:2]), *when])))
    return notes
