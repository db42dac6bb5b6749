"""A simulated cluster as a process of its own: `python -m berth.live.engines.simulated.server --socket PATH`.

It outlives the scheduler that uses it; with `--state`, running jobs also outlive a kill of this process. It speaks
JSON, one message a line, on a Unix socket: a client sends requests (`snapshot`, `recalled`, `start`, `cancel`), gets an
answer to each, and receives all events. With `--log` it writes a line for every attempt that really begins or ends, and
for every command that contradicts an earlier one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from berth.errors import BerthError
from berth.live.core.events import Event, Failed, Finished, Start, write_event
from berth.live.engines.clock import Clock
from berth.live.engines.simulated.engine import SimulatedEngine, example_cluster, read_cluster
from berth.live.engines.wire import LINE, read_order, write_message, write_snapshot

__all__ = ["SimulatedServer", "main"]


class SimulatedServer:
    """Serves one simulated engine to all clients."""

    def __init__(self, engine: SimulatedEngine, log: TextIO | None = None) -> None:
        self._engine, self._log = engine, log
        self._listeners: set[asyncio.StreamWriter] = set()

    async def serve(self, socket: Path) -> None:
        """Serve until cancelled."""
        with suppress(FileNotFoundError):
            socket.unlink()
        server = await asyncio.start_unix_server(self._client, path=str(socket), limit=LINE)
        for attempt in (await self._engine.snapshot()).attempts:
            if attempt.end is not None:  # it ended before this process could see it
                self._note("ended", job=attempt.job, attempt=attempt.attempt, how=attempt.end.kind)
        print(f"listening on {socket}", flush=True)
        async with server:
            async for event in self._engine.events():
                self._tell(event)

    def _note(self, what: str, **rest: Any) -> None:
        if self._log is not None:
            self._log.write(json.dumps({"what": what, "time": self._engine.clock(), **rest}) + "\n")
            self._log.flush()

    def _tell(self, event: Event) -> None:
        if isinstance(event, Finished | Failed):
            self._note("ended", job=event.job, attempt=event.attempt, how=event.kind)
        line = f'{{"event":{write_event(event)}}}\n'.encode()
        for writer in self._listeners:
            if not writer.is_closing():
                writer.write(line)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._listeners.add(writer)
        try:
            while line := await reader.readline():
                asked = json.loads(line)
                writer.write(write_message({"id": asked.get("id"), **await self._answer(asked)}).encode())
                await writer.drain()
        except (ConnectionError, ValueError):
            pass
        finally:
            self._listeners.discard(writer)
            writer.close()

    async def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            if asked.get("do") == "snapshot":
                return {"snapshot": write_snapshot(await self._engine.snapshot())}
            if asked.get("do") == "recalled":
                return {"recalled": sorted(await self._engine.recalled())}
            _, command, job = read_order({"time": 0.0, **asked})
            key = command.job, command.attempt
            started = self._engine.cluster.started
            before, known = started.get(key, 0), self._engine.cluster.attempt(*key)
            await self._engine.execute(command, job)
            if isinstance(command, Start):
                what = {
                    "job": key[0],
                    "attempt": key[1],
                    "places": [[p.server, p.role, p.count] for p in command.places],
                }
                if started.get(key, 0) > before:
                    self._note("began", **what)
                if known is not None and known.places and known.places != command.places:
                    self._note("contradicted", **what)
            return {"done": True}
        except BerthError as error:
            return {"error": str(error)}


def main(arguments: list[str] | None = None) -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="berth.live.engines.simulated.server", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--cluster", type=Path, help="a YAML file with servers")
    parser.add_argument("--faster", type=float, default=1.0, help="how many cluster seconds pass in a real second")
    parser.add_argument("--log", type=Path, help="a file for the attempts that begin and end")
    parser.add_argument("--state", type=Path, help="a file for commands, which are replayed at the next start")
    given = parser.parse_args(arguments)
    try:
        cluster = example_cluster() if given.cluster is None else read_cluster(given.cluster)
        log = None if given.log is None else given.log.open("a", encoding="utf-8")
    except (BerthError, OSError) as error:
        sys.exit(f"simulated_server: {error}")

    async def run() -> None:
        engine = SimulatedEngine(cluster, Clock(given.faster), given.state)
        await SimulatedServer(engine, log).serve(given.socket)

    with suppress(KeyboardInterrupt):
        asyncio.run(run())


if __name__ == "__main__":
    main()
