"""Placement runs in CUDA have the bits of the CPU's: the same source on a CPU always, on a GPU where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from berth.cuda import CudaDevice
from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.placement.cuda.runs import CudaRuns
from berth.families.placement.policies.network import Network
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.families.placement.training.episodes import Source, run_network
from berth.families.placement.training.evolution import Evolution
from berth.random import stream
from berth.scenario import load_scenario
from tests.families.placement.training.small import small_world
from tests.reference.cuda_on_cpu import EmulatedDevice


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Any:
    return EmulatedDevice(processors=1) if request.param == "emulated" else CudaDevice()


def some_network(seed: int, looks: int = 0, hidden: int = 5) -> Network:
    rng = stream(seed, "network")
    fresh = Network.fresh(rng, hidden, looks)
    return fresh.replace(fresh.weights + 2.5 / hidden * rng.standard_normal(fresh.weights.size))


def random_run(
    seed: int, servers: int = 4, size: int = 40, kinds: int = 2, launch: float = 1.0, idle: float = 0.0
) -> tuple[PlacementProblem, Tasks]:
    """Tasks and servers in few sizes: many tasks end at the same moment, and many servers are as good as others."""
    rng = np.random.default_rng(seed)
    kind = rng.permutation(np.arange(servers) % kinds)
    capacity = np.stack([4.0 + 2.0 * (kind % 3), np.full(servers, 6.0)], axis=1)
    speed = 1.0 + 0.25 * kind
    problem = PlacementProblem.of_servers(
        capacity, speed, launch * capacity[:, 0] / 4.0, 0.02 * speed, [1.0, 0.5], idle
    )
    arrival = np.sort(rng.integers(0, 4, size)).astype(float)
    demand = np.stack([rng.integers(0, 5, size), rng.integers(0, 8, size) / 2.0], axis=1)
    work, value = rng.integers(1, 4, size) / 1.0, rng.integers(2, 9, size) / 1.0
    decay, slack = rng.choice([0.5, 1.0], size), rng.integers(0, 6, size) / 1.0
    return problem, Tasks(arrival, demand, work, value, decay, arrival + slack)


def assert_same_bits(device: Any, runs: Sequence[tuple[PlacementProblem, Tasks]], networks: Sequence[Network]) -> None:
    found = CudaRuns(runs, device).gains(networks)
    expected = [[run_network(problem, tasks, network).gain for problem, tasks in runs] for network in networks]
    assert found.tolist() == expected
    assert len(np.unique(expected)) > 1


@pytest.mark.parametrize(("looks", "hidden"), [(0, 5), (3, 5), (0, 33)])
def test_gains_have_the_bits_of_the_cpu(device: Any, looks: int, hidden: int) -> None:
    runs = [(world.problem, world.tasks) for world in map(small_world, range(3))]
    assert_same_bits(device, runs, [some_network(seed, looks, hidden) for seed in range(2)])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"launch": 0.0},
        {"launch": 8.0, "idle": 1.5},
        {"servers": 1, "kinds": 1},
        {"servers": 70, "kinds": 40, "size": 90},
    ],
)
def test_ties_launches_and_many_servers(device: Any, settings: dict[str, Any]) -> None:
    first = random_run(0, **settings)
    runs = [first, *((first[0], random_run(seed, **settings)[1]) for seed in (1, 2))]
    assert_same_bits(device, runs, [some_network(seed) for seed in range(6 if "size" not in settings else 2)])


def test_servers_that_do_not_fit_into_shared_memory(device: Any) -> None:
    device.shared = 100
    assert_same_bits(device, [random_run(3), (random_run(3)[0], random_run(4)[1])], [some_network(0, 2)])


def test_bounds_of_training_clip_the_cluster(device: Any) -> None:
    network = some_network(1)
    seen = np.stack([np.full(6, -0.1), np.full(6, 0.1)])
    clipped = Network(network.weights, network.hidden, network.looks, seen)
    assert_same_bits(device, [random_run(5), (random_run(5)[0], random_run(6)[1])], [network, clipped])


def test_a_shipped_scenario(device: Any) -> None:
    world = load_scenario("drl-default", {"horizon": 3}).build(0)
    assert_same_bits(device, [(world.problem, world.tasks)], [some_network(seed) for seed in range(2)])


@pytest.mark.gpu
@pytest.mark.parametrize("looks", [0, 3])
def test_thousands_of_runs_on_a_gpu(looks: int) -> None:
    runs = [(world.problem, world.tasks) for world in map(small_world, range(32))]
    assert_same_bits(CudaDevice(), runs, [some_network(seed, looks) for seed in range(128)])


def test_a_step_of_training_is_that_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    emulated = EmulatedDevice()
    for module in ("cuda.runs", "training.evolution"):
        monkeypatch.setattr(f"berth.families.placement.{module}.open_device", lambda name: emulated)
    episodes = Source([small_world]).some(0, 2)
    learners = [Evolution(some_network(0, hidden=3), pairs=2, device=device) for device in ("cpu", "cuda")]
    gains = [learner.step(episodes, stream(0, "step")) for learner in learners]
    assert gains[0] == gains[1]
    assert learners[0].state() == learners[1].state()


def test_what_a_gpu_cannot_serve() -> None:
    run, other = random_run(0), random_run(0, launch=2.0)
    with pytest.raises(UnsupportedProblem, match="runs side by side need the same servers"):
        CudaRuns([run, other], EmulatedDevice())
    with pytest.raises(InvalidInput, match="networks: expected networks of one shape"):
        CudaRuns([run], EmulatedDevice()).gains([some_network(0), some_network(0, 2)])
    old = EmulatedDevice()
    old.capability = (7, 5)
    with pytest.raises(UnsupportedProblem, match=r"compute capability 8\.0 or newer"):
        CudaRuns([run], old)
