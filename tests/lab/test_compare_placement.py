"""Comparisons of the placement family: a bound instead of regret, gain and cost, words and pictures."""

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
from berth.families.placement.lab import PlacementShare
from berth.families.placement.policies.greedy import Greedy
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.families.placement.world import Failure, PlacementWorld
from berth.lab.compare import compare
from berth.lab.run.results import Comparison
from berth.lab.show.words import verdict
from berth.random import stream
from berth.registry import PolicySpec
from berth.scenario import load_scenario
from berth.simulation import simulate

QUEUE = "greedy:order=densest,waiting=queue"


def quick(scenario: str = "drl-small", **more: Any) -> Comparison:
    settings = {"policies": ["greedy", QUEUE], "seeds": 2, "workers": 1, "overrides": {"horizon": 8}}
    return compare(scenario, **{**settings, **more})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return quick(out=tmp_path_factory.mktemp("placement"))


def test_rewards_are_gain_minus_cost(made: Comparison) -> None:
    rows = {row.policy: row for row in made.rows}
    assert rows.keys() == {"greedy", QUEUE}
    assert (made.oracles, made.baseline, made.information) == (("slot",), "greedy", ("revealed",))
    for row in rows.values():
        assert row.reward is not None
        assert row.gain is not None
        assert row.cost is not None
        assert row.reward.mean == pytest.approx(row.gain.mean - row.cost.mean)
        assert row.violations == 0
        assert row.fraction_of_oracle is not None
        assert 0.0 < row.fraction_of_oracle.mean <= 1.0
    assert all(len(record.reward) == 8 for record in made.records.values())


def test_json_tables_report_and_pictures(made: Comparison) -> None:
    found = json.loads(json.dumps(made.as_dict(), allow_nan=False))
    row = found["summary"][0]
    assert {"reward", "gain", "cost"} <= set(row)
    assert "fraction_of_oracle" in row
    assert not {"overhead", "regret", "expected"} & set(row)
    assert made.out is not None
    slots = pl.read_parquet(Path(made.out) / "slots.parquet")
    assert {"gain", "cost", "started", "dropped"} <= set(slots.columns)
    assert len(slots) == 2 * 2 * 8
    assert "cost" in pl.read_parquet(Path(made.out) / "summary.parquet").columns
    page = (Path(made.out) / "report.html").read_text(encoding="utf-8")
    for words in ("Gain, cost and time", "sees the tasks that have arrived", "launching servers"):
        assert words in page, words
    assert "regret" not in page.replace("regret_", "").lower()
    assert "which ports have a job" not in page
    pictures = {path.stem for path in (Path(made.out) / "plots").iterdir()}
    assert {"gain-overhead-revealed", "allocation-revealed", "ratio-revealed"} <= pictures
    assert "regret-revealed" not in pictures
    assert "earns most" in verdict(made)[0]
    again = quick(out=made.out)
    assert again.reused == len(again.records) == len(made.records)


def test_workers_change_nothing(made: Comparison) -> None:
    together = quick(workers=2)
    for cell, record in made.records.items():
        assert record.reward.tolist() == together.records[cell].reward.tolist()


@pytest.mark.parametrize(
    "overrides",
    [
        {"failures": {"permanent": {"share": 0.4}}},
        {"failures": {"transient": {"up": 4, "down": 1}}},
        {"idle": "never"},
        {"period": 0.3},
        {"arrivals.mean": 0},
        {"cluster.count": 1},
    ],
)
def test_every_kind_of_world_is_compared(overrides: dict[str, Any]) -> None:
    result = quick(overrides={"horizon": 6, **overrides}, seeds=1, policies=["greedy", QUEUE, "random-placement"])
    assert not result.failed
    assert [len(record.reward) for record in result.records.values()] == [6] * 4


def test_what_the_family_does_not_have_is_refused() -> None:
    with pytest.raises(UnknownName, match="unknown oracle 'stationary'"):
        quick(oracles=["stationary"])
    with pytest.raises(InvalidInput, match="a policy of the allocation family"):
        quick(policies=["fairness"])
    with pytest.raises(InvalidInput, match="expected revealed"):
        quick(arrivals="hidden")
    with pytest.raises(InvalidInput, match="one of arrival, shortest"):
        quick(policies=["greedy:order=longest"])


