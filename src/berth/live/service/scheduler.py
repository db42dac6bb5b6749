"""The scheduler: a dispatcher, a journal and an engine. Every event is in the journal before it has any effect.

The journal loop is the only task that changes the state. It takes requests and the engine's events, lets the
dispatcher handle them, writes all of them in one transaction, and only then answers and acts. So everything that was
answered or done is in the journal.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from berth.errors import BerthError
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.drivers import interrupting
from berth.live.core.events import Decided, Event, PolicyChanged, QueuesChanged, ShadowChanged
from berth.live.core.jobs import Job
from berth.live.core.queues import Queues
from berth.live.core.reasons import queue_page
from berth.live.core.records import ENDED, JobRecord, Phase, ServerRecord
from berth.live.core.shadow import Baseline, Shadow
from berth.live.core.state import State
from berth.live.engines import Owner, check_name
from berth.live.engines.clock import Clock
from berth.live.engines.registry import make_engine
from berth.live.service.engine_link import EngineLink
from berth.live.service.forecasting import forecast_on
from berth.live.service.journal_loop import Closed, Journaled, JournalLoop
from berth.live.service.noting import note_on
from berth.live.service.rounds import Conflict, Round, Submission
from berth.live.service.settings import ServiceSettings
from berth.live.service.store import Store, StoreError

__all__ = ["Closed", "Conflict", "Health", "Journaled", "Page", "Scheduler", "aside", "fresh_ids"]

FEW = 50
"""As many jobs are looked at on the event loop at once, and more beside it."""
PING_SECONDS = 2.0
"""Seconds that the store has to answer a health check."""
T = TypeVar("T")
U = TypeVar("U")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Page:
    """Jobs, latest first, and where the next page begins (None: this was the last page)."""

    records: tuple[JobRecord, ...]
    after: int | None


@dataclass(frozen=True)
class Health:
    """Health of the service: `store` and `engine` are their errors, or None.

    `paused` says why the engine takes no starts for a while; all else works then.
    """

    seq: int
    store: str | None
    engine: str | None
    paused: str | None = None

    @property
    def ready(self) -> bool:
        return self.trouble is None

    @property
    def trouble(self) -> str | None:
        """What is wrong, in words."""
        if self.store is not None:
            return f"the store cannot be written: {self.store}"
        return None if self.engine is None else f"the engine cannot be reached: {self.engine}"


def fresh_ids(count: int, key: str | None, user: str) -> list[str]:
    """Ids for jobs without one: random, or derived from the idempotency key.

    >>> fresh_ids(2, "key", "ada") == fresh_ids(2, "key", "ada")
    True
    """
    stem = uuid.uuid4().hex if key is None else hashlib.sha256(f"{user}\0{key}".encode()).hexdigest()
    return [f"j-{stem[:20]}" if count == 1 else f"j-{stem[:20]}-{i}" for i in range(count)]


async def aside(many: int, run: Callable[[], T]) -> T:
    """Call a function that looks at this number of jobs: in a thread, if they are not few."""
    return run() if many <= FEW else await asyncio.to_thread(run)


class Scheduler:
    """The public interface. Changes return once they are durable; a `BerthError` means that nothing was done."""

    settings: ServiceSettings
    dispatcher: Dispatcher
    """The live state. It may be read between awaits, and must never be changed.

    It may be ahead of the store: what is read may be told to others after `stored`.
    """

    def __init__(self, settings: ServiceSettings, store: Store, dispatcher: Dispatcher, seq: int) -> None:
        self.settings, self.dispatcher, self.store = settings, dispatcher, store
        self._thinker, self._thinking = ThreadPoolExecutor(1, "think"), asyncio.Lock()
        self.baseline = Baseline().go_on(dispatcher.watched.get("fallback"))
        self.shadow: Shadow | None = None
        self.preparing: str | None = None
        """The policy that is being warmed up before it decides."""
        self._watch_on()
        now = time.time()
        # a journal ahead of the system clock continues from its last time; only simulated time may stay ahead
        anchor = None if settings.engine.partition(":")[0] == "simulated" else now
        self.clock = Clock(settings.faster, max(now, dispatcher.state.time), anchor)
        owner = Owner(store.name, store.where)
        engine = make_engine(settings.engine, self.clock, settings.engine_state, owner)
        self._journal = JournalLoop(settings, store, dispatcher, seq, self.clock)
        self._link = EngineLink(engine, dispatcher, self._journal)
        self._beside: list[asyncio.Task[None]] = []
        """What the scheduler does beside scheduling."""

    @classmethod
    async def open(cls, settings: ServiceSettings) -> Scheduler:
        """Read the journal, reconcile it with the engine if that can be reached, and start."""
        store, dispatcher, seq = await asyncio.to_thread(_restored, settings)
        try:
            scheduler = cls(settings, store, dispatcher, seq)
        except BaseException:
            store.close()
            raise
        try:
            if settings.queues is not None and settings.queues != dispatcher.state.queues:
                await scheduler.change_queues(settings.queues, "settings")
            if settings.policy is not None and settings.policy != dispatcher.state.policy:
                await scheduler.change_policy(settings.policy, "settings", "given at the start")
            scheduler._check_interrupting(dispatcher.state.policy)
            await scheduler._link.tried.wait()
            if scheduler._link.refusal is not None:
                raise scheduler._link.refusal
            await scheduler._warm()
        except BaseException:
            await scheduler.close()
            raise
        scheduler._beside.append(asyncio.create_task(forecast_on(scheduler.think, scheduler.note, settings.seed)))
        if scheduler._link.notes:
            scheduler._beside.append(asyncio.create_task(note_on(scheduler.think, scheduler._link.note)))
        return scheduler

    async def _warm(self) -> None:
        """Warm up the page of the queue, which is computed on the event loop, and the journal's policy.

        If the policy cannot decide, it stays, and the fallback decides.
        """
        await asyncio.to_thread(queue_page, State(), 0.0, 1)
        try:
            await asyncio.to_thread(self.dispatcher.warm)
        except BerthError as error:
            log.error("%s; the fallback decides until another policy is chosen", error)

    async def close(self) -> None:
        """Answer pending requests, write a snapshot, and close store and engine."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        await self._link.close()
        await self._journal.close()
        self._thinker.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    async def wait(self) -> None:
        """Wait until the scheduler ends; raises the error that ended it."""
        await asyncio.shield(self._journal.task)

    # ------------------------------------------------------------------ changes

    async def submit(self, jobs: Sequence[Job], key: str | None = None, user: str = "") -> list[JobRecord]:
        """Accept all of these jobs, or none. The same jobs with the same `key` by the same user are accepted once."""
        sized = []
        for number, job in enumerate(jobs):
            check_name(job.id)
            self._link.check(job)
            sized.append(self.sized(job))
            if number % FEW == FEW - 1:
                await asyncio.sleep(0)
        submission = await aside(len(jobs), lambda: Submission.of(jobs, user, key))
        submission = replace(submission, jobs=tuple(sized))
        return await self._journal.ask_in_steps(lambda round_: round_.submit(submission), submission)

    def sized(self, job: Job) -> Job:
        """The job with what its tasks take of their servers, which may be more than it asks for."""
        return self._link.sized(job)

    async def cancel(self, job_id: str, by: str = "") -> JobRecord | None:
        """Cancel a job; returns its current record, None if it does not exist. A job that has ended stays as it is."""
        return await self._journal.ask(lambda round_: round_.cancel(job_id, by), job=job_id)

    async def logs(self, record: JobRecord, task: int | None, tail: int) -> str:
        """The last lines of each task of a job's last attempt, or of one task."""
        return await self._link.logs(record, task, tail)

    async def drain(self, server: str, by: str = "") -> ServerRecord:
        """Start nothing new on a server."""
        return await self._journal.ask(lambda round_: round_.drain(server, True, by))

    async def resume(self, server: str, by: str = "") -> ServerRecord:
        """Use a drained server again."""
        return await self._journal.ask(lambda round_: round_.drain(server, False, by))

    async def note(self, event: Event) -> None:
        """Write an event that has no answer."""
        await self._journal.ask(lambda round_: round_.note(event))

    async def change_queues(self, queues: Queues, by: str = "") -> None:
        """Replace queues, shares and quotas."""
        await self._journal.ask(lambda round_: round_.change(QueuesChanged(0.0, queues, by)))

    async def change_policy(self, policy: str, by: str = "", reason: str = "") -> None:
        """Change the policy; it is warmed up first, so that its first decision is not late."""
        self._check_interrupting(policy)
        self.preparing = policy
        try:
            await asyncio.to_thread(self.dispatcher.warm, policy)
        finally:
            self.preparing = None
        await self._journal.ask(lambda round_: round_.change(PolicyChanged(0.0, policy, by, reason)))

    def _check_interrupting(self, policy: str) -> None:
        """Refuse a policy that interrupts jobs if the engine cannot."""
        if interrupting(policy) and not self._link.interrupts:
            engine = self.settings.engine.partition(":")[0]
            raise BerthError(f"engine {engine} cannot interrupt jobs yet, and the policy {policy} does so")

    async def change_shadow(self, policy: str | None, by: str = "") -> None:
        """Change or remove the shadow policy; the comparison with the previous one is dropped."""
        if policy is not None:
            await asyncio.to_thread(self.dispatcher.warm, policy)  # raises if it is no policy
            if interrupting(policy):
                raise BerthError(f"the policy {policy} interrupts jobs; a shadow policy, which decides nothing, cannot")

        def change(round_: Round) -> None:
            shadow = None if policy is None else self._candidate(policy)
            round_.change(ShadowChanged(0.0, policy, by))
            self._watch(shadow)

        await self._journal.ask(change)

    def _candidate(self, policy: str) -> Shadow:
        return Shadow(policy, seed=self.settings.seed, memory=list(self.dispatcher.memory))

    def _watch(self, shadow: Shadow | None) -> None:
        """Let the fallback and the shadow policy watch decisions."""
        self.shadow = shadow
        self.dispatcher.watchers = (self.baseline,) if shadow is None else (self.baseline, shadow)

    def _watch_on(self) -> None:
        """Restore the watchers of before a restart, with what they had seen."""
        policy, watched = self.dispatcher.state.shadow, self.dispatcher.watched
        try:
            shadow = None if policy is None else self._candidate(policy).go_on(watched.get("shadow"))
        except BerthError as error:
            log.warning("the shadow policy %s cannot be used any more: %s", policy, error)
            shadow = None
        self._watch(shadow)

    # ------------------------------------------------------------------ reading

    async def get(self, job_id: str) -> JobRecord | None:
        """A job, also after its end."""
        return self.dispatcher.state.jobs.get(job_id) or await self._journal.read(self.store.record, job_id)

    async def was_accepted(self, key: str, user: str) -> bool:
        """Whether this user used this idempotency key before."""
        return bool(await self._journal.read(self.store.keys, [(user, key)]))

    async def list_jobs(
        self,
        *,
        phases: Sequence[Phase] = (),
        user: str | None = None,
        team: str | None = None,
        queue: str | None = None,
        type_: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> Page:
        """Jobs that match all of these filters, latest first; `after` is the `Page.after` of the previous page.

        If the store cannot be read, jobs that have not ended are listed from memory.
        """
        given = {"user": user, "team": team, "queue": queue, "type": type_}
        wanted = {name: value for name, value in given.items() if value is not None}
        columns = {"owner" if name == "user" else name: value for name, value in wanted.items()}
        try:
            records = tuple(await self._journal.read(self.store.list_jobs, columns, phases, after, limit))
        except StoreError:
            if not phases or ENDED.intersection(phases):
                raise
            fitting = [
                record
                for record in self.dispatcher.state.jobs.values()
                if record.phase in phases
                and (after is None or record.number < after)
                and all(getattr(record.job, name) == value for name, value in wanted.items())
            ]
            records = tuple(sorted(fitting, key=lambda record: -record.number)[:limit])
        return Page(records, records[-1].number if records and len(records) == limit else None)

    async def decisions(self, after: int | None = None, limit: int = 100) -> list[tuple[int, Decided]]:
        """Decisions and their journal numbers, in order: the first after that number, or the latest."""

        def read() -> list[tuple[int, Decided]]:
            events = self.store.events(after or 0, limit, "decided", latest=after is None)
            return [(seq, event) for seq, event in events if isinstance(event, Decided)]

        return await self._journal.read(read)

    async def think(self, look: Callable[[Dispatcher], T], answer: Callable[[T, float], U]) -> U:
        """Compute something slow: `look` quickly copies what is needed while nothing changes.

        `answer` is called with the copy and the time of the clock in a thread, one at a time.
        """
        async with self._thinking:
            copied = await self._journal.look(lambda: look(self.dispatcher))
            now = self.clock()
            return await asyncio.get_running_loop().run_in_executor(self._thinker, answer, copied, now)

    async def stored(self) -> None:
        """Wait until all that the state has now is in the store, but not for a store that no longer answers."""
        await self._journal.stored()

    def servers(self) -> tuple[ServerRecord, ...]:
        """All servers that ever joined."""
        return tuple(self.dispatcher.state.servers.values())

    def subscribe(self, after: int | None = None) -> AsyncIterator[Journaled]:
        """All written events after this number, or from now on, until the scheduler ends."""
        return self._journal.follow(self._journal.seq if after is None else after)

    @property
    def health(self) -> Health:
        """Whether store and engine can be reached."""
        stopped = "the scheduler has stopped" if self._journal.task.done() else None
        return Health(self._journal.seq, self._journal.trouble or stopped, self._link.trouble, self._link.paused)

    async def checked_health(self) -> Health:
        """The same, after a query to the store."""
        health = self.health
        if health.store is None:
            try:
                await asyncio.wait_for(self._journal.read(self.store.tokens), PING_SECONDS)
            except (StoreError, TimeoutError) as error:
                health = replace(health, store=str(error) or f"it has not answered for {PING_SECONDS:g} s")
        return health


def _restored(settings: ServiceSettings) -> tuple[Store, Dispatcher, int]:
    """The store, and the state that its journal gives."""
    store = Store(settings.store)
    try:
        store.lock()
        store.name  # noqa: B018  (read here, where it may block)
        dispatcher = Dispatcher(
            seed=settings.seed, budget=settings.budget, stopwatch=time.perf_counter, learn_by=settings.learn_by
        )
        seq = 0
        if (snapshot := store.snapshot()) is not None:
            seq, dumped = snapshot
            dispatcher.load(dumped)
        for number, event in store.events(after=seq):
            if number != seq + 1:
                raise BerthError(f"the store {store.where}: event {seq + 1} is missing in the journal")
            dispatcher.note(event)
            seq = number
        try:
            dispatcher.replay(())
        except BerthError as error:
            policy = dispatcher.state.policy
            if settings.policy in (None, policy):
                raise BerthError(
                    f"the policy {policy!r} cannot be used any more, start with another: {error}"
                ) from error
        return store, dispatcher, seq
    except BaseException:
        store.close()
        raise
