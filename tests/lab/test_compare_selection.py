"""Comparisons of the selection family: its oracles, pseudo-regret, its growth, words and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from berth.cli import main
from berth.errors import InvalidInput, UnknownName
from berth.families import FAMILIES
from berth.lab.compare import compare
from berth.lab.run.cells import COMPARED, Cell, run_cell
from berth.lab.run.results import Comparison
from berth.lab.run.runner import Work
from berth.lab.show.words import verdict
from berth.registry import describe_policies, resolve
from berth.regret import growth_exponent, log_fit
from berth.scenario import load_scenario
from berth.simulation import simulate

POLICIES = ["escb", "random-selection"]
SMALL = {"horizon": 60}


def quick(**more: Any) -> Comparison:
    settings: dict[str, Any] = {"policies": POLICIES, "seeds": 2, "workers": 1, "overrides": SMALL}
    return compare("esdp-small", **{**settings, **more})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return quick(out=tmp_path_factory.mktemp("selection"))


def test_fractions_and_regrets_are_made_of_the_mean_reward(made: Comparison) -> None:
    rows = {row.policy: row for row in made.rows}
    assert rows.keys() == {"escb", "random-selection", "hauf"}
    for policy, row in rows.items():
        runs, best = made.runs("revealed", policy), made.oracle("slot")
        fractions = [runs[s].series["expected"].sum() / best[s].reward.sum() for s in (0, 1)]
        assert row.fraction_of_oracle is not None
        assert row.fraction_of_oracle.mean == pytest.approx(np.mean(fractions))
        assert row.fraction_of_oracle.mean <= 1 + 1e-9
        regrets = [best[s].reward.sum() - runs[s].series["expected"].sum() for s in (0, 1)]
        assert row.regret is not None
        assert row.regret.mean == pytest.approx(np.mean(regrets))
        # no decision is better on average than the oracle's: pseudo-regret never falls
        assert (np.diff(made.regret("revealed", policy, "slot"), axis=1) >= -1e-6).all()
        curve = made.regret("revealed", policy, "slot").mean(axis=0)
        assert row.regret_growth == pytest.approx(growth_exponent(curve))
        assert row.regret_log_fit == pytest.approx(log_fit(curve))
        assert row.reward is not None
        assert row.gain is not None
        assert row.cost is not None
        assert row.reward.mean == pytest.approx(row.gain.mean - row.cost.mean)
        assert (row.fraction_of_stationary, row.regret_stationary, row.overhead) == (None, None, None)
    assert rows["escb"].regret.mean < rows["random-selection"].regret.mean  # type: ignore[union-attr]


def test_one_setting_and_the_limit_of_information(made: Comparison) -> None:
    assert made.information == ("revealed",)
    assert made.oracles == ("slot", "information")
    assert made.regretted == ("slot",)
    assert made.baseline == "hauf"
    oracle, limit = made.oracle_rows
    assert limit.gap is None
    assert limit.fraction_of_oracle is not None
    assert 0.5 < limit.fraction_of_oracle.mean <= 1.0
    assert all(row.fraction_of_information is not None for row in made.rows)
    assert oracle.gap is not None
    assert -1e-9 <= oracle.gap < 1e-3
    assert "--arrivals revealed --oracle slot --oracle information" in made.command


def test_json_and_tables_have_the_keys_of_the_family(made: Comparison) -> None:
    found = json.loads(json.dumps(made.as_dict(), allow_nan=False))
    row = found["summary"][0]
    assert {
        "fraction_of_oracle",
        "regret",
        "regret_growth",
        "regret_log_fit",
        "expected",
        "cost",
    } <= set(row)
    assert not {"overhead", "regret_stationary", "fraction_of_stationary"} & set(row)
    assert found["scenario"]["family"] == "selection"
    assert made.out is not None
    summary = pl.read_parquet(Path(made.out) / "summary.parquet")
    assert {"regret_low", "regret_log_fit", "cost"} <= set(summary.columns)
    slots = pl.read_parquet(Path(made.out) / "slots.parquet")
    assert {"expected", "gain", "cost", "oracle_slot"} <= set(slots.columns)


def test_report_and_pictures(made: Comparison) -> None:
    assert made.out is not None
    page = (Path(made.out) / "report.html").read_text(encoding="utf-8")
    for words in (
        "oracle that knows the means",
        "limit of information",
        "ln T fit, R²",
        "Gain, cost, regret and time",
        "Gain minus cost",
    ):
        assert words in page, words
    assert "overhead</th>" not in page
    assert "y*" not in page
    found = {path.stem for path in (Path(made.out) / "plots").iterdir()}
    assert {"regret-revealed", "gain-overhead-revealed", "allocation-revealed"} <= found
    assert "of the oracle" in verdict(made)[0]


def test_resume(made: Comparison) -> None:
    again = quick(out=made.out)
    assert again.reused == len(again.records) == len(made.records)


def test_workers_and_luck() -> None:
    alone, together = quick(), quick(workers=2)
    for cell, record in alone.records.items():
        assert record.reward.tolist() == together.records[cell].reward.tolist()
    scenario = load_scenario("esdp-small", SMALL)
    one, other = (run_cell(scenario, Cell("random-selection", seed, "revealed")).reward for seed in (0, 1))
    assert one.tolist() != other.tolist()


@pytest.mark.parametrize(
    "overrides",
    [
        {"capacity": {"scope": "server"}, "outages": {"probability": 0.2, "repair": 0.3}},
        {"delay": {"most": 5, "lost": 0.3}},
        {"drift": {"kind": "redraw", "every": 10}},
        {"drift": {"kind": "walk"}},
        {"arrivals": {"process": "poisson", "mean": 1, "most": 2}},
    ],
)
def test_every_kind_of_world_is_compared(overrides: dict[str, Any]) -> None:
    result = quick(overrides={"horizon": 25, **overrides}, seeds=1)
    assert not result.failed
    assert all(row.fraction_of_oracle is not None and row.fraction_of_oracle.mean <= 1 + 1e-9 for row in result.rows)


def test_gangs_are_compared() -> None:
    small = {"horizon": 4, "cluster.servers": 4, "ports.count": 3}
    result = compare("gang-30x40", ["escb", "random-selection"], 1, workers=1, overrides=small)
    assert not result.failed
    assert {row.policy for row in result.rows} == {"escb", "random-selection"}
    assert all(row.violations == 0 for row in result.rows)


def test_policies_of_another_family_are_refused() -> None:
    message = "policy 'fairness': got a policy of the allocation family, expected one of the selection family"
    with pytest.raises(InvalidInput, match=message):
        quick(policies=["escb", "fairness"])
    with pytest.raises(InvalidInput, match="a policy of the allocation family"):
        quick(baseline="drf")
    with pytest.raises(InvalidInput, match="a policy of the selection family"):
        compare("small", ["hauf"], 1, workers=1)


@pytest.mark.parametrize("arrivals", ["hidden", "both"])
def test_arrivals_are_always_revealed(arrivals: str) -> None:
    with pytest.raises(InvalidInput, match="in the selection family policies always see who has a job"):
        quick(arrivals=arrivals)
    assert quick(arrivals="revealed", policies=["lcf"], seeds=1, oracles=[]).information == ("revealed",)


def test_there_is_no_stationary_oracle() -> None:
    with pytest.raises(UnknownName, match="unknown oracle 'stationary'"):
        quick(oracles=["stationary"])


def test_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["compare", "esdp-small", "-p", "escb", "--seeds", "2", "--set", "horizon=40", "--workers", "1", "--quiet"]
    assert main([*words, "-o", "json"]) == 0
    row = json.loads(capsys.readouterr().out)["summary"][0]
    assert row["fraction_of_oracle"]["seeds"] == 2
    assert row["regret"]["low"] is not None
    for width in ("60", "140"):
        monkeypatch.setenv("COLUMNS", width)
        assert main(words) == 0
        shown = capsys.readouterr().out
        assert "of oracle" in shown
        assert ("ln R²" in shown) is (width == "140")
        assert max(map(len, shown.splitlines())) <= int(width)
    assert main(["compare", "esdp-small", "--policy", "fairness"]) == 2
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 1
    assert "a policy of the allocation family" in shown
    assert main(["policies"]) == 0
    shown = capsys.readouterr().out
    assert "escb  (selection family)" in shown
    assert "fairness  (allocation family)" in shown


def test_families_agree_about_each_other() -> None:
    for family in FAMILIES.values():
        assert family.name == family.lab.name == family.checks.name
        assert all(resolve(policy).family == family.name for policy in family.policies)
    families = {item["name"]: item["family"] for item in describe_policies() if item["source"] == "builtin"}
    assert set(families.values()) == set(FAMILIES)
    for name in load_scenario("esdp-default").policies + load_scenario("gang-30x40").policies:
        assert families[name] == "selection"


def test_shares_are_of_the_pool() -> None:
    scenario = load_scenario("esdp-small", SMALL)
    world = scenario.build(0)
    problem = world.problem
    watch = FAMILIES["selection"].lab.share(problem)
    from berth.families.selection.policies.random import RandomSelection

    simulate(world, RandomSelection(problem, np.random.default_rng(0)), observers=[watch])
    share = watch.mean()
    assert share.shape == (4, 8)
    assert 0 < share.sum() <= 1 + 1e-9
    reach = np.zeros((4, 8), dtype=bool)
    reach[problem.instance.channel_port, problem.instance.channel_server] = True
    assert not share[~reach].any()


def test_policies_that_share_a_solver_are_compiled_together() -> None:
    cells = [Cell(name, 0, "revealed") for name in ("escb", "cucb", "hauf")] + [Cell("slot", 0)]
    works = [Work(0, cell) for cell in cells]
    groups = [{work.cell.name for work in group} for group in COMPARED.groups([load_scenario("esdp-small")], works)]
    assert groups[-1] == {"hauf"}
    assert {"slot"} <= groups[0]


def test_log_fit_tells_a_line_from_a_curve() -> None:
    slots = np.arange(1, 2001)
    assert log_fit(3 * np.log(slots) + 1) == pytest.approx(1.0)
    assert log_fit(slots**2.0) < log_fit(slots) < log_fit(np.sqrt(slots)) < 1.0
    assert np.isnan(log_fit([1.0, 2.0]))
    assert np.isnan(log_fit(np.zeros(50)))
