"""CUDA kernels of the concave programme against the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from berth.families.allocation.cuda.batch import Batch
from berth.families.allocation.cuda.programme import CudaProgramme
from berth.families.allocation.problem import AllocationSlot
from berth.families.allocation.programme import Programme
from tests.families.allocation.test_cuda_slots import device, random_world
from tests.reference.cuda_on_cpu import EmulatedDevice

__all__ = ["device"]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_iterations_are_those_of_the_cpu(device: Any, dtype: Any) -> None:
    close = 1e-10 if dtype == np.float64 else 1e-2
    worlds = [random_world(seed, servers=12 + 9 * seed) for seed in range(2)]
    batch = Batch(device, [world.problem for world in worlds], dtype, programme=True)
    programme = CudaProgramme(batch)
    twins = [Programme(world.problem) for world in worlds]
    rng = np.random.default_rng(1)
    for weights in (np.ones((2, 7)), rng.integers(0, 2, (2, 7)), rng.uniform(0.0, 1.0, (2, 7))):
        played = programme.improve(weights.astype(float), 6)
        bounds = programme.bound()
        for place, (world, twin) in enumerate(zip(worlds, twins, strict=True)):
            decision = twin.improve(weights[place].astype(float), 6)
            assert batch.decision(programme.y, place) == pytest.approx(decision, abs=close)
            gain, overhead = world.problem.reward(weights[place], decision)
            assert played.gain[place] == pytest.approx(gain, rel=close)
            assert played.overhead[place] == pytest.approx(overhead, rel=close)
            bound = twin.bound(weights[place].astype(float))
            assert bounds[place] == pytest.approx(bound, rel=1e-8 if dtype == np.float64 else 1e-3)


def test_values_and_bounds_meet_around_the_optimum(device: Any) -> None:
    worlds = [random_world(seed) for seed in (2, 3)]
    batch = Batch(device, [world.problem for world in worlds], programme=True)
    weights = np.random.default_rng(2).uniform(0.2, 1.0, (2, 7))
    solved = CudaProgramme(batch).solve(weights, 1e-4)
    assert (solved.gap <= 1e-4).all()
    for place, world in enumerate(worlds):
        optimum = Programme(world.problem).solve(weights[place], 1e-6)
        assert optimum.value <= solved.bound[place] * (1 + 1e-9)
        assert solved.value[place] <= optimum.bound * (1 + 1e-9)


def test_decisions_are_feasible_and_the_warm_start_is_used(device: Any) -> None:
    world = random_world(4, slots=10)
    batch = Batch(device, [world.problem], programme=True)
    programme = CudaProgramme(batch)
    first = programme.solve(world.arrivals[:1], 1e-3)
    again = programme.solve(world.arrivals[:1], 1e-3)
    assert again.iterations <= first.iterations
    for arrivals in world.arrivals:
        programme.improve(arrivals[None], 3)
        decision = batch.decision(programme.y)
        assert not world.problem.violations(AllocationSlot(0, world.problem.instance.capacity, None), decision)
        absent = arrivals[world.problem.channel_job] == 0
        assert not decision[absent].any()


def test_tables_and_segments_in_memory(device: Any) -> None:
    if isinstance(device, EmulatedDevice):
        device = EmulatedDevice(shared=100)
    else:
        device.shared = 100
    world = random_world(7, jobs=30, servers=9, degree=30)
    batch = Batch(device, [world.problem], programme=True)
    assert (batch.rows, batch.in_shared) == (0, False)
    programme, twin = CudaProgramme(batch), Programme(world.problem)
    programme.improve(np.ones((1, 30)), 8)
    assert batch.decision(programme.y) == pytest.approx(twin.improve(np.ones(30), 8), abs=1e-10)
    assert programme.bound()[0] == pytest.approx(twin.bound(np.ones(30)), rel=1e-8)
