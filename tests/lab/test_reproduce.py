from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from rich.console import Console

from berth.errors import InvalidInput, UnknownName
from berth.families import FAMILIES
from berth.lab.reproduce import run as module
from berth.lab.reproduce.experiments import Claim, Experiment, chosen, experiment_names, load_experiment, settings_of
from berth.lab.reproduce.judge import effect, judge
from berth.lab.reproduce.plots import looks_of
from berth.lab.reproduce.report import found_effect, print_experiments, print_reproduced, readings_text, render_markdown
from berth.lab.reproduce.results import (
    NEAR,
    RULE,
    SAME,
    ClaimResult,
    ExperimentResult,
    Reproduced,
    Run,
    Verdict,
    verdict_of,
)
from berth.lab.reproduce.run import reproduce
from berth.lab.reproduce.traces import find_traces
from berth.lab.run.cells import Cell
from berth.lab.run.processes import run_cells
from berth.lab.run.runner import Interrupted, Progress
from berth.lab.show.page import environment
from berth.registry import PolicySpec
from berth.scenario import load_scenario
from berth.statistics import Estimate
from tests.lab.test_experiment_traces import trace_at

TINY: dict[str, Any] = {
    "paper": "ogasched",
    "figure": "Fig. 0",
    "title": "A small one",
    "what": "Four servers.",
    "minutes": 0.1,
    "sweep": {
        "scenario": "small",
        "grid": {"ports.contention": [1, 10]},
        "set": {"horizon": 30, "cluster.servers": 4},
        "policies": ["ogasched-printed", "ogasched-aware", "fairness"],
        "seeds": 3,
        "arrivals": "revealed",
        "oracles": ["slot"],
        "baseline": "fairness",
    },
    "quick": {"grid": {"ports.contention": [1]}, "set": {"horizon": 10}},
    "printed": "ogasched-printed",
    "best": "ogasched-aware",
    "plots": [
        {"kind": "curve", "title": "curve", "show": "ratio", "over": "fairness"},
        {"kind": "line", "title": "line", "x": "ports.contention"},
        {"kind": "cdf", "title": "cdf"},
        {"kind": "bars", "title": "bars", "where": {"ports.contention": 10}, "over": "fairness"},
    ],
    "claims": [
        {"says": "more than FAIRNESS", "over": "fairness", "value": 0.1},
        {"says": "less than the optimum", "over": "slot", "direction": "less"},
        {
            "says": "contention",
            "where": {"ports.contention": 10},
            "against": {"ports.contention": 1},
            "direction": "more",
        },
        {"says": "the first slots", "over": "fairness", "until": 20, "direction": "more"},
        {"says": "time", "over": 3600, "metric": "decide_seconds", "direction": "less"},
    ],
}


EMPTY = (np.zeros(0), np.zeros(0), 10, np.zeros(0))  # of a run of ten slots whose curves nobody asks for


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({**TINY, **changes}), encoding="utf-8")
    return path


