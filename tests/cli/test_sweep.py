from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from berth.cli import main
from berth.lab.run.results import Row
from berth.lab.run.sweep import Point, Sweep, load_sweep, points_of, sweep
from berth.lab.show.tables import print_sweep
from berth.statistics import Estimate
from tests.cli.test_cli import ROOT
from tests.harness.waiting import DEADLINE, eventually

FILE = """\
scenario: small
set: {horizon: 12}
grid:
  cluster.servers: [3, 4]
policies: [fairness, drf]
seeds: 2
arrivals: hidden
oracles: []
"""
BAD = "tests.lab.policies"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep"], "file"),
        (["sweep", "FILE"], "--out"),
        (["sweep", "nowhere.yaml", "--out", "OUT"], "nowhere.yaml: got no such file, expected a sweep file"),
        (["sweep", "FILE", "--out", "OUT", "--on", "moon"], "local or ray"),
        (["sweep", "FILE", "--out", "OUT", "--address", "10.0.0.1:6379"], "--on ray"),
        (["sweep", "FILE", "--out", "OUT", "--workers", "0"], "--workers"),
        (["sweep", "FILE", "--out", "OUT", "--seeds", "0"], "--seeds"),
        (["sweep", "FILE", "--out", "FILE"], "directory"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    words: list[str], said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"FILE": str(file), "OUT": str(file.parent / "out")}
    assert main([places.get(word, word) for word in words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("berth: error: ")
    assert said in line
    assert not (file.parent / "out").exists()


def test_a_wrong_key_is_told_with_its_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE.replace("[3, 4]", "[3, many]"))
    assert main(["sweep", str(file), "--out", str(file.parent / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    where = f"berth: error: {file}:4: cluster.servers (point 1: cluster.servers=many): got 'many', expected a whole"
    assert line.startswith(where)


def test_json_is_only_json_and_the_same_command_goes_on(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = file.parent / "out"

    def refuse(text: str) -> float:
        raise AssertionError(f"{text} in JSON")

    words = ("sweep", str(file), "--out", str(out), "--workers", "1", "-o", "json")
    assert main(words) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out, parse_constant=refuse)
    assert set(found) == {"points", "cells_reused", "seconds"}
    assert [point["changes"] for point in found["points"]] == [{"cluster.servers": 3}, {"cluster.servers": 4}]
    assert all(set(point) == {"point", "changes", "summary", "failed", "unsupported"} for point in found["points"])
    assert found["cells_reused"] == 0
    assert "8 cells, 0 of them already there" in shown.err
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "8 cells, 8 of them already there" in shown.err
    second = json.loads(shown.out)
    assert (second["points"], second["cells_reused"]) == (found["points"], 8)
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["kind"], manifest["cells_reused"], manifest["cells_failed"]) == ("berth sweep", 8, 0)
    assert manifest["finished"]
    assert manifest["sweep"]["grid"] == {"cluster.servers": [3, 4]}


def test_table_and_failed_cells(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    file.write_text(FILE.replace("drf", f"'{BAD}:Fails'").replace("seeds: 2", "seeds: 1"))
    out = file.parent / "out"
    assert main(["sweep", str(file), "--out", str(out), "--workers", "1", "--quiet"]) == 1
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [
        f"berth: failed: point {point}, {BAD}:Fails, seed 0, arrivals hidden: "
        "ValueError: <script>boom</script> second line"
        for point in (0, 1)
    ]
    lines = shown.out.splitlines()
    assert lines[0].split() == ["cluster.servers", "policy", "reward", "a", "slot", "vs", "baseline"]
    assert [line.split()[:2] for line in lines[1:3]] == [["3", "fairness"], ["4", "fairness"]]
    assert "Table:" in shown.out
    assert "summary.parquet" in re.sub(r"\s", "", shown.out)
    assert pl.read_parquet(out / "summary.parquet").height == 2


def test_ctrl_c_says_what_is_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = file.parent / "out"
    file.write_text(FILE.replace("drf", f"'{BAD}:Slow'").replace("horizon: 12", "horizon: 60"))
    command = [sys.executable, "-m", "berth", "sweep", str(file), "--out", str(out), "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    eventually(lambda: list(out.glob("cells/*.parquet")), what="no cell is kept")
    os.killpg(running.pid, signal.SIGINT)
    _, told = running.communicate(timeout=DEADLINE)
    assert running.returncode == 130
    kept = len(list(out.glob("cells/*.parquet")))
    assert 0 < kept < 8
    assert f"berth: stopped; {kept} of 8 cells are kept in {out}; the same command continues" in told
    assert "Traceback" not in told
    assert json.loads((out / "manifest.json").read_text())["finished"] is None
    monkeypatch.chdir(ROOT)
    assert sweep(file, out=out, workers=1).reused == kept


def test_the_example(tmp_path: Path) -> None:
    file = ROOT / "examples" / "sweep.yaml"
    assert f"```yaml\n{file.read_text()}```" in (ROOT / "docs" / "sweeps.md").read_text()
    plan = load_sweep(file)
    assert len(points_of(plan)) == 12
    short = plan.model_copy(update={"set": {**plan.set, "horizon": 5}, "policies": ["fairness"], "oracles": []})
    result = sweep(short, seeds=1, workers=1, out=tmp_path)
    assert not any(result.failed.values())
    assert all(result.rows[point.number] for point in result.points)


def test_no_word_of_a_head_is_cut_at_80_columns() -> None:
    found = Estimate(123.4, 100.0, 146.8, 2)
    numbers: dict[str, Any] = {**dict.fromkeys(Row.__annotations__), "reward": found, "violations": 0}
    numbers |= {"ratio": Estimate(1.05, 1.0, 1.1, 2), "information": "hidden", "seeds": (0, 1)}
    row = Row(**{**numbers, "policy": "ogasched-rates"})
    keys = ("cluster.servers", "arrivals.probability", "ports.contention")
    result = Sweep((Point(0, dict.fromkeys(keys, 0.2991)),), {0: (row,)}, {}, {}, keys, 0, 0.0)
    console = Console(width=80, file=io.StringIO(), color_system=None)
    with console.capture() as shown:
        print_sweep(result, console)
    text = shown.get()
    assert {"servers", "probability", "contention", "ogasched-rates", "baseline"} <= set(text.split())
    assert "123.4 ± 23.4" in text
    assert "oracle" not in text  # nothing to say
    assert max(map(len, text.splitlines())) <= 80
