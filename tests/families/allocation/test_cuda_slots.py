"""CUDA kernels of the slot against the CPU's: the same source on a CPU always, on a GPU where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from berth.cuda import CudaDevice, open_device
from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.allocation.cuda.batch import Batch
from berth.families.allocation.cuda.slots import Ascent, SlotRuns, Slots
from berth.families.allocation.policies.baselines import DRF, Fairness
from berth.families.allocation.policies.ogasched import OGASched
from berth.families.allocation.problem import AllocationProblem, AllocationSlot
from berth.families.allocation.utility import Utilities, Utility
from berth.families.allocation.world import AllocationWorld
from berth.model import Instance
from berth.scenario import load_scenario
from berth.simulation import Result, simulate
from tests.reference.cuda_on_cpu import EmulatedDevice

AMDAHL = Utility.from_function("amdahl", lambda y: y / (1 + 0.1 * y), upto=20, knots=65)
CLOSE = {np.float64: 1e-10, np.float32: 2e-4}


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Any:
    return EmulatedDevice() if request.param == "emulated" else CudaDevice()


def random_world(
    seed: int, jobs: int = 7, servers: int = 25, degree: int = 5, slots: int = 20, revealed: bool = False, **grid: float
) -> AllocationWorld:
    """Random requests and capacities, some zero; with `grid`, multiples of it and equal for all resources."""
    rng = np.random.default_rng(seed)
    step = grid.get("grid", 0.0)

    def numbers(*shape: int, zeros: float) -> NDArray[np.float64]:
        drawn = rng.uniform(0.2, 4.0, shape)
        drawn = np.maximum(np.round(drawn / step), 1.0) * step if step else drawn
        drawn = np.where(rng.random(shape) < zeros, 0.0, drawn)
        return np.repeat(drawn[:, :1], 3, axis=1) if step else drawn

    channels = [(int(j), r) for r in range(servers) for j in rng.permutation(jobs)[: rng.integers(0, degree + 1)]]
    graph = Instance.from_arrays(2.0 * numbers(servers, 3, zeros=0.2), numbers(jobs, 3, zeros=0.2), channels)
    kinds = ("linear", "log", "reciprocal", "poly", AMDAHL)
    choice = np.zeros((servers, 3), int) if step else rng.integers(0, 5, (servers, 3))
    alpha = np.ones((servers, 3)) if step else rng.uniform(1.0, 1.5, (servers, 3))
    overhead = np.full(3, 0.5) if step else rng.uniform(0.3, 0.5, (jobs, 3))
    problem = AllocationProblem(graph, Utilities(kinds, choice, alpha), overhead, arrivals_known=revealed)
    return AllocationWorld(problem, rng.integers(0, 2, (slots, jobs)))


def played(
    device: Any, worlds: Sequence[AllocationWorld], step: str, dtype: Any = np.float64, **settings: Any
) -> tuple[Slots, SlotRuns]:
    batch = Batch(device, [world.problem for world in worlds], dtype, in_turn=step == "in_turn")
    runs = SlotRuns(batch, step, **settings)
    return runs.play(np.stack([world.arrivals for world in worlds])), runs


def assert_same(slots: Slots, place: int, result: Result, close: float) -> None:
    scale = np.abs(result.measures["gain"]).max()
    assert slots.gain[place] == pytest.approx(result.measures["gain"], rel=close, abs=close * scale)
    assert slots.overhead[place] == pytest.approx(result.measures["overhead"], rel=close, abs=close * scale)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("step", "settings"), [(Ascent(), {}), (Ascent(0.25), {"step": 0.25})])
def test_ogasched_is_that_of_the_cpu(device: Any, dtype: Any, step: Ascent, settings: dict[str, Any]) -> None:
    worlds = [random_world(seed, servers=10 + 15 * seed) for seed in range(3)]
    slots, runs = played(device, worlds, "ascend", dtype, ascent=step)
    for place, world in enumerate(worlds):
        policy = OGASched(world.problem, **settings)
        assert_same(slots, place, simulate(world, policy), CLOSE[dtype])
        last = policy.decide(AllocationSlot(0, world.problem.instance.capacity, None))
        assert runs.batch.decision(runs.y, place) == pytest.approx(last, abs=CLOSE[dtype])
    assert slots.excess.max() <= (1e-14 if dtype == np.float64 else 1e-5)


def test_averaged_arrivals_and_runs_in_parts(device: Any) -> None:
    world = random_world(3, slots=70)
    runs = SlotRuns(Batch(device, [world.problem]), "ascend", Ascent(memory=50))
    parts = [runs.play(part[None]) for part in (world.arrivals[:40], world.arrivals[40:65], world.arrivals[65:])]
    whole = Slots(*(np.concatenate([getattr(part, name) for part in parts], axis=1) for name in vars(parts[0])))
    assert_same(whole, 0, simulate(world, OGASched(world.problem, gradient="ewma")), 1e-10)


@pytest.mark.parametrize("grid", [0.25, 1.0])
def test_ties_go_where_those_of_the_cpu_go(device: Any, grid: float) -> None:
    """With two channels a server nothing is divided but by 2: multiples of a power of two are not rounded."""
    world = random_world(4, grid=grid, degree=2)
    slots, _ = played(device, [world], "ascend", ascent=Ascent(0.5))
    result = simulate(world, OGASched(world.problem, step=0.5))
    assert_same(slots, 0, result, 1e-10)
    sums = np.zeros((world.problem.jobs, 3))
    np.add.at(sums, world.problem.channel_job, OGASched(world.problem).decide(next(iter(world))))
    assert (np.sort(sums, axis=1)[:, -1] == np.sort(sums, axis=1)[:, -2]).any()


@pytest.mark.parametrize("revealed", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("step", "policy"), [("fair", Fairness), ("in_turn", DRF)])
def test_fairness_and_drf_are_those_of_the_cpu(
    device: Any, dtype: Any, step: str, policy: type[Any], revealed: bool
) -> None:
    worlds = [random_world(seed, revealed=revealed) for seed in (5, 6)]
    slots, _ = played(device, worlds, step, dtype, everyone=not revealed)
    for place, world in enumerate(worlds):
        assert_same(slots, place, simulate(world, policy(world.problem)), CLOSE[dtype])


@pytest.mark.parametrize("shared", [200_000, 100])
def test_long_segments_and_tables_that_do_not_fit(device: Any, shared: int) -> None:
    if not isinstance(device, EmulatedDevice) and shared < 1000:
        device.shared = shared
    elif isinstance(device, EmulatedDevice):
        device = EmulatedDevice(shared=shared)
    world = random_world(7, jobs=30, servers=9, degree=30)
    slots, runs = played(device, [world], "ascend")
    assert runs.batch.rows == 0
    assert runs.batch.in_shared == (shared > 1000)
    assert_same(slots, 0, simulate(world, OGASched(world.problem)), 1e-10)


def test_a_run_gives_the_same_bits_again(device: Any) -> None:
    worlds = [random_world(8, servers=60), random_world(9)]
    first, again = (played(device, worlds, "ascend")[0] for _ in range(2))
    assert first.gain.tolist() == again.gain.tolist()
    assert first.overhead.tolist() == again.overhead.tolist()


def test_decisions_do_not_depend_on_how_work_is_divided(device: Any) -> None:
    """With a constant step; AdaGrad's has the rounding of a sum over blocks."""
    worlds = [random_world(8, servers=60), random_world(9)]
    whole = [played(device, [world], "ascend", ascent=Ascent(0.25))[0].overhead[0] for world in worlds]
    other = EmulatedDevice(processors=1) if isinstance(device, EmulatedDevice) else device
    beside = played(other, worlds, "ascend", ascent=Ascent(0.25))[0].overhead
    assert [part.tolist() for part in whole] == beside.tolist()


def test_a_shipped_scenario(device: Any) -> None:
    scenario = load_scenario("ogasched-default", {"horizon": 40})
    worlds = [scenario.build(seed, False) for seed in range(2)]
    slots, _ = played(device, worlds, "ascend")
    for place, world in enumerate(worlds):
        assert_same(slots, place, simulate(world, OGASched(world.problem)), 1e-10)


def test_what_a_gpu_cannot_serve() -> None:
    gang = load_scenario("ogasched-gang", {"horizon": 2}).build(0, False).problem
    with pytest.raises(UnsupportedProblem, match="gangs"):
        Batch(EmulatedDevice(), [gang])
    with pytest.raises(InvalidInput, match="3 jobs and 3 resources"):
        Batch(EmulatedDevice(), [random_world(0, jobs=3).problem, random_world(0, jobs=4).problem])
    with pytest.raises(InvalidInput, match="device: got 'tpu', expected 'cpu', 'cuda' or 'cuda:N'"):
        open_device("tpu")