def claim(**changes: Any) -> list[dict[str, Any]]:
    return [{**TINY["claims"][0], **changes}]


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ({"paper": "other"}, "", "a paper: ogasched, esdp, drl-greedy"),
        ({"titel": "x"}, "titel", "extra inputs"),
        ({"minutes": 0}, "minutes", "greater than 0"),
        ({"claims": []}, "claims", "at least 1 item"),
        ({"claims": claim(direction="more")}, "claims[0]", "one of value and direction"),
        ({"claims": claim(value=0)}, "claims[0]", "other than 0"),
        ({"claims": claim(over=None)}, "claims[0]", "over, against or both"),
        ({"claims": claim(over=2.5, against={})}, "claims[0]", "a policy to be over"),
        ({"claims": claim(against={"horizon": 3})}, "claims[0].against", "a point of the sweep"),
        ({"claims": claim(over="drf")}, "claims[0].over", "a policy that is run at ports.contention=1"),
        ({"claims": claim(policy="nobody")}, "claims[0].policy", "unknown policy 'nobody'"),
        ({"claims": claim(policy="drf")}, "claims[0].policy", "a policy that is run"),
        ({"claims": claim(where={"ports.contention": 2})}, "claims[0].where", "a point of the sweep"),
        ({"sweep": {**TINY["sweep"], "seeds": 1}}, "sweep.seeds", "greater than or equal to 2"),
        ({"sweep": {**TINY["sweep"], "policies": None}}, "", "policies, in the sweep"),
        ({"plots": [{"kind": "line", "title": "x"}]}, "plots[0]", "the key along the axis"),
        ({"plots": [{"kind": "line", "title": "x", "x": "horizon"}]}, "plots[0].x", "a key of the grid"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_key(tmp_path: Path, changes: Any, key: str, said: str) -> None:
    path = written(tmp_path, **changes)
    with pytest.raises(InvalidInput) as caught:
        load_experiment(path)
    text = str(caught.value)
    assert "own.yaml" in text
    assert key in text
    assert said in text


def at(mean: float, half: float) -> Estimate:
    return Estimate(mean, mean - half, mean + half, 8)


@pytest.mark.parametrize(
    ("found", "value", "direction", "verdict"),
    [
        (at(0.10, 0.02), 0.11, None, Verdict.reproduced),
        (at(0.10, 0.001), 0.12, None, Verdict.reproduced),  # outside the interval, but near
        (at(0.10, 0.001), 0.10 / (1 - NEAR) - 1e-9, None, Verdict.reproduced),  # as far as may be
        (at(0.10, 0.001), 0.10 / (1 - NEAR) + 1e-6, None, Verdict.direction),
        (at(0.10, 0.001), 0.50, None, Verdict.direction),
        (at(0.30, 0.29), 0.31, None, Verdict.direction),  # near, but the interval is too wide to tell
        (at(0.10, 0.10), 0.10, None, Verdict.undecided),  # touches zero
        (at(0.10, 0.20), 0.10, None, Verdict.undecided),
        (at(-0.10, 0.01), 0.10, None, Verdict.refuted),  # the other side
        (at(-0.10, 0.01), -0.10, None, Verdict.reproduced),
        (at(-0.50, 0.01), -0.10, None, Verdict.direction),
        (at(0.10, 0.05), None, "more", Verdict.reproduced),
        (at(0.10, 0.10), None, "more", Verdict.undecided),
        (at(0.10, 0.05), None, "less", Verdict.refuted),
        (at(-0.10, 0.05), None, "less", Verdict.reproduced),
        (at(0.0, SAME), None, "same", Verdict.reproduced),
        (at(0.01, SAME), None, "same", Verdict.undecided),
        (at(-0.2, 0.01), None, "same", Verdict.refuted),
        (Estimate(0.1, None, None, 1), 0.1, None, Verdict.undecided),  # one seed tells nothing
        (None, 0.1, None, Verdict.undecided),
    ],
)
def test_the_rule(found: Estimate | None, value: float | None, direction: str | None, verdict: Verdict) -> None:
    assert verdict_of(found, value, direction) is verdict


def test_what_is_no_discovery_among_all_claims_is_undecided() -> None:
    assert verdict_of(at(0.10, 0.02), 0.11, discovered=False) is Verdict.undecided
    assert verdict_of(at(-0.10, 0.02), 0.11, discovered=False) is Verdict.undecided
    assert verdict_of(at(0.0, SAME), None, "same", discovered=False) is Verdict.reproduced  # nothing to discover
    assert "25 %" in RULE
    assert "5 %" in RULE


@pytest.mark.parametrize("name", experiment_names())
def test_what_is_shipped_loads_and_builds(name: str, tmp_path: Path) -> None:
    experiment = load_experiment(name)  # which also checks that claims name what is run
    assert experiment.name == name
    built: set[str] = set()
    for quick in (False, True):
        settings = settings_of(experiment, quick)
        assert settings
        for trace in {setting.trace for setting in settings if setting.trace}:
            trace_at(tmp_path / trace, jobs=3000, first=1e7)  # in place of the real one
        for setting in find_traces(settings, tmp_path).settings:
            scenario = load_scenario(setting.scenario, setting.changes)
            family = FAMILIES[scenario.family].lab
            for policy in setting.run.policies or ():
                assert getattr(PolicySpec.parse(policy).load(), "family", "") == family.name
            assert set(setting.run.oracles or ()) <= set(family.oracles)
            if quick and setting.scenario not in built:
                built.add(setting.scenario)
                scenario.build(0, True)


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    path = tmp_path / "my.yaml"
    path.write_text(page.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    experiment = load_experiment(path)
    assert [str(setting) for setting in settings_of(experiment)] == ["ports.contention=1", "ports.contention=10"]


def test_names_choose_experiments() -> None:
    assert [e.name for e in chosen(["all"])] == experiment_names()
    assert {e.paper for e in chosen(["esdp"])} == {"esdp"}
    assert [e.name for e in chosen(["ogasched/table-3", "ogasched/table-3"])] == ["ogasched/table-3"]
    names = [name for name in experiment_names() if name.startswith("esdp/fig")]
    assert names.index("esdp/fig-9") < names.index("esdp/fig-10")
    with pytest.raises(UnknownName, match="did you mean 'ogasched/table-3'"):
        chosen(["ogasched/tabel-3"])
    with pytest.raises(InvalidInput, match="at least one experiment"):
        chosen([])


def test_no_word_is_cut_at_80_columns() -> None:
    experiments, found = chosen(["esdp/fig-6", "ogasched/fig-2", "drl-greedy/fig-4"]), at(-12.344, 1.0)
    results = [
        ExperimentResult(
            e, False, (), (), claims=tuple(ClaimResult(c, e.printed, e.best, found, None, found) for c in e.claims)
        )
        for e in experiments
    ]
    for verdict in Verdict:
        for result in results:
            result.claims = tuple(replace(claim, verdict=verdict) for claim in result.claims)
        console = Console(width=80, file=io.StringIO(), color_system=None)
        with console.capture() as shown:
            print_reproduced(Reproduced(tuple(results), False, 0.0, 0, {}, None), console)
            print_experiments(experiments, console)
        lines = shown.get().splitlines()
        heads = "claim", "verdict", "paper", "as printed", "berth's best"
        assert any(all(head in line for head in heads) for line in lines)
        words = {word for line in lines for word in line.split()}
        assert {word for e in experiments for claim in e.claims for word in claim.says.split()} <= words
        assert {word for e in experiments for word in f"{e.name} {e.figure} {e.title}".split()} <= words
        assert set(verdict.value.split()) <= words
        assert sum(line.count(found_effect(found)) for line in lines) == 2 * sum(len(e.claims) for e in experiments)
        assert max(map(len, lines)) <= 80


def test_end_to_end_with_report(tmp_path: Path) -> None:
    path, out = written(tmp_path), tmp_path / "out"
    found = reproduce([str(path)], out=out, workers=1)
    (result,) = found.experiments
    assert result.seeds == 3
    assert [len(runs) for runs in result.runs.values()] == [12, 12]
    over, optimum, contention, first, seconds = result.claims
    assert optimum.verdict is Verdict.reproduced
    assert optimum.best is not None
    assert -0.01 < optimum.best.mean <= 1e-4
    assert seconds.verdict is Verdict.reproduced
    assert over.claimed is not None  # as printed it breaks constraints
    assert over.best is not None
    assert contention.printed is not None
    assert first.printed is not None
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<figure") == 4
    assert "http" not in page.replace("http://www.w3.org", "")
    assert f"berth reproduce {path} --out {out}" in page
    chip = environment().get_template("parts.html").module.chip  # type: ignore[attr-defined]
    assert chip(looks_of(found)["ogasched-printed"]) in page
    assert "<th>claim</th><th>verdict</th>" in page  # the last columns are out of sight in a narrow window
    for text in ("more than FAIRNESS", "berth&#x27;s best", "as printed", over.verdict.value):
        assert text in page or text.replace("&#x27;", "'") in page
    assert len(list((out / "plots").glob("*.png"))) == len(list((out / "plots").glob("*.svg"))) == 4
    frame = pl.read_parquet(out / "results.parquet")
    assert frame.height == 24
    assert set(frame["policy"]) == {"ogasched-printed", "ogasched-aware", "fairness", "slot"}
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["kind"] == "berth reproduce"
    assert manifest["finished"]
    assert len(manifest["experiments"][0]["sha256"]) == 64
    assert manifest["versions"]["berth"]
    markdown = render_markdown(found, "berth reproduce own.yaml")
    assert "| more than FAIRNESS | +10.0 % |" in markdown
    # by hand, from the raw results
    means = {(row["policy"], row["point"], row["seed"]): row["reward"] for row in frame.to_dicts()}
    points = sorted({point for _, point, _ in means})
    by_point = [
        sum(means["ogasched-printed", p, s] for s in range(3)) / sum(means["fairness", p, s] for s in range(3)) - 1
        for p in points
    ]
    assert over.printed is not None
    assert over.printed.mean == pytest.approx(sum(by_point) / len(points), rel=1e-12)


def test_quick_leaves_out_claims_about_what_it_does_not_run(tmp_path: Path) -> None:
    found = reproduce([str(written(tmp_path))], quick=True, workers=1)
    (result,) = found.experiments
    assert [str(setting) for setting in result.settings] == ["ports.contention=1"]
    assert [item.says for item in result.left_out] == ["contention", "the first slots"]
    assert found.as_dict()["experiments"][0]["not_in_quick"] == ["contention", "the first slots"]
    assert "quick" in render_markdown(found, "x")


@pytest.mark.usefixtures("undrawn")
def test_it_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    path, out = str(written(tmp_path)), tmp_path / "out"

    def stop(now: Progress) -> None:
        if now.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="5 of 24 cells are kept"):
        reproduce([path], out=out, workers=1, progress=stop)
    again = reproduce([path], out=out, workers=1)
    assert again.reused == 5
    whole = reproduce([path], workers=1)

    def timeless(found: Reproduced) -> list[Any]:
        (only,) = found.as_dict()["experiments"]
        return [item for item in only["claims"] if item["metric"] != "decide_seconds"]

    assert timeless(again) == timeless(whole)


def test_what_experiments_share_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Any] = []

    def counting(scenarios: Any, works: Any, done: Any, **more: Any) -> None:
        computed.extend(works)
        run_cells(scenarios, works, done, **more)

    monkeypatch.setattr(module, "run_cells", counting)
    one = load_experiment(written(tmp_path))
    other = one.model_copy(update={"name": "other"})
    found = reproduce([one, other], workers=1)
    assert len(computed) == 24
    first, second = found.experiments
    assert [item.printed for item in first.claims] == [item.printed for item in second.claims]


