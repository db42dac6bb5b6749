"""Which tests run in which process, and in what order."""

from __future__ import annotations

import os
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

REAL = "tests/real/"
"""Tests on real clusters: they mostly wait, while other processes compute."""
RAY = f"{REAL}ray/"
"""Those on Ray take as long as all others together: one process runs them, another the others, cluster by cluster."""
LONGEST = (
    f"{REAL}slurm",
    RAY,
    REAL,
    "tests/testing/test_check_policy.py",
    "tests/live/service",
    "tests/docs/test_pages.py",
    "tests/lab",
    "tests/families",
    "tests/cli",
)
"""Beginnings of the paths of tests that take longest: they begin first, so that none is last and alone."""


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Run the tests of a file in one process, so that its fixtures are made once, and those on real clusters in two."""

    def _split_scope(self, nodeid: str) -> str:
        return next((start for start in (RAY, REAL) if nodeid.startswith(start)), nodeid.split("::", 1)[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Distribute tests by file."""
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first. If the time is limited (`dev.py test --changed`), keep the order of the command."""
    if "BERTH_TEST_BUDGET" in os.environ:
        return
    starts = [next((i for i, start in enumerate(LONGEST) if item.nodeid.startswith(start)), 99) for item in items]
    items[:] = [item for _, item in sorted(zip(starts, items, strict=True), key=lambda pair: pair[0])]
