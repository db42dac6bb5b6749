"""One run at a time in a result directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from berth.errors import InvalidInput
from berth.lab.compare import compare
from berth.lab.leaderboard import leaderboard
from berth.lab.reproduce.run import reproduce
from berth.lab.run.store import KIND, LOCK, ResultDirectory, opened
from berth.lab.run.sweep import SweepFile, sweep

ROOT = Path(__file__).parents[2]
ONE: dict[str, Any] = {"policies": ["fairness"], "seeds": 1, "arrivals": "hidden", "oracles": []}
TAKEN = r"out: got '.*', where process \d+ on .* is at work, expected a directory that no other run is writing to"
HOLD = """
import sys
from berth.lab.run.store import ResultDirectory
directory = ResultDirectory(sys.argv[1])
directory.create({})
print("held", flush=True)
sys.stdin.read()
"""


def begun(path: Path, kind: str = KIND) -> ResultDirectory:
    directory = ResultDirectory(path, kind)
    directory.create({})
    return directory


def test_the_second_is_refused_until_the_first_is_done(tmp_path: Path) -> None:
    first = begun(tmp_path)
    first.write_json("manifest.json", {"kind": KIND, "of": "the first"})
    with pytest.raises(InvalidInput, match=TAKEN):
        begun(tmp_path)
    assert first.manifest() == {"kind": KIND, "of": "the first"}
    first.release()
    first.release()
    begun(tmp_path).release()


def test_a_killed_process_leaves_no_lock_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InvalidInput, match=f"where process {holder.pid} on "):
            begun(tmp_path)
        holder.kill()
        holder.wait()
    begun(tmp_path).release()


def test_a_lock_alone_is_no_result_and_no_other_file(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("process 1 on nowhere")  # of one that was killed before it wrote anything
    directory = begun(tmp_path)
    assert directory.manifest() == directory.described({})
    directory.release()


def test_a_run_that_fails_lets_go_of_its_directory(tmp_path: Path) -> None:
    def fails() -> None:
        with opened(tmp_path) as directory:
            assert directory is not None
            directory.create({})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as kept:  # with all frames, as a notebook keeps them
        fails()
    assert kept.value.__traceback__ is not None
    begun(tmp_path).release()


@pytest.mark.parametrize(
    ("kind", "run"),
    [
        (KIND, lambda out: compare("small", **ONE, out=out, workers=1)),
        (
            "berth sweep",
            lambda out: sweep(SweepFile(scenario="small", grid={"cluster.servers": [3]}, **ONE), out=out, workers=1),
        ),
        ("berth reproduce", lambda out: reproduce(["ogasched/fig-4b"], quick=True, out=out, workers=1)),
        ("berth leaderboard", lambda out: leaderboard(families=["allocation"], quick=True, out=out, workers=1)),
    ],
    ids=["compare", "sweep", "reproduce", "leaderboard"],
)
def test_every_command_that_keeps_cells_is_refused(kind: str, run: Callable[[Path], object], tmp_path: Path) -> None:
    holder = begun(tmp_path, kind)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidInput, match=TAKEN):
        run(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    assert holder.manifest() == holder.described({})
    holder.release()
