"""Training on workloads: gangs, estimates, and objectives beside the gain."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from berth.errors import InvalidInput, UnknownName
from berth.families.placement.policies.gang_runs import OBJECTIVES, run_gangs
from berth.families.placement.policies.learned import Learned
from berth.families.placement.policies.network import Network
from berth.families.placement.training.episodes import Scope, Source, gang_result
from berth.families.placement.training.train import TrainingPlan, train_on
from berth.random import stream
from berth.scenario import load_scenario
from berth.simulation import simulate

SHORT = {"horizon": 8}
PLAN = {"steps": 2, "runs": 1, "pairs": 2, "validation": 2, "every": 1}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", ["philly", "sdsc-sp2"])
def test_a_network_is_trained_on_a_workload_and_says_for_what(tmp_path: Path, name: str, objective: str) -> None:
    scenario = f"trace-{name}-contended"
    trained = train_on(TrainingPlan((scenario,), objective=objective, **PLAN), SHORT, tmp_path)  # type: ignore[arg-type]
    network = Network.load(tmp_path / "policy.json")
    assert network.gangs
    assert network.seen is not None
    assert network.made["plan"]["objective"] == objective
    assert network.made["plan"]["scenarios"] == [scenario]
    assert trained.gain >= 1.0 - 1e-9  # it begins as the safe side, and the best in validation is kept
    world = load_scenario(scenario, SHORT).build(0)
    policy = Learned(world.problem, stream(0, "policy"), file=str(tmp_path / "policy.json"))
    assert policy.forced == (objective != "gain")
    assert simulate(world, policy, infeasible="raise").violations.sum() == 0


def test_training_resumes_where_it_was(tmp_path: Path) -> None:
    plan = TrainingPlan(("trace-philly-contended",), **PLAN)  # type: ignore[arg-type]
    whole = train_on(plan, SHORT, tmp_path / "whole")
    stopped = tmp_path / "stopped"

    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    with pytest.raises(Stop):
        train_on(plan, SHORT, stopped, stop)
    again = train_on(plan, SHORT, stopped)
    assert again.gain == whole.gain
    read = [json.loads((folder / "policy.json").read_text()) for folder in (tmp_path / "whole", stopped)]
    assert read[0]["weights"] == read[1]["weights"]


def test_a_fresh_network_is_the_safe_side() -> None:
    source = Source([load_scenario("trace-itp-contended", {"horizon": 20}).build], gangs=True)
    network = Network.fresh(stream(0, "net"), gangs=True)
    found = [gang_result(network, episode, Scope()) for episode in source.some(0, 3)]
    assert found == pytest.approx(np.ones(3), abs=0.02)


def test_costs_of_a_run_are_means_over_its_tasks() -> None:
    world = load_scenario("trace-philly-contended", {"horizon": 8}).build(0)
    run = run_gangs(world.problem, world.tasks, -world.tasks.work, forced=True, only_order=True)
    ran = np.isfinite(run.start)
    wait = (run.start - world.tasks.arrival)[ran]
    assert run.cost(world.tasks, "wait") == pytest.approx(wait.mean())
    time = (run.end - run.start)[ran]
    assert run.cost(world.tasks, "completion") == pytest.approx((wait + time).mean())
    slow = np.maximum((wait + time) / np.maximum(time, 0.5), 1.0)
    assert run.cost(world.tasks, "slowdown", 0.5) == pytest.approx(slow.mean())
    with pytest.raises(UnknownName, match="objective"):
        run.cost(world.tasks, "makespan")


@pytest.mark.parametrize("settings", [{"method": "ddpg"}, {"method": "es", "waiting": "commit-any"}])
def test_what_cannot_be_trained_on_gangs_is_refused(tmp_path: Path, settings: dict[str, str]) -> None:
    plan = TrainingPlan(("trace-philly-contended",), **{**PLAN, **settings})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="es or rule, with a queue"):
        train_on(plan, SHORT, tmp_path)


def test_the_three_numbers_of_the_rule_are_found_for_gangs(tmp_path: Path) -> None:
    plan = TrainingPlan(("trace-philly-contended",), method="rule", **PLAN)  # type: ignore[arg-type]
    assert train_on(plan, SHORT, tmp_path).policy.startswith("placement-rule:length=")


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(UnknownName, match="objective"):
        TrainingPlan(("trace-philly-contended",), objective="makespan")
