"""Second tries, the watchdog, random examples and what is left behind, on small runs of pytest of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dev
from berth.live.clusters import alive
from tests.harness.examples import FAST
from tests.harness.second_try import CLUSTERS

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
DEFINED = re.compile(rf"^def ({'|'.join(CLUSTERS)})\(", re.MULTILINE)
CONFTEST = """
import pytest
import tests.harness.leftovers

pytest_plugins = (
    "tests.harness.grouping", "tests.harness.second_try", "tests.harness.watchdog", "tests.harness.leftovers"
)
tests.harness.leftovers.PATIENCE = 1.0


@pytest.fixture
def slurm_cluster(): ...
"""
HEAD = """
import os, pathlib, subprocess, sys, time, pytest
from tests.harness.invariants import InvariantBroken


def tries(name):
    with open(name, "a") as file:
        file.write("x")
    return len(pathlib.Path(name).read_text())
"""
SETTINGS = """
[pytest]
markers =
    cluster: on a real one
    limit(seconds): until it hangs
"""


def run(folder: Path, *tests: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run pytest on these tests: exit status and output."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "test_it.py").write_text(HEAD + "\n\n".join(tests))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "BERTH"))},
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "xdist",
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


SECOND_TIME = """
def test_second_time(slurm_cluster):
    assert tries("second") == 2, "slurmctld took a nap"
"""
GOOD = """
def test_good():
    assert True
"""


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_a_test_that_passes_alone_is_shaky_and_the_run_green(tmp_path: Path, options: tuple[str, ...]) -> None:
    status, said = run(tmp_path, SECOND_TIME, GOOD, options=options)
    assert status == 0, said
    assert "SHAKY test_it.py::test_second_time - AssertionError: slurmctld took a nap" in said
    assert ("failed: test_it.py::test_second_time - AssertionError: slurmctld took a nap" in said) == bool(options)
    assert re.search(r"1 passed,.* 1 shaky", said)


def test_what_a_failed_test_has_left_open_fails_no_other_test(tmp_path: Path) -> None:
    waits = """
def test_waits(slurm_cluster):
    waiting = subprocess.Popen(["sleep", "9"], stdout=subprocess.PIPE, text=True)
    around = [waiting]
    around.append(around)
    assert tries("waits") == 2
    waiting.kill()
    waiting.communicate()
"""
    collects = """
import gc

def test_collects():
    gc.collect()
"""
    warnings = ("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
    status, said = run(tmp_path, waits, GOOD, collects, options=tuple(f"-W{warning}" for warning in warnings))
    assert status == 0, said
    assert re.search(r"2 passed,.* 1 shaky", said)


def test_a_test_that_fails_twice_fails(tmp_path: Path) -> None:
    status, said = run(tmp_path, "def test_never(slurm_cluster):\n    assert tries('never') > 2, 'it is broken'")
    assert status == 1
    assert "test_it.py::test_never failed twice" in said
    assert (tmp_path / "never").read_text() == "xx"


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ("def test_it():\n    assert tries('it') == 2", "it needs no cluster"),
        ("def test_it(slurm_cluster):\n    if tries('it') == 1:\n        raise InvariantBroken('lost')", "broken"),
        (
            "def test_it(slurm_cluster):\n    if tries('it') == 1:\n"
            "        raise ExceptionGroup('all', [ValueError(), InvariantBroken('twice')])",
            "broken among others",
        ),
        (
            "@pytest.fixture\ndef after():\n    yield\n    raise InvariantBroken('left')\n\n"
            "def test_it(slurm_cluster, after):\n    assert tries('it') == 2",
            "broken in a fixture",
        ),
    ],
)
def test_no_second_try(tmp_path: Path, test: str, why: str) -> None:
    status, said = run(tmp_path, test, GOOD)
    assert status == 1, why
    assert "once more" not in said
    assert (tmp_path / "it").read_text() == "x"


def test_more_than_three_shaky_tests_fail_the_run(tmp_path: Path) -> None:
    test = "@pytest.mark.parametrize('i', range({}))\ndef test_it(slurm_cluster, i):\n    assert tries(f'it{}') == 2"
    status, said = run(tmp_path, test.format(4, "{i}"))
    assert status == 1
    assert "4 tests on real clusters failed: more than 3 get no second try" in said
    status, said = run(tmp_path, test.format(3, "-{i}"))
    assert status == 0
    assert "3 shaky" in said


def test_a_shaky_test_does_not_hide_a_failure(tmp_path: Path) -> None:
    status, said = run(tmp_path, SECOND_TIME, "def test_bad():\n    assert False")
    assert status == 1
    assert "SHAKY test_it.py::test_second_time" in said
    assert re.search(r"1 failed,.* 1 shaky", said)


def test_only_the_fixture_of_a_cluster_gives_the_marker(tmp_path: Path) -> None:
    status, said = run(tmp_path, "@pytest.mark.cluster\ndef test_it():\n    pass")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "test_it.py::test_it: the marker `cluster` comes from the fixture of a cluster alone" in said


def test_the_fixtures_of_clusters_are_those_of_real_ones() -> None:
    """Only files of `tests/real` define them, so that no other test can have the marker."""
    found = {(path.parent, name) for path in TESTS.rglob("*.py") for name in DEFINED.findall(path.read_text("utf-8"))}
    assert {name for folder, name in found if (TESTS / "real") in folder.parents} == CLUSTERS
    assert {folder for folder, _ in found if (TESTS / "real") not in folder.parents} == {TESTS / "harness"}


DRAWING = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_draws(number):
    print("drawn", number)
"""


