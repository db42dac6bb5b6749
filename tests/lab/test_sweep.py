from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import berth.lab.run.sweep as sweeps
from berth.errors import InvalidInput, MissingExtra
from berth.lab.compare import compare
from berth.lab.run.processes import run_cells
from berth.lab.run.runner import Done, Progress, Work
from berth.lab.run.sweep import Sweep, SweepFile, load_sweep, points_of, sweep
from berth.random import stream
from berth.scenario import Scenario
from tests.harness.waiting import eventually

ROOT = Path(__file__).parents[2]
HERE = "tests.lab.policies"
GRID: dict[str, list[Any]] = {"cluster.servers": [3, 4], "channels.density": [2, "all"]}
TINY = "{horizon: 12, cluster.servers: 3}"


def plan(**more: Any) -> SweepFile:
    common: dict[str, Any] = {
        "scenario": "small",
        "set": {"horizon": 12},
        "grid": GRID,
        "policies": ["fairness", "random-allocation"],
        "seeds": 2,
        "arrivals": "hidden",
        "oracles": [],
    }
    return SweepFile(**{**common, **more})


def table(result: Sweep) -> list[dict[str, Any]]:
    """All numbers, but for the time that decisions took."""
    return result.frame().drop("decide_microseconds").to_dicts()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells run in this process: for tests that are not about processes."""

    def run(scenarios: Sequence[Scenario], works: Sequence[Work], done: Done, **_: Any) -> None:
        run_cells(scenarios, works, done, workers=1)

    monkeypatch.setattr(sweeps, "run_cells", run)


def test_grid_points_are_every_combination() -> None:
    assert [dict(point.changes) for point in points_of(plan())] == [
        {"cluster.servers": servers, "channels.density": density} for servers in (3, 4) for density in (2, "all")
    ]


def drawn(points: int, **more: Any) -> SweepFile:
    keys = {
        "ports.count": {"integers": [2, 4]},
        "overhead": {"choices": [0.1, [0.2, 0.4]]},
        "arrivals.probability": {"uniform": [0.25, 0.75]},
        "ports.contention": {"log_uniform": [0.01, 100]},
    }
    return plan(random={"points": points, "keys": keys, "seed": 3}, **more)


def test_random_points_lie_where_they_should_and_more_only_add() -> None:
    many = [dict(point.changes) for point in points_of(drawn(400, grid={}))]
    assert [dict(point.changes) for point in points_of(drawn(7, grid={}))] == many[:7]
    assert {point["ports.count"] for point in many} == {2, 3, 4}
    assert [0.2, 0.4] in [point["overhead"] for point in many]
    chances = [point["arrivals.probability"] for point in many]
    assert 0.25 <= min(chances) < 0.3 < 0.7 < max(chances) <= 0.75
    # as many below as above 1, the middle of 0.01 to 100 on a logarithmic scale
    contention = [point["ports.contention"] for point in many]
    assert min(contention) >= 0.01
    assert max(contention) <= 100
    assert 140 < sum(value < 1 for value in contention) < 260


def test_a_key_is_drawn_by_itself() -> None:
    alone = plan(grid={}, random={"points": 5, "keys": {"ports.contention": {"log_uniform": [0.01, 100]}}, "seed": 3})
    found = [[point.changes["ports.contention"] for point in points_of(one)] for one in (alone, drawn(5, grid={}))]
    assert found[0] == found[1]
    assert len(set(found[0])) == 5


def test_a_grid_at_random_points_grows_at_its_end() -> None:
    few, more = points_of(drawn(2)), points_of(drawn(3))
    assert [len(few), len(more)] == [8, 12]
    assert more[:8] == few


WRONG = {
    "unknown key": ("scenario: small\ngird: {horizon: [3]}", "2: gird", "did you mean 'grid'"),
    "folder": ("scenario: small\nfolder: x\ngrid: {horizon: [3]}", "2: folder", "unknown key"),
    "no scenario": ("grid: {horizon: [3]}", "scenario", "expected this key"),
    "a point without a scenario": ("points: [{horizon: 3}]", "scenario", "a scenario for each point"),
    "a key twice": (
        "scenario: small\npoints: [{horizon: 3}]\ngrid: {horizon: [4]}",
        "2: points[0].horizon",
        "a key in one of them",
    ),
    "a point that is none": (
        "points:\n  - {scenario: small, horizon: 3}\n  - {scenario: smal, horizon: 4}",
        "3: ",
        "did you mean 'small'",
    ),
    "scenario is a number": ("scenario: 3\ngrid: {horizon: [3]}", "1: scenario", "the name or file of a scenario"),
    "unknown scenario": ("\nscenario: smal\ngrid: {horizon: [3]}", "2: scenario", "did you mean 'small'"),
    "file that is not there": ("scenario: not/there.yaml\ngrid: {horizon: [3]}", "there.yaml", "no such file"),
    "nothing swept": ("scenario: small\ngrid: {}", "2: grid", "at least one key under grid or random, or points"),
    "nothing at all swept": ("scenario: small", "grid", "at least one key under grid or random, or points"),
    "no values": ("scenario: small\ngrid:\n  horizon: []", "3: grid.horizon", "at least one"),
    "no list": ("scenario: small\ngrid:\n  horizon: 3", "3: grid.horizon", "got 3, expected a list"),
    "a value twice": (
        "scenario: small\ngrid:\n  horizon:\n  - 3\n  - 4\n  - 3",
        "6: grid.horizon[2]",
        "each value once",
    ),
    "range upside down": (
        "scenario: small\nrandom:\n  points: 2\n  keys:\n    horizon: {integers: [9, 3]}",
        "5: random.keys.horizon.integers",
        "[lowest, highest]",
    ),
    "range of three": (
        "scenario: small\nrandom:\n  points: 2\n  keys:\n    horizon: {integers: [1, 2, 3]}",
        "5: random.keys.horizon.integers",
        "two whole numbers",
    ),
    "range of nothing finite": (
        "scenario: small\nrandom:\n  points: 2\n  keys:\n    overhead: {uniform: [1, .inf]}",
        "5: random.keys.overhead.uniform",
        "two numbers",
    ),
    "logarithm of 0": (
        "scenario: small\nrandom:\n  points: 2\n  keys:\n    overhead: {log_uniform: [0, 1]}",
        "5: random.keys.overhead.log_uniform",
        "above 0",
    ),
    "drawn two ways": (
        "scenario: small\nrandom:\n  points: 2\n  keys:\n    horizon: {integers: [3, 9], choices: [3]}",
        "5: random.keys.horizon",
        "got integers and choices, expected one of",
    ),
    "drawn no way": ("scenario: small\nrandom: {points: 2, keys: {horizon: {}}}", "2: random.keys.horizon", "one of"),
    "no points": (
        "scenario: small\nrandom: {points: 0, keys: {horizon: {choices: [3]}}}",
        "2: random.points",
        "from 1",
    ),
    "grid and random": (
        "scenario: small\ngrid: {horizon: [3]}\nrandom: {points: 2, keys: {horizon: {choices: [3]}}}",
        "3: random.keys.horizon",
        "in the grid too",
    ),
    "no seed": ("scenario: small\ngrid: {horizon: [3]}\nseeds: 0", "3: seeds", "how many seeds"),
    "truth for seeds": ("scenario: small\ngrid: {horizon: [3]}\nseeds: true", "3: seeds", "how many seeds"),
    "arrivals": ("scenario: small\ngrid: {horizon: [3]}\narrivals: never", "3: arrivals", "hidden"),
    "not YAML": ("scenario: [", "", "YAML"),
    "empty": ("", "", "empty file"),
    "point that is no scenario": (
        "scenario: small\ngrid:\n  horizon:\n  - 3\n  - -1",
        "5: horizon (point 1: horizon=-1)",
        "got -1, expected a whole number",
    ),
    "key that no scenario has": ("scenario: small\ngrid:\n  horizn: [3]", "3: horizn (point 0: horizn=3)", "horizon"),
    "drawn out of range": (
        "scenario: small\nrandom:\n  points: 2\n  keys:\n    arrivals.probability: {uniform: [2, 3]}",
        "5: arrivals.probability (point 0: arrivals.probability=",
        "a probability",
    ),
    "set for all": ("scenario: small\nset: {horizn: 4}\ngrid: {horizon: [3]}", "2: horizn", "did you mean"),
    "unknown policy": ("scenario: small\ngrid: {horizon: [3]}\npolicies: [farness]", "3: policies[0]", "fairness"),
    "unknown baseline": ("scenario: small\ngrid: {horizon: [3]}\nbaseline: farness", "3: baseline", "fairness"),
    "unknown oracle": ("scenario: small\ngrid: {horizon: [3]}\noracles: [delphi]", "3: oracles", "known oracle"),
    "policy of another family": ("scenario: small\ngrid: {horizon: [3]}\npolicies: [esdp-printed]", "", "family"),
    "policy's setting": ("scenario: small\ngrid: {horizon: [3]}\npolicies: ['ogasched:step=-1']", "", "step"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_one_clear_error(case: str, tmp_path: Path) -> None:
    text, place, said = WRONG[case]
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        sweep(file, out=tmp_path / "out", workers=1)
    message = str(caught.value)
    assert message.startswith(f"{file}:{place}") if place[:1].isdecimal() else place in message
    assert said in message
    assert "\n" not in message
    assert not (tmp_path / "out").exists()


def test_a_sweep_of_a_program_is_checked_too() -> None:
    upside_down = {"points": 2, "keys": {"overhead": {"log_uniform": [0, 1]}}}
    with pytest.raises(InvalidInput, match=r"random\.keys\.overhead\.log_uniform: got \[0.*above 0"):
        sweep(plan(grid={}, random=upside_down))


def test_files_are_looked_for_beside_the_sweep_file(tmp_path: Path, here: None) -> None:
    (tmp_path / "mine.yaml").write_text("extends: small\nhorizon: 6\npolicies: [fairness]\noracles: []\n")
    (tmp_path / "sweep.yaml").write_text("scenario: mine.yaml\ngrid: {cluster.servers: [3]}\nseeds: 1\n")
    (tmp_path / "other.yaml").write_text("scenario: {extends: mine.yaml}\ngrid: {cluster.servers: [3]}\nseeds: 1\n")
    one, other = (sweep(tmp_path / name) for name in ("sweep.yaml", "other.yaml"))
    assert len(one.rows[0]) == 2  # arrivals hidden and revealed
    assert table(one) == table(other)


def test_a_point_is_a_comparison_there(here: None) -> None:
    result = sweep(plan(oracles=["slot"], grid={"cluster.servers": [3, 4]}))
    for point in result.points:
        alone = compare(
            "small",
            ["fairness", "random-allocation"],
            2,
            arrivals="hidden",
            oracles=["slot"],
            workers=1,
            overrides={"horizon": 12, **point.changes},
        )
        for mine, its in zip(result.rows[point.number], alone.rows, strict=True):
            times = {"decide_microseconds"}
            assert mine.as_dict(times) == its.as_dict(times)


def shuffled(seed: int) -> Callable[..., None]:
    def run(scenarios: Sequence[Scenario], works: Sequence[Work], done: Done, **_: Any) -> None:
        order = list(works)
        random.Random(seed).shuffle(order)
        run_cells(scenarios, order, done, workers=1)

    return run


def test_neither_workers_nor_order_change_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = plan(policies=["fairness", "random-allocation", "ogasched"])
    one, two = (sweep(given, workers=workers, out=tmp_path / str(workers)) for workers in (1, 2))
    assert len(table(one)) == 12
    assert table(one) == table(two)
    for seed in (1, 2):
        monkeypatch.setattr(sweeps, "run_cells", shuffled(seed))
        assert table(sweep(given)) == table(one)
    read = [pl.read_parquet(tmp_path / name / "summary.parquet").drop("decide_microseconds") for name in "12"]
    assert read[0].equals(read[1])
    assert read[0].to_dicts() == table(one)


def test_more_points_and_seeds_use_what_is_there(tmp_path: Path, here: None) -> None:
    first = sweep(drawn(2, grid={}), out=tmp_path)
    assert first.reused == 0
    second = sweep(drawn(3, grid={}), out=tmp_path, seeds=3)
    assert second.reused == 8
    assert [len(rows) for rows in second.rows.values()] == [2, 2, 2]
    assert second.rows[0][0].seeds == (0, 1, 2)


def test_a_half_written_cell_does_not_count(tmp_path: Path, here: None) -> None:
    first = sweep(plan(), out=tmp_path)
    cells = sorted((tmp_path / "cells").glob("*.parquet"))
    assert len(cells) == 16
    cells[0].write_bytes(cells[0].read_bytes()[:300])
    cells[1].write_bytes(b"")
    (tmp_path / "cells" / f".{cells[2].name}.4711.tmp").write_bytes(cells[2].read_bytes()[:300])
    cells[2].unlink()
    second = sweep(plan(), out=tmp_path)
    assert second.reused == 13
    assert table(second) == table(first)
    assert not list(tmp_path.rglob("*.tmp"))
    assert sweep(plan(), out=tmp_path).reused == 16


def test_cells_of_several_points_are_computed_once(here: None) -> None:
    seen: list[Progress] = []
    given = plan(grid={"policies": [["fairness"], ["fairness", "drf"]], "title": ["a", "b"]}, policies=None)
    result = sweep(given, progress=seen.append)
    assert (seen[-1].done, seen[-1].total) == (12, 12)
    assert seen[-1].slots == 4 * 12  # two policies, two seeds
    assert [len(rows) for rows in result.rows.values()] == [1, 1, 2, 2]


def test_what_is_swept_goes_before_what_the_file_says(here: None) -> None:
    given = plan(grid={"policies": [["drf"]], "seeds": [1], "baseline": ["drf"]}, set={"horizon": 5})
    (rows,) = sweep(given).rows.values()
    assert [(row.policy, row.seeds) for row in rows] == [("drf", (0,))]


def test_columns_for_values_of_several_kinds_and_keys_called_like_results(here: None) -> None:
    grid = {"overhead": [0.1, [0.2, 0.4]], "channels.density": [2, 2.5], "cluster.servers": [3]}
    frame = sweep(plan(grid=grid, seeds=1, policies=["fairness"])).frame()
    assert frame["swept_overhead"].to_list() == ["0.1", "0.1", "[0.2, 0.4]", "[0.2, 0.4]"]
    assert frame["channels.density"].to_list() == [2.0, 2.5, 2.0, 2.5]
    assert frame["cluster.servers"].dtype == pl.Int64
    assert frame["overhead"].dtype == pl.Float64


def test_a_failing_cell_stops_no_other(tmp_path: Path, here: None) -> None:
    given = plan(policies=["fairness", f"{HERE}:Fails"], arrivals="both", grid={"cluster.servers": [3, 4]})
    result = sweep(given, out=tmp_path)
    assert {(point, cell) for point, found in result.failed.items() for cell in found} == {
        (point, f"{HERE}:Fails, seed {seed}, arrivals hidden") for point in (0, 1) for seed in (0, 1)
    }
    assert [len(rows) for rows in result.rows.values()] == [3, 3]
    assert json.loads((tmp_path / "manifest.json").read_text())["cells_failed"] == 4
    again = sweep(given, out=tmp_path)
    assert (again.reused, again.failed) == (12, result.failed)  # what failed is tried again


def test_where_everything_fails_the_table_is_empty(tmp_path: Path, here: None) -> None:
    result = sweep(
        plan(policies=[f"{HERE}:Fails"], baseline=f"{HERE}:Fails", grid={"cluster.servers": [3]}), out=tmp_path
    )
    assert len(result.failed[0]) == 2
    assert pl.read_parquet(tmp_path / "summary.parquet").height == 0


@pytest.mark.parametrize(("policy", "workers"), [("Dies", 1), ("DiesAtOnce", 2)])
def test_a_policy_that_kills_its_process_stops_no_other(policy: str, workers: int) -> None:
    given = plan(policies=["fairness", f"{HERE}:{policy}"], grid={"cluster.servers": [3, 4]}, seeds=1)
    result = sweep(given, workers=workers)
    for point in (0, 1):
        assert list(result.failed[point]) == [f"{HERE}:{policy}, seed 0, arrivals hidden"]
        assert "died" in result.failed[point][f"{HERE}:{policy}, seed 0, arrivals hidden"]
        assert [row.policy for row in result.rows[point]] == ["fairness"]


def test_a_policy_that_cannot_serve_a_point_is_listed(here: None) -> None:
    result = sweep(plan(policies=["fairness", f"{HERE}:Seeing"], grid={"arrivals_known": ["hidden", "revealed"]}))
    assert {point: list(found) for point, found in result.left_out.items()} == {0: [f"{HERE}:Seeing, hidden"], 1: []}
    assert [len(rows) for rows in result.rows.values()] == [1, 2]
    assert not any(result.failed.values())


@pytest.mark.usefixtures("undrawn")
def test_other_directories_are_left_alone(tmp_path: Path, here: None) -> None:
    compare("small", ["fairness"], 1, oracles=[], workers=1, overrides={"horizon": 3}, out=tmp_path / "comparison")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("precious")
    for name in ("comparison", "thesis"):
        with pytest.raises(InvalidInput, match="holds other files"):
            sweep(plan(), out=tmp_path / name)


def test_where_it_runs() -> None:
    with pytest.raises(InvalidInput, match="local or ray"):
        sweep(plan(), on="moon")
    with pytest.raises(InvalidInput, match="address"):
        sweep(plan(), address="10.0.0.1:6379")


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'berth-scheduler\[ray\]'"):
        sweep(plan(), on="ray")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_it_survives_kill_9(seed: int, tmp_path: Path, here: None) -> None:
    """Killed twice after some cells and started again: the same table, and no finished cell run again."""
    file, out = tmp_path / "sweep.yaml", tmp_path / "out"
    file.write_text(
        "scenario: small\nset: {horizon: 30}\ngrid: {cluster.servers: [5, 4, 3]}\n"
        f"policies: [fairness, '{HERE}:Held']\nseeds: 2\narrivals: hidden\noracles: []\n"
    )
    # two cells hold two of three workers until they are killed; the third computes the other ten
    command = [sys.executable, "-m", "berth", "sweep", str(file), "--out", str(out), "--workers", "3", "-o", "json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    held = {**environment, "BERTH_TEST_HELD": "5"}

    def finished() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in out.glob("cells/[!.]*.parquet")}

    kept: dict[str, int] = {}
    for name in ("first", "second"):
        enough = int(stream(seed, "kill", name).integers(11))
        running = subprocess.Popen(command, env=held, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            eventually(finished, lambda cells, enough=enough: len(cells) >= enough, f"{enough} cells")  # type: ignore[misc]
            running.kill()
            assert running.wait() == -signal.SIGKILL, "it had ended by itself"
            eventually(lambda: _ended(running.pid), what="workers outlive the sweep")  # noqa: B023
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
        assert len(finished()) >= enough
        assert finished().items() >= kept.items()
        kept = finished()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cells_reused"] == len(kept) < 12
    assert finished().items() >= kept.items()
    assert not list(out.rglob("*.tmp"))
    written = pl.read_parquet(out / "summary.parquet").drop("decide_microseconds")
    assert written.to_dicts() == table(sweep(file))


def _ended(group: int) -> bool:
    """Whether no process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(f"scenario: small\ntitle: mine\nset: {TINY}\ngrid: {{overhead: [0.1]}}\nseeds: [3, 5]\n")
    found = load_sweep(file)
    assert (found.title, found.seeds, found.set["horizon"], found.file) == ("mine", [3, 5], 12, file)
    assert set(found.model_dump()) == set(SweepFile.model_fields)
