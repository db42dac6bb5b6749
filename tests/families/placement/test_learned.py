"""Policies with weights: the same decisions as the engine's, files that cannot hurt, and what the paper printed."""

from __future__ import annotations

import dataclasses
import gzip
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.placement.kernels.greedy import Batch
from berth.families.placement.kernels.network import CLUSTER, infer
from berth.families.placement.policies.learned import Learned, network_named
from berth.families.placement.policies.network import FORMAT, Network
from berth.families.placement.policies.printed import SHIPPED, Actor, DRLDirect, DRLGreedyPrinted, actor_named, state_of
from berth.families.placement.policies.rule import Rule
from berth.families.placement.problem import PlacementDecision, PlacementOutcome, PlacementSlot
from berth.families.placement.training.episodes import Scope, Source, run_network, seen_by
from berth.families.placement.training.evolution import rule_gain
from berth.families.placement.training.train import TrainingPlan
from berth.families.placement.world import Failure, PlacementWorld
from berth.random import stream
from berth.scenario import load_scenario
from berth.simulation import simulate
from tests.families.placement.training.small import small_world


class Recorder:
    """Where and when each task was placed."""

    def __init__(self, world: PlacementWorld) -> None:
        self.server = np.full(len(world.tasks), -1)
        self.start = np.zeros(len(world.tasks))

    def __call__(self, slot: PlacementSlot, decision: PlacementDecision, outcome: PlacementOutcome) -> None:
        placed = decision.server >= 0
        self.server[slot.ids[placed]] = decision.server[placed]
        self.start[slot.ids[placed]] = slot.time if decision.start is None else decision.start[placed]


def saved(tmp_path: Path, looks: int = 0, seed: int = 0) -> str:
    rng = stream(seed, "network")
    fresh = Network.fresh(rng, 5, looks)
    file = tmp_path / f"{looks}-{seed}.json"
    fresh.replace(fresh.weights + 0.5 * rng.standard_normal(fresh.weights.size)).save(file)
    return str(file)


@pytest.mark.parametrize("waiting", ["queue", "commit-immediate", "commit-any"])
@pytest.mark.parametrize("only_order", [False, True])
@pytest.mark.parametrize("looks", [0, 3])
def test_the_policy_does_what_the_engine_does(tmp_path: Path, waiting: str, only_order: bool, looks: int) -> None:
    for seed in range(4):
        world, file = small_world(seed), saved(tmp_path, looks, seed)
        settings: dict[str, Any] = {"waiting": waiting, "only_order": only_order, "guard": 0}
        policy = Learned(world.problem, stream(0, "policy"), file=file, **settings)
        seen = Recorder(world)
        total = simulate(world, policy, observers=[seen], infeasible="raise").total
        found = run_network(world.problem, world.tasks, Network.load(Path(file)), Scope(waiting, only_order))
        assert np.array_equal(found.server, seen.server)
        assert np.array_equal(found.start[found.server >= 0], seen.start[found.server >= 0])
        assert found.gain == pytest.approx(total, abs=1e-9)


def test_the_network_that_comes_with_berth_beats_greedy_where_servers_are_scarce() -> None:
    network = network_named("default")
    episodes = Source([load_scenario("drl-scarce", {"horizon": 20}).build]).some(0, 10)
    gains = [run_network(e.problem, e.tasks, network).gain / e.plain for e in episodes]
    assert np.mean(gains) > 1.02
    assert network.made["plan"]["scenarios"]


def test_beyond_what_it_has_seen_a_network_takes_the_nearest_that_it_knows() -> None:
    """Five times as many tasks as the servers can take: without that it would ask a price that nobody pays."""
    network, episodes = network_named("default"), Source([small_world]).some(0, 10)
    assert network.seen is not None
    boundless = Network(network.weights, network.hidden, network.looks)
    gains, lost = (
        np.mean([run_network(e.problem, e.tasks, n).gain / e.plain for e in episodes]) for n in (network, boundless)
    )
    assert gains > 0.8
    assert lost < 0.5
    beyond = np.concatenate([seen_by(e.problem, e.tasks, boundless) for e in episodes])
    assert (beyond.max(axis=0) > network.seen[1]).any()
    within = np.concatenate([seen_by(e.problem, e.tasks, network) for e in episodes])
    assert (within >= network.seen[0]).all()
    assert (within <= network.seen[1]).all()


