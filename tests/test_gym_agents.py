"""Environments for queues, selection and allocation, and agents as policies."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from berth.cli import main
from berth.errors import InvalidInput, UnsupportedProblem
from berth.gym import (
    IDS,
    AllocationAgent,
    AllocationEnv,
    PlacementAgent,
    PlacementEnv,
    QueueAgent,
    QueueEnv,
    SelectionAgent,
    SelectionEnv,
    answering,
)
from berth.gym.queue import OF_JOB
from berth.lab.compare import compare
from berth.lab.replay import ReplaySetting, replay
from berth.lab.run.cells import source_hash
from berth.model import Resource
from berth.registry import make_policy
from berth.scenario import load_scenario
from berth.simulation import simulate
from berth.testing import check_policy
from berth.traces.trace import Trace

HERE = "tests.test_gym_agents"
EXAMPLE = Path(__file__).parents[1] / "examples" / "batch.swf"
SMALL: dict[str, dict[str, Any]] = {
    "berth/Queue-v0": {"source": "lublin-256", "jobs": 30},
    "berth/Selection-v0": {"scenario": "esdp-small", "overrides": {"horizon": 6}},
    "berth/Allocation-v0": {"scenario": "small", "overrides": {"horizon": 3, "cluster.servers": 3}},
}


class Shortest:
    """Starts the job with the shortest estimate of those that fit: the interface of Stable-Baselines3."""

    def predict(self, observation: Any, state: Any = None, deterministic: bool = False) -> tuple[Any, None]:
        assert deterministic
        jobs = observation[2:].reshape(-1, len(OF_JOB))
        estimate = np.where(jobs[:, OF_JOB.index("fits")] > 0, jobs[:, OF_JOB.index("estimate")], 2.0)
        return np.int64(1 + estimate.argmin()), None


class Tries:
    """Opens what gains more than it costs, and what was never tried: the interface of RLlib."""

    def compute_single_action(self, observation: Any, *, explore: bool = True) -> int:
        assert not explore
        gain, trials, cost = observation[:3]
        return int(trials == 0 or gain > cost)


def proportional(observation: Any) -> Any:
    """The share that is fair if all others request what they want."""
    left, others = observation[3], observation[4] / max(1 - observation[4], 1e-6)
    wanted = observation[2] / max(1 - observation[2], 1e-6)
    return np.array([min(1.0, left / max(wanted + others, 1e-6))], dtype=np.float32)


class ShortestFirst(QueueAgent):
    window: ClassVar[int] = 8

    def load(self) -> Any:
        return Shortest()


class Trying(SelectionAgent):
    def load(self) -> Any:
        return Tries()


class Proportional(AllocationAgent):
    def load(self) -> Any:
        return proportional


class FirstKind(PlacementAgent):
    scenario: ClassVar[str] = "drl-small"

    def load(self) -> Any:
        return lambda observation, mask: int(np.flatnonzero(mask)[-1])


def played(env: Any, choose: Any, **how: Any) -> tuple[float, int]:
    observation, info = env.reset(**how)
    total, steps, over = 0.0, 0, False
    while not over:
        observation, reward, over, cut, info = env.step(choose(observation, info["action_mask"]))
        assert env.observation_space.contains(observation)
        assert not cut
        total, steps = total + reward, steps + 1
    return total, steps


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.filterwarnings("error")
def test_gymnasiums_own_checks(name: str) -> None:
    env = gymnasium.make(name, **SMALL[name]).unwrapped
    check_env(env)
    assert len(env.features) == env.observation_space.shape[0]  # type: ignore[attr-defined, index]


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_is_the_same_episode(name: str) -> None:
    def run(env: Any, seed: int | None) -> tuple[float, int]:
        env.action_space.seed(3)
        return played(env, lambda seen, mask: env.action_space.sample(), seed=seed)

    env, other = (IDS[name](**SMALL[name]) for _ in range(2))
    first = run(env, 5)
    assert first == run(other, 5)
    assert run(env, None) != first
    assert run(env, 5) == first


@pytest.mark.parametrize(
    ("policy", "env"),
    [
        (Trying, SelectionEnv("esdp-small", {"horizon": 30})),
        (Trying, SelectionEnv("esdp-late-feedback", {"horizon": 20})),
        (Proportional, AllocationEnv("small", {"horizon": 8})),
        (FirstKind, PlacementEnv("drl-small")),
        (Proportional, AllocationEnv("small", {"horizon": 8, "arrivals_known": "hidden"})),
    ],
)
def test_an_episode_is_the_run_of_the_agents_policy(policy: Any, env: Any) -> None:
    world = env.scenario.build(2, env.arrivals_known)
    agent = answering(policy(world.problem, np.random.default_rng(0)).load())
    total, steps = played(env, agent, options={"world": 2})
    run = simulate(world, policy(world.problem, np.random.default_rng(0)))
    assert run.violations.sum() == 0
    assert total == pytest.approx(run.total, rel=1e-9)
    assert steps >= len(world)


@pytest.mark.parametrize("how", [{"source": "lublin-256", "load": 1.2}, {"source": EXAMPLE, "processors": 8}])
def test_rewards_of_a_queue_add_up_to_the_slowdown(how: dict[str, Any]) -> None:
    env = QueueEnv(jobs=60, window=8, **how)
    world = env.world_of(1)
    total, _ = played(env, answering(Shortest()), options={"world": 1})
    starts = np.full(len(world.tasks), np.nan)

    def watch(slot: Any, decision: Any, outcome: Any) -> None:
        starts[world.problem.placed(slot, decision).task] = slot.time

    run = simulate(world, ShortestFirst(world.problem, np.random.default_rng(0)), observers=[watch])
    assert run.violations.sum() == 0
    length = world.runs / world.problem.speed[0]
    slowdown = np.maximum((starts - world.tasks.arrival + length) / np.maximum(length, 10.0), 1.0)
    assert -total == pytest.approx(slowdown.mean(), rel=1e-9)


def test_a_replay_under_an_agent_is_that_of_its_rule() -> None:
    """With one pool and a window that holds all, the shortest job that fits first is sjf with backfilling."""
    rng = np.random.default_rng(0)
    jobs = {
        "submit_s": np.sort(rng.integers(0, 4000, 40)).astype(float).tolist(),
        "run_s": rng.integers(20, 400, 40).astype(float).tolist(),
        "pieces": [1] * 40,
        "cpu": rng.integers(1, 4, 40).astype(float).tolist(),
    }
    found = replay(Trace.of(jobs), [ShortestFirst, "sjf:backfill=any"], ReplaySetting(processors=6))
    agent, rule = found.rows
    assert agent["never_started"] == 0
    assert agent["mean_wait_seconds"] == pytest.approx(rule["mean_wait_seconds"])


@pytest.mark.parametrize("policy", [ShortestFirst, Trying, Proportional])
def test_agents_keep_every_promise_of_a_policy(policy: Any) -> None:
    assert all(result.passed for result in check_policy(policy))


def test_agents_serve_gangs_ports_and_devices_of_real_clusters() -> None:
    for scenario in ("drl-small", "trace-openb-placement"):
        world = load_scenario(scenario, {"horizon": 4}).build(0)
        assert simulate(world, make_policy(f"{HERE}:ShortestFirst", world.problem)).violations.sum() == 0
    jobs: dict[str, list[float]] = {
        "submit_s": [0.0, 0.0, 1.0, 2.0],
        "run_s": [5.0, 5.0, 4.0, 9.0],
        "pieces": [3, 2, 2, 1],
        "cpu": [1.0, 2.0, 1.0, 1.0],
        "gpu": [1.0, 0.5, 0.25, 2.0],
    }
    machines: dict[str, list[Any]] = {"machine": ["a", "b"], "count": [1, 2], "cpu": [4.0, 4.0], "gpu": [2.0, 2.0]}
    trace = Trace.of(jobs, machines, (Resource("cpu"), Resource("gpu")))
    found = replay(trace, [f"{HERE}:ShortestFirst"])
    assert found.rows[0]["never_started"] == 0


def test_agents_join_a_comparison() -> None:
    policies = [f"{HERE}:Trying", "random-selection"]
    comparison = compare("esdp-small", policies, 2, policies[1], oracles=[], workers=1, overrides={"horizon": 40})
    assert not comparison.failed
    assert [row.policy for row in comparison.rows] == policies


def test_an_answer_that_is_not_possible_counts_as_the_first_possible_one() -> None:
    env = QueueEnv(EXAMPLE, jobs=8, processors=8)
    total, _ = played(env, lambda seen, mask: len(mask) - 1, options={"world": 0})
    first, _ = played(env, lambda seen, mask: int(mask.argmax()), options={"world": 0})
    assert total == first


def test_how_agents_are_asked() -> None:
    class Masked:
        def predict(self, observation: Any, action_masks: Any = None) -> tuple[int, None]:
            return int(np.flatnonzero(action_masks)[-1]), None

    mask, seen = np.array([1, 0, 1, 0], dtype=np.int8), np.zeros(2, dtype=np.float32)
    assert answering(Masked())(seen, mask) == 2
    assert answering(lambda observation, mask: int(mask.sum()))(seen, mask) == 2
    assert answering(max)(seen + 3, mask) == 3
    with pytest.raises(InvalidInput, match="an agent with predict"):
        answering("ppo.zip")


def test_a_new_file_of_an_agent_runs_its_cells_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from berth.lab.run import cells

    model = tmp_path / "model.zip"
    model.write_text("one")
    monkeypatch.setattr(Trying, "files", (str(model),))
    cells._source.cache_clear()
    before = source_hash(f"{HERE}:Trying")
    model.write_text("two")
    cells._source.cache_clear()
    assert source_hash(f"{HERE}:Trying") != before


def test_what_cannot_be_asked_about_is_refused() -> None:
    with pytest.raises(UnsupportedProblem, match="cannot keep gangs whole"):
        AllocationEnv("ogasched-gang", {"horizon": 2})
    with pytest.raises(UnsupportedProblem, match="cannot keep gangs whole"):
        SelectionEnv("gang-30x40", {"horizon": 2})
    world = load_scenario("example-placement").build(0)
    with pytest.raises(UnsupportedProblem, match="an agent trained on drl-small knows other kinds of servers"):
        FirstKind(world.problem, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="a scenario of the selection family"):
        SelectionEnv("small")
    for wrong in ({"jobs": 0}, {"window": 0}):
        with pytest.raises(InvalidInput, match="a whole number ≥ 1"):
            QueueEnv("lublin-256", **wrong)
    env = SelectionEnv("esdp-small", {"horizon": 2})
    with pytest.raises(InvalidInput, match="reset before"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(InvalidInput, match="action"):
        env.step(7)
    with pytest.raises(InvalidInput, match=r"options\.world"):
        env.reset(options={"world": -1})


def test_the_example_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (EXAMPLE.parents[1] / "docs" / "gymnasium.md").read_text(encoding="utf-8")
    (code,) = (part for part in page.split("```python\n")[1:] if part.startswith("# mine.py"))
    (tmp_path / "mine.py").write_text(code.partition("```")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    runpy.run_path("mine.py", run_name="__main__")
    assert json.loads(Path("agent.json").read_text())["weight"] in (0.0, 1.0, 4.0)
    assert main(["replay", str(EXAMPLE), "-p", "mine:Mine", "-p", "fcfs", "-p", "easy", "-q", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in rows] == ["mine:Mine", "fcfs", "easy"]
    assert rows[0]["never_started"] == 0
    words = ["compare", "drl-small", "-p", "mine:Mine", "-p", "fcfs", "--baseline", "fcfs", "--seeds", "1", "-q"]
    assert main([*words, "--workers", "1", "--oracle", "none", "--set", "horizon=4"]) == 0
    assert "mine:Mine" in capsys.readouterr().out
