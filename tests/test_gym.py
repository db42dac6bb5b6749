"""The Gymnasium environment: Gymnasium's own checks, rewards, masks, luck."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from berth.errors import InvalidInput
from berth.families.placement.policies.greedy import Greedy
from berth.families.placement.problem import WAIT, PlacementDecision, PlacementOutcome
from berth.families.placement.rule_runs import audit
from berth.families.placement.world import PlacementWorld
from berth.gym import PlacementEnv
from berth.scenario import load_scenario
from berth.simulation import simulate

FAILING = {"failures": {"permanent": {"share": 0.4}, "transient": {"up": 5, "down": 1}}}


class Spy(PlacementWorld):
    """A world that keeps what was played in it."""

    played: list[PlacementOutcome]
    server: Any
    start: Any

    def step(self, decision: PlacementDecision) -> PlacementOutcome:
        slot = self._here()
        assert self.problem.violations(slot, decision) == []
        new = self.problem.placed(slot, decision)
        self.server[new.task], self.start[new.task] = new.server, new.start
        self.played.append(super().step(decision))
        return self.played[-1]


def spied(env: PlacementEnv, monkeypatch: pytest.MonkeyPatch) -> list[Spy]:
    """Makes worlds of `env` tell what is played."""
    made: list[Spy] = []
    build = type(env.scenario).build

    def watched(self: Any, seed: int, arrivals_known: bool = True) -> Spy:
        world = build(self, seed, arrivals_known)
        spy = Spy(world.problem, world.tasks, world.horizon, world.period, world.failures)
        spy.played, spy.server, spy.start = [], np.full(len(world.tasks), -1), np.zeros(len(world.tasks))
        made.append(spy)
        return spy

    monkeypatch.setattr(type(env.scenario), "build", watched)
    return made


def run(env: Any, choose: Any, **how: Any) -> tuple[float, int, list[Any]]:
    """Total reward, steps and observations of an episode."""
    observation, info = env.reset(**how)
    total, steps, over, seen = 0.0, 0, False, [observation]
    while not over:
        observation, reward, over, cut, info = env.step(choose(observation, info["action_mask"]))
        assert env.observation_space.contains(observation)
        assert not cut
        total, steps = total + reward, steps + 1
        seen.append(observation)
    return total, steps, seen


def chance(seed: int, legal: bool = True) -> Any:
    rng = np.random.default_rng(seed)

    def choose(observation: Any, mask: Any) -> int:
        return int(rng.choice(np.flatnonzero(mask) if legal else len(mask)))

    return choose


def best(env: PlacementEnv) -> Any:
    """The kind with the largest gain, if that is above 0."""
    places = [env.features.index(f"{kind}: gain") for kind in env.kinds]

    def choose(observation: Any, mask: Any) -> int:
        gains = np.where(mask[1:] > 0, observation[places], -2.0)
        return int(gains.argmax()) + 1 if gains.max() > 0 else 0

    return choose


@pytest.mark.parametrize("name", ["drl-small", "drl-application", "drl-transient"])
@pytest.mark.filterwarnings("error")
def test_gymnasiums_own_checks(name: str) -> None:
    check_env(gymnasium.make("berth/Placement-v0", scenario=name, overrides={"horizon": 4}).unwrapped)


@pytest.mark.parametrize("legal", [True, False])
def test_rewards_add_up_to_the_gain(monkeypatch: pytest.MonkeyPatch, legal: bool) -> None:
    env = PlacementEnv("drl-small", {"idle": 0.3})
    worlds = spied(env, monkeypatch)
    for seed in range(3):
        total, steps, _ = run(env, chance(seed, legal), seed=seed)
        world = worlds[-1]
        checked = audit(world.problem, world.tasks, world.server, world.start)
        assert checked.broken == ()
        assert total == pytest.approx(checked.gain, rel=1e-9)
        assert total == pytest.approx(sum(outcome.reward for outcome in world.played), rel=1e-9)
        assert steps >= (world.server >= 0).sum()


def test_rewards_add_up_when_servers_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    env = PlacementEnv("drl-scarce", {"horizon": 15, **FAILING})
    worlds = spied(env, monkeypatch)
    for seed in range(3):
        total, _, _ = run(env, chance(seed), seed=seed)
        assert sum(len(outcome.lost) for outcome in worlds[-1].played) > 0
        assert total == pytest.approx(sum(outcome.reward for outcome in worlds[-1].played), rel=1e-9)


def test_the_best_kind_for_each_task_is_the_greedy_policy() -> None:
    """Where nothing has to be asked twice and no two kinds tie, both are the same run."""
    env = PlacementEnv("drl-default", {"horizon": 20, "execution_cost.clock_power": 3})
    for seed in range(3):
        world = load_scenario("drl-default", {"horizon": 20, "execution_cost.clock_power": 3}).build(seed)
        greedy = simulate(world, Greedy(world.problem, np.random.default_rng(0), waiting="queue")).total
        total, _, _ = run(env, best(env), options={"world": seed})
        assert total == pytest.approx(greedy, rel=2e-3)


def test_masks_say_what_has_room() -> None:
    env = PlacementEnv("drl-scarce-30", {"horizon": 4})
    _, info = env.reset(seed=0)
    over, seen = False, set()
    while not over:
        mask = info["action_mask"]
        assert mask.dtype == np.int8
        assert env.action_masks().tolist() == mask.astype(bool).tolist()
        assert mask[0] == 1
        assert mask[1:].any()  # whoever can only wait is not asked about
        seen.add(tuple(mask.tolist()))
        room = np.array([env.features.index(f"{kind}: room") for kind in env.kinds])
        action = int(env.action_space.sample(mask))
        observation, _, over, _, info = env.step(np.int64(action))
        assert observation[room].astype(np.int8).tolist() == info["action_mask"][1:].tolist()
    assert len(seen) > 2


def test_an_action_without_room_counts_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    env = PlacementEnv("drl-application", {"horizon": 5, "cluster.count": 20})
    worlds = spied(env, monkeypatch)
    _, info = env.reset(seed=0)
    over, tried = False, 0
    while not over:
        blocked = np.flatnonzero(info["action_mask"] == 0)
        tried += len(blocked) > 0
        _, reward, over, _, info = env.step(np.int64(blocked[0] if len(blocked) else 0))
        assert reward == 0
    assert tried
    assert (worlds[-1].server == WAIT).all()


def test_the_same_seed_is_the_same_episode() -> None:
    first, second = (run(PlacementEnv("drl-small"), chance(0), seed=7) for _ in range(2))
    assert first[:2] == second[:2]
    assert all(np.array_equal(a, b) for a, b in zip(first[2], second[2], strict=True))
    env = PlacementEnv("drl-small")
    one, other, again = run(env, chance(0), seed=7), run(env, chance(0)), run(env, chance(0), seed=7)
    assert one[0] == first[0] == again[0]
    assert other[0] != one[0]


def test_worlds_by_number() -> None:
    env = PlacementEnv("drl-small")
    env.reset(options={"world": 3})
    assert env.world.tasks.value.tolist() == load_scenario("drl-small").build(3).tasks.value.tolist()
    for wrong in (-1, "three", 2.5):
        with pytest.raises(InvalidInput, match=r"options\.world"):
            env.reset(options={"world": wrong})


def test_a_run_without_a_task_has_one_step() -> None:
    env = PlacementEnv("drl-small", {"arrivals.mean": 0})
    observation, info = env.reset(seed=0)
    assert not observation.any()
    assert info["action_mask"].tolist() == [1, 0, 0, 0]
    _, reward, over, _, _ = env.step(np.int64(0))
    assert (reward, over) == (0.0, True)
    with pytest.raises(InvalidInput, match="reset before the first step and after the last"):
        env.step(np.int64(0))


def test_what_cannot_be_played_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a scenario of the placement family"):
        PlacementEnv("small")
    env = PlacementEnv("drl-small")
    env.reset(seed=0)
    with pytest.raises(InvalidInput, match="action: got 9, expected an action from 0 to 3"):
        env.step(np.int64(9))


def test_one_kind_of_single_servers() -> None:
    given = {
        "family": "placement",
        "cluster": {
            "resources": ["cores"],
            "servers": [{"name": "a", "capacity": {"cores": 4}}, {"name": "b", "count": 2, "capacity": {"cores": 8}}],
        },
        "tasks": [{"demand": {"cores": 3}, "work": 1, "value": 9, "deadline": 9}],
    }
    env = PlacementEnv(given)
    assert env.kinds == ("a", "b")
    total, steps, _ = run(env, lambda observation, mask: 2, seed=0)
    assert steps == 1
    assert total == pytest.approx(9 - 0.02 * 3 - 0.04 * 8)


def test_without_gymnasium_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['gymnasium'] = None; import berth.gym"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "MissingExtra: berth.gym needs an optional dependency: pip install 'berth-scheduler[gym]'" in done.stderr
