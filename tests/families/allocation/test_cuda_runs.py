"""Whole runs on a GPU: the same numbers as on a CPU, and clear refusals."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from berth.errors import InvalidInput, MissingExtra, UnsupportedProblem
from berth.families.allocation.cuda.runs import runs_on_device
from berth.families.allocation.policies.aware import OGASchedAware
from berth.families.allocation.policies.baselines import DRF, BinPacking, Fairness
from berth.families.allocation.policies.ogasched import OGASched
from berth.families.allocation.policies.rates import OGASchedRates
from berth.families.allocation.world import AllocationWorld
from berth.simulation import simulate
from tests.families.allocation.test_cuda_slots import device, random_world
from tests.reference.cuda_on_cpu import EmulatedDevice

__all__ = ["device"]

CASES = [
    (OGASched, {}),
    (OGASched, {"step": 0.3, "gradient": "ewma"}),
    (OGASchedRates, {}),
    (Fairness, {}),
    (DRF, {}),
]


@pytest.mark.parametrize(("policy", "settings"), CASES)
def test_runs_have_the_numbers_of_the_cpu(device: Any, policy: Any, settings: dict[str, Any]) -> None:
    worlds = [random_world(seed, slots=25) for seed in (1, 2)]
    results = runs_on_device(worlds, [policy(world.problem, **settings) for world in worlds], device)
    for world, result in zip(worlds, results, strict=True):
        expected = simulate(world, policy(world.problem, **settings))
        assert result.reward == pytest.approx(expected.reward, rel=1e-9, abs=1e-9)
        assert set(result.measures) == set(expected.measures)
        assert not result.violations.any()
        assert len(result.decide_seconds) == 25


def test_every_slot_of_the_aware_policy_has_a_certificate(device: Any) -> None:
    worlds = [random_world(seed, slots=8, revealed=True) for seed in (3, 4)]
    results = runs_on_device(worlds, [OGASchedAware(world.problem) for world in worlds], device)
    for world, result in zip(worlds, results, strict=True):
        policy = OGASchedAware(world.problem)
        expected = simulate(world, policy)
        assert result.reward == pytest.approx(expected.reward, rel=1e-8)
        bound = result.measures["bound"]
        assert (result.reward <= bound * (1 + 1e-12)).all()
        assert bound[-1] == pytest.approx(policy.certify(), rel=1e-7)


def test_what_a_gpu_does_not_run() -> None:
    world, emulated = random_world(5), EmulatedDevice()
    with pytest.raises(UnsupportedProblem, match=r"BinPacking has no kernels for a GPU .* use device='cpu'"):
        runs_on_device([world], [BinPacking(world.problem)], emulated)
    with pytest.raises(UnsupportedProblem, match="step=adagrad or a number"):
        runs_on_device([world], [OGASched(world.problem, geometry="mirror")], emulated)
    with pytest.raises(InvalidInput, match="precision: got 'half', expected float64 or float32"):
        runs_on_device([world], [OGASched(world.problem)], emulated, "half")
    up = np.ones((len(world), 25), dtype=bool)
    up[3, 0] = False
    with pytest.raises(UnsupportedProblem, match="servers that come and go"):
        runs_on_device([AllocationWorld(world.problem, world.arrivals, up)], [Fairness(world.problem)], emulated)
    with pytest.raises(InvalidInput, match="no observers"):
        simulate(world, Fairness(world.problem), device="cuda", observers=[lambda *_: None])


def test_without_cupy_or_a_gpu_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    world = random_world(6)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        MissingExtra, match=r"device='cuda' needs an optional dependency: pip install 'berth-scheduler\[cuda\]'"
    ):
        simulate(world, Fairness(world.problem), device="cuda")
    fault = type("CUDARuntimeError", (RuntimeError,), {})

    def count() -> int:
        raise fault("no CUDA-capable device is detected")

    runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=fault)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    with pytest.raises(InvalidInput, match=r"device: got no GPU that CUDA can use .*, expected a GPU"):
        simulate(world, Fairness(world.problem), device="cuda")
    with pytest.raises(InvalidInput, match="device: got 'tpu'"):
        simulate(world, Fairness(world.problem), device="tpu")
