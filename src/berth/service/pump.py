"""The pump: the one task that changes anything.

It takes what has come in, lets the dispatcher take note of it, writes all of it in one transaction, and only then
answers and acts. Between rounds it decides. What was not written was never answered nor done; when the store cannot be
reached, the pump waits for it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from berth.dispatch.dispatcher import Dispatcher, Dumped
from berth.dispatch.events import Command, Event
from berth.engines.clock import Clock
from berth.errors import BerthError
from berth.service.agreeing import is_news, outstanding
from berth.service.rounds import Round, Submission, look_up
from berth.service.settings import Settings
from berth.service.store import Store, StoreError, packed

__all__ = ["FIRST_WAIT", "LONGEST_WAIT", "Closed", "Journaled", "Pump"]

ROUND = 1_000
"""The most requests and events that are taken together."""
RECENT = 2_000
"""Events that are kept in memory for those who follow."""
FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0
"""Seconds until store or engine are tried again, at first and at most; in between they double."""
REISSUE = 30.0
"""Seconds after which commands that are still out are given again."""
SNAPSHOT_SECONDS = 600.0
"""Seconds after which a snapshot is written also of few events: what a candidate has seen is in no event."""
CLOSE_SECONDS = 10.0
T = TypeVar("T")
log = logging.getLogger(__name__)


class Closed(BerthError):
    """The scheduler does not take anything more."""


@dataclass(frozen=True)
class Journaled:
    """An event and its number in the journal."""

    seq: int
    event: Event


@dataclass(frozen=True)
class _Request:
    """Something to be done in a round, and who waits for it; what it must know from the store."""

    run: Callable[[Round], Any]
    answer: asyncio.Future[Any]
    submission: Submission | None = None
    job: str | None = None


class Pump:
    """Runs until `close`, or until something happens that must not."""

    def __init__(self, settings: Settings, store: Store, dispatcher: Dispatcher, seq: int, clock: Clock) -> None:
        self.seq = self._snapshot_seq = seq
        self.trouble: str | None = None
        """What is wrong with the store."""
        self.deciding = False
        """Whether decisions may be made: not before the engine was heard."""
        self.act: Callable[[Sequence[Command]], None] = lambda commands: None
        """Has commands executed."""
        self._settings, self._store, self._dispatcher, self._clock = settings, store, dispatcher, clock
        self._inbox: deque[_Request | Event] = deque()
        self._wake, self._published = asyncio.Event(), asyncio.Event()
        self._recent: deque[Journaled] = deque(maxlen=RECENT)
        self._closing, self._changed = False, True
        self._decide_at = self._reissue_at = 0.0
        self._snapshot_at = time.monotonic() + SNAPSHOT_SECONDS
        # one thread writes, so that writes have an order; deciding and reading do not wait for it
        self._writer, self._decider = ThreadPoolExecutor(1, "write"), ThreadPoolExecutor(1, "decide")
        self._reader = ThreadPoolExecutor(2, "read")
        self._snapshotting: asyncio.Task[None] | None = None
        self.task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Answer what has come in, and write a snapshot."""
        self._closing = True
        self._wake.set()
        await asyncio.wait([self.task], timeout=CLOSE_SECONDS)
        ended_well = self.task.done() and not self.task.cancelled() and self.task.exception() is None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if self._snapshotting is not None:
            await asyncio.gather(self._snapshotting, return_exceptions=True)
        if ended_well and self.seq > self._snapshot_seq:
            await self._snapshot(self.seq, self._dispatcher.dump())
        for pool in (self._writer, self._decider, self._reader):
            pool.shutdown()

    # ------------------------------------------------------------------ in and out

    async def ask(self, run: Callable[[Round], T], submission: Submission | None = None, job: str | None = None) -> T:
        """Have something done in a round; what it gave, when that is durable."""
        if self._closing:
            raise Closed("the scheduler is closed")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._inbox.append(_Request(run, answer, submission, job))
        self._wake.set()
        return await answer

    def tell(self, event: Event) -> None:
        """Something happened."""
        self._inbox.append(event)
        self._wake.set()

    def wake(self) -> None:
        """Look whether there is something to decide."""
        self._changed = True
        self._wake.set()

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Ask the store something, in a thread that reads."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, partial(function, *arguments))

    async def follow(self, at: int) -> AsyncIterator[Journaled]:
        """Everything that is written after number `at`, until the pump ends."""
        while True:
            published = self._published
            if self._recent and self._recent[0].seq <= at + 1:
                found = list(itertools.islice(self._recent, at + 1 - self._recent[0].seq, None))
            elif at < self.seq and not self._closing:
                found = [Journaled(*one) for one in await self.read(self._written, at)]
            else:
                found = []
            for one in found:
                yield one
                at = one.seq
            if not found:
                if self._closing:
                    return
                await published.wait()

    def _written(self, at: int) -> list[tuple[int, Event]]:
        return list(self._store.events(at, RECENT))

    def _publish(self) -> None:
        before, self._published = self._published, asyncio.Event()
        before.set()

    # ------------------------------------------------------------------ rounds

    async def _run(self) -> None:
        try:
            while True:
                await self._wait_for_work()
                items = [self._inbox.popleft() for _ in range(min(len(self._inbox), ROUND))]
                if items:
                    await self._round(items)
                elif self._closing:
                    return
                if not self._closing and time.monotonic() >= self._next_decision:
                    await self._decide()
        except Exception as error:
            log.critical("the scheduler stops: %s", error, exc_info=True)
            raise
        finally:
            self._closing = True
            self._refuse([item for item in self._inbox if isinstance(item, _Request)])
            self._publish()

    @property
    def _next_decision(self) -> float:
        if not self.deciding:
            return float("inf")
        return self._decide_at + (0.0 if self._changed else self._settings.tick)

    async def _wait_for_work(self) -> None:
        if self._inbox or self._closing:
            return
        self._wake.clear()
        wait = self._next_decision - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait if wait < 1e6 else None):
                await self._wake.wait()

    def _now(self) -> float:
        return max(self._clock(), self._dispatcher.state.time)

    async def _round(self, items: Sequence[_Request | Event]) -> None:
        requests = [item for item in items if isinstance(item, _Request)]
        submissions = [request.submission for request in requests if request.submission is not None]
        ids = [request.job for request in requests if request.job is not None]
        lookup = None
        if submissions or ids:
            lookup = await self._retried(lambda: self.read(look_up, self._store, submissions, ids))
        round_ = Round(self._dispatcher, self.seq + 1, self._now(), lookup)
        answers: list[Callable[[], None]] = []
        for item in items:
            if isinstance(item, _Request):
                answers.append(_answered(item, round_))
            elif is_news(self._dispatcher.state, item):
                round_.note(item)
        try:
            await self._finish(round_)
        except BaseException:
            self._refuse(requests)
            raise
        self._changed |= bool(round_.batch.events)
        for answer in answers:
            with suppress(asyncio.InvalidStateError):  # whoever asked has gone away
                answer()

    def _refuse(self, requests: Sequence[_Request]) -> None:
        for request in requests:
            if not request.answer.done():
                request.answer.set_exception(Closed("the scheduler has stopped; it is not known whether this was done"))

    async def _decide(self) -> None:
        began, now = time.monotonic(), self._now()
        self._changed = False
        if began >= self._reissue_at:
            self.act(outstanding(self._dispatcher.state))
            self._reissue_at = began + REISSUE
        await self._end_overdue(now)
        decided = await asyncio.get_running_loop().run_in_executor(self._decider, self._dispatcher.decide, now)
        ended = time.monotonic()
        self._decide_at = ended + max(self._settings.soon, ended - began)  # at most half of the time is for deciding
        if decided is not None:
            round_ = Round(self._dispatcher, self.seq + 1, now)
            round_.note(decided)
            await self._finish(round_)

    async def _end_overdue(self, now: float) -> None:
        """End attempts that have reached their time limits."""
        round_ = Round(self._dispatcher, self.seq + 1, now)
        for event in self._dispatcher.state.overdue(now):
            round_.note(event)
        if round_.batch.events:
            await self._finish(round_)

    async def _finish(self, round_: Round) -> None:
        """Write what was noted; then, and not before, let it be known and act."""
        batch = round_.batch
        if batch.events:
            loop = asyncio.get_running_loop()
            await self._retried(lambda: loop.run_in_executor(self._writer, self._store.write, batch))
            self.seq = batch.last
            self._recent.extend(Journaled(seq, event) for seq, event in enumerate(batch.events, batch.first))
            self._publish()
        self.act(round_.commands)
        busy = self._snapshotting is not None and not self._snapshotting.done()
        new = self.seq - self._snapshot_seq
        due = new >= self._settings.snapshot_every or (new and time.monotonic() >= self._snapshot_at)
        if due and not busy:
            # the dump is made here, where state and journal agree
            self._snapshotting = asyncio.create_task(self._snapshot(self.seq, self._dispatcher.dump()))

    async def _retried(self, run: Callable[[], Any]) -> Any:
        """Ask the store until it answers."""
        wait = FIRST_WAIT
        while True:
            try:
                found = await run()
            except StoreError as error:
                log.warning("%s; again in %.2g s", error, wait)
                self.trouble = str(error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            else:
                self.trouble = None
                return found

    async def _snapshot(self, seq: int, dumped: Dumped) -> None:
        """Write what the events up to `seq` lead to; nobody waits for it."""
        self._snapshot_seq, self._snapshot_at = seq, time.monotonic() + SNAPSHOT_SECONDS
        try:
            body = await self.read(packed, dumped)
            given = seq, dumped.state.time, body, self._settings.retention
            await asyncio.get_running_loop().run_in_executor(self._writer, self._store.write_snapshot, *given)
        except BerthError as error:
            log.warning("no snapshot at event %d: %s", seq, error)


def _answered(request: _Request, round_: Round) -> Callable[[], None]:
    """Run a request; how to answer it when the round is written. What it refuses must not have changed anything."""
    before = len(round_.batch.events)
    try:
        given = request.run(round_)
    except Exception as error:
        if len(round_.batch.events) > before:
            raise
        return partial(request.answer.set_exception, error)
    return partial(request.answer.set_result, given)
