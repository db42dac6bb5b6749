"""Which tests a change touches, and that they run in that order."""

from __future__ import annotations

import pytest

from berth.live.engines.registry import BUILTIN
from scripts.changed import ROOT, imported
from tests.harness import grouping

ENGINES = {target.partition(":")[0] for target in BUILTIN.values()}


def test_the_registry_depends_on_all_engines() -> None:
    path = "src/berth/live/engines/registry.py"
    assert imported(path, (ROOT / path).read_text(encoding="utf-8"), ENGINES) == ENGINES


def test_a_file_that_names_an_engine_depends_on_it() -> None:
    text = """serving(folder, "--engine", f"slurm:{settings}")"""
    assert imported("tests/test_it.py", text, ENGINES) == {"berth.live.engines.slurm.engine"}


class Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def test_the_longest_come_first_and_the_nearest_if_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = Item("tests/live/engines/test_locks.py::test_a"), Item("tests/real/slurm/test_rest.py::test_b")
    monkeypatch.delenv("BERTH_TEST_BUDGET", raising=False)
    items = [near, far]
    grouping.pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    assert items == [far, near]
    monkeypatch.setenv("BERTH_TEST_BUDGET", "120")
    items = [near, far]
    grouping.pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    assert items == [near, far]


@pytest.mark.parametrize(
    ("test", "scope"),
    [
        ("tests/real/ray/test_engine.py::test_a", "tests/real/ray/"),
        ("tests/real/slurm/test_rest.py::test_b", "tests/real/"),
        ("tests/real/kubernetes/test_tool.py::test_c[1]", "tests/real/"),
        ("tests/lab/test_sweep.py::test_d", "tests/lab/test_sweep.py"),
    ],
)
def test_one_process_runs_the_tests_on_ray_and_one_those_on_other_clusters(test: str, scope: str) -> None:
    scheduler = grouping.ByFile.__new__(grouping.ByFile)
    assert scheduler._split_scope(test) == scope
