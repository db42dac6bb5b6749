"""A whole service on a real Ray cluster: killed under load, and used by somebody who uses Ray."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from berth.live.clusters.ray import LocalRay
from tests.live.service.live import Live, serving

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

good = berth.ray.submit(train, 10, tasks=3, resources={"cpu": 1}, type="train", needs={"class": "fast"})
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


def command_line(live: Live, *words: str) -> Any:
    """What the command line answers, as JSON."""
    command = [sys.executable, "-m", "berth", words[0], "-o", "json", "--url", live.url, *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_no_job_is_lost_or_run_twice_whatever_is_killed(ray_cluster: LocalRay, tmp_path: Path) -> None:
    lines, engine = tmp_path / "lines", f"ray:{ray_cluster.address}"
    lines.touch()
    draw = random.Random(8)
    tasks = {f"load-{i}": draw.randint(1, 3) for i in range(JOBS)}
    given = [
        {"name": name, "tasks": count, "resources": {"cpu": 1}, "command": ["/bin/sh", "-c", WITNESS, str(lines)]}
        for name, count in tasks.items()
    ]
    for life, kill in enumerate((*KILLS, "nothing")):
        with serving(tmp_path, "--engine", engine) as live:
            if not life:
                live.ask("POST", "/v1/jobs", given)
            if kill != "nothing":
                wait_until_begun(lines, (life + 1) * JOBS // (len(KILLS) + 2))
                time.sleep(draw.uniform(0.0, 0.4))
            if kill == "node":
                ray_cluster.kill("n4")
                live.wait_for(
                    "/v1/servers", lambda servers: {one["name"]: one["state"] for one in servers}["n4"] == "lost"
                )
                ray_cluster.start_node("n4")
            if kill != "nothing":
                live.process.kill()
                live.process.wait()
                continue
            page = live.wait_for("/v1/jobs?limit=1000", ended)
            assert {job["id"]: job["phase"] for job in page["jobs"]} == dict.fromkeys(tasks, "finished")
            attempts = {job["id"]: job["attempt"] for job in page["jobs"]}
            assert {one["server"] for one in live.ask("GET", "/v1/learned")} <= {"n1", "n2", "n3", "n4"}
            one = command_line(live, "submit", "--resources", "cpu=1", "true")[0]["id"]
            live.wait_for(f"/v1/jobs/{one}", lambda job: job["phase"] == "finished")
    again = checked([line.split() for line in lines.read_text().splitlines()], tasks, attempts)
    print(f"{JOBS} jobs, {sum(tasks.values())} tasks, {', '.join(KILLS)} killed, {again} gangs were started again")


def checked(lines: list[list[str]], tasks: dict[str, int], attempts: dict[str, int]) -> int:
    """Every gang came to its end once, and never ran twice at a time; how many were started again."""
    for name, count in tasks.items():
        mine = [(int(attempt), int(rank), what) for job, attempt, rank, what in lines if job == name]
        assert set(Counter(mine).values()) == {1}, f"a task of {name} began or ended twice in one attempt"
        order = [attempt for attempt, _, _ in mine]
        assert order == sorted(order), f"an attempt of {name} went on when the next had begun"
        last = {(rank, what) for attempt, rank, what in mine if attempt == attempts[name]}
        assert last == {(rank, what) for rank in range(count) for what in ("began", "ended")}
        assert max(order) == attempts[name]
    return sum(attempt > 1 for attempt in attempts.values())


def wait_until_begun(lines: Path, jobs: int) -> None:
    until = time.monotonic() + 90
    while len({line.split()[0] for line in lines.read_text().splitlines()}) < jobs:
        assert time.monotonic() < until
        time.sleep(0.02)


def ended(page: dict[str, Any]) -> bool:
    return all(job["phase"] in ("finished", "failed", "cancelled") for job in page["jobs"])


def test_two_lines_run_a_function_on_the_cluster(ray_cluster: LocalRay, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with serving(tmp_path, "--engine", f"ray:{ray_cluster.address}") as live:
        path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "BERTH_URL": live.url,
            "RAY_ADDRESS": ray_cluster.address,
        }
        done = subprocess.run(
            [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert [rank for rank, *_ in told["good"]] == [0, 10, 20]
    assert {(size, role) for _, size, role, _ in told["good"]} == {(3, "task")}
    assert {server for *_, server in told["good"]} <= {"n1", "n2"}
    assert told["type"] == "train"
    assert told["deep"] == ["from a task of Ray"]
    assert "failed: attempt 1: task task 0 on n" in told["bad"]
    assert told["bad"].endswith("ended with exit code 1: ValueError: no such luck")
    assert told["long"] == "cancelled"
    assert told["why"]
    assert "callable" in told["large"]
