"""The processes that a run of the tests has started, and what they do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from berth.live.clusters import MARK

__all__ = ["RUN", "Process", "doing", "started_by"]

RUN = "PYTEST_RUN"
"""Environment variable of all processes of a run; they inherit it."""
TEST = "PYTEST_CURRENT_TEST"
DUMP_SECONDS = 20.0
HELPER = "multiprocessing.resource_tracker"
"""A process that Python's multiprocessing keeps until pytest itself ends."""


@dataclass(frozen=True)
class Process:
    """A process that a test has started, directly or through others."""

    pid: int
    command: str
    test: str
    """The test and its phase at that moment, such as `tests/test_a.py::test_b (call)`."""
    cluster: str
    """Directory of the local cluster that it belongs to, if any."""

    def __str__(self) -> str:
        return f"process {self.pid} of {self.test or 'no test'}: {self.command[:200]}"


def started_by(run: str) -> Iterator[Process]:
    """All living processes that tests of this run have started; not pytest's own."""
    for folder in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):  # it is gone, or another user's
            pairs = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            known = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            if known.get(RUN) != run or TEST not in known:
                continue
            command = (folder / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
            if command and HELPER not in command:  # no command: a zombie or a thread of the kernel
                yield Process(int(folder.name), command, known[TEST], known.get(MARK, ""))


def doing(pid: int) -> str:
    """Where a process is: the stacks of its threads if it runs Python, else what it waits for in the kernel."""
    spy = Path(sys.executable).parent / "py-spy"
    program = str(spy) if spy.exists() else shutil.which("py-spy")
    if program is not None:
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                [program, "dump", "--nonblocking", "--pid", str(pid)],
                capture_output=True,
                text=True,
                timeout=DUMP_SECONDS,
            )
            if done.returncode == 0:
                return done.stdout
    found = []
    for name in ("status", "wchan"):
        with suppress(OSError):
            found.append((Path("/proc") / str(pid) / name).read_text().partition("\nTgid")[0])
    return "\n".join(found)