def constructed(rewards: dict[str, list[float]], **more: Any) -> tuple[ExperimentResult, Claim]:
    """A result of one point with these rewards by policy and seed, and a claim about it."""
    experiment = Experiment.model_validate({"name": "x", **TINY, "claims": claim(), "plots": []})
    result = ExperimentResult(experiment, False, tuple(settings_of(experiment)[:1]), ("allocation",))
    result.runs[0] = {
        Cell(name, seed, "revealed"): Run({"reward": value}, {}, *EMPTY)
        for name, values in rewards.items()
        for seed, value in enumerate(values)
    }
    return result, Claim.model_validate({**claim()[0], **more})


def test_effects_are_ratios_of_means_over_seeds() -> None:
    result, said = constructed({"ogasched-printed": [11.0, 25.0], "fairness": [10.0, 20.0]})
    found = effect(result, said, "ogasched-printed", "reward")
    assert found is not None
    assert found.mean == pytest.approx(6.0 / 30.0)


def test_a_seed_near_zero_does_not_decide() -> None:
    ours, theirs = [11.0, 12.0, 10.0, 9.0, 11.0, 12.0, 10.0, 2.0], [10.0, 11.0, 9.0, 8.0, 10.0, 11.0, 9.0, 0.01]
    result, said = constructed({"ogasched-printed": ours, "fairness": theirs})
    found = effect(result, said, "ogasched-printed", "reward")
    assert found is not None
    assert found.mean == pytest.approx(sum(ours) / sum(theirs) - 1)  # the mean of ratios is 25


