"""An engine in another process, over a Unix socket (`berth.live.engines.simulated.server`) or another stream pair."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from berth.live.core.events import Command, Event, read_event
from berth.live.core.jobs import Job
from berth.live.engines import EngineError, Snapshot
from berth.live.engines.wire import LINE, Messages, read_snapshot, write_order

__all__ = ["RemoteEngine"]

SNAPSHOT_SECONDS, ANSWER_SECONDS = 90.0, 30.0
"""Seconds that an engine has to answer; to the first request, by which it may have to begin, it has more."""


class RemoteEngine:
    """Sends requests over a socket, and receives events."""

    def __init__(self, where: Path | str) -> None:
        self._where = where
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)

    async def _connect(self) -> None:
        await self.close()
        try:
            reader, self._writer = await self._open()
        except OSError as error:
            raise EngineError(f"no engine at {self._where}: {error.strerror or error}") from None
        self._events = asyncio.Queue()
        self._reading = asyncio.create_task(self._read(reader, self._events))

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self._where), limit=LINE)

    async def _read(self, reader: asyncio.StreamReader, events: asyncio.Queue[Event | None]) -> None:
        messages = Messages()
        try:
            while line := await reader.readline():
                found = messages.read(line)
                if found is None:
                    continue
                if "event" in found:
                    events.put_nowait(read_event(json.dumps(found["event"])))
                elif (waiting := self._asked.pop(int(found.get("id") or 0), None)) is not None and not waiting.done():
                    waiting.set_result(found)
        except (OSError, ValueError):
            pass
        finally:
            events.put_nowait(None)
            asked, self._asked = self._asked, {}
            for waiting in asked.values():
                if not waiting.done():
                    waiting.set_exception(EngineError(f"the engine at {self._where} is gone"))

    async def _ask(self, what: dict[str, Any], seconds: float) -> dict[str, Any]:
        if self._writer is None or self._reading is None or self._reading.done():
            raise EngineError(f"not connected to the engine at {self._where}")
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self._writer.write(json.dumps({"id": number, **what}).encode() + b"\n")
            async with asyncio.timeout(seconds):
                found = await answer
        except (OSError, TimeoutError):
            raise EngineError(f"the engine at {self._where} does not answer") from None
        finally:
            self._asked.pop(number, None)
        if "error" in found:
            raise EngineError(str(found["error"]))
        return found

    async def snapshot(self) -> Snapshot:
        """Reconnect, and ask for the current state."""
        await self._connect()
        return read_snapshot((await self._ask({"do": "snapshot"}, SNAPSHOT_SECONDS))["snapshot"])

    async def events(self) -> AsyncIterator[Event]:
        """Events, until the connection breaks."""
        events = self._events
        while (event := await events.get()) is not None:
            yield event
        raise EngineError(f"the engine at {self._where} is gone")

    async def execute(self, command: Command, job: Job | None, /) -> None:
        """Send a command."""
        await self._ask(write_order(0.0, command, job), ANSWER_SECONDS)

    async def recalled(self) -> Collection[str]:
        """The jobs that the engine still knows; an older process answers otherwise."""
        found = (await self._ask({"do": "recalled"}, ANSWER_SECONDS)).get("recalled")
        if found is None:
            raise EngineError(f"the engine at {self._where} does not say which jobs it knows")
        return frozenset(map(str, found))

    async def close(self) -> None:
        """Disconnect; jobs there go on running."""
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading
        if self._writer is not None:
            self._writer.close()
        self._reading = self._writer = None
