"""The journal loop: the only task that changes the state.

It takes pending requests and events, lets the dispatcher handle them, writes all of them in one transaction, and only
then answers and acts. Between rounds it decides. What is not in the journal was neither answered nor done. When the
store does not answer, the loop waits for it, and refuses requests until it does.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from berth.errors import BerthError
from berth.live.core.dispatcher import Dispatcher, Dumped
from berth.live.core.events import ClockStepped, Command, Event, Failed, Finished, QueuesChanged
from berth.live.core.shapes import own_copy
from berth.live.engines.clock import Clock
from berth.live.service.reconcile import is_news, outstanding
from berth.live.service.rounds import Lookup, Request, Round, Submission, Unsettled, in_parts, look_up
from berth.live.service.settings import ServiceSettings
from berth.live.service.store import Batch, Store, StoreError, packed

__all__ = ["FIRST_WAIT", "LONGEST_WAIT", "Closed", "JournalLoop", "Journaled"]

ROUND = 1_000
"""The most requests and events in a round."""
TURN = 0.02
"""Seconds of a round after which other tasks have a turn."""
RECENT = 2_000
"""The number of events kept in memory for subscribers."""
FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0
"""Seconds until the store or engine is retried, at first and at most; they double in between."""
REISSUE = 30.0
"""Seconds after which outstanding commands are issued again."""
GIVE_UP, SILENT = 2.0, 10.0
"""Seconds for which requests wait for the store: after a failure, and after a query without an answer."""
READ_SECONDS = 15.0
"""Seconds after which a read from the store times out."""
READERS = 8
"""Threads that read from the store."""
SNAPSHOT_SECONDS = 600.0
"""Seconds after which a snapshot is written even after few events: what a shadow policy has seen is in no event."""
CLOSE_SECONDS = 10.0
T = TypeVar("T")
log = logging.getLogger(__name__)


class Closed(BerthError):
    """The scheduler accepts no more requests."""


@dataclass(frozen=True)
class Journaled:
    """An event and its number in the journal."""

    seq: int
    event: Event


class JournalLoop:
    """Runs until `close`, or until an unexpected error."""

    def __init__(self, settings: ServiceSettings, store: Store, dispatcher: Dispatcher, seq: int, clock: Clock) -> None:
        self.seq = self._snapshot_seq = seq
        self.trouble: str | None = None
        """The store's latest error."""
        self.stuck = False
        """Whether the store has failed for so long that requests are refused at once."""
        self.deciding = False
        """Whether decisions may be made: not before the first contact with the engine."""
        self.act: Callable[[Sequence[Command]], None] = lambda commands: None
        """Executes commands."""
        self.settle: Callable[[Sequence[tuple[str, int]]], None] = lambda ended: None
        """Tells the engine of attempts whose ends are in the journal."""
        self.recall: Callable[[], Awaitable[Collection[str] | None]] = _unknown
        """Asks the engine which jobs it still knows; None if it does not say."""
        self.queues_changed: Callable[[], None] = lambda: None
        """Called when queues have changed."""
        self._settings, self._store, self._dispatcher, self._clock = settings, store, dispatcher, clock
        self._inbox: deque[Request | Event] = deque()
        self._taken: Sequence[Request] = ()
        self._batch = Batch(seq + 1)
        """The latest events that the state has, which may not be written yet."""
        self._wake, self._published = asyncio.Event(), asyncio.Event()
        self._recent: deque[Journaled] = deque(maxlen=RECENT)
        self._closing, self._changed = False, True
        self._turned = 0.0
        dispatcher.state.learned.beside = True
        self._decide_at = self._reissue_at = 0.0
        self._look_at = math.inf
        """When the policy wants to be asked again, if nothing happens before."""
        self._snapshot_at = time.monotonic() + SNAPSHOT_SECONDS
        # one thread writes, so writes are ordered; decisions and reads do not wait for it
        self._writer, self._decider = ThreadPoolExecutor(1, "write"), ThreadPoolExecutor(1, "decide")
        self._reader, self._packer = ThreadPoolExecutor(READERS, "read"), ThreadPoolExecutor(1, "pack")
        self._snapshotting: asyncio.Task[None] | None = None
        self.task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Answer pending requests, and write a snapshot."""
        self._closing = True
        self._wake.set()
        await asyncio.wait([self.task], timeout=CLOSE_SECONDS)
        ended_well = self.task.done() and not self.task.cancelled() and self.task.exception() is None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if self._snapshotting is not None:
            await asyncio.gather(self._snapshotting, return_exceptions=True)
        if ended_well and self.seq > self._snapshot_seq:
            await self._snapshot(self.seq, self._dispatcher.dump_later())
        for pool in (self._writer, self._decider, self._reader, self._packer):
            pool.shutdown()

    # ------------------------------------------------------------------ in and out

    async def ask(
        self,
        run: Callable[[Round], T],
        submission: Submission | None = None,
        job: str | None = None,
        patient: bool = False,
    ) -> T:
        """Run an action in a round; returns its result once it is durable.

        While the store does not answer, a request that is not `patient` gets a `StoreError`, and nothing is done; or
        `Unsettled`, if it may already be under way.
        """
        if self._closing:
            raise Closed("the scheduler is closed")
        if self.stuck and not patient:
            raise StoreError(f"{self.trouble}; nothing was changed")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._inbox.append(Request(run, answer, submission, job, patient))
        self._wake.set()
        return await answer

    async def ask_in_steps(
        self, run: Callable[[Round], Generator[None, None, T]], submission: Submission | None = None, **more: Any
    ) -> T:
        """`ask` for an action that takes long: other tasks run between its steps."""
        return await self.ask(cast(Callable[[Round], T], run), submission, **more)

    async def look(self, run: Callable[[], T]) -> T:
        """Call a function while the state does not change: between rounds, or while the loop waits for the store."""
        while not self.stuck:
            with suppress(StoreError):
                return await self.ask(lambda _: run())
        return run()

    async def stored(self) -> None:
        """Wait until all that the state has now is written, but not once requests are refused."""
        noted = self._batch.last
        while self.seq < noted and not self.stuck and not self.task.done():
            await self._published.wait()

    def tell(self, event: Event) -> None:
        """Queue an event of the engine."""
        self._inbox.append(event)
        self._wake.set()

    def wake(self) -> None:
        """Check whether there is something to decide."""
        self._changed = True
        self._wake.set()

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Read from the store, in a reader thread; `StoreError` if it does not answer in time."""
        try:
            return await asyncio.wait_for(self._reading(function, *arguments), READ_SECONDS)
        except TimeoutError:
            raise StoreError(f"the store has not answered for {READ_SECONDS:g} s") from None

    def _reading(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._reader, partial(function, *arguments))

    async def follow(self, at: int) -> AsyncIterator[Journaled]:
        """All events after number `at`, until the loop ends."""
        while True:
            published = self._published
            if self._recent and self._recent[0].seq <= at + 1:
                events = list(itertools.islice(self._recent, at + 1 - self._recent[0].seq, None))
            elif at < self.seq and not self._closing:
                events = [Journaled(*one) for one in await self.read(self._written, at)]
            else:
                events = []
            for one in events:
                yield one
                at = one.seq
            if not events:
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
                await self._follow_clock()
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
            for item in (*self._taken, *self._inbox):
                if isinstance(item, Request):
                    item.refuse(Closed("the scheduler has stopped; it is not known whether this was done"))
            self._publish()

    @property
    def _next_decision(self) -> float:
        if not self.deciding:
            return math.inf
        if self._changed:
            return self._decide_at
        return max(self._decide_at, min(self._decide_at + self._settings.tick, self._look_at))

    async def _wait_for_work(self) -> None:
        if self._inbox or self._closing:
            return
        self._wake.clear()
        wait = self._next_decision - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait if wait < 1e6 else None):
                await self._wake.wait()

    async def _follow_clock(self) -> None:
        """If the system clock was set, note it before anything else happens."""
        seconds = self._clock.step()
        if seconds:
            now = self._dispatcher.state.time
            prepare = self._dispatcher.state.prepare_step
            await asyncio.get_running_loop().run_in_executor(self._decider, prepare, seconds)
            round_ = self._new_round(now)
            round_.note(ClockStepped(now, seconds))
            await self._finish(round_)
            self._changed = True

    def _now(self) -> float:
        return max(self._clock(), self._dispatcher.state.time)

    def _new_round(self, now: float, lookup: Lookup | None = None) -> Round:
        round_ = Round(self._dispatcher, self.seq + 1, now, lookup)
        self._batch = round_.batch
        return round_

    async def _round(self, items: Sequence[Request | Event]) -> None:
        requests = self._taken = [item for item in items if isinstance(item, Request)]
        submissions = [request.submission for request in requests if request.submission is not None]
        ids = [request.job for request in requests if request.job is not None]
        lookup = None
        if submissions or ids:
            lookup = await self._retried(lambda: self._reading(look_up, self._store, submissions, ids))
        round_ = self._new_round(self._now(), lookup)
        answers: list[Callable[[], None]] = []
        for item in items:
            if isinstance(item, Request):
                if not item.answer.done():  # else it was refused, or the client has gone: it must not be done
                    answers.append(await self._answered(item, round_))
            elif is_news(self._dispatcher.state, item):
                round_.note(item)
            await self._turn()
        await self._finish(round_)
        ends = [(item.job, item.attempt) for item in items if isinstance(item, Finished | Failed)]
        if ends:  # written now, or before, or of no job
            self.settle(ends)
        self._changed |= bool(round_.batch.events)
        for answer in answers:
            with suppress(asyncio.InvalidStateError):  # it was refused, or the client has gone
                answer()
        self._taken = ()
        await self._undo(requests)

    async def _answered(self, request: Request, round_: Round) -> Callable[[], None]:
        """Run a request; how to answer it once the round is written. A request that raises must change nothing."""
        before = len(round_.batch.events)
        try:
            given = request.run(round_)
            if isinstance(given, Generator):
                given = await self._stepped(given)
        except Exception as error:
            if len(round_.batch.events) > before:
                raise
            return partial(request.answer.set_exception, error)
        request.noted = len(round_.batch.events) > before
        return partial(request.answer.set_result, given)

    async def _stepped(self, steps: Generator[None, None, T]) -> T:
        """Go through all steps; what they return."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast(T, end.value)
            await self._turn()

    async def _turn(self) -> None:
        """Between two events: estimate speeds anew in a thread if that is due, and let others run after a while."""
        learned = self._dispatcher.state.learned
        if learned.due:
            fitted = own_copy(learned).fitted
            learned.settle(await asyncio.get_running_loop().run_in_executor(self._decider, fitted))
        if time.monotonic() - self._turned >= TURN:
            await asyncio.sleep(0)
            self._turned = time.monotonic()

    async def _undo(self, requests: Sequence[Request]) -> None:
        """Cancel jobs that were written after their client got a 503, unless an idempotency key makes a retry safe."""
        given_up = [request.submission for request in requests if request.noted and request.unsettled]
        jobs = [job for one in given_up if one is not None and one.key is None for job in one.jobs]
        if jobs:
            log.warning("cancelling %d jobs whose client was told that the store did not answer", len(jobs))
            round_ = self._new_round(self._now())
            for job in jobs:
                round_.cancel(job.id, "berth")
            await self._finish(round_)

    async def _decide(self) -> None:
        began, now = time.monotonic(), self._now()
        self._changed = False
        if began >= self._reissue_at:
            self.act(outstanding(self._dispatcher.state))
            self._reissue_at = began + REISSUE
        await self._end_overdue(now)
        decided = await asyncio.get_running_loop().run_in_executor(self._decider, self._dispatcher.decide, now)
        ended = time.monotonic()
        self._decide_at = ended + max(self._settings.soon, ended - began)  # at most half of the time is spent deciding
        look = self._dispatcher.next_look
        self._look_at = ended + self._clock.wait(look) if look > now else math.inf
        if decided is not None:
            round_ = self._new_round(now)
            for part in in_parts(decided):
                round_.note(part)
                await self._turn()
            await self._finish(round_)

    async def _end_overdue(self, now: float) -> None:
        """End attempts that have reached their time limits."""
        round_ = self._new_round(now)
        for event in self._dispatcher.state.overdue(now):
            round_.note(event)
        if round_.batch.events:
            await self._finish(round_)

    async def _finish(self, round_: Round) -> None:
        """Write the round; only then publish it and act."""
        batch = round_.batch
        if batch.events:
            loop = asyncio.get_running_loop()
            await self._retried(lambda: loop.run_in_executor(self._writer, self._store.write, batch))
            self.seq = batch.last
            self._recent.extend(Journaled(seq, event) for seq, event in enumerate(batch.events, batch.first))
            self._publish()
            if any(isinstance(event, QueuesChanged) for event in batch.events):
                self.queues_changed()
        self.act(round_.commands)
        busy = self._snapshotting is not None and not self._snapshotting.done()
        new = self.seq - self._snapshot_seq
        due = new >= self._settings.snapshot_every or (new and time.monotonic() >= self._snapshot_at)
        if due and not busy:
            # the snapshot is taken here, where state and journal agree
            self._snapshotting = asyncio.create_task(self._snapshot(self.seq, self._dispatcher.dump_later()))

    async def _retried(self, run: Callable[[], Any]) -> Any:
        """Retry until the store answers; waiting clients are refused after a while."""
        wait = FIRST_WAIT
        loop = asyncio.get_running_loop()
        patience = loop.call_later(SILENT, self._give_up)
        try:
            while True:
                try:
                    found = await run()
                except StoreError as error:
                    log.warning("%s; retrying in %.2g s", error, wait)
                    if self.trouble is None:
                        patience.cancel()
                        patience = loop.call_later(GIVE_UP, self._give_up)
                    self.trouble = str(error)
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, LONGEST_WAIT)
                else:
                    self.trouble, self.stuck = None, False
                    return found
        finally:
            patience.cancel()

    def _give_up(self) -> None:
        """Refuse the requests that wait for the store, and new ones until it answers."""
        self.trouble = self.trouble or f"the store has not answered for {SILENT:g} s"
        self.stuck = True
        self._publish()
        waiting = [item for item in (*self._taken, *self._inbox) if isinstance(item, Request) and not item.patient]
        log.error("%s; %d requests are refused", self.trouble, len(waiting))
        for request in waiting:
            if request.noted:
                request.refuse(Unsettled(f"{self.trouble}; it is not known whether this will be done"))
            else:
                request.refuse(StoreError(f"{self.trouble}; nothing was changed"))

    async def _snapshot(self, seq: int, dump: Callable[[], Dumped]) -> None:
        """Write a snapshot of the state after event `seq`; no request waits for it."""
        self._snapshot_seq, self._snapshot_at = seq, time.monotonic() + SNAPSHOT_SECONDS
        loop = asyncio.get_running_loop()
        try:
            taken, body = await loop.run_in_executor(self._packer, _taken, dump)
            retention = self._settings.retention
            recalled = None if retention is None else await self.recall()
            given = seq, taken, body, retention, recalled
            await loop.run_in_executor(self._writer, self._store.write_snapshot, *given)
        except BerthError as error:
            log.warning("no snapshot at event %d: %s", seq, error)


async def _unknown() -> None:
    return None


def _taken(dump: Callable[[], Dumped]) -> tuple[float, bytes]:
    """The time of a snapshot, and its text."""
    dumped = dump()
    return dumped.state.time, packed(dumped)
