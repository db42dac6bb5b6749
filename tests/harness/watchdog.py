"""End a test that hangs, with the stacks of all processes that it started.

The limit of a test is `LIMIT` seconds, or that of `@pytest.mark.limit(seconds)`. The watchdog ends the processes that
the test started and makes the test fail. If the test hangs on, its process ends after another minute.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import suppress
from types import FrameType

import pytest

from tests.harness.processes import RUN, doing, started_by

LIMIT = 300.0
GRACE = 60.0
"""Seconds for a test to end after its processes are gone."""
AGAIN = 5.0
"""Seconds between two attempts to interrupt it."""


class Watchdog(threading.Thread):
    """Watch the test that runs in the main thread."""

    def __init__(self) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._changed = threading.Condition()
        self._test = ""
        self._limit: float | None = None
        self._report = ""

    def begin(self, test: str, limit: float) -> None:
        """A test begins."""
        with self._changed:
            self._test, self._limit, self._report = test, limit, ""
            self._changed.notify()

    def end(self) -> None:
        """The test has ended."""
        with self._changed:
            self._limit, self._report = None, ""
            self._changed.notify()

    def run(self) -> None:
        while True:
            with self._changed:
                if self._changed.wait(self._limit) or self._limit is None:
                    continue
                test, limit, self._limit = self._test, self._limit, AGAIN
                report = self._report
            if not report:
                report = self._look(test, limit)
            with self._changed:
                if self._test != test or self._limit is None:
                    continue
                self._report = report
            os.kill(os.getpid(), signal.SIGALRM)

    def _look(self, test: str, limit: float) -> str:
        """Say where everything is, and end what the test itself has started."""
        parts = [f"{test} did not end within {limit:g} s"]
        running = [one for one in started_by(os.environ.get(RUN, "")) if one.test.startswith(test)]
        parts += [f"{one}\n{doing(one.pid)}" for one in running]
        for one in running:  # clusters and servers are ended by their fixtures
            if one.test == f"{test} (call)" and not one.cluster:
                with suppress(OSError):
                    os.kill(one.pid, signal.SIGKILL)
        return "\n".join(parts)

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """In the main thread: fail the test."""
        if self._report:
            pytest.fail(self._report)


DOG = Watchdog()
STDERR = pytest.StashKey[int]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start to watch, in the process that runs tests."""
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        config.stash[STDERR] = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)  # pytest redirects it in tests
        signal.signal(signal.SIGALRM, DOG.interrupt)
        if not DOG.is_alive():
            DOG.start()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch one test with its fixtures."""
    mark = item.get_closest_marker("limit")
    limit = float(mark.args[0]) if mark is not None else LIMIT
    DOG.begin(item.nodeid, limit)
    faulthandler.dump_traceback_later(limit + GRACE, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        DOG.end()
