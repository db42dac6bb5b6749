"""Settings of the whole test run."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator

# What collecting makes is there until the end. Looking through it for garbage took half of the time of collecting.
gc.disable()

# There are as many test processes as processors: a second thread of torch or of a BLAS only spins while it waits for
# one. The libraries read these when they are imported, so this comes before all other imports.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import hypothesis  # noqa: E402
import pytest  # noqa: E402

from tests.harness.examples import FAST, SLOW  # noqa: E402

pytest_plugins = (
    "tests.harness.grouping",
    "tests.harness.second_try",
    "tests.harness.watchdog",
    "tests.harness.leftovers",
)

# `dev.py test` takes "gate": the same examples each time. `dev.py test --slow` takes "explore". Compiling a kernel on
# first use is slow once; hypothesis must not take that for a slow test.
hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, max_examples=FAST)
hypothesis.settings.register_profile("explore", deadline=None, derandomize=False, max_examples=SLOW, print_blob=True)
hypothesis.settings.load_profile("gate")

# `dev.py test --changed` begins no test after this many seconds.
BUDGET = float(os.environ.get("BERTH_TEST_BUDGET", "inf"))
BEGAN = time.monotonic()


def pytest_collection_finish() -> None:
    """Look for garbage again, but not in what collecting has made."""
    gc.freeze()
    gc.enable()


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