def test_what_a_network_has_seen_is_kept_and_checked(tmp_path: Path) -> None:
    network = Network.fresh(stream(0, "net"), 3)
    bounded = Network(network.weights, 3, 0, np.array([[-1.0] * CLUSTER, [1.0] * CLUSTER]))
    again = Network.parse(bounded.text())
    assert again.seen is not None
    assert np.array_equal(again.seen, np.array([[-1.0] * CLUSTER, [1.0] * CLUSTER]))
    body = json.loads(bounded.text())
    for wrong in ([[1.0] * CLUSTER, [-1.0] * CLUSTER], [[0.0]], "everything"):
        with pytest.raises(InvalidInput, match="seen"):
            Network.parse(json.dumps({**body, "seen": wrong}), "net.json")


def test_the_order_of_tasks_and_servers_does_not_matter() -> None:
    """Permuted tasks get permuted ranks."""
    network, rng, size = Network.fresh(stream(0, "net"), 5, 3), stream(1, "net"), 7
    features, mixed = rng.standard_normal((size, 7)), rng.permutation(size)
    ranks = []
    for rows in (features, features[mixed]):
        scratch = network.scratch(size)
        scratch.features[:] = rows
        ranks.append(np.zeros(size))
        infer(network.net(), size, 1.0, scratch, ranks[-1])
    assert ranks[0][mixed] == pytest.approx(ranks[1], abs=1e-12)


def test_search_never_gains_less_in_its_slot_and_sometimes_more() -> None:
    more = 0
    for seed in range(10):
        world = small_world(seed)
        policy, searching = (Learned(world.problem, stream(0, "policy"), search=search) for search in (0, 32))
        slot = next(iter(world))
        for one in (policy, searching):
            assert not world.problem.violations(slot, one.decide(slot))
        batch = Batch(*(getattr(slot.tasks, name) for name in Batch._fields))
        plain, best = (
            searching._gain(slot, batch, searching._servers, np.argsort(-one._ranks, kind="stable"))
            for one in (policy, searching)
        )
        assert best >= plain
        more += best > plain
    assert more > 0


def test_failures_bring_tasks_back_and_the_network_ranks_them_again() -> None:
    world = small_world(1)
    failing = PlacementWorld(
        world.problem, world.tasks, world.horizon, failures=[Failure(1.5, 0), Failure(2.2, 1, 3.1)]
    )
    policy = Learned(world.problem, stream(0, "policy"))
    result = simulate(failing, policy, infeasible="raise")
    assert result.total > 0
    assert result.violations.sum() == 0


