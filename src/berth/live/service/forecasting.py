"""Forecast a waiting job from time to time, to score the forecasts against actual starts."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from itertools import islice

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Foretold
from berth.live.core.forecast import played
from berth.live.core.learning import Range
from berth.live.core.order import ordered
from berth.live.core.records import JobRecord
from berth.live.core.state import State
from berth.live.service.journal_loop import Closed
from berth.live.service.store import StoreError

__all__ = ["forecast_on", "forecast_one"]

EVERY = 5.0
"""The least seconds between two forecasts."""
SHARE = 0.02
"""The largest share of time to spend on them."""
TRIES = 20
"""The most jobs to draw until one waits and has no forecast."""
log = logging.getLogger(__name__)
Question = tuple[State, JobRecord]
Answer = Callable[[Question | None, float], Foretold | None]
Think = Callable[[Callable[[Dispatcher], Question | None], Answer], Awaitable[Foretold | None]]
Note = Callable[[Foretold], Awaitable[None]]


async def forecast_on(think: Think, note: Note, seed: int, every: float = EVERY) -> None:
    """Forecast one job after another until the scheduler is closed; `think` and `note` are the scheduler's methods."""
    rng = random.Random(seed)
    took = 0.0
    while True:
        await asyncio.sleep(max(every, took / SHARE))
        began = time.monotonic()
        try:
            await forecast_one(think, note, rng)
        except Closed:
            return
        except StoreError as error:  # the journal loop logs the details
            log.info("a forecast could not be stored: %s", error)
        except Exception:
            log.exception("a forecast failed")
        took = time.monotonic() - began


async def forecast_one(think: Think, note: Note, rng: random.Random) -> Foretold | None:
    """Forecast one of the waiting jobs, if possible."""
    forecast = await think(lambda dispatcher: _drawn(dispatcher.state, rng), _answer)
    if forecast is not None:
        await note(forecast)
    return forecast


def _drawn(state: State, rng: random.Random) -> Question | None:
    for _ in range(min(TRIES, 4 * len(state.jobs))):
        record = next(islice(state.jobs.values(), rng.randrange(len(state.jobs)), None))  # a list of all takes longer
        if record.phase == "waiting" and record.job.id not in state.foresight.pending:
            return state.copied(), record
    return None


def _answer(question: Question | None, now: float) -> Foretold | None:
    if question is None:
        return None
    state, record = question
    forecast, _ = played(state, record, now, ordered(state, now))
    if not isinstance(forecast, Range) or math.isinf(forecast.high):
        return None
    return Foretold(now, record.job.id, forecast.low, forecast.middle, forecast.high)
