"""The task-ordering network: for any number of tasks and servers, and independent of their order.

A task has dimensionless features (`TASK`), the cluster a few more (`CLUSTER`). A hidden layer reads each task, the mean
over all pending tasks is added (with attention each task has its own mean), and a second layer gives its rank. Two
further outputs, for the whole batch, are the share of the launch cost that counts and the price of resources and time.

Axes: n pending tasks, F numbers of a task, G numbers of the cluster, H hidden.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.placement.kernels.greedy import Batch, Servers, load, worth
from berth.kernels.compiled import inlined, inner, lean

TASK = 7
CLUSTER = 6
STEEP = 4.0  # bound of logarithms, against outliers


class Net(NamedTuple):
    """Weights of one network; `query` and `key` are empty without attention."""

    task: Any  # (H, F)
    cluster: Any  # (H, G)
    offset: Any  # (H,)
    query: Any  # (A, H)
    key: Any  # (A, H)
    own: Any  # (H, H)
    others: Any  # (H, H)
    offset2: Any  # (H,)
    out: Any  # (H,)
    direct: Any  # (F,) directly from the features of a task to its rank
    heads: Any  # (2, H + G + 1) for the launch cost and the price
    low: Any  # (G,) range of cluster features in training, to which they are clipped
    high: Any  # (G,)
    task_low: Any  # (F,) the same for the features of tasks, by the caller of `infer`
    task_high: Any  # (F,)
    head_low: Any  # (2,) range of the logarithms of both further outputs
    head_high: Any  # (2,)


class Scratch(NamedTuple):
    """Scratch arrays for up to n tasks."""

    features: Any  # (n, F)
    cluster: Any  # (G,)
    hidden: Any  # (n, H)
    pooled: Any  # (H,)
    looks: Any  # (n, A) keys of all tasks
    asks: Any  # (A,) query of one
    means: Any  # (7,) of all tasks so far: see `meet`
    heads: Any  # (4,) beta and price, and the logarithms of both (of the price in its unit)


@inlined
def _soft(x: float) -> Any:
    return x / (1.0 + abs(x))


@inlined
def _log(x: float) -> Any:
    return max(min(np.log(max(x, 1e-9)), STEEP), -STEEP)


@lean
def meet(batch: Batch, weight: Any, first: int, last: int, means: Any) -> None:
    """Add the batch of tasks `first` to `last` to the averages.

    `means` holds the number of tasks, sums of value, work, weighted demand, and of the product of the last two, the
    number of batches, and the time of the first.
    """
    if means[5] == 0.0:
        means[6] = batch.arrival[first]
    means[5] += 1.0
    for i in range(first, last):
        means[0] += 1.0
        means[1] += batch.value[i]
        means[2] += batch.work[i]
        heavy = load(weight, batch.demand, i)
        means[3] += heavy
        means[4] += heavy * batch.work[i]


@inner
def describe_cluster(
    servers: Servers, free: Any, on_until: Any, now: float, pending: float, new: float, tasks: float, scratch: Scratch
) -> float:
    """Write cluster features to `scratch.cluster`; return the largest speed of a server that is up.

    `pending` is the waiting weighted demand times work, of `tasks` tasks, `new` of which have just arrived.
    """
    total, room, on, launch, swiftest, speeds = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for r in range(servers.speed.shape[0]):
        full, left = 0.0, 0.0
        for k in range(servers.weight.shape[0]):
            full += servers.weight[k] * servers.capacity[r, k]
            left += servers.weight[k] * free[r, k]
        full *= servers.speed[r]
        total += full
        room += left * servers.speed[r]
        if now <= on_until[r]:
            on += full
        launch += servers.launch[r]
        speeds += servers.speed[r]
        swiftest = max(swiftest, servers.speed[r])
    means = scratch.means
    count = max(means[0], 1.0)
    work, value, heavy = means[2] / count, means[1] / count, means[3] / count
    total = max(total, 1e-9)
    # number of average tasks per server, to compare launch cost with the gain of a full server
    holds = max(total / max(speeds, 1e-9) / max(heavy, 1e-9), 1.0)
    scratch.cluster[0] = room / total
    scratch.cluster[1] = on / total
    scratch.cluster[2] = _log(1.0 + pending / max(heavy * work, 1e-9)) - _log(1.0 + total / max(heavy * work, 1e-9))
    scratch.cluster[3] = new / max(tasks, 1.0)
    scratch.cluster[4] = _log(launch / servers.speed.shape[0] / max(holds * value, 1e-9) * 10.0)
    # offered load; before the second batch, a task's run time stands for the unknown time between batches
    batches = max(means[5], 1.0)
    period = (now - means[6]) / (batches - 1.0) if batches > 1.0 else work / max(swiftest, 1e-9)
    scratch.cluster[5] = _log(means[4] / (max(period, 1e-9) * batches * total))
    return swiftest


@inner
def describe_task(
    batch: Batch, i: int, heavy: float, now: float, swiftest: float, rate: float, scratch: Scratch, row: int
) -> None:
    """Write features of task i to a row of `scratch.features`."""
    means, into = scratch.means, scratch.features
    count = max(means[0], 1.0)
    time = batch.work[i] / max(swiftest, 1e-9)
    best = worth(batch.value[i], batch.decay[i], batch.arrival[i], batch.deadline[i], now + time) - rate * heavy * time
    into[row, 0] = _log(batch.value[i] / max(means[1] / count, 1e-9))
    into[row, 1] = _log(batch.work[i] / max(means[2] / count, 1e-9))
    into[row, 2] = _log(heavy / max(means[3] / count, 1e-9))
    into[row, 3] = min(batch.decay[i] * time / max(batch.value[i], 1e-9), STEEP)
    into[row, 4] = _log((batch.deadline[i] - now) / max(time, 1e-9))
    into[row, 5] = max(best, 0.0) / max(batch.value[i], 1e-9)
    into[row, 6] = min((now - batch.arrival[i]) / max(time, 1e-9), STEEP)


@lean
def infer(net: Net, size: int, unit: float, scratch: Scratch, rank: Any) -> None:
    """Compute ranks of `size` tasks from `scratch.features` into `rank`; beta and price into `scratch.heads`.

    `unit` is the unit of the price: the mean value of a weighted unit of resource and time.
    """
    hidden, looks, groups = net.offset.shape[0], net.query.shape[0], net.cluster.shape[1]
    for h in range(hidden):
        scratch.pooled[h] = 0.0
    for i in range(size):
        for h in range(hidden):
            x = net.offset[h]
            for f in range(net.task.shape[1]):
                x += net.task[h, f] * scratch.features[i, f]
            for g in range(groups):
                x += net.cluster[h, g] * scratch.cluster[g]
            scratch.hidden[i, h] = _soft(x)
            scratch.pooled[h] += scratch.hidden[i, h]
        for a in range(looks):
            x = 0.0
            for h in range(hidden):
                x += net.key[a, h] * scratch.hidden[i, h]
            scratch.looks[i, a] = x
    for h in range(hidden):
        scratch.pooled[h] /= max(size, 1)
    for part in range(2):
        x = net.heads[part, hidden + groups]
        for h in range(hidden):
            x += net.heads[part, h] * scratch.pooled[h]
        for g in range(groups):
            x += net.heads[part, hidden + g] * scratch.cluster[g]
        scratch.heads[2 + part] = max(min(x, net.head_high[part]), net.head_low[part])
        scratch.heads[part] = np.exp(scratch.heads[2 + part])
    scratch.heads[1] *= unit
    for i in range(size):
        if looks > 0:
            _attend(net, i, size, scratch)
        x = 0.0
        for f in range(net.task.shape[1]):
            x += net.direct[f] * scratch.features[i, f]
        for h in range(hidden):
            y = net.offset2[h]
            for j in range(hidden):
                y += net.own[h, j] * scratch.hidden[i, j] + net.others[h, j] * scratch.pooled[j]
            x += net.out[h] * _soft(y)
        rank[i] = x


@inlined
def _attend(net: Net, i: int, size: int, scratch: Scratch) -> None:
    """Attention-weighted mean of all tasks for task i, into `scratch.pooled`."""
    hidden, looks = net.offset.shape[0], net.query.shape[0]
    for a in range(looks):
        x = 0.0
        for h in range(hidden):
            x += net.query[a, h] * scratch.hidden[i, h]
        scratch.asks[a] = x
    for h in range(hidden):
        scratch.pooled[h] = 0.0
    total = 0.0
    for j in range(size):
        x = 0.0
        for a in range(looks):
            x += scratch.asks[a] * scratch.looks[j, a]
        # hidden values are below 1, so this stays within the range of floats for sensible weights
        x = np.exp(max(min(x / np.sqrt(float(looks)), 30.0), -30.0))
        total += x
        for h in range(hidden):
            scratch.pooled[h] += x * scratch.hidden[j, h]
    for h in range(hidden):
        scratch.pooled[h] /= total


@lean
def rank_tasks(
    batch: Batch,
    ids: Any,
    size: int,
    servers: Servers,
    free: Any,
    on_until: Any,
    now: float,
    net: Net,
    scratch: Scratch,
    ranks: Any,
) -> None:
    """Compute ranks of the first `size` tasks of `ids` into `ranks` (size,); beta and price into `scratch.heads`.

    `scratch.means` must cover all tasks that have arrived.
    """
    pending, new = 0.0, 0.0
    for a in range(size):
        i = ids[a]
        pending += load(servers.weight, batch.demand, i) * batch.work[i]
        if batch.arrival[i] == now:
            new += 1.0
    swiftest = describe_cluster(servers, free, on_until, now, pending, new, float(size), scratch)
    for g in range(CLUSTER):
        scratch.cluster[g] = max(min(scratch.cluster[g], net.high[g]), net.low[g])
    rate = 0.0
    for r in range(servers.rate.shape[0]):
        rate += servers.rate[r] / servers.rate.shape[0]
    for a in range(size):
        i = ids[a]
        describe_task(batch, i, load(servers.weight, batch.demand, i), now, swiftest, rate, scratch, a)
    means = scratch.means
    unit = means[1] / max(means[3] / max(means[0], 1.0) * means[2] / max(swiftest, 1e-9), 1e-9)
    infer(net, size, unit, scratch, ranks)
