from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from berth.about import HOME
from berth.errors import InvalidInput, UnknownName, UnsupportedProblem
from berth.families import FAMILIES
from berth.families.lab import grouped
from berth.lab.compare import Progress, compare
from berth.lab.run import store
from berth.lab.run.cells import Cell, cell_key, run_cell
from berth.lab.run.plans import plan_comparison
from berth.lab.run.results import Comparison
from berth.lab.show.words import verdict
from berth.scenario import load_scenario
from tests.harness.waiting import DEADLINE, eventually

ROOT = Path(__file__).parents[2]
SMALL = {"horizon": 20, "cluster.servers": 4}
PLAIN = ["fairness", "drf", "random-allocation"]
HERE = "tests.lab.policies"


def quick(**more: Any) -> Comparison:
    settings: dict[str, Any] = {"policies": PLAIN, "seeds": 2, "oracles": [], "workers": 1, "overrides": SMALL}
    return compare("small", **{**settings, **more})


def numbers(comparison: Comparison) -> dict[tuple[Cell, str], list[float]]:
    """Everything that must not depend on how the cells were run: all but the time they took."""
    return {
        (cell, name): values.tolist()
        for cell, record in comparison.records.items()
        for name, values in record.series.items()
        if name != "decide_seconds"
    }


def test_the_number_of_workers_changes_nothing() -> None:
    alone, together = quick(), quick(workers=2)
    assert len(alone.records) == 12
    assert numbers(alone) == numbers(together)
    assert list(alone.records) == list(together.records)


def test_policies_meet_the_same_luck_and_their_own_randomness() -> None:
    comparison = quick()
    scenario = load_scenario("small", SMALL)
    cell = Cell("random-allocation", 1, "hidden")
    again = run_cell(scenario, cell)
    assert again.reward.tolist() == comparison.records[cell].reward.tolist()
    other = run_cell(scenario, Cell("random-allocation", 0, "hidden"))
    assert other.reward.tolist() != again.reward.tolist()


def test_oracles_are_above_and_counted_once_a_seed() -> None:
    comparison = quick(oracles=["slot", "stationary"], arrivals="both")
    assert comparison.oracles == ("stationary", "slot")
    assert sum(cell.is_oracle for cell in comparison.records) == 4
    for row in comparison.rows:
        assert row.fraction_of_oracle is not None
        assert row.fraction_of_oracle.mean <= 1 + 1e-3
        assert row.regret is not None
        assert row.reward is not None
        best = np.mean([r.reward.sum() for r in comparison.oracle("slot").values()])
        assert row.regret.mean == pytest.approx(best - 20 * row.reward.mean)
    for oracle in comparison.oracle_rows:
        assert oracle.gap is not None
        assert -1e-9 <= oracle.gap < 1e-2


def test_summary_is_paired_with_the_baseline() -> None:
    comparison = quick(baseline="drf", arrivals="hidden", seeds=3)
    rows = {row.policy: row for row in comparison.rows}
    mine, base = (comparison.runs("hidden", name) for name in ("fairness", "drf"))
    ratios = [mine[s].reward.sum() / base[s].reward.sum() for s in range(3)]
    found = rows["fairness"].ratio
    assert found is not None
    assert found.mean == pytest.approx(np.mean(ratios))
    assert found.low is not None
    assert rows["drf"].ratio is not None
    assert rows["drf"].ratio.mean == 1.0
    assert rows["fairness"].claimed is None
    for row in rows.values():
        assert row.gain is not None
        assert row.overhead is not None
        assert row.reward is not None
        assert row.reward.mean == pytest.approx(row.gain.mean - row.overhead.mean)


def test_the_baseline_joins_and_duplicates_do_not() -> None:
    comparison = quick(policies=["drf", "drf"], baseline="fairness", seeds=[3])
    assert comparison.policies == ("drf", "fairness")
    assert comparison.seeds == (3,)
    assert all(row.reward is not None and row.reward.low is None for row in comparison.rows)


