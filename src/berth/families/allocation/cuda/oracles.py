"""Oracles of the allocation family on a GPU: the best stationary decision and the optimum of each slot.

Axes: T slots, J jobs.
"""

from __future__ import annotations

import numpy as np

from berth.cuda import Device, open_device
from berth.errors import UnsupportedProblem
from berth.families.allocation.cuda.batch import Batch
from berth.families.allocation.cuda.programme import CudaProgramme
from berth.families.allocation.cuda.slots import SlotRuns
from berth.families.allocation.world import AllocationWorld
from berth.model import Floats
from berth.regret import SlotOptima

__all__ = ["best_stationary_reward", "slot_optima"]


def _device(world: AllocationWorld, device: str | Device) -> Device:
    if world.up is not None and not world.up.all():
        raise UnsupportedProblem("servers that come and go have no kernels for a GPU; use device='cpu'")
    return open_device(device) if isinstance(device, str) else device


def best_stationary_reward(
    world: AllocationWorld, device: str | Device = "cuda", gap: float = 1e-5
) -> tuple[Floats, float]:
    """Reward in each slot, (T,), of the best stationary decision to `gap`, and a certified bound on the total.

    See `berth.families.allocation.oracle.best_stationary`; the decision stays on the device.
    """
    opened = _device(world, device)
    programme = CudaProgramme(Batch(opened, [world.problem], programme=True))
    solved = programme.solve(world.arrivals.mean(axis=0), gap)
    runs = SlotRuns(Batch(opened, [world.problem]), "keep")
    runs.hold(programme.y)
    slots = runs.play(world.arrivals[None])
    return slots.gain[0] - slots.overhead[0], float(solved.bound[0]) * len(world)


def slot_optima(world: AllocationWorld, device: str | Device = "cuda", gap: float = 1e-5) -> SlotOptima:
    """Optimum of every slot, to `gap` (relative; `bound` certifies it). Equal slots are solved once."""
    programme = CudaProgramme(Batch(_device(world, device), [world.problem], programme=True))
    known: dict[bytes, tuple[float, float]] = {}
    reward, bound = np.empty(len(world)), np.empty(len(world))
    for t, arrivals in enumerate(world.arrivals):
        key = np.packbits(arrivals > 0).tobytes()
        if key not in known:
            solved = programme.solve(arrivals, gap)
            known[key] = float(solved.value[0]), float(solved.bound[0])
        reward[t], bound[t] = known[key]
    return SlotOptima(reward, bound)
