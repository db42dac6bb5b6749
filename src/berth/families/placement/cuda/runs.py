"""Many placement runs side by side on a GPU, each under one network.

Axes: C networks, E episodes, T tasks of all episodes, R servers, Q kinds, K resources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from berth.cuda import Device, open_device, source
from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.placement.kernels.greedy import ROOM
from berth.families.placement.kernels.network import CLUSTER
from berth.families.placement.policies.network import Network
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.model import Floats

__all__ = ["CudaRuns"]

LANES = 32
BLOCKS = 16  # warps of a processor
UNSEEN = np.array([[-np.inf] * CLUSTER, [np.inf] * CLUSTER])
SHARED = 24 * 1024  # bytes of a warp's servers up to which they are kept in shared memory


class CudaRuns:
    """Episodes on the device, all with the same servers: their tasks, and what does not depend on a network."""

    def __init__(self, episodes: Sequence[tuple[PlacementProblem, Tasks]], device: str | Device = "cuda") -> None:
        self.device = open_device(device) if isinstance(device, str) else device
        if self.device.capability < (8, 0):
            raise UnsupportedProblem("placement runs need a GPU of compute capability 8.0 or newer")
        if not episodes:
            raise InvalidInput("at least one run", key="episodes")
        problem = episodes[0][0]
        for other, _ in episodes:
            names = ("speed", "launch", "rate", "weight")
            same = all(np.array_equal(getattr(other, name), getattr(problem, name)) for name in names)
            if not same or other.idle != problem.idle:
                raise UnsupportedProblem("runs side by side need the same servers")
            if not np.array_equal(other.instance.capacity, problem.instance.capacity):
                raise UnsupportedProblem("runs side by side need the same servers")
        self.episodes, self.idle = len(episodes), problem.idle
        self.servers, self.resources = problem.instance.capacity.shape
        self.kinds = int(problem.kind.max()) + 1
        counts = np.array([len(tasks) for _, tasks in episodes])
        self.stride = max(-(-int(counts.max()) // LANES), 1) * LANES
        self.tasks = int(counts.sum())
        self._arrays = [self.device.array(part) for part in (*_tasks(episodes, counts), *_servers(problem))]

    def gains(self, networks: Sequence[Network]) -> Floats:
        """Gain of each network in each episode, (C, E)."""
        first, count = networks[0], len(networks)
        if any((network.hidden, network.looks) != (first.hidden, first.looks) for network in networks):
            raise InvalidInput("networks of one shape", key="networks")
        macros = {"RESOURCES": self.resources, "HIDDEN": first.hidden, "LOOKS": first.looks}
        code = source(__file__, "run.cuh", "learned.cu")
        play = self.device.kernels(code, macros, ["play"], fused=False)["play"]
        runs = count * self.episodes
        blocks = min(runs, self.device.processors * BLOCKS)
        # numbers of a warp: by task, then by server, kind, hidden unit and 32 tasks, then whole numbers by server
        tasks = (first.hidden + first.looks + 6) * self.stride
        fast = (self.resources + 3) * self.servers + self.kinds + first.hidden + self.stride // LANES
        fast += -(-self.servers // 2)
        in_shared = 8 * fast <= min(SHARED, self.device.shared)
        room = tasks if in_shared else tasks + fast
        weights = self.device.array(np.stack([network.weights for network in networks]))
        bounds = self.device.array(np.stack([UNSEEN if net.seen is None else net.seen for net in networks]))
        sums = self.device.zeros((count, self.episodes, 3), np.float64)
        space = self.device.zeros((blocks, room), np.float64)
        numbers = (self.tasks, self.servers, self.kinds, self.stride, self.episodes, runs, room, int(in_shared))
        arguments = (*self._arrays, weights, bounds, space, sums, *map(np.int32, numbers), np.float64(self.idle))
        play(blocks, LANES, 8 * fast if in_shared else 0, arguments)
        found = self.device.host(sums)
        gains: Floats = found[..., 0] - found[..., 1] - found[..., 2]
        return gains


def _heavy(weight: Floats, amounts: Floats) -> Floats:
    """Weighted sums of amounts (n, K), resource by resource as on the CPU."""
    total = np.zeros(len(amounts))
    for k, factor in enumerate(weight):
        total += factor * amounts[:, k]
    return total


def _sum(values: Floats) -> float:
    """Sum in order, as on the CPU."""
    return float(np.cumsum(values)[-1])


def _tasks(episodes: Sequence[tuple[PlacementProblem, Tasks]], counts: Any) -> list[Any]:
    """Tasks, first task of each episode, end of each batch, first batch of each episode, means by batch."""
    rows, ends, means, batches = [], [], [], [0]
    for problem, tasks in episodes:
        heavy = _heavy(problem.weight, tasks.demand)
        rows.append([tasks.arrival, tasks.work, tasks.value, tasks.decay, tasks.deadline, heavy, *tasks.demand.T])
        last = np.flatnonzero(np.diff(tasks.arrival, append=np.nan))
        number = np.arange(1.0, len(last) + 1.0)
        summed = [np.cumsum(part)[last] for part in (tasks.value, tasks.work, heavy, heavy * tasks.work)]
        means.append(np.stack([last + 1.0, *summed, number, np.full(len(last), tasks.arrival[:1].sum())], axis=1))
        ends.append(last + 1)
        batches.append(batches[-1] + len(last))
    first = np.concatenate([[0], np.cumsum(counts)])
    numbers = [np.asarray(part, dtype=np.int32) for part in (first, np.concatenate(ends), batches)]
    return [np.concatenate(rows, axis=1), *numbers, np.concatenate(means)]


def _servers(problem: PlacementProblem) -> list[Any]:
    """Servers, their kinds, the numbers of each kind, and sums over all servers."""
    capacity = problem.instance.capacity
    full = _heavy(problem.weight, capacity) * problem.speed
    servers = np.stack([full, problem.speed, *capacity.T, *(ROOM * (1.0 + capacity)).T])
    first = np.unique(problem.kind, return_index=True)[1]
    kinds = np.stack([problem.speed[first], problem.rate[first], problem.launch[first]])
    sums = [_sum(full), _sum(problem.launch), _sum(problem.speed), problem.speed.max()]
    facts = np.array([*sums, _sum(problem.rate / len(capacity)), *problem.weight])
    return [servers, problem.kind.astype(np.int32), kinds, facts]
