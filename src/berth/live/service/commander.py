"""Has commands executed by the engine, each until it succeeds or is not wanted any more.

For each attempt only the latest command matters: a cancellation replaces the start before it, which may or may not have
got through. Commands of one attempt are never under way together; those of different ones do not wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from berth.live.core.events import Command
from berth.live.core.jobs import Job
from berth.live.engines import Engine

__all__ = ["Commander"]

PARALLEL = 8
"""Commands that are under way together."""
FIRST_WAIT, LONGEST_WAIT = 0.05, 10.0
"""Seconds until a command that failed is tried again, at first and at most; in between they double."""
Key = tuple[str, int]
log = logging.getLogger(__name__)


class Commander:
    """`look` says whether a command is still wanted, and for which job it is (None: for none that is on paper)."""

    def __init__(self, engine: Engine, look: Callable[[Command], tuple[bool, Job | None]]) -> None:
        self._engine, self._look = engine, look
        self._wanted: dict[Key, Command] = {}
        self._busy: set[Key] = set()
        self._tries: dict[Key, int] = {}
        self._queue: asyncio.Queue[Key] = asyncio.Queue()
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._workers = [asyncio.create_task(self._work()) for _ in range(PARALLEL)]

    def want(self, commands: Iterable[Command]) -> None:
        """Have these executed, soon."""
        for command in commands:
            key = command.job, command.attempt
            self._wanted[key] = command
            self._queue.put_nowait(key)

    async def pause(self) -> None:
        """Begin nothing more, and wait until nothing is under way."""
        self._open.clear()
        await self._idle.wait()

    def go_on(self) -> None:
        """Begin, or begin again."""
        self._open.set()

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            while not self._open.is_set():
                await self._open.wait()
            command = self._wanted.get(key)
            if command is None or key in self._busy:
                continue
            wanted, job = self._look(command)
            if not wanted:
                self._done(key, command)
                continue
            self._busy.add(key)
            self._idle.clear()
            try:
                await self._engine.execute(command, job)
                self._done(key, command)
            except Exception as error:  # an engine may fail in any way, and the command must not be lost
                self._later(key, command, error)
            finally:
                self._busy.discard(key)
                if not self._busy:
                    self._idle.set()
            if self._wanted.get(key) not in (None, command):
                self._queue.put_nowait(key)

    def _done(self, key: Key, command: Command) -> None:
        self._tries.pop(key, None)
        if self._wanted.get(key) == command:
            del self._wanted[key]

    def _later(self, key: Key, command: Command, error: Exception) -> None:
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        wait = min(FIRST_WAIT * 2 ** min(tries - 1, 20), LONGEST_WAIT)
        kind = type(command).__name__.lower()
        log.warning("%s of job %s failed, again in %.2g s: %s", kind, key[0], wait, error)
        asyncio.get_running_loop().call_later(wait, self._queue.put_nowait, key)

    async def close(self) -> None:
        """Stop; what is out may or may not be done."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
