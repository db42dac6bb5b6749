"""A round of the journal loop: requests and events that are handled together and then written together."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from berth.errors import BerthError, InvalidInput
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Cancelled, Command, Decided, Event, ServerDrained, ServerResumed, Submitted
from berth.live.core.jobs import Job
from berth.live.core.records import JobRecord, ServerRecord
from berth.live.service.store import Batch, Key, Store, StoreError

__all__ = [
    "Conflict",
    "Lookup",
    "Request",
    "Round",
    "Submission",
    "Unsettled",
    "check_key",
    "digest_of",
    "in_parts",
    "look_up",
]

STARTS = 500
"""The most starts of a decision that are noted at once."""
KEY = re.compile(r"[!-~]{1,256}")
_JOBS = TypeAdapter(tuple[Job, ...])


class Conflict(BerthError):
    """An idempotency key that was used with other content, or a job id that is taken."""


class Unsettled(StoreError):
    """The store did not answer in time, and the change may still be written."""


def check_key(key: str) -> str:
    """Check an idempotency key."""
    if not KEY.fullmatch(key):
        raise InvalidInput("1 to 256 printable ASCII characters without spaces", value=key, key="idempotency key")
    return key


def digest_of(jobs: Sequence[Job]) -> str:
    """A digest that is equal for equal submissions."""
    whole = json.dumps(_JOBS.dump_python(tuple(jobs), mode="json"), sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()


@dataclass(frozen=True)
class Submission:
    """Jobs that are submitted together, and their idempotency key."""

    jobs: tuple[Job, ...]
    owner: str = ""
    key: str | None = None
    digest: str = ""

    @classmethod
    def of(cls, jobs: Sequence[Job], owner: str, key: str | None) -> Submission:
        """A submission, with the checks that need no other data."""
        ids = [job.id for job in jobs]
        if len(set(ids)) < len(ids):
            raise InvalidInput("each job id once", value=max(ids, key=ids.count), key="job.id")
        try:
            _JOBS.dump_json(tuple(jobs))
        except PydanticSerializationError as error:
            raise InvalidInput("a payload that can be written as JSON", found=str(error)[:120], key="payload") from None
        if key is None:
            return cls(tuple(jobs))
        return cls(tuple(jobs), owner, check_key(key), digest_of(jobs))


@dataclass(frozen=True)
class Lookup:
    """Data that a round needs from the store: taken ids, known keys, and records of ended jobs."""

    taken: set[str] = field(default_factory=set)
    keys: Mapping[tuple[str, str], Key] = field(default_factory=dict)
    records: Mapping[str, JobRecord] = field(default_factory=dict)


def look_up(store: Store, submissions: Sequence[Submission], ids: Sequence[str]) -> Lookup:
    """Read all that a round needs from the store."""
    keys = store.keys([(one.owner, one.key) for one in submissions if one.key is not None])
    taken = store.taken([job.id for one in submissions for job in one.jobs])
    wanted = [*ids, *(job for key in keys.values() for job in key.ids)]
    return Lookup(taken, keys, store.records(wanted) if wanted else {})


def in_parts(decided: Decided) -> Iterator[Decided]:
    """A decision with many starts as several, each of which is noted quickly; the first has all the rest."""
    yield replace(decided, starts=decided.starts[:STARTS])
    for begin in range(STARTS, len(decided.starts), STARTS):
        yield replace(decided, starts=decided.starts[begin : begin + STARTS], seconds=0.0, refused=None, interrupts=())


@dataclass(eq=False)
class Request:
    """An action for a round, the client that waits for it, and what it needs from the store.

    A `patient` request waits for the store without a time limit. `noted` says that the state has changed, so the
    change will be written as soon as the store can be written again.
    """

    run: Callable[[Round], Any]
    """What it does, as a whole or in steps (a generator)."""
    answer: asyncio.Future[Any]
    submission: Submission | None = None
    job: str | None = None
    patient: bool = False
    noted: bool = False

    def refuse(self, error: BerthError) -> None:
        """Answer with an error, unless it has an answer."""
        if not self.answer.done():
            self.answer.set_exception(error)

    @property
    def unsettled(self) -> bool:
        """Whether the client was refused after the state had changed."""
        answer = self.answer
        return answer.done() and not answer.cancelled() and isinstance(answer.exception(), Unsettled)


class Round:
    """Handles events, and collects what to write and what to do once it is written."""

    def __init__(self, dispatcher: Dispatcher, first: int, now: float, lookup: Lookup | None = None) -> None:
        self.now = now
        self.batch = Batch(first)
        self.commands: list[Command] = []
        self._dispatcher, self._lookup = dispatcher, lookup or Lookup()
        self._keys: dict[tuple[str, str], Key] = {}

    def note(self, event: Event) -> tuple[JobRecord, ...]:
        """Handle an event; returns the records that changed. Its time is never before that of an earlier event."""
        time = min(max(event.time, self._dispatcher.state.time), self.now)
        if time != event.time:
            event = replace(event, time=time)
        handled = self._dispatcher.handle(event)
        self.batch.events.append(event)
        self.batch.records.update((record.job.id, record) for record in handled.changed)
        self.commands.extend(handled.commands)
        return handled.changed

    def record(self, job: str) -> JobRecord | None:
        """The record of a job, also after its end."""
        state = self._dispatcher.state
        return state.jobs.get(job) or self.batch.records.get(job) or self._lookup.records.get(job)

    def submit(self, submission: Submission) -> Generator[None, None, list[JobRecord]]:
        """Accept all jobs or none, in steps; jobs of a repeated key were accepted before."""
        pair = submission.owner, submission.key or ""
        before = self._keys.get(pair) or self._lookup.keys.get(pair)
        if submission.key is not None and before is not None:
            if before.digest != submission.digest:
                raise Conflict(f"the idempotency key {submission.key!r} was used for something else")
            return [record for job in before.ids if (record := self.record(job)) is not None]
        state = self._dispatcher.state
        for job in submission.jobs:
            if job.id in state.jobs or job.id in self._lookup.taken or job.id in self.batch.records:
                raise Conflict(f"there is a job {job.id!r} already")
            state.check_queue(job)
        records: list[JobRecord] = []
        for job in submission.jobs:
            records += self.note(Submitted(self.now, job))
            yield
        if submission.key is not None:
            ids = tuple(job.id for job in submission.jobs)
            key = Key(submission.owner, submission.key, submission.digest, ids, self.now)
            self._keys[pair] = key
            self.batch.keys.append(key)
        return records

    def cancel(self, job: str, by: str) -> JobRecord | None:
        """Cancel a job, unless it is ending or has ended."""
        record = self._dispatcher.state.jobs.get(job)
        if record is None or record.unwanted:
            return self.record(job)
        return self.note(Cancelled(self.now, job, by))[0]

    def drain(self, server: str, drained: bool, by: str) -> ServerRecord:
        """Drain or resume a server, unless it already is."""
        if self._dispatcher.state.server(server).drained != drained:
            self.note((ServerDrained if drained else ServerResumed)(self.now, server, by))
        return self._dispatcher.state.server(server)

    def change(self, event: Event) -> None:
        """Apply a change of settings."""
        self.note(replace(event, time=self.now))