def test_what_is_not_positive_is_relative_to_its_size() -> None:
    result, said = constructed({"ogasched-printed": [2.0, 1.0], "fairness": [1.0, -3.0]})
    found = effect(result, said, "ogasched-printed", "reward")
    assert found is not None
    assert found.mean == pytest.approx(5.0 / 2.0)
    result, said = constructed({"ogasched-printed": [2.0, 1.0], "fairness": [0.0, 0.0]})
    assert effect(result, said, "ogasched-printed", "reward") is None


def test_what_the_paper_leaves_open_is_not_judged() -> None:
    more = {"unclear": "which BINPACKING", "readings": [{"policy": "ogasched-aware"}]}
    result, said = constructed(
        {"ogasched-printed": [11.0, 24.0], "ogasched-aware": [12.0, 30.0], "fairness": [10.0, 20.0]}, **more
    )
    result.experiment = result.experiment.model_copy(update={"claims": [said]})
    judge([result])
    (found,) = result.claims
    assert found.verdict is found.best_verdict is Verdict.unclear
    assert [reading.mean for reading in found.readings] == [pytest.approx(0.4)]
    assert readings_text(found) == "which BINPACKING: +16.7 % to +40.0 % over 2 readings"


def test_a_lead_is_compared_with_the_lead_elsewhere() -> None:
    result, said = constructed(
        {"ogasched-printed": [11.0, 24.0], "fairness": [10.0, 20.0]},
        where={"ports.contention": 10},
        against={"ports.contention": 1},
    )
    result.settings = tuple(settings_of(result.experiment))
    result.families *= 2
    result.runs[1] = {
        cell: Run({"reward": run.means["reward"] * (1.2 if cell.name == "fairness" else 1.8)}, {}, *EMPTY)
        for cell, run in result.runs[0].items()
    }
    found = effect(result, said, "ogasched-printed", "reward")
    assert found is not None
    assert found.mean == pytest.approx(0.5)  # 1.1 became 1.65, 1.2 became 1.8
    assert found.half == pytest.approx(0.0, abs=1e-12)


def test_leads_over_losses_are_differences() -> None:
    result, said = constructed(
        {"ogasched-printed": [10.0, 20.0], "fairness": [-10.0, -20.0]},
        where={"ports.contention": 10},
        against={"ports.contention": 1},
    )
    result.settings = tuple(settings_of(result.experiment))
    result.families *= 2
    result.runs[1] = {  # ours is what it was, the other one loses half as much
        cell: Run({"reward": run.means["reward"] * (0.5 if cell.name == "fairness" else 1.0)}, {}, *EMPTY)
        for cell, run in result.runs[0].items()
    }
    found = effect(result, said, "ogasched-printed", "reward")
    assert found is not None
    assert found.mean == pytest.approx(-0.25)


def test_a_number_to_compare_with_and_totals() -> None:
    result, said = constructed({"ogasched-printed": [2.0, 4.0]}, over=2.0)
    found = effect(result, said, "ogasched-printed", "reward")
    assert found is not None
    assert found.mean == pytest.approx(0.5)
    assert math.isclose(result.values(0, "ogasched-printed", "revealed", "reward", total=True)[1], 40.0)
