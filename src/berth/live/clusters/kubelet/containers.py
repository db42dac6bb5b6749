"""Containers as processes of this machine, which outlive the kubelet and are found again.

A container has a folder with its process, its log and its exit code. The folder is made before the process, so a
container never starts twice.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from berth.live.clusters import MARK, NODE

__all__ = ["KILLED", "Container", "Idle", "Process", "expanded", "folders"]

KILLED, ENDED = 137, 143
"""Exit codes of containers that were killed, and that were told to end."""
POD = "BERTH_POD"
"""Environment variable that marks the processes of a pod."""
SCRIPT = 'echo $$ >"$0/pid"; trap : TERM INT HUP QUIT; "$@"; echo $? >"$0/code"; kill -KILL 0'
"""Runs a command in its own process group, records its exit code and ends the rest of the group."""
PATIENCE = 2.0
"""Seconds until a process that was about to start has a number."""
KEPT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", MARK)
"""Variables that containers get from the kubelet."""


def expanded(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the variable, as Kubernetes does; `$$` is a dollar sign.

    >>> expanded("$(A) $(B) $$(A)", {"A": "1"})
    '1 $(B) $(A)'
    """
    return re.sub(r"\$\$|\$\(([^)]+)\)", lambda m: "$" if m[0] == "$$" else values.get(m[1], m[0]), text)


def folders(pod: Path, name: str) -> list[Path]:
    """Folders of a container's starts, in order."""
    return sorted(pod.glob(f"{name}.*"), key=lambda path: int(path.suffix[1:]))


class Container(ABC):
    """One start of a container."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def number(self) -> int:
        """How often the container was started before."""
        return int(self.folder.suffix[1:])

    @property
    def began(self) -> float:
        """When it started, in seconds of the epoch."""
        return _changed(self.folder / "began")

    @property
    def ended(self) -> float:
        """When it ended; now, if that was not recorded."""
        return _changed(self.folder / "code")

    @property
    def code(self) -> int:
        """The recorded exit code; that of a killed process, if there is none."""
        try:
            return int((self.folder / "code").read_text())
        except (OSError, ValueError):
            return KILLED

    @abstractmethod
    async def wait(self) -> int:
        """Wait until it ends; its exit code."""

    async def stop(self, grace: float) -> int:
        """Tell it to end, and kill it after a time; its exit code."""
        self.signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                return await self.wait()
        self.signal(signal.SIGKILL)
        return await self.wait()

    @abstractmethod
    def signal(self, number: int) -> None:
        """Signal all of its processes."""

    def _reserve(self) -> None:
        """Make the folder; fails if the container was started before."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir()
        (self.folder / "began").touch()


class Process(Container):
    """A container that runs a command."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], values: Mapping[str, str], node: str, where: str | None) -> None:
        """Start the command with these variables on a node."""
        self._reserve()
        inherited = {name: os.environ[name] for name in KEPT if name in os.environ}
        own = {**inherited, **values, NODE: node, POD: self.folder.parent.name}
        with (self.folder / "log").open("ab") as log:
            try:
                self._child = subprocess.Popen(
                    ["/bin/sh", "-c", SCRIPT, str(self.folder), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=own,
                    cwd=where or None,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                log.write(f"{error}\n".encode())
                (self.folder / "code").write_text("128")

    async def _process(self) -> int | None:
        """The number of the process; None if it does not run."""
        if self._child is not None:
            return self._child.pid if self._child.poll() is None else None
        end_by = self.began + PATIENCE
        while not (self.folder / "code").exists():
            if (found := self._found()) is not None or time.time() > end_by:
                return found
            await asyncio.sleep(0.05)
        return self._found()  # it may have ended its command, and not yet itself

    def _found(self) -> int | None:
        """The process of the file, if it is ours and runs."""
        with suppress(OSError, ValueError):
            number = int((self.folder / "pid").read_text())
            own = f"{POD}={self.folder.parent.name}".encode()
            if own in Path(f"/proc/{number}/environ").read_bytes().split(b"\0"):
                return number
        return None

    async def wait(self) -> int:
        process = await self._process()
        if process is not None:
            with suppress(ProcessLookupError):
                await _ended(process)
        if self._child is not None:
            self._child.wait()
        return self.code

    def signal(self, number: int) -> None:
        process = self._child.pid if self._child is not None and self._child.poll() is None else self._found()
        if process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process, number)


class Idle(Container):
    """A container that runs nothing, for a number of seconds or for ever; it dies with its node."""

    def __init__(self, folder: Path, seconds: float | None, death: Callable[[], Awaitable[None]]) -> None:
        super().__init__(folder)
        self._seconds, self._death = seconds, death
        self._told = asyncio.Event()

    def start(self) -> None:
        """Record the start."""
        self._reserve()

    async def wait(self) -> int:
        if not (self.folder / "code").exists():
            left = None if self._seconds is None else max(self.began + self._seconds - time.time(), 0.0)
            ends = [asyncio.ensure_future(self._told.wait()), asyncio.ensure_future(self._death())]
            try:
                done, _ = await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
            code = 0 if not done else ENDED if ends[0] in done else KILLED
            (self.folder / "code").write_text(str(code))
        return self.code

    def signal(self, number: int) -> None:
        self._told.set()


async def _ended(process: int) -> None:
    """Wait until a process ends, whose parent need not be this one."""
    descriptor = os.pidfd_open(process)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return time.time()