@pytest.mark.usefixtures("undrawn")
def test_resume_runs_only_what_is_missing_or_damaged(tmp_path: Path) -> None:
    first = quick(out=tmp_path, arrivals="hidden")
    cells = sorted((tmp_path / "cells").glob("*.parquet"))
    assert (len(cells), first.reused) == (6, 0)
    kept = {path.name: path.read_bytes() for path in cells}
    cells[0].unlink()
    cells[1].write_bytes(cells[1].read_bytes()[:200])  # as a disk that filled up would leave it
    cells[2].write_bytes(cells[3].read_bytes())  # whole, but not of this key
    second = quick(out=tmp_path, arrivals="hidden")
    assert second.reused == 3
    assert numbers(second) == numbers(first)
    changed = {p.name for p in cells if p.read_bytes() != kept[p.name]}
    assert changed <= {path.name for path in cells[:3]}
    assert quick(out=tmp_path, arrivals="hidden").reused == 6
    more = quick(out=tmp_path, arrivals="hidden", seeds=3)
    assert more.reused == 6
    assert not list(tmp_path.rglob("*.tmp"))


def test_the_key_knows_what_matters() -> None:
    cell = Cell("fairness", 0, "hidden")
    key = cell_key(load_scenario("small", SMALL), cell)
    assert key == cell_key(load_scenario("small", {**SMALL, "title": "other", "seeds": 9}), cell)
    assert key != cell_key(load_scenario("small", {**SMALL, "horizon": 21}), cell)
    assert len({key, *(cell_key(load_scenario("small", SMALL), c) for c in (Cell("drf", 0, "hidden"),
        Cell("fairness", 1, "hidden"), Cell("fairness", 0, "revealed")))}) == 4  # fmt: skip


def test_the_key_of_a_family_does_not_depend_on_the_code_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from berth.lab.run import cells

    hashed: set[str] = set()

    def read(path: Path) -> bytes:
        hashed.add(str(path.relative_to(HOME)))
        return b""

    monkeypatch.setattr(Path, "read_bytes", read)
    cells.code_hash.__wrapped__(family="allocation")
    assert {"families/__init__.py", "families/lab.py", "families/allocation/world.py"} <= hashed
    assert not any(name.startswith(("families/placement", "families/selection")) for name in hashed)
    hashed.clear()
    cells.code_hash.__wrapped__()
    assert {"families/placement/world.py", "families/selection/world.py"} <= hashed


