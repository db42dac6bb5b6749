"""A whole service on a real Ray cluster: killed under load, and used from a Ray program."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.cli import main
from berth.live.clusters.ray import LocalRay
from tests.harness.invariants import InvariantBroken
from tests.harness.waiting import eventually
from tests.live.service.live import Live, serving, serving_process
from tests.real.ray.conftest import Shared
from tests.real.time_limits import check_time_limits

ROOT = Path(__file__).parents[3]
JOBS = 24
KILLS = ("service", "node", "service")
WITNESS = 'me="$BERTH_JOB $BERTH_ATTEMPT $BERTH_RANK"; echo "$me began" >> "$0"; sleep 0.4; echo "$me ended" >> "$0"'
PROGRAM = """
import json, os, sys
import berth.ray

def train(factor):
    return factor * berth.ray.rank(), berth.ray.world_size(), berth.ray.role(), berth.ray.server()

def fails():
    raise ValueError("no such luck")

def nested():
    import ray
    return ray.get(ray.remote(lambda: "from a task of Ray").remote())

good = berth.ray.submit(train, 10, tasks=2, resources={"cpu": 1}, type="train", needs={"class": "fast"})
bad = berth.ray.submit(fails, resources={"cpu": 1})
deep = berth.ray.submit(nested, resources={"cpu": 1})
long = berth.ray.submit(__import__("time").sleep, 600, tasks=2, resources={"cpu": 1}, type="long")
told = {"good": good.result(timeout=240), "type": good.view()["type"], "deep": deep.result(timeout=90)}
try:
    bad.result(timeout=240)
except berth.ray.JobFailed as error:
    told["bad"] = str(error)
told["why"] = long.explain()
long.cancel()
told["long"] = long.wait(timeout=240)["phase"]
try:
    berth.ray.submit(train, os.urandom(800_000))
except berth.errors.BerthError as error:
    told["large"] = str(error)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def live(ray_cluster: LocalRay, shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    shared.close()
    with serving(tmp_path_factory.mktemp("service"), "--engine", f"ray:{ray_cluster.address}") as there:
        yield there


@pytest.mark.slow
def test_no_job_is_lost_or_run_twice_whatever_is_killed(
    alone: None,
    ray_cluster: LocalRay,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines, engine = tmp_path / "lines", f"ray:{ray_cluster.address}"
    lines.touch()
    draw = random.Random(8)
    tasks = {f"load-{i}": draw.randint(1, 3) for i in range(JOBS)}
    given = [
        {"name": name, "tasks": count, "resources": {"cpu": 1}, "command": ["/bin/sh", "-c", WITNESS, str(lines)]}
        for name, count in tasks.items()
    ]
    for life, kill in enumerate((*KILLS, "nothing")):
        with serving_process(tmp_path, "--engine", engine) as live:
            if not life:
                live.ask("POST", "/v1/jobs", given)
            if kill != "nothing":
                wait_for_lines(lines, (life + 1) * sum(tasks.values()) // (len(KILLS) + 1) + draw.randint(0, 5))
            if kill == "node":
                ray_cluster.kill("n3")
                live.wait_for(
                    "/v1/servers", lambda servers: {one["name"]: one["state"] for one in servers}["n3"] == "lost"
                )
                ray_cluster.start_node("n3")
            if kill != "nothing":
                live.process.kill()
                live.process.wait()
                continue
            page = live.wait_for("/v1/jobs?limit=1000", ended)
            assert {job["id"]: job["phase"] for job in page["jobs"]} == dict.fromkeys(tasks, "finished")
            attempts = {job["id"]: job["attempt"] for job in page["jobs"]}
            assert {one["server"] for one in live.ask("GET", "/v1/learned")} <= {"n1", "n2", "n3"}
            monkeypatch.setenv("BERTH_URL", live.url)
            assert main(["submit", "--parsable", "--resources", "cpu=1", "true"]) == 0
            one = capsys.readouterr().out.strip()
            live.wait_for(f"/v1/jobs/{one}", lambda job: job["phase"] == "finished")
    again = checked([line.split() for line in lines.read_text().splitlines()], tasks, attempts)
    print(f"{JOBS} jobs, {sum(tasks.values())} tasks, {', '.join(KILLS)} killed, {again} gangs were started again")


def checked(lines: list[list[str]], tasks: dict[str, int], attempts: dict[str, int]) -> int:
    """Every gang came to its end once, and never ran twice at a time; how many were started again."""
    for name, count in tasks.items():
        mine = [(int(attempt), int(rank), what) for job, attempt, rank, what in lines if job == name]
        if set(Counter(mine).values()) != {1}:
            raise InvariantBroken(f"a task of {name} began or ended twice in one attempt: {mine}")
        order = [attempt for attempt, _, _ in mine]
        if order != sorted(order):
            raise InvariantBroken(f"an attempt of {name} went on when the next had begun: {mine}")
        last = {(rank, what) for attempt, rank, what in mine if attempt == attempts[name]}
        if last != {(rank, what) for rank in range(count) for what in ("began", "ended")}:
            raise InvariantBroken(f"{name} has finished, but not all of its tasks: {mine}")
        assert max(order) == attempts[name]
    return sum(attempt > 1 for attempt in attempts.values())


def wait_for_lines(lines: Path, count: int) -> None:
    eventually(lambda: lines.read_text().splitlines(), lambda told: len(told) >= count, f"{count} lines of tasks")


def ended(page: dict[str, Any]) -> bool:
    return all(job["phase"] in ("finished", "failed", "cancelled") for job in page["jobs"])


def test_two_lines_run_a_function_on_the_cluster(live: Live, ray_cluster: LocalRay, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "BERTH_URL": live.url,
        "RAY_ADDRESS": ray_cluster.address,
    }
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert [rank for rank, *_ in told["good"]] == [0, 10]
    assert {(size, role) for _, size, role, _ in told["good"]} == {(2, "task")}
    assert {server for *_, server in told["good"]} <= {"n1", "n2"}
    assert told["type"] == "train"
    assert told["deep"] == ["from a task of Ray"]
    assert "failed: attempt 1: task task 0 on n" in told["bad"]
    assert told["bad"].endswith("ended with exit code 1: ValueError: no such luck")
    assert told["long"] == "cancelled"
    assert told["why"]
    assert "callable" in told["large"]


def test_a_time_limit_ends_a_job_and_no_other(live: Live) -> None:
    check_time_limits(live, {})
