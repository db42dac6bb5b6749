"""A second try, alone, for tests on real clusters.

Slurm, Ray and Kubernetes may stumble on a busy machine. A test that fails on one of them runs once more after all
others, with a cluster of its own. If it passes then, the run is green, and the summary lists the test as shaky. A test
that fails twice fails, and so does a run with more than `MOST` shaky tests. No other test gets a second try, and
neither does a broken invariant (`InvariantBroken`).
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.harness.invariants import InvariantBroken

CLUSTERS = frozenset({"slurm_cluster", "ray_cluster", "kubernetes_cluster"})
"""Fixtures of real clusters."""
MOST = 3
SECOND = "BERTH_SECOND_TRY"
LIMIT = 900.0
"""Seconds for a second try: it starts a cluster of its own."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a real cluster; no other test may have the marker."""
    for item in items:
        if item.get_closest_marker("cluster") is not None:
            raise pytest.UsageError(f"{item.nodeid}: the marker `cluster` comes from the fixture of a cluster alone")
        if CLUSTERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("cluster")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception with all that it holds or came from."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note on the report of a failure whether the test may be tried again."""
    report = yield
    if report.failed and call.excinfo is not None and item.get_closest_marker("cluster") is not None:
        broken = any(isinstance(error, InvariantBroken) for error in _causes(call.excinfo.value))
        report.user_properties.append((SECOND, not broken))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """End and close what a failed test has left open, such as a program that it waited for in vain.

    Else the warning about it, which is an error, would come up in a test after it.
    """
    last = vars(sys).get("last_value")
    done = yield
    if vars(sys).get("last_value") is not last:  # the test failed: Python keeps its exception, and so its variables
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        with warnings.catch_warnings(action="ignore"):
            gc.collect()
            for program in list(vars(subprocess)["_active"]):  # those that ran when they were freed
                program.kill()
                program.wait()
            gc.collect()
    return done


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join((crash.message if crash is not None else report.longreprtext[-300:]).split())[:300]


class _Teller:
    """Tells of each failure at once: a run takes a quarter of an hour."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._reporter.write_line(f"\nfailed: {report.nodeid} - {_reason(report)}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Tell of failures where the tests of several processes are reported."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Teller(config.pluginmanager.get_plugin("terminalreporter")))


def _passes_alone(test: str) -> tuple[bool, str]:
    """Run a test again, alone; whether it passed, and what it said."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", test]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    try:
        done = subprocess.run(command, env={**environment, SECOND: "1"}, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        return False, f"it did not end within {LIMIT:g} s: {error.stdout!r}"
    return done.returncode == 0, done.stdout + done.stderr


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Try failures on real clusters again, after all other tests."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(session.config, "workerinput") or reporter is None or os.environ.get(SECOND):
        return
    kinds = [reporter.stats.get("failed", []), reporter.stats.get("error", [])]
    again: dict[str, pytest.TestReport] = {}
    lost = set()
    for report in (report for reports in kinds for report in reports):
        if (SECOND, True) in getattr(report, "user_properties", ()):
            again.setdefault(report.nodeid, report)
        else:
            lost.add(getattr(report, "nodeid", ""))
    again = {test: report for test, report in again.items() if test not in lost}
    if not again or session.shouldstop:
        return
    if len(again) > MOST:
        reporter.write_line(
            f"\n{len(again)} tests on real clusters failed: more than {MOST} get no second try", red=True
        )
        return
    shaky = {}
    for test, report in again.items():
        reporter.write_line(f"\nonce more, alone: {test}", yellow=True)
        good, said = _passes_alone(test)
        if good:
            shaky[test] = report
        else:
            reporter.write_line(f"{said[-6000:]}\n{test} failed twice", red=True)
    for reports in kinds:
        reports[:] = [report for report in reports if report.nodeid not in shaky]
    for kind in ("failed", "error"):
        if not reporter.stats.get(kind):
            reporter.stats.pop(kind, None)
    if shaky:
        reporter._add_stats("shaky", list(shaky.values()))
    session.testsfailed = sum(len(reports) for reports in kinds)
    if session.exitstatus == pytest.ExitCode.TESTS_FAILED and not session.testsfailed:
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the shaky tests."""
    for report in terminalreporter.stats.get("shaky", ()):
        terminalreporter.write_line(f"SHAKY {report.nodeid} - {_reason(report)}", yellow=True)
