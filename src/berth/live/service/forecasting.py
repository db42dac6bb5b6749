"""Now and then a job that waits is foretold, so that it is seen how such forecasts hold."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from typing import TYPE_CHECKING

from berth.live.core.calibration import Range
from berth.live.core.events import Foretold
from berth.live.core.forecast import played
from berth.live.core.records import JobRecord
from berth.live.core.state import State
from berth.live.core.view import ordered
from berth.live.service.journal_loop import Closed
from berth.live.service.store import StoreError

if TYPE_CHECKING:
    from berth.live.service.scheduler import Scheduler

__all__ = ["foretell", "foretell_on"]

EVERY = 5.0
"""Seconds from one forecast to the next, at least."""
SHARE = 0.02
"""The part of the time that may be spent so."""
TRIES = 20
"""So many jobs are drawn until one is found that waits and was not foretold."""
log = logging.getLogger(__name__)
Question = tuple[State, JobRecord]


async def foretell_on(scheduler: Scheduler, every: float = EVERY) -> None:
    """Foretell one job after another until the scheduler is closed."""
    rng = random.Random(scheduler.settings.seed)
    took = 0.0
    while True:
        await asyncio.sleep(max(every, took / SHARE))
        began = time.monotonic()
        try:
            await foretell(scheduler, rng)
        except Closed:
            return
        except StoreError as error:  # the journal loop tells more about it
            log.info("a forecast was not kept: %s", error)
        except Exception:
            log.exception("a forecast was not made")
        took = time.monotonic() - began


async def foretell(scheduler: Scheduler, rng: random.Random) -> Foretold | None:
    """Foretell one of the jobs that wait, if one can be."""
    found = await scheduler.think(lambda dispatcher: _drawn(dispatcher.state, rng), _answer)
    if found is not None:
        await scheduler.note(found)
    return found


def _drawn(state: State, rng: random.Random) -> Question | None:
    records = list(state.jobs.values())
    for _ in range(min(TRIES, 4 * len(records))):
        record = rng.choice(records)
        if record.phase == "waiting" and record.job.id not in state.foresight.pending:
            return state.copied(), record
    return None


def _answer(question: Question | None, now: float) -> Foretold | None:
    if question is None:
        return None
    state, record = question
    found, _ = played(state, record, now, [waiting for _, waiting in ordered(state, now)])
    if not isinstance(found, Range) or math.isinf(found.high):
        return None
    return Foretold(now, record.job.id, found.low, found.middle, found.high)
