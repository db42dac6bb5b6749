"""Jobs on a Ray cluster (`--engine ray`, `--engine ray:ADDRESS`).

Ray's client blocks, and ends its process when the head of the cluster is gone for long. So it lives in a process of
its own (`bridge`), which lasts as long as the connection. An actor on the cluster (`keeper`) runs the jobs, and they
go on without either process. The service must run on a machine of the cluster, as every Ray program. A cluster serves
one berth service at a time, beside other Ray programs; a service with another store may take it over when no job of
the first one runs any more.

A node that is silent for the length of a lease is lost, and its tasks are killed there, by then or as soon as it
resumes. The lease is 30 s, or `BERTH_RAY_LEASE` of the first service on the cluster.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from contextlib import suppress

from berth.about import HOME
from berth.errors import InvalidInput, MissingExtra
from berth.files.quantities import parse_duration
from berth.live.engines import EngineError, EngineKind, Owner
from berth.live.engines.remote import RemoteEngine
from berth.live.engines.wire import LINE
from berth.ray_nodes import host_and_port

__all__ = ["ENGINE", "RayEngine"]

CONNECT_SECONDS = 10.0
LEASE, SHORTEST = 30.0, 3.0


def _lease() -> float:
    given = os.environ.get("BERTH_RAY_LEASE")
    if not given:
        return LEASE
    seconds = parse_duration(given, "BERTH_RAY_LEASE")
    if seconds < SHORTEST:
        raise InvalidInput(f"at least {SHORTEST:g} s", value=given, key="BERTH_RAY_LEASE")
    return seconds


def _address(given: str) -> str:
    """Check the address of a cluster, without connecting."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtra("running jobs on Ray", "ray")
    address = given or os.environ.get("RAY_ADDRESS") or "auto"
    host_and_port(address)
    _lease()
    return address


class RayEngine(RemoteEngine):
    """The cluster at `address`, or the one that RAY_ADDRESS names, or the one of this machine."""

    def __init__(self, address: str | None = None, owner: Owner | None = None) -> None:
        self._address = _address(address or "")
        self._place, self._lease = host_and_port(self._address), _lease()
        self._owner = owner
        self._process: asyncio.subprocess.Process | None = None
        super().__init__(self._address)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._place is not None:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    _, tried = await asyncio.open_connection(*self._place)
                tried.close()
            except OSError as error:  # also if there is no answer in time
                why = os.strerror(error.errno) if error.errno else "no answer"
                raise EngineError(f"no Ray cluster at {self._address}: {why}") from None
        here = str(HOME.parent)
        path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "berth.live.engines.ray.bridge",
            self._address,
            str(self._lease),
            *([] if self._owner is None else [self._owner.name, self._owner.where]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # signals from the service's terminal must not reach it
            limit=LINE,
        )
        reader, writer = self._process.stdout, self._process.stdin
        if reader is None or writer is None:
            raise EngineError(f"no pipes to Ray at {self._where}")
        return reader, writer

    async def close(self) -> None:
        """Disconnect from the cluster; jobs there go on running."""
        await super().close()
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


ENGINE = EngineKind(_address, lambda address, clock, state_file, owner: RayEngine(address, owner))
