"""The agent of a node of a Ray cluster: an actor that runs tasks of gangs there, each under a guard (`guard`).

It sends the keeper of gangs a heartbeat every second, and tells its guards the time of the last one that was answered.
If the keeper has given an agent up, the answer tells it to end, and it takes no orders before: so a node that hung and
comes back runs nothing. Pickled by value, as are `gang` and `keeper`: nodes need nothing of berth.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import struct
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["LARGEST", "PULSE", "Agent"]

PULSE = 1.0
"""Seconds between two heartbeats."""
LARGEST = 16 * 2**20
"""The largest result of a callable, in bytes of its pickle."""
CALL = """
import os, sys
from ray import cloudpickle
with open(sys.argv[1], "rb") as file:
    found = cloudpickle.load(file)()
with open(sys.argv[2] + ".new", "wb") as file:
    cloudpickle.dump(found, file)
os.rename(sys.argv[2] + ".new", sys.argv[2])
"""
"""Calls a pickled callable, in a process of its own."""


def _clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Agent:
    """Runs tasks on a node; `life` is the keeper's name for this agent."""

    def __init__(self, keeper: Any, node: str, life: str, guard: str, lease: float) -> None:
        self._keeper, self._node, self._life, self._guard, self._lease = keeper, node, life, guard, lease
        self._heard = _clock()
        self._guards: dict[tuple[str, int, int], asyncio.subprocess.Process] = {}
        self._unwanted: set[tuple[str, int]] = set()

    async def attend(self) -> None:
        """Send heartbeats until the keeper gives this agent up; end at once when Ray's daemon here does."""
        asyncio.get_running_loop().add_reader(os.pidfd_open(os.getppid()), os._exit, 1)
        while _clock() < self._heard + self._lease:
            at = _clock()
            try:
                word = await asyncio.wait_for(self._keeper.pulse.remote(self._node, self._life), self._lease)
            except Exception:  # the keeper does not answer; the guards know the deadline too
                await asyncio.sleep(PULSE / 2)
                continue
            if word != "go on":
                break
            self._heard = at
            for guard in self._guards.values():
                _write(guard, struct.pack("d", at))
            await asyncio.sleep(PULSE)
        os._exit(1)  # the guards see it, and kill their tasks

    async def run(self, job: str, attempt: int, index: int, told: Mapping[str, Any]) -> dict[str, Any]:
        """Run one task to its end; returns its result."""
        if _clock() > self._heard + self._lease:
            raise RuntimeError("this node was given up before it got the order")
        folder = Path(_logs(), "berth", f"{job}-{attempt}")
        folder.mkdir(parents=True, exist_ok=True)
        name = str(folder / f"{told['role']}-{told['rank']}")
        order = {
            **told,
            "environment": {**_own(), **told["environment"], **told["berth"]},
            "heard": self._heard,
            "out": f"{name}.out",
            "err": f"{name}.err",
            "script_file": f"{name}.script",
        }
        if told["callable"] is not None:
            Path(f"{name}.callable").write_bytes(base64.b64decode(told["callable"]))
            order |= {"command": [sys.executable, "-c", CALL, f"{name}.callable", f"{name}.result"], "callable": None}
        try:
            return await self._guarded((job, attempt, index), order) | _left(name)
        finally:
            for end in ("script", "callable", "result", "result.new"):
                with suppress(OSError):
                    os.unlink(f"{name}.{end}")

    async def _guarded(self, key: tuple[str, int, int], order: Mapping[str, Any]) -> dict[str, Any]:
        guard = await asyncio.create_subprocess_exec(
            *(sys.executable, "-IS", "-X", "utf8", "-c", self._guard),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        if guard.stdout is None:
            raise RuntimeError("no pipe to the guard")
        self._guards[key] = guard
        try:
            _write(guard, json.dumps(order).encode() + b"\n")
            if key[:2] in self._unwanted:
                _hang_up(guard)
            said = await guard.stdout.read()
            await guard.wait()
        finally:
            del self._guards[key]
            _hang_up(guard)
        if not said:
            return {"how": "unguarded", "error": "its guard was killed", "code": None, "seconds": 0.0}
        found: dict[str, Any] = json.loads(said)
        return found

    async def end(self, job: str, attempt: int) -> None:
        """End the tasks of an attempt here; `run` returns how they ended."""
        self._unwanted.add((job, attempt))
        for key, guard in self._guards.items():
            if key[:2] == (job, attempt):
                _hang_up(guard)

    async def forget(self, job: str, attempt: int) -> None:
        """Forget an attempt that is over everywhere."""
        self._unwanted.discard((job, attempt))


def _write(guard: asyncio.subprocess.Process, what: bytes) -> None:
    if guard.stdin is not None and not guard.stdin.is_closing():
        guard.stdin.write(what)


def _hang_up(guard: asyncio.subprocess.Process) -> None:
    if guard.stdin is not None:
        guard.stdin.close()


def _own() -> dict[str, str]:
    """The environment of this node, without the variables of Ray's own processes."""
    import ray

    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**own, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}


def _logs() -> str:
    import ray._private.worker

    return str(ray._private.worker._global_node.get_logs_dir_path())


def _left(name: str) -> dict[str, Any]:
    """What a task left behind: its last output, and the result of a callable."""
    left: dict[str, Any] = {"words": "", "result": None, "large": 0}
    with suppress(OSError), open(f"{name}.err", "rb") as err:
        err.seek(max(err.seek(0, os.SEEK_END) - 4096, 0))
        lines = [line.strip() for line in err.read().decode(errors="replace").splitlines() if line.strip()]
        left["words"] = lines[-1][:300] if lines else ""
    with suppress(OSError):
        left["large"] = os.stat(f"{name}.result").st_size
        if left["large"] <= LARGEST:
            left["result"], left["large"] = Path(f"{name}.result").read_bytes(), 0
    return left
