"""One PostgreSQL server for all test processes of a run: the first that needs it starts it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scripts import postgres
from tests.harness.waiting import DEADLINE

__all__ = ["shared_server"]


@contextmanager
def shared_server(folder: Path) -> Iterator[str]:
    """The address of the server of this folder, which ends when all processes that use it have left.

    The server's standard input is a pipe into which every user holds an end: it closes even if a user is killed.
    """
    alive, address, server = folder / "postgres.alive", folder / "postgres.address", None
    with (folder / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            use = os.open(alive, os.O_WRONLY | os.O_NONBLOCK)  # an error if nobody reads: the server has ended
        except OSError:
            alive.unlink(missing_ok=True)
            os.mkfifo(alive)
            reading = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
            use = os.open(alive, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(reading, True)
            command = [sys.executable, postgres.__file__, "run"]
            server = subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE, text=True)
            os.close(reading)
            assert server.stdout is not None
            with server.stdout:
                address.write_text(server.stdout.readline().strip())
    try:
        yield address.read_text()
    finally:
        os.close(use)
        if server is not None:
            with suppress(subprocess.TimeoutExpired):  # other processes use it still
                server.wait(DEADLINE)