def test_workers_have_one_thread_of_a_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    from berth.lab.run import cells, processes

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with processes._pool([], cells.COMPARED, 1) as pool:
        found = [pool.submit(os.getenv, name).result() for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")]
    assert found == ["3", "1"]  # what the user sets counts
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_a_failing_cell_spoils_no_other() -> None:
    comparison = quick(policies=["fairness", f"{HERE}:Fails"], arrivals="both")
    assert {(c.name, c.seed, c.information) for c in comparison.failed} == {
        (f"{HERE}:Fails", seed, "hidden") for seed in (0, 1)
    }
    failure = next(iter(comparison.failed.values()))
    assert failure.error == "ValueError: <script>boom</script> second line"
    assert "in decide" in failure.traceback
    assert len(comparison.rows) == 3


def test_a_policy_that_kills_its_process_spoils_no_other() -> None:
    comparison = quick(policies=["fairness", f"{HERE}:Dies"], arrivals="hidden", workers=2)
    assert {c.name for c in comparison.failed} == {f"{HERE}:Dies"}
    assert len(comparison.runs("hidden", "fairness")) == 2
    assert "died" in next(iter(comparison.failed.values())).error


def test_broken_constraints_are_counted_and_claims_kept_apart() -> None:
    comparison = quick(policies=["fairness", f"{HERE}:Cheat"], arrivals="revealed")
    rows = {row.policy: row for row in comparison.rows}
    cheat = rows[f"{HERE}:Cheat"]
    assert cheat.violations > 0
    assert 0 < cheat.violating_slots <= 1
    assert cheat.claimed is not None
    assert cheat.reward is not None
    assert cheat.claimed.mean != cheat.reward.mean
    assert cheat.claimed_ratio is not None
    assert rows["fairness"].violations == 0
    assert rows["fairness"].claimed_ratio is None


def test_a_policy_that_cannot_serve_a_setting_is_listed() -> None:
    comparison = quick(policies=["fairness", f"{HERE}:Seeing"])
    assert [(u.information, u.policy) for u in comparison.unsupported] == [("hidden", f"{HERE}:Seeing")]
    assert "needs arrivals" in comparison.unsupported[0].reason
    assert not comparison.failed
    with pytest.raises(UnsupportedProblem, match="needs arrivals revealed"):
        quick(policies=["fairness", f"{HERE}:Seeing"], arrivals="hidden")


@pytest.mark.usefixtures("undrawn")
def test_a_default_policy_that_cannot_serve_a_setting_is_listed(tmp_path: Path) -> None:
    chosen = load_scenario("small", {**SMALL, "policies": ["fairness", f"{HERE}:Seeing"]})
    for reused in (0, 6):
        comparison = compare(chosen, seeds=2, oracles=[], workers=1, out=tmp_path)
        assert [(u.information, u.policy) for u in comparison.unsupported] == [("hidden", f"{HERE}:Seeing")]
        assert (comparison.reused, len(comparison.records), len(comparison.failed)) == (reused, 6, 0)
    alone = compare(chosen, seeds=1, oracles=[], workers=1, arrivals="hidden")
    assert [row.policy for row in alone.rows] == ["fairness"]


def test_an_oracle_that_cannot_serve_the_world_is_listed() -> None:
    unsteady = {**SMALL, "outages": {"probability": 0.3, "repair": 0.5}}
    comparison = quick(overrides=unsteady, oracles=["stationary"], policies=["fairness"], arrivals="hidden")
    assert [u.policy for u in comparison.unsupported] == ["stationary"]
    assert comparison.oracles == ()
    assert not comparison.failed


def test_the_result_directory(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "results"
    comparison = quick(out=out)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["finished"]
    assert manifest["seeds"] == [0, 1]
    assert {"berth", "numpy", "numba", "python"} <= manifest["versions"].keys()
    assert manifest["command"].startswith("berth compare small --policy fairness")
    summary = pl.read_parquet(out / "summary.parquet")
    assert summary.height == 6
    assert {"reward", "reward_low", "ratio", "fraction_of_oracle", "violations"} <= set(summary.columns)
    slots = pl.read_parquet(out / "slots.parquet")
    assert slots.height == 2 * 3 * 2 * 20
    total = slots.filter(information="hidden", policy="drf", seed=1)["reward"].sum()
    assert total == pytest.approx(comparison.runs("hidden", "drf")[1].reward.sum())
    assert {p.suffix for p in (out / "plots").iterdir()} == {".png", ".svg"}
    assert (out / "plots" / "ratio-revealed.png").exists()
    assert manifest["commit"] is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", manifest["commit"])


@pytest.mark.usefixtures("undrawn")
def test_results_of_another_experiment_are_not_overwritten(tmp_path: Path) -> None:
    quick(out=tmp_path, arrivals="hidden")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    others: list[tuple[dict[str, Any], str]] = [
        ({"overrides": {**SMALL, "horizon": 21}}, r"which has those of 'small' \(other horizon\)"),
        ({"policies": ["fairness"]}, "which also has policy drf"),
        ({"seeds": 1}, "which also has seed 1"),
        ({"arrivals": "revealed"}, "which also has arrivals hidden"),
    ]
    for other, words in others:
        with pytest.raises(InvalidInput, match=words):
            quick(**{"arrivals": "hidden", **other}, out=tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert quick(out=tmp_path, arrivals="both").reused == 6  # includes the earlier results


@pytest.mark.usefixtures("undrawn")
def test_plots_of_an_earlier_unfinished_run_do_not_stay(tmp_path: Path) -> None:
    quick(out=tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "finished": None}))
    quick(out=tmp_path, arrivals="hidden")
    assert not (tmp_path / "plots" / "ratio-revealed.png").exists()
    assert (tmp_path / "plots" / "ratio-hidden.png").exists()


def test_the_manifest_has_the_commit_of_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home, head = tmp_path / "src" / "berth", "0123456789abcdef0123456789abcdef01234567"
    home.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    git = tmp_path / "git"
    git.write_text(f'#!/bin/sh\n[ "$2" = {tmp_path} ] && echo {head}-dirty\n')
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(store, "HOME", home)
    store.commit.cache_clear()
    try:
        assert store.commit() == f"{head}-dirty"
        with store.opened(tmp_path / "out") as directory:
            assert directory is not None
            assert directory.described({})["commit"] == f"{head}-dirty"
    finally:
        store.commit.cache_clear()


def test_json_has_the_documented_keys_and_no_nan() -> None:
    comparison = quick(seeds=1)
    found = json.loads(json.dumps(comparison.as_dict(), allow_nan=False))
    assert set(found) == {
        "scenario", "settings", "policies", "baseline", "seeds", "arrivals", "summary", "oracles", "unsupported",
        "remarks", "failed", "cells", "seconds", "started", "finished", "command", "versions", "out",
    }  # fmt: skip
    row = found["summary"][0]
    assert set(row) == {
        "information", "policy", "seeds", "reward", "ratio", "difference", "fraction_of_stationary",
        "fraction_of_oracle", "regret_stationary", "regret", "regret_stationary_growth", "regret_growth",
        "violations", "violating_slots", "claimed", "claimed_ratio", "gain", "overhead", "decide_microseconds",
    }  # fmt: skip
    assert row["reward"].keys() == {"mean", "low", "high", "seeds"}
    assert row["reward"]["low"] is None
    assert row["regret"] is None


def test_other_peoples_directories_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InvalidInput, match="holds other files"):
        quick(out=tmp_path)
    with pytest.raises(InvalidInput, match="directory"):
        quick(out=tmp_path / "thesis.tex")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"policies": ["farness"]}, UnknownName),
        ({"policies": []}, InvalidInput),
        ({"baseline": "nothing"}, UnknownName),
        ({"seeds": 0}, InvalidInput),
        ({"seeds": [-1]}, InvalidInput),
        ({"arrivals": "sometimes"}, InvalidInput),
        ({"oracles": ["delphi"]}, UnknownName),
        ({"workers": 0}, InvalidInput),
        ({"overrides": {"horizn": 3}}, Exception),
    ],
)
def test_wrong_input(wrong: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        quick(**wrong)


@pytest.mark.usefixtures("undrawn")
def test_a_scenario_object_is_written_down_to_be_repeated(tmp_path: Path) -> None:
    scenario = load_scenario("small", SMALL)
    first = compare(scenario, ["fairness"], 1, oracles=[], workers=1, out=tmp_path / "a")
    written = tmp_path / "a" / "scenario.yaml"
    assert str(written) in first.command
    again = compare(written, ["fairness"], 1, oracles=[], workers=1)
    assert numbers(again) == numbers(first)


def test_progress_counts_every_cell() -> None:
    seen: list[Progress] = []
    quick(progress=seen.append, arrivals="hidden")
    assert seen[0].note == "compiling"
    assert (seen[-1].done, seen[-1].total, seen[-1].slots) == (6, 6, 120)


@pytest.mark.usefixtures("undrawn")
def test_an_interrupted_run_keeps_its_cells(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [
        sys.executable, "-m", "berth", "compare", "small", "--policy", "fairness", "--policy", f"{HERE}:Held",
        "--baseline", "fairness", "--seeds", "3", "--arrivals", "hidden", "--oracle", "none", "--workers", "2",
        "--set", "horizon=60", "--set", "cluster.servers=4", "--out", str(out),
    ]  # fmt: skip
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": path, "BERTH_TEST_HELD": "4"}
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    # now both workers are held: the command waits for them, and does nothing else
    eventually(lambda: len(list(out.glob("cells/[!.]*.parquet"))), lambda count: count == 3, f"cells in {out}")
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: parent and workers alike
    try:
        _, said = running.communicate(timeout=DEADLINE)
    finally:
        running.kill()
    assert running.returncode == 130
    assert "the same command continues" in said, said
    assert "Traceback" not in said
    assert json.loads((out / "manifest.json").read_text())["finished"] is None
    assert not list(out.rglob("*.tmp"))
    overrides = {"horizon": 60, "cluster.servers": 4}
    policies = ["fairness", f"{HERE}:Held"]
    rest = compare("small", policies, 3, "fairness", "hidden", [], out, workers=1, overrides=overrides)
    assert rest.reused == 3
    assert not rest.failed


def test_mean_share_adds_up_to_what_is_held() -> None:
    world = load_scenario("small", SMALL).build(0, True)
    graph = world.problem.instance
    watch = FAMILIES["allocation"].lab.share(world.problem)
    for slot in world:
        watch(slot, world.problem.cap * 0, None)
    assert watch.mean().sum() == 0
    assert watch.mean().shape == (len(graph.ports), len(graph.cluster.servers))
    assert grouped(np.arange(100.0).reshape(1, 100), 1).shape == (1, 64)
    assert grouped(np.ones((100, 3)), 0).tolist() == np.ones((64, 3)).tolist()


@pytest.mark.usefixtures("undrawn")
def test_a_mistake_in_the_first_command_does_not_lock_the_directory(tmp_path: Path) -> None:
    """The directory is only made once everything was understood; empty folders of a killed run do not matter either."""
    out = tmp_path / "results"
    with pytest.raises(UnsupportedProblem):
        compare("small", ["ogasched-gang"], seeds=1, out=out)
    assert not out.exists()
    (out / "cells").mkdir(parents=True)
    compare("small", ["fairness"], seeds=1, oracles=[], out=out, workers=1, overrides={"horizon": 3})
    assert (out / "manifest.json").is_file()


def test_only_policies_of_others_are_hashed_by_their_own_files() -> None:
    from berth.lab.run.cells import _class, _source

    assert _source(_class("fairness")) == ""  # berth's own files are in every key, without those that only show numbers
    assert len(_source(_class(f"{HERE}:Cheat"))) == 64


OWN = """\
horizon: 10
cluster: {{resources: [cores, memory], servers: [{{name: a, count: 2, capacity: {{cores: {cores}, memory: 8}}}}]}}
ports:
  - {{name: train, demand: {{cores: {demand}}}, probability: 0.5}}
  - {{name: query, demand: {{cores: {demand}}}, probability: 0.5}}
"""


@pytest.mark.parametrize(
    ("cores", "demand", "said"),
    [
        (8, 2, ["Nothing contends: all job types together request at most 50 % of any server."]),
        (96, 64, ["Servers have up to 96 of cores. Utilities and overhead are meant for 5 to 10 units a server"]),
        (64, 8, ["Servers have up to 64 of cores.", "Nothing contends: all job types together request at most 25 %"]),
        (8, 5, []),
    ],
)
def test_a_scenario_that_tells_nothing_apart_says_so(cores: int, demand: int, said: list[str], tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(OWN.format(cores=cores, demand=demand))
    comparison = compare(file, ["fairness", "drf", "binpacking"], 2, oracles=[], workers=1)
    remarks = comparison.as_dict()["remarks"]
    assert len(remarks) == len(said)
    assert all(remark.startswith(words) for remark, words in zip(remarks, said, strict=True))
    told = verdict(comparison)
    assert all(remark in told for remark in remarks)
    free = any("Nothing contends" in remark for remark in remarks)
    blind = "Every policy earned the same with arrivals hidden and revealed: seeing them makes no difference."
    assert (blind in told) == free
    alike = "fairness, drf and binpacking earned the same in every slot: this scenario does not tell them apart."
    assert (alike in told) == free


def test_channels_that_all_fit_at_once_are_remarked_on() -> None:
    roomy = plan_comparison("example-selection", ["lcf"], overrides={"capacity": {"scope": "cluster", "each": 100}})
    assert roomy.remarks[0].startswith("Nothing contends: all channels open at once take at most ")
    assert plan_comparison("example-selection", ["lcf"]).remarks == ()