def test_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["compare", "drl-small", "--seeds", "2", "--set", "horizon=5", "--workers", "1", "--quiet"]
    assert main([*words, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in found["summary"]]
    assert found["oracles"]
    for width in ("60", "140"):
        monkeypatch.setenv("COLUMNS", width)
        assert main(words) == 0
        shown = capsys.readouterr().out
        assert "vs greedy" in shown
        assert max(map(len, shown.splitlines())) <= int(width)


def test_the_usual_policies_serve_the_usual_scenarios() -> None:
    result = quick("drl-scarce-failures", policies=None, seeds=1)
    assert not result.failed
    assert not result.unsupported
    assert {row.policy for row in result.rows} == set(load_scenario("drl-scarce").policies)
    assert all(row.violations == 0 for row in result.rows)


def test_the_first_batches_of_a_world() -> None:
    world = load_scenario("drl-scarce-failures").build(0)
    first = FAMILIES["placement"].lab.shortened(world, 2)
    assert len(first) == 2
    assert len(first.tasks) == int((world.tasks.arrival < 2).sum())
    assert sum(1 for _ in first) >= 2


# --- the heat map


def shares(world: PlacementWorld, waiting: str = "queue") -> list[float]:
    watch = PlacementShare(world.problem)
    simulate(world, Greedy(world.problem, np.random.default_rng(0), waiting=waiting), observers=[watch])
    table = watch.mean()
    assert table.shape == (1, len(world.problem.speed))
    found: list[float] = table[0].tolist()
    return found


def listed(*columns: list[Any]) -> Tasks:
    arrays: list[Any] = [np.array(column, dtype=np.float64) for column in columns]
    return Tasks(*arrays)


def test_shares_are_amounts_held_over_time() -> None:
    problem = PlacementProblem.of_servers([[4.0, 0.0], [8.0, 2.0]], [1, 1], [0, 0.1], [0, 0])
    tasks = listed([0, 0, 2], [[2, 0], [8, 1], [8, 0]], [4, 2, 6], [9, 9, 9], [0, 0, 0], [99, 99, 99])
    # task 1 takes the second server until 2, task 2 then until 8; task 0 the first one until 4
    assert shares(PlacementWorld(problem, tasks, 3)) == pytest.approx(
        [2 * 4 / (4 * 8), (8 * 8 / (8 * 8) + 1 * 2 / (2 * 8)) / 2]
    )


def test_what_is_lost_is_held_until_then() -> None:
    problem = PlacementProblem.of_servers([[4.0]], [1], [0], [0])
    tasks = listed([0], [[4]], [4], [9], [0], [3.5])
    assert shares(PlacementWorld(problem, tasks, 1)) == [0.0]  # never done in time: never started
    tasks = listed([0], [[4]], [4], [9], [0], [9.5])
    lost = PlacementWorld(problem, tasks, 1, failures=[Failure(1.0, 0, 2.0)])
    assert shares(lost) == pytest.approx([(1 + 4) / 6])
    for waiting in ("commit-immediate", "commit-any"):
        assert shares(lost, waiting) == pytest.approx([1.0])  # rejected while no server is up: the run is over


def test_the_map_has_ports_and_all_servers_of_gangs() -> None:
    scenario = load_scenario("trace-sdsc-sp2-placement", {"horizon": 20, "tasks.known": "run"})
    world = scenario.build(0)
    share = PlacementShare(world.problem)
    policy = PolicySpec.parse("fcfs").build(world.problem, stream(0, "policy"))
    held = 0.0
    for slot in world:
        decision = policy.decide(slot)
        outcome = world.step(decision)
        share(slot, decision, outcome)
        placed = world.problem.placed(slot, decision)
        held += float((world.runs[placed.task] * placed.demand[:, 0]).sum())
    mean = share.mean()
    assert mean.shape == (1, 64)  # 128 nodes, two by two
    assert float(mean.sum()) * 2 * share._end == pytest.approx(held, rel=0.05)
    pods = load_scenario("trace-openb-placement", {"horizon": 5}).build(0)
    assert PlacementShare(pods.problem).mean().shape == (len(pods.problem.instance.ports), 30)
