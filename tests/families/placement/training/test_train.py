"""Training as a user sees it: progress, resume, early stop, files; and that it learns."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from berth.cli import main
from berth.errors import InvalidInput, UnknownName, UnsupportedProblem
from berth.families.placement.policies.network import Network
from berth.families.placement.training.episodes import Source
from berth.families.placement.training.evolution import Evolution, RuleSearch, mean_gain, rule_gain
from berth.families.placement.training.train import Trained, TrainingPlan, train
from berth.families.placement.world import Failure, PlacementWorld
from berth.random import stream
from tests.families.placement.training.small import poor_network, small_world

PLAN = TrainingPlan(("small",), steps=6, runs=1, pairs=3, hidden=3, validation=3, every=2)


class Stop(Exception):
    pass


def run(plan: TrainingPlan, out: Path, stop_at: int | None = None) -> Trained:
    def watch(step: int, gain: float, best: float) -> None:
        if step == stop_at:
            raise Stop

    return train(plan, [small_world], out, watch)


@pytest.mark.parametrize("method", ["es", "rule"])
def test_a_stopped_training_goes_on_to_the_same_end(tmp_path: Path, method: str) -> None:
    plan = dataclasses.replace(PLAN, method=method)
    whole = run(plan, tmp_path / "whole")
    with pytest.raises(Stop):
        run(plan, tmp_path / "parts", stop_at=3)
    again = run(plan, tmp_path / "parts")
    assert again.steps == whole.steps == 6
    assert [row[:3] for row in again.history] == [row[:3] for row in whole.history]
    if method == "rule":
        assert again.policy == whole.policy
    else:
        kept = [Network.load(tmp_path / part / "policy.json") for part in ("whole", "parts")]
        assert np.array_equal(kept[0].weights, kept[1].weights)


def test_what_remains_of_a_training(tmp_path: Path) -> None:
    seen: list[int] = []
    trained = train(PLAN, [small_world], tmp_path, lambda step, gain, best: seen.append(step))
    assert seen == [1, 2, 3, 4, 5, 6]
    assert trained.policy == f"drl-greedy:file={tmp_path / 'policy.json'}"
    made = Network.load(tmp_path / "policy.json").made
    assert made["plan"]["seed"] == 0
    assert made["berth"]
    assert made["validation_gain"] == trained.gain == max(row[2] for row in trained.history)
    assert pl.read_parquet(tmp_path / "history.parquet")["step"].to_list() == [2, 4, 6]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.part"))


def test_another_plan_does_not_go_on_where_this_one_stopped(tmp_path: Path) -> None:
    run(PLAN, tmp_path)
    with pytest.raises(InvalidInput, match=r"checkpoint\.json.*seed.*got 1, expected 0"):
        run(dataclasses.replace(PLAN, seed=1), tmp_path)


def test_a_broken_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"checkpoint\.json"):
        run(PLAN, tmp_path)


def test_without_progress_it_ends_early(tmp_path: Path) -> None:
    plan = dataclasses.replace(PLAN, steps=1000, every=1, patience=2, method="rule")
    trained = run(plan, tmp_path)
    assert trained.steps < 1000
    best = max(range(len(trained.history)), key=lambda place: trained.history[place][2])
    assert len(trained.history) == best + 3


def test_bad_plans() -> None:
    with pytest.raises(UnknownName, match="did you mean 'rule'"):
        TrainingPlan(("small",), method="rules")
    with pytest.raises(InvalidInput, match="got 'ppo', expected es, which replaces"):
        TrainingPlan(("small",), method="ppo")
    with pytest.raises(InvalidInput, match="steps: got 0"):
        TrainingPlan(("small",), steps=0)


def test_the_removed_device_is_answered_with_the_replacement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "drl-small", "--device", "cuda"]) == 2
    assert "--workers N" in capsys.readouterr().err


def test_as_printed_it_trains_whatever_the_time_between_batches() -> None:
    ddpg = pytest.importorskip("berth.families.placement.training.ddpg")

    def quick(seed: int) -> PlacementWorld:
        world = small_world(seed)
        tasks = dataclasses.replace(world.tasks, arrival=world.tasks.arrival / 2)
        return PlacementWorld(world.problem, tasks, world.horizon, 0.5)

    episodes = Source([quick]).some(0, 1)
    assert ddpg.DDPG(episodes[0].problem, 20).validated(episodes) > 0


def test_training_runs_have_no_failures() -> None:
    def failing(seed: int) -> PlacementWorld:
        world = small_world(seed)
        return PlacementWorld(world.problem, world.tasks, world.horizon, failures=[Failure(1.0, 0)])

    with pytest.raises(UnsupportedProblem, match="no failures"):
        Source([failing]).some(0, 1)


def test_evolution_gets_better_than_where_it_began() -> None:
    source = Source([small_world])
    unseen = source.some(10_000, 40)
    learner = Evolution(poor_network(), pairs=8)
    before = mean_gain(learner.network, unseen)
    for step in range(30):
        learner.step(source.some(4 * step, 4), stream(0, "step", str(step)))
    assert mean_gain(learner.network, unseen) > before + 0.02


def test_the_rule_search_gets_better_than_where_it_began() -> None:
    source = Source([small_world])
    unseen, learner = source.some(10_000, 40), RuleSearch()
    before = rule_gain(learner.numbers, unseen)
    for step in range(15):
        learner.step(source.some(4 * step, 4), stream(0, "step", str(step)))
    assert rule_gain(learner.numbers, unseen) > before


def test_worlds_are_ranked_apart() -> None:
    """A world in which much more can be gained must not drown the others."""
    source = Source([small_world, lambda seed: small_world(seed + 500)])
    episodes = source.some(0, 2)
    assert [episode.world for episode in episodes] == [0, 1, 0, 1]
    learner = Evolution(Network.fresh(stream(0, "net"), 3), pairs=4)
    learner.step(episodes, stream(0, "step"))
    assert json.loads(json.dumps(learner.state()))["steps"] == 1


def test_the_command_line_says_how_to_use_what_was_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a folder"
    few = ["--steps", "1", "--runs", "1", "--pairs", "1", "--set", "horizon=5", "--out", str(out)]
    assert main(["train", "drl-small", *few]) == 0
    said = capsys.readouterr()
    assert "over greedy with a queue in validation, after 1 steps" in said.out
    assert "inf" not in said.err
    line = next(line for line in said.out.splitlines() if line.startswith("Use it: "))
    berth, *words = shlex.split(line.removeprefix("Use it: "))
    assert berth == "berth"
    assert words[:4] == ["compare", "drl-small", "--set", "horizon=5"]
    assert main([*words, "--seeds", "1", "--workers", "1", "--quiet", "-o", "json"]) == 0
    assert f"drl-greedy:file={out / 'policy.json'}" in capsys.readouterr().out


def test_the_command_line_shows_no_gain_before_the_first_validation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "drl-small", "--method", "rule", "--steps", "2", "--runs", "1", "--out", str(tmp_path)]) == 0
    told, first, *_, last = capsys.readouterr().err.splitlines()
    assert "compiles kernels" in told
    assert "not validated yet" in first
    assert "best validated" in last


def test_workers_change_no_number() -> None:
    """Processes share the runs, and the network moves to the same place."""
    episodes, moved = Source([small_world]).some(0, 2), []
    for workers in (1, 2):
        learner = Evolution(poor_network(), pairs=3, workers=workers)
        learner.step(episodes, stream(0, "step"))
        learner.close()
        moved.append(learner.network.weights)
    assert np.array_equal(moved[0], moved[1])