def drawn(folder: Path, options: list[str], **more: str) -> list[str]:
    """What a property test draws with these options, and with more in the environment."""
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "test_it.py").write_text(DRAWING)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "HYPOTHESIS"))},
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
        **more,
    }
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "0", "-s"]
    done = subprocess.run([*command, *options], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    return re.findall(r"drawn (\S+)", done.stdout)


def test_the_gate_draws_the_same_whatever_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(dev, "setup", lambda: None)
    monkeypatch.setattr(dev, "run", lambda *_: None)
    monkeypatch.setattr(dev, "run_together", lambda first, *_: commands.append([str(word) for word in first]))
    for tier in ([], ["--slow"]):
        dev.test(tier)
    assert (ROOT / ".ci" / "run").read_text("utf-8").splitlines()[-1].endswith("python3 dev.py test")
    gate, slow = ([word for word in command if "hypothesis" in word] for command in commands)
    plain = drawn(tmp_path, gate)
    assert len(plain) == FAST
    given = {"HYPOTHESIS_PROFILE": "explore", "PYTEST_ADDOPTS": "--hypothesis-profile=explore --hypothesis-seed=7"}
    assert drawn(tmp_path, gate, CI="", **given) == plain
    assert drawn(tmp_path, gate, CI="true") == plain
    assert drawn(tmp_path, slow) != drawn(tmp_path, slow)


SLEEPER = "'-c', 'import time\\ndef stuck_in_a_child():\\n    time.sleep(600)\\nstuck_in_a_child()'"
HANGING = f"""
@pytest.mark.limit(3)
def test_hangs():
    with subprocess.Popen([sys.executable, {SLEEPER}]) as child:
        pathlib.Path("child").write_text(str(child.pid))
        child.wait()
        time.sleep(600)
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_a_test_that_hangs_is_ended_and_says_where(tmp_path: Path, options: tuple[str, ...]) -> None:
    status, said = run(tmp_path, HANGING, GOOD, options=options)
    assert status == 1
    assert "test_it.py::test_hangs did not end within 3 s" in said
    assert "stuck_in_a_child" in said
    assert "1 passed" in said
    child = int((tmp_path / "child").read_text())
    assert not alive(child)


def test_what_a_run_leaves_behind_is_ended_and_fails_it(tmp_path: Path) -> None:
    test = f"""
def test_leaves_one():
    child = subprocess.Popen([sys.executable, {SLEEPER}], start_new_session=True)
    pathlib.Path("child").write_text(str(child.pid))
    child.returncode = 0
"""
    status, said = run(tmp_path, test)
    assert status == 1
    assert re.search(r"left behind: process \d+ of test_it.py::test_leaves_one \(call\)", said)
    assert not alive(int((tmp_path / "child").read_text()))


def test_a_mount_below_the_folder_of_the_run_is_left_behind(tmp_path: Path) -> None:
    test = """
def test_mounts(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tmp_path]).returncode:
        pytest.skip("a file system cannot be mounted here")
"""
    status, said = run(tmp_path, test)
    assert status == (0 if "1 skipped" in said else 1)
    assert ("left behind: mount" in said) == bool(status)
    assert "test_mounts0" not in Path("/proc/self/mounts").read_text()
