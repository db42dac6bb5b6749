"""Hooks of slurmctld: they report when jobs begin and end, to fractions of a second, and wake berth at once.

A hook appends a line to the file `told` of a directory and writes to the pipe `wake` there. The hosts of slurmctld and
of berth must share the directory, and the user of slurmctld must be able to write to it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path

from berth.errors import InvalidInput
from berth.live.engines.slurm.settings import NAME
from berth.live.engines.slurm.spool import Key
from berth.live.engines.slurm.submission import read_tag

__all__ = ["Hooks", "hold_script", "hook_script"]

MOST = 20_000
"""The most attempts whose times are kept."""
MOST_JOBS = 1000
"""The most Slurm jobs that may report for one attempt: its components, and jobs that pretend to be."""
LARGE = 1_000_000
"""The size of the file, in bytes, after which a new one is begun."""


def _shipped(name: str) -> str:
    return (files("berth.live.engines.slurm") / "hooks" / name).read_text(encoding="utf-8")


def hook_script(directory: Path) -> str:
    """The script for PrologSlurmctld and EpilogSlurmctld."""
    return _shipped("slurmctld.sh").replace("@DIRECTORY@", shlex.quote(str(directory.absolute())))


def hold_script(partition: str) -> str:
    """A job_submit.lua that holds jobs of a partition."""
    if not NAME.fullmatch(partition):
        raise InvalidInput("the name of a partition", value=partition, key="partition")
    return _shipped("job_submit.lua").replace("@PARTITION@", partition)


class Hooks:
    """Reads the reports of hooks about the attempts of an instance.

    Users write the comments of their jobs, so a job's report counts only for its own attempt (`of`).
    """

    def __init__(self, directory: Path, instance: str, wake: Callable[[], object]) -> None:
        self._times: dict[Key, dict[int, dict[str, float]]] = {}
        self._instance, self._wake = instance, wake
        self._told, self._old = directory / "told", directory / "told.old"
        self._at = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        pipe = directory / "wake"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if not pipe.is_fifo():
                os.mkfifo(pipe, 0o622)
            self._pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        except OSError as error:
            found = error.strerror or str(error)
            raise InvalidInput("a directory that can be written", found=f"{directory}: {found}", key="hooks") from None
        if self._old.exists():
            self._take(self._old.read_bytes())
        self.read()

    def listen(self) -> None:
        """Listen in the running event loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._pipe, self._called)

    def _called(self) -> None:
        try:
            os.read(self._pipe, 65536)
        except BlockingIOError:
            return
        self._wake()

    def read(self) -> None:
        """Read new reports."""
        try:
            with self._told.open("rb") as file:
                file.seek(self._at)
                found = file.read()
        except FileNotFoundError:
            return
        whole = found[: found.rfind(b"\n") + 1]
        self._at += len(whole)
        self._take(whole)
        if self._at > LARGE:
            self._told.replace(self._old)
            self._at = 0

    def _take(self, lines: bytes) -> None:
        for line in lines.decode("ascii", "replace").splitlines():
            time, _, rest = line.partition(" ")
            what, _, rest = rest.partition(" ")
            tag, _, number = rest.partition(" ")
            key = read_tag(tag, self._instance)
            if key is None or what not in ("began", "ended") or not re.fullmatch(r"\d{1,10}", number, re.ASCII):
                continue
            try:
                at = float(time)
            except ValueError:
                continue
            while len(self._times) > MOST:  # of attempts that are no longer known
                del self._times[next(iter(self._times))]
            jobs = self._times.setdefault(key, {})
            if len(jobs) < MOST_JOBS:
                jobs.setdefault(int(number), {})[what] = at

    def of(self, key: Key, jobs: Iterable[int]) -> dict[str, float]:
        """When an attempt began and ended, by its Slurm job ids: the last of its components counts."""
        times = self._times.get(key, {})
        told: dict[str, float] = {}
        for job in jobs:
            for what, at in times.get(job, {}).items():
                told[what] = max(at, told.get(what, at))
        return told

    def forget(self, key: Key) -> None:
        """Drop an attempt that has ended."""
        self._times.pop(key, None)

    def close(self) -> None:
        """Stop listening."""
        if self._loop is not None:
            self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
