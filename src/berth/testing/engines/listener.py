"""Drive an engine as a scheduler does, and record all its reports: snapshot, events, next snapshot."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from berth.live.core.events import Command, Event, Failed, Finished, ServerChanged, ServerJoined, ServerLost, Started
from berth.live.core.jobs import Job
from berth.live.engines import Engine, EngineError, Snapshot
from berth.testing.subject import Broken, short

__all__ = ["Key", "Listener", "Spell"]

Key = tuple[str, int]
"""Job and attempt number."""
FIRST_WAIT, LONGEST_WAIT = 0.05, 1.0
"""First and longest retry interval after an engine error, in seconds; it doubles in between."""


@dataclass
class Spell:
    """A snapshot, and the events until the next one."""

    snapshot: Snapshot
    events: list[Event] = field(default_factory=list)

    def starts(self, key: Key) -> list[Started]:
        """Events about its start."""
        return [event for event in self.events if isinstance(event, Started) and (event.job, event.attempt) == key]

    def ends(self, key: Key) -> list[Finished | Failed]:
        """Events about its end, without the snapshot."""
        return [e for e in self.events if isinstance(e, Finished | Failed) and (e.job, e.attempt) == key]

    def end(self, key: Key) -> Finished | Failed | None:
        """End of the attempt by snapshot and events."""
        kept = (a.end for a in self.snapshot.attempts if (a.job, a.attempt) == key and a.end is not None)
        return next(itertools.chain(kept, self.ends(key)), None)


class Listener:
    """`make` makes a driver; every call of it times out after `patience` seconds."""

    def __init__(self, make: Callable[[], Awaitable[Engine]], patience: float) -> None:
        self.spells: list[Spell] = []
        self.trouble = "it was not asked yet"
        """Last error between the listener and the engine."""
        self.stubborn: str | None = None
        """What events did instead of ending when they were cancelled, as a stopping scheduler does."""
        self._make, self._patience = make, patience
        self._engine: Engine | None = None
        self._listening: asyncio.Task[None] | None = None
        self._agreed, self._idle, self._busy = asyncio.Event(), asyncio.Event(), 0
        self._idle.set()

    @property
    def is_open(self) -> bool:
        """Whether there is a driver."""
        return self._engine is not None

    async def open(self) -> Snapshot:
        """Make a driver, and wait for its first snapshot."""
        async with asyncio.timeout(self._patience):
            self._engine = await self._make()
        return await self.look()

    async def look(self) -> Snapshot:
        """Take a new snapshot; events follow from there."""
        if self._engine is None:
            raise Broken("the driver is closed", "an open one")
        await self._deafen()
        self._listening = asyncio.create_task(self._listen(self._engine))
        try:
            async with asyncio.timeout(self._patience):
                await self._agreed.wait()
        except TimeoutError:
            raise Broken(f"no snapshot in {self._patience:g} s: {self.trouble}", "a snapshot") from None
        return self.spells[-1].snapshot

    async def _listen(self, engine: Engine) -> None:
        wait = FIRST_WAIT
        while True:
            try:
                await self._idle.wait()
                async with asyncio.timeout(self._patience):
                    snapshot = await engine.snapshot()
                self.spells.append(Spell(snapshot))
                self._agreed.set()
                wait = FIRST_WAIT
                async for event in engine.events():
                    self.spells[-1].events.append(event)
                self.trouble = "events ended without an error"
            except Exception as error:  # an engine may fail in any way; checks report what is missing
                self.trouble = short(error)
            if self._listening is not asyncio.current_task():
                return
            self._agreed.clear()
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    async def _deafen(self) -> None:
        self._agreed.clear()
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            _, on = await asyncio.wait([listening], timeout=self._patience)
            if on or not listening.cancelled():
                self.stubborn = "events went on" if on else f"events raised {self.trouble}"

    async def once(self, command: Command, job: Job | None) -> None:
        """Send a command when no other is under way; pass on any error of the engine."""
        await self._agreed.wait()
        if self._engine is None:
            raise EngineError("the driver is closed")
        self._busy += 1
        self._idle.clear()
        try:
            await self._engine.execute(command, job)
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def execute(self, command: Command, job: Job | None) -> None:
        """Send a command until it is accepted."""
        wait, said = FIRST_WAIT, "no answer"
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    try:
                        return await self.once(command, job)
                    except EngineError as error:
                        said = short(error)
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, LONGEST_WAIT)
        except TimeoutError:
            kind = type(command).__name__
            raise Broken(f"{kind} was not taken in {self._patience:g} s: {said}", "a command to be taken") from None

    def end(self, key: Key) -> Finished | Failed | None:
        """End of the attempt, as far as reported."""
        return next((end for spell in self.spells if (end := spell.end(key)) is not None), None)

    def there(self, server: str) -> bool:
        """Whether a server is there, by all reports."""
        spell = self.spells[-1]
        there = server in {each.name for each in spell.snapshot.servers}
        for event in spell.events:
            if isinstance(event, ServerJoined | ServerChanged) and event.server.name == server:
                there = True
            elif isinstance(event, ServerLost) and event.server == server:
                there = False
        return there

    async def close(self) -> None:
        """Stop listening and close the engine."""
        engine, self._engine = self._engine, None
        try:
            await self._deafen()
        finally:
            if engine is not None:
                await self._let_go(engine)

    async def _let_go(self, engine: Engine) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self._idle.wait()
                await engine.close()
        except TimeoutError:
            raise Broken(f"it could not be closed in {self._patience:g} s", "to be closed") from None
