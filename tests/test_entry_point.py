"""Policies and engines in other packages: installed, found by name, checked and used."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
POLICY, ENGINE, ORDER, GAVEL = (
    EXAMPLES / name for name in ("external-policy", "external-engine", "learned-order", "gavel")
)


def write_by_hand(example: Path, target: Path) -> None:
    """What an installer would leave: the module and its metadata, for where there is no build backend."""
    project = tomllib.loads((example / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    if (example / name).is_dir():
        shutil.copytree(example / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(example / f"{name}.py", target)
    info = target / f"{name}-{version}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    lines: list[str] = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables under which the example packages are installed."""
    target = tmp_path_factory.mktemp("site")
    for example in (POLICY, ENGINE, ORDER, GAVEL):
        install(example, target, tmp_path_factory.mktemp("source") / "package")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(target), *filter(None, [os.environ.get("PYTHONPATH")])])}


def install(example: Path, target: Path, source: Path) -> None:
    if importlib.util.find_spec("pip") and importlib.util.find_spec("hatchling"):
        shutil.copytree(example, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)]
        subprocess.run(command, check=True, capture_output=True, text=True)
    else:
        write_by_hand(example, target)


def python(environment: dict[str, str], *arguments: str, cwd: Path | None = None) -> str:
    command = [sys.executable, *arguments]
    run = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


CHECKED = """
import contextlib, io, json
from berth.cli import main
from berth.registry import PolicySpec, policy_names
from berth.simulation import simulate
from berth.testing import check_policy, example_problem
from berth.families.allocation.world import AllocationWorld

assert policy_names()["greedy-gain"] == "berth_example_policy:GreedyGain"
assert all(result.passed for result in check_policy("greedy-gain"))
problem = example_problem()
policy = PolicySpec.parse("greedy-gain:threshold=0.1").build(problem, None)
result = simulate(AllocationWorld(problem, [[1, 0, 1]] * 5), policy, infeasible="raise")
assert result.total > 0

def said(*words):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*words, "-o", "json"]) == 0
    return json.loads(out.getvalue())

arguments = ["--policy", "greedy-gain", "--policy", "fairness", "--baseline", "fairness", "--seeds", "2"]
arguments += ["--set", "horizon=20", "--oracle", "none", "--workers", "1", "--out", "out", "-q"]
print(json.dumps([said("policies"), said("compare", "example-explicit", *arguments)]))
"""


def test_found_by_name_checked_simulated_listed_and_compared(environment: dict[str, str], tmp_path: Path) -> None:
    listed, compared = json.loads(python(environment, "-W", "error", "-c", CHECKED, cwd=tmp_path))
    (found,) = [entry for entry in listed if entry["name"] == "greedy-gain"]
    assert found["family"] == "allocation"
    assert found["settings"] == {"threshold": 0.0}
    assert found["class"] == "berth_example_policy:GreedyGain"
    assert found["source"] != "builtin"
    assert {row["policy"] for row in compared["summary"]} == {"greedy-gain", "fairness"}


def test_the_metadata_written_by_hand_is_found_too(tmp_path: Path) -> None:
    write_by_hand(POLICY, tmp_path)
    question = "from berth.registry import resolve; print(resolve('greedy-gain').__module__)"
    assert python({**os.environ, "PYTHONPATH": str(tmp_path)}, "-c", question) == "berth_example_policy\n"


@pytest.mark.parametrize(("example", "passed"), [(POLICY, "3 passed"), (ENGINE, "2 passed"), (ORDER, "passed")])
def test_the_examples_pass_their_own_tests(
    environment: dict[str, str], tmp_path: Path, example: Path, passed: str
) -> None:
    package = tmp_path / "package"
    shutil.copytree(example, package, ignore=shutil.ignore_patterns("__pycache__"))
    shown = python(environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", ".", cwd=package)
    assert passed in shown


SERVED = """
import asyncio, sys
from berth.live.core.jobs import Job, Role
from berth.live.engines.registry import engine_names
from berth.live.service.scheduler import Scheduler
from berth.live.service.settings import ServiceSettings

async def run(folder):
    scheduler = await Scheduler.open(ServiceSettings(store=f"{folder}/berth.db", engine="local:2x2", tick=0.05))
    gang = (Role("worker", 3, {"cpu": 1000}),)
    await scheduler.submit([Job("a", "t", gang, payload={"command": ["touch", f"{folder}/here"]})], None)
    async with asyncio.timeout(240):
        while "a" in scheduler.dispatcher.state.jobs:  # until it has ended
            await asyncio.sleep(0.05)
    await scheduler.close()

assert engine_names()["local"] == "berth_example_engine:ENGINE"
asyncio.run(run(sys.argv[1]))
"""


def test_an_engine_runs_jobs_of_the_service(environment: dict[str, str], tmp_path: Path) -> None:
    python(environment, "-c", SERVED, str(tmp_path))
    assert (tmp_path / "here").exists()