def test_a_policy_picked_up_from_a_file_of_its_own_goes_on_the_same(tmp_path: Path) -> None:
    world = small_world(2)
    policy = Learned(world.problem, stream(0, "policy"), file=saved(tmp_path))
    for count, slot in enumerate(world):
        again = pickle.loads(pickle.dumps(policy))
        decision = policy.decide(slot)
        assert np.array_equal(decision.server, again.decide(slot).server)
        world.step(decision)
        if count > 5:
            break


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("not json", "a network in JSON"),
        ("[1, 2]", f"format '{FORMAT}'"),
        (json.dumps({"format": "other"}), f"format '{FORMAT}'"),
        (json.dumps({"format": FORMAT, "hidden": 10**9, "looks": 0, "weights": []}), "hidden: got 1000000000"),
        (json.dumps({"format": FORMAT, "hidden": 3, "looks": -1, "weights": []}), "looks: got -1"),
        (json.dumps({"format": FORMAT, "hidden": 3, "looks": 0, "weights": [1.0]}), "expected .* finite weights"),
        (json.dumps({"format": FORMAT, "hidden": 3, "looks": 0, "weights": "os.system"}), "a list of numbers"),
        ("[" * 100_000, "a network in JSON"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, body: str, complaint: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(body)
    with pytest.raises(InvalidInput, match=complaint) as error:
        Network.load(file)
    assert "bad.json" in str(error.value)


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    file = Path(saved(tmp_path))
    body = json.loads(file.read_text())
    body["weights"][3] = float("nan")
    file.write_text(json.dumps(body))
    with pytest.raises(InvalidInput, match="finite weights"):
        Network.load(file)


def test_a_pickle_is_not_even_opened(tmp_path: Path) -> None:
    file, touched = tmp_path / "evil.json", tmp_path / "touched"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (touched,)

    file.write_bytes(pickle.dumps(Evil()))
    for load in (Network.load, Actor.load):
        with pytest.raises(InvalidInput, match=r"evil\.json"):
            load(file)
    assert not touched.exists()


def test_everything_but_training_by_gradients_works_without_torch(tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["torch"] = None
import numpy as np
from berth.errors import MissingExtra
from berth.families.placement.policies.learned import Learned
from berth.scenario import load_scenario
from berth.simulation import simulate
from tests.families.placement.training.small import small_world
from berth.families.placement.training.train import TrainingPlan, train
from pathlib import Path
world = small_world(0)
print(simulate(world, Learned(world.problem, np.random.default_rng(0))).total > 0)
out = Path({str(tmp_path)!r})
train(TrainingPlan(("small",), steps=1, runs=1, pairs=1, validation=1), [small_world], out / "es")
for method in ("ddpg", "ddpg-direct"):
    try:
        train(TrainingPlan(("small",), method=method, steps=1, runs=1, validation=1), [small_world], out / method)
    except MissingExtra as error:
        print(error)
"""
    root = Path(__file__).parents[3]
    environment = {"PYTHONPATH": f"{root / 'src'}:{root}", "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "True"
    assert len(lines) == 3
    assert all("pip install 'berth-scheduler[train]'" in line for line in lines[1:])


def some_actor(world: PlacementWorld, most: int) -> Actor:
    return Actor.fresh(world.problem, stream(0, "actor"), most)


@pytest.mark.parametrize("kind", [DRLGreedyPrinted, DRLDirect])
def test_actors_play_from_their_file(tmp_path: Path, kind: Any) -> None:
    world, file = small_world(0), tmp_path / "actor.json"
    file.write_text(some_actor(world, 30).text())
    policy = kind(world.problem, stream(0, "policy"), file=str(file))
    assert simulate(world, policy, infeasible="raise").violations.sum() == 0


def test_an_actor_fits_one_cluster(tmp_path: Path) -> None:
    world, file = small_world(0), tmp_path / "actor.json"
    file.write_text(some_actor(world, 30).text())
    other = world.problem.of_servers(np.ones((9, 2)), np.ones(9), np.ones(9), np.ones(9))
    with pytest.raises(UnsupportedProblem, match="only the cluster it was trained on"):
        DRLGreedyPrinted(other, stream(0, "policy"), file=str(file))


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("method", ["ddpg", "ddpg-direct"])
def test_actors_that_come_with_berth_say_how_they_were_made(name: str, method: str) -> None:
    actor = actor_named(name, method)
    plan = actor.made["plan"]
    assert (plan["scenarios"], plan["method"]) == ([name], method)
    assert actor.made["command"] == f"berth train {name} --method {method}"
    defaults = dataclasses.asdict(TrainingPlan((name,), method=method, digest=plan["digest"]))
    del defaults["objective"]  # they were trained before there was a choice
    assert plan == {**defaults, "scenarios": [name], "device": "cpu"}  # there was a choice of devices
    assert 0 < actor.made["episodes"] <= plan["steps"] * plan["runs"]
    kind = DRLGreedyPrinted if method == "ddpg" else DRLDirect
    world = load_scenario(name, {"horizon": 5}).build(0)
    policy = kind(world.problem, stream(0, "policy"), file=name)
    assert simulate(world, policy, infeasible="raise").violations.sum() == 0
    other = load_scenario(name, {"cluster.count": 20}).build(0)
    with pytest.raises(UnsupportedProblem, match="only the cluster it was trained on"):
        kind(other.problem, stream(0, "policy"), file=name)


def test_a_compressed_actor_is_read_and_a_broken_one_refused(tmp_path: Path) -> None:
    world, file = small_world(0), tmp_path / "actor.json.gz"
    actor = some_actor(world, 30)
    whole = gzip.compress(actor.text().encode())
    file.write_bytes(whole)
    again = Actor.load(file)
    assert again.text() == actor.text()
    for bad in (whole[:-20], whole[:200] + b"\0" * 50 + whole[250:], b"no gzip", gzip.compress(b"{")):
        file.write_bytes(bad)
        with pytest.raises(InvalidInput, match=r"actor\.json\.gz.*an actor in JSON"):
            Actor.load(file)


def test_dead_outputs_of_the_printed_actor_tie() -> None:
    """Where its last layer is dead, the order is that of arrival: what it was before any learning."""
    world = small_world(0)
    actor = some_actor(world, 30)
    dead = Actor((*actor.layers[:-1], (np.zeros_like(actor.layers[-1][0]), -np.ones(30))), 30)
    slot = next(iter(world))
    assert (dead(state_of(world.problem, slot, 30)) == 0.0).all()


def test_the_rule_ranks_by_value_for_demand_and_length() -> None:
    world = small_world(0)
    tasks, weight = world.tasks, world.problem.weight
    expected = tasks.value / ((tasks.demand @ weight) * tasks.work**2)
    assert np.array_equal(np.argsort(-Rule.ranks(tasks, weight, 2.0)), np.argsort(-expected))
    episodes = Source([small_world]).some(0, 3)
    by_policy = [
        simulate(small_world(seed), Rule(episodes[seed].problem, length=0.5, beta=0.3, price=0.05)).total / e.plain
        for seed, e in enumerate(episodes)
    ]
    assert rule_gain(np.array([0.5, 0.3, 0.05]), episodes) == pytest.approx(np.mean(by_policy), abs=1e-9)
