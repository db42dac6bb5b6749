"""The bridge: a process between `berth.live.engines.ray.engine` and the keeper of gangs on a Ray cluster.

Its arguments are `ADDRESS LEASE [OWNER WHERE]`. It speaks the protocol of
`berth.live.engines.simulated.server` on standard input and output, and ends when its input does, or when the cluster or
the keeper is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from berth.live.engines.ray import agent as ray_agent
from berth.live.engines.ray import gang as ray_gang
from berth.live.engines.ray import guard as ray_guard
from berth.live.engines.ray import keeper as ray_keeper
from berth.live.engines.wire import LINE, write_message

__all__ = ["keeper_of", "main"]

FIRST, TOO_LONG = 50.0, 10.0
"""Seconds after which a keeper that does not answer is given up; at first it may have to start, with its agents."""


def keeper_of(address: str, lease: float) -> Any:
    """Connect to a cluster, and find its keeper; create one with this lease if there is none."""
    import ray
    from ray import cloudpickle
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if "bundle_label_selector" not in (placement_group.__doc__ or ""):
        raise RuntimeError(f"Ray {ray.__version__} cannot pin bundles to nodes: install a newer version")
    ray.init(address=address, namespace=ray_keeper.NAMESPACE, log_to_driver=False, logging_level="ERROR")
    for module in (ray_agent, ray_gang, ray_keeper):
        cloudpickle.register_pickle_by_value(module)
    heads = [node["NodeID"] for node in ray.nodes() if "node:__internal_head__" in node["Resources"] and node["Alive"]]
    return (
        ray.remote(ray_keeper.Keeper)
        .options(
            name=ray_keeper.NAME,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_concurrency=100_000,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(heads[0], soft=False) if heads else "DEFAULT",
        )
        .remote(Path(ray_guard.__file__).read_text(encoding="utf-8"), lease)
    )


class Bridge:
    """Forwards requests and events."""

    def __init__(self, address: str, lease: float, *owner: str) -> None:
        self._address, self._lease, self._owner = address, lease, owner
        self._keeper: Any = None
        self._answered = False
        self._connecting = asyncio.Lock()
        self._news: asyncio.Task[None] | None = None
        self._doing: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer until the input ends."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=LINE)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            task = asyncio.create_task(self._answer(json.loads(line)))
            self._doing.add(task)
            task.add_done_callback(self._doing.discard)

    async def _answer(self, asked: dict[str, Any]) -> None:
        try:
            found = await self._ask(asked)
        except Exception as error:  # Ray may fail in any way, and the client gets the error
            _say({"id": asked["id"], "error": f"the Ray cluster at {self._address}: {_line(error)}"})
            return
        _say({"id": asked["id"], **found})
        if "snapshot" in found:
            if self._news is not None:
                self._news.cancel()
            self._news = asyncio.create_task(self._listen(found["life"], found["told"]))

    async def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        async with self._connecting:
            if self._keeper is None:
                self._keeper = await asyncio.to_thread(keeper_of, self._address, self._lease)
        async with asyncio.timeout(TOO_LONG if self._answered else FIRST):
            told = {**asked, "owner": self._owner}
            found: dict[str, Any] = json.loads(await self._keeper.ask.remote(json.dumps(told)))
        self._answered = True
        return found

    async def _listen(self, life: str, told: int) -> None:
        """Forward events until the keeper is lost or replaced."""
        try:
            while True:
                async with asyncio.timeout(TOO_LONG):
                    events = json.loads(await self._keeper.news.remote(life, told))
                if events is None:
                    break
                for event in events:
                    _say({"event": event})
                told += len(events)
        except Exception as error:
            print(f"the Ray cluster at {self._address}: {_line(error)}", file=sys.stderr, flush=True)
        _end(1)


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(write_message(what))
    sys.stdout.flush()


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300].removesuffix(":")


def _end(status: int) -> NoReturn:
    """Exit at once: a thread may be blocked on the cluster."""
    sys.stdout.flush()
    os._exit(status)


def main() -> None:
    """Forward until the input ends."""
    asyncio.run(Bridge(sys.argv[1], float(sys.argv[2]), *sys.argv[3:]).run())
    _end(0)


if __name__ == "__main__":
    main()
