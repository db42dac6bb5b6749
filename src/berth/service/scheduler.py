"""The scheduler: a dispatcher whose every event is on paper before anything is done about it, and an engine.

One task, the pump, is the only one that changes anything. It takes what has come in (requests, and what the engine
tells), lets the dispatcher take note of it, writes all of it in one transaction, and only then answers and acts. So
whatever was answered or done is in the journal; what was not written was never answered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from berth.dispatch.dispatcher import Dispatcher
from berth.dispatch.events import Decided, Event
from berth.dispatch.jobs import Job
from berth.dispatch.queues import Queues
from berth.dispatch.state import JobRecord, Phase, ServerRecord
from berth.errors import BerthError
from berth.service.settings import Settings

__all__ = ["Conflict", "Health", "Journaled", "Page", "Scheduler", "fresh_ids"]


class Conflict(BerthError):
    """The same idempotency key with other content, or a job id that is taken."""


@dataclass(frozen=True)
class Journaled:
    """An event and its number in the journal."""

    seq: int
    event: Event


@dataclass(frozen=True)
class Page:
    """Jobs, latest first, and where the next page begins (None: this was the last)."""

    records: tuple[JobRecord, ...]
    after: int | None


@dataclass(frozen=True)
class Health:
    """Whether all is well: `store` and `engine` say what is wrong with them, None where nothing is."""

    seq: int
    store: str | None
    engine: str | None

    @property
    def ready(self) -> bool:
        return self.store is None and self.engine is None


def fresh_ids(count: int, key: str | None, user: str) -> list[str]:
    """Ids for jobs that came without one: new ones, or, with an idempotency key, always the same."""
    raise NotImplementedError


class Scheduler:
    """All changes are awaited until they are durable; a `BerthError` says that nothing was done."""

    settings: Settings
    dispatcher: Dispatcher
    """The live state. It may be looked at between awaits, and is never to be changed."""

    @classmethod
    async def open(cls, settings: Settings) -> Scheduler:
        """Read the journal, agree with the engine, and begin."""
        raise NotImplementedError

    async def close(self) -> None:
        """Answer what has come in, write a snapshot, and let go of store and engine."""
        raise NotImplementedError

    # ------------------------------------------------------------------ changes

    async def submit(self, jobs: Sequence[Job], key: str | None = None, user: str = "") -> list[JobRecord]:
        """Accept all of these jobs, or none. The same jobs with the same `key` by the same user are accepted once."""
        raise NotImplementedError

    async def cancel(self, job_id: str, by: str = "") -> JobRecord | None:
        """End a job; its record now. None where no such job was ever there; one that has ended stays as it is."""
        raise NotImplementedError

    async def drain(self, server: str, by: str = "") -> ServerRecord:
        """Start nothing new on a server."""
        raise NotImplementedError

    async def resume(self, server: str, by: str = "") -> ServerRecord:
        """Use a drained server again."""
        raise NotImplementedError

    async def change_queues(self, queues: Queues, by: str = "") -> None:
        """Replace queues, shares and quotas."""
        raise NotImplementedError

    async def change_policy(self, policy: str, by: str = "", reason: str = "") -> None:
        """Let another policy decide from now on."""
        raise NotImplementedError

    # ------------------------------------------------------------------ reading

    async def get(self, job_id: str) -> JobRecord | None:
        """A job, also one that has ended."""
        raise NotImplementedError

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
        """Jobs that fit all of these filters, latest first; `after` is the `Page.after` of the page before."""
        raise NotImplementedError

    async def decisions(self, after: int | None = None, limit: int = 100) -> list[tuple[int, Decided]]:
        """Decisions and their numbers in the journal: the first after that number, or the latest; in their order."""
        raise NotImplementedError

    def servers(self) -> tuple[ServerRecord, ...]:
        """All servers that were ever there."""
        raise NotImplementedError

    def subscribe(self, after: int | None = None) -> AsyncIterator[Journaled]:
        """Every event that is written, from the one after this number on, or from now on."""
        raise NotImplementedError

    @property
    def health(self) -> Health:
        """Whether store and engine can be reached."""
        raise NotImplementedError
