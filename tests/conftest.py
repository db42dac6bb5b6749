"""Settings of the whole test run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

# Compiling a kernel on first use is slow once; hypothesis must not take that for a slow test.
hypothesis.settings.register_profile("berth", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("berth")

# `dev.py test --changed` begins no test after this many seconds.
BUDGET = float(os.environ.get("BERTH_TEST_BUDGET", "inf"))
BEGAN = time.monotonic()


# Files of tests that take longest, by the beginnings of their paths: they begin first, so that none is last and alone.
# Most of these wait for clusters, and others compute meanwhile.
RAY = (
    "tests/live/engines/test_kills.py",
    "tests/live/engines/test_ray",
    "tests/live/engines/test_time_limits.py",
    "tests/lab/test_sweep_ray.py",
)
PAGES = "tests/docs/test_pages.py"
LONGEST = (
    *RAY,
    "tests/testing/test_check_policy.py",
    "tests/live/engines/test_slurm_cluster.py",
    "tests/live/service/test_trouble.py",
    "tests/live/engines",
    "tests/live/service",
    PAGES,
    "tests/lab",
    "tests/cli",
)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Run the tests of a file in one process, so that its fixtures are made once; the pages of documents have none.

    All tests of Ray run in one, so that there is one cluster at a time: its nodes take two processors for themselves.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(PAGES):
            return nodeid
        return "ray" if nodeid.startswith(RAY) else nodeid.split("::", 1)[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Distribute tests by file."""
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first."""
    starts = [next((i for i, start in enumerate(LONGEST) if item.nodeid.startswith(start)), 99) for item in items]
    items[:] = [item for _, item in sorted(zip(starts, items, strict=True), key=lambda pair: pair[0])]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Pass over a test when the time is spent."""
    return True if time.monotonic() - BEGAN > BUDGET else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were passed over."""
    session = terminalreporter._session
    left = (session.testscollected if session else 0) - sum(
        getattr(report, "when", "") == "call" or getattr(report, "outcome", "") == "skipped"
        for reports in terminalreporter.stats.values()
        for report in reports
    )
    if left and time.monotonic() - BEGAN > BUDGET:
        terminalreporter.write_line(f"{left} tests were not run: {BUDGET:g} seconds are over", yellow=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With BERTH_NO_SKIPS set, a skipped test fails the run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("BERTH_NO_SKIPS") and reporter is not None and reporter.stats.get("skipped"):
        reporter.write_line("BERTH_NO_SKIPS: skipped tests count as failures", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session", autouse=True)
def _state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tokens that services make for their own user, and other state, are not left in the home directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
