"""What a network sees of gangs: gang size, reach, devices and the queue, beside the numbers of single tasks.

Axes: n pending tasks, R servers, K resources, L ports, D devices of a server.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.gathering import Fleet, Free, Pieces
from berth.families.placement.kernels.greedy import Batch, Servers, load
from berth.families.placement.kernels.network import (
    CLUSTER,
    STEEP,
    TASK,
    Net,
    Scratch,
    describe_cluster,
    describe_task,
    infer,
    rank_tasks,
)
from berth.kernels.compiled import inlined, inner, lean

__all__ = ["GANG_CLUSTER", "GANG_TASK", "Totals", "rank_gangs"]

GANG_TASK, GANG_CLUSTER = TASK + 5, CLUSTER + 5
WIDE = 12.0  # bound of logarithms: real work and demands spread over many powers of ten


class Totals(NamedTuple):
    """Share of servers that each port reaches (L,), capacity of the cluster (K,), and scratch for what is free (K,)."""

    reach: Any
    amount: Any
    free: Any


@inlined
def _wide(x: float) -> Any:
    return max(min(np.log(max(x, 1e-9)), WIDE), -WIDE)


@inner
def _describe_fleet(fleet: Fleet, free: Free, totals: Totals, size: int, pieces: float, cluster: Any) -> None:
    """Write what describes unequal servers, devices and the queue behind the six numbers of the cluster."""
    fastest, slowest = 0.0, np.inf
    for r in range(fleet.speed.shape[0]):
        fastest, slowest = max(fastest, fleet.speed[r]), min(slowest, fleet.speed[r])
    for k in range(totals.free.shape[0]):
        totals.free[k] = 0.0
    for part in range(2):
        room, there, chosen = 0.0, 0.0, fastest if part == 0 else slowest
        for r in range(fleet.speed.shape[0]):
            for k in range(fleet.most.shape[0]):
                left = max(free.amount[r, k], 0.0)
                if part == 0:
                    totals.free[k] += left
                if fleet.speed[r] == chosen and fleet.most[k] > 0.0:
                    room += left / fleet.most[k]
                    there += fleet.capacity[r, k] / fleet.most[k]
        cluster[CLUSTER + part] = room / max(there, 1e-9)
    whole, some = 0.0, 0.0
    for r in range(free.devices.shape[0]):
        for g in range(free.devices.shape[1]):
            some += free.devices[r, g]
            if free.devices[r, g] >= 1.0 - 1e-9:
                whole += 1.0
    cluster[CLUSTER + 2] = whole / some if some > 0.0 else 1.0
    cluster[CLUSTER + 3] = np.log(1.0 + size)
    cluster[CLUSTER + 4] = np.log(max(pieces / max(size, 1), 1.0))


@inner
def _describe_gang(
    whole: Batch, i: int, fleet: Fleet, pieces: Pieces, totals: Totals, heavy: float, scratch: Scratch, row: int
) -> None:
    """Write what describes a gang behind the seven numbers of a task, three of which get a wider range."""
    means, into = scratch.means, scratch.features
    count = max(means[0], 1.0)
    into[row, 0] = _wide(whole.value[i] / max(means[1] / count, 1e-9))
    into[row, 1] = _wide(whole.work[i] / max(means[2] / count, 1e-9))
    into[row, 2] = _wide(heavy / max(means[3] / count, 1e-9))
    device, share, scarce = fleet.device[0], 0.0, 0.0
    for k in range(totals.amount.shape[0]):
        if totals.amount[k] > 0.0:
            share = max(share, whole.demand[i, k] / totals.amount[k])
            scarce = max(scarce, whole.demand[i, k] / max(totals.free[k], 1e-3 * totals.amount[k]))
    into[row, TASK] = np.log(float(pieces.count[i]))
    into[row, TASK + 1] = totals.reach[pieces.port[i]]
    into[row, TASK + 2] = min(pieces.demand[i, device], 1.0) if device >= 0 else 0.0
    into[row, TASK + 3] = _wide(share)
    into[row, TASK + 4] = max(min(np.log(max(scarce, 1e-9)), STEEP), -STEEP)


@lean
def rank_gangs(
    whole: Batch,
    ids: Any,
    size: int,
    fleet: Fleet,
    servers: Servers,
    pieces: Pieces,
    free: Free,
    totals: Totals,
    on_until: Any,
    now: float,
    net: Net,
    scratch: Scratch,
    ranks: Any,
) -> None:
    """Compute ranks of the first `size` tasks of `ids` into `ranks` (size,); beta and price into `scratch.heads`.

    `whole` has the demand of all pieces of each task. A network of single tasks sees a gang as one large task.
    """
    if net.task.shape[1] == TASK:
        rank_tasks(whole, ids, size, servers, free.amount, on_until, now, net, scratch, ranks)
        return
    pending, new, parts = 0.0, 0.0, 0.0
    for a in range(size):
        i = ids[a]
        pending += load(servers.weight, whole.demand, i) * whole.work[i]
        parts += pieces.count[i]
        if whole.arrival[i] == now:
            new += 1.0
    swiftest = describe_cluster(servers, free.amount, on_until, now, pending, new, float(size), scratch)
    _describe_fleet(fleet, free, totals, size, parts, scratch.cluster)
    for g in range(scratch.cluster.shape[0]):
        scratch.cluster[g] = max(min(scratch.cluster[g], net.high[g]), net.low[g])
    rate = 0.0
    for r in range(servers.rate.shape[0]):
        rate += servers.rate[r] / servers.rate.shape[0]
    for a in range(size):
        i = ids[a]
        heavy = load(servers.weight, whole.demand, i)
        describe_task(whole, i, heavy, now, swiftest, rate, scratch, a)
        _describe_gang(whole, i, fleet, pieces, totals, heavy, scratch, a)
        for f in range(scratch.features.shape[1]):
            scratch.features[a, f] = max(min(scratch.features[a, f], net.task_high[f]), net.task_low[f])
    means = scratch.means
    unit = means[1] / max(means[3] / max(means[0], 1.0) * means[2] / max(swiftest, 1e-9), 1e-9)
    infer(net, size, unit, scratch, ranks)
