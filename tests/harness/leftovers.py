"""A run leaves nothing behind: processes and mounts that are still there at its end are removed, and fail it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from tests.harness.processes import RUN, started_by

PATIENCE = 30.0
"""Seconds for processes to end by themselves, after the last test."""


def _mounts(config: pytest.Config) -> list[str]:
    """Where something is mounted below the folder of this run's temporary files, the innermost first."""
    folder = str(config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]
    with suppress(OSError):
        points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        return sorted((point for point in points if point.startswith(folder)), reverse=True)
    return []


def is_controller(config: pytest.Config) -> bool:
    """Whether this process is neither one of xdist's workers nor a second try of another run."""
    return not hasattr(config, "workerinput") and "BERTH_SECOND_TRY" not in os.environ


def pytest_configure(config: pytest.Config) -> None:
    """Mark what is started from now on as part of this run."""
    if is_controller(config):
        os.environ[RUN] = uuid.uuid4().hex


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """The run is over."""
    if is_controller(config):
        os.environ.pop(RUN, None)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Look what is left, end it and say so."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not is_controller(session.config):
        return
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # it ends with this process by itself
    end = time.monotonic() + PATIENCE
    while (left := list(started_by(os.environ[RUN]))) and time.monotonic() < end:
        time.sleep(0.1)
    for one in left:
        with suppress(OSError):
            os.kill(one.pid, signal.SIGKILL)
    mounted = _mounts(session.config)
    for point in mounted:
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)
    for what in [*left, *(f"mount {point}" for point in mounted)]:
        reporter.write_line(f"\nleft behind: {what}", red=True)
    if (left or mounted) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
