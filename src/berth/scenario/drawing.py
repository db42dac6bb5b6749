"""Draw from a seed: servers and job types like those of the Alibaba trace, channels, arrivals, outages.

Every column of every table has its own random stream. More servers, job types or slots only add to what a seed
draws, and a changed setting shifts nothing else.

Axes: T slots, J job types, R servers, K resources.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np
from numpy.typing import NDArray

from berth.model import Cluster, Floats, Resource
from berth.random import stream
from berth.scenario.settings import Bernoulli, Given, GivenCluster, Poisson, ServerEntry, Switching

__all__ = [
    "RESOURCES",
    "draw_arrivals",
    "draw_channel_list",
    "draw_channels",
    "draw_demands",
    "draw_outages",
    "draw_servers",
    "given_cluster",
    "reach_named",
    "server_names",
    "uniforms",
]

RESOURCES = (
    Resource("cpu", unit="12 cores"),
    Resource("memory", unit="64 GB"),
    Resource("gpu", unit="1 device"),
    Resource("npu", unit="1 device"),
    Resource("tpu", unit="1 device"),
    Resource("fpga", unit="1 device"),
)
"""Resources of drawn servers. In raw cores and gigabytes a full allocation would lose money under most utilities,
so one unit of each is about an eighth of a large server."""

UNIT = np.array([12.0, 64.0, 1.0, 1.0, 1.0, 1.0])
MACHINES = np.array([[96.0, 256.0, 0.0], [96.0, 512.0, 8.0], [64.0, 512.0, 2.0]])  # cores, GB, GPUs
MACHINE_CHANCES = (0.35, 0.35, 0.30)
DEVICES = (  # NPU, TPU, FPGA: possible counts per server, and their probabilities
    ((0.0, 4.0, 8.0), (0.4, 0.3, 0.3)),
    ((0.0, 4.0, 8.0), (0.5, 0.25, 0.25)),
    ((0.0, 2.0, 4.0), (0.4, 0.3, 0.3)),
)
REQUESTS = (  # in cores, GB and devices, before the contention factor; equally likely
    (0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 12.0),
    (2.0, 4.0, 8.0, 16.0, 29.0, 32.0, 64.0),
    (0.0, 0.25, 0.5, 1.0, 2.0),
    (0.0, 0.25, 0.5, 1.0),
    (0.0, 0.25, 0.5, 1.0),
    (0.0, 0.25, 0.5),
)


def uniforms(seed: int, rows: int, columns: int, *names: str | int) -> Floats:
    """Uniform numbers in [0, 1), (rows, columns), one stream a column.

    >>> bool((uniforms(1, 2, 2, "arrivals") == uniforms(1, 5, 3, "arrivals")[:2, :2]).all())
    True
    """
    table = np.empty((rows, columns))
    for column in range(columns):
        table[:, column] = stream(seed, *names, column).random(rows)
    return table


def server_names(entry: ServerEntry) -> list[str]:
    """The servers that one entry of the file stands for."""
    return [entry.name] if entry.count == 1 else [f"{entry.name}-{i}" for i in range(entry.count)]


def given_cluster(given: GivenCluster) -> Cluster:
    """The cluster that a file lists."""
    resources = tuple(Resource(r) if isinstance(r, str) else Resource(r.name, r.unit) for r in given.resources)
    names = tuple(name for entry in given.servers for name in server_names(entry))
    rows = [[entry.capacity.get(r.name, 0.0) for r in resources] for entry in given.servers for _ in range(entry.count)]
    return Cluster(resources, names, np.array(rows))


def draw_servers(seed: int, servers: int) -> Floats:
    """Capacities (R, 6) in units of `RESOURCES`.

    >>> float(draw_servers(1, 500)[:, 0].max())
    8.0
    """
    luck = uniforms(seed, servers, 4, "cluster")
    capacity = np.empty((servers, 6))
    capacity[:, :3] = MACHINES[_chosen(luck[:, 0], MACHINE_CHANCES)]
    for place, (amounts, chances) in enumerate(DEVICES):
        capacity[:, 3 + place] = np.array(amounts)[_chosen(luck[:, 1 + place], chances)]
    capacity /= UNIT
    return capacity


def _chosen(luck: Floats, chances: tuple[float, ...]) -> NDArray[np.int64]:
    return np.searchsorted(np.cumsum(chances)[:-1], luck, side="right").astype(np.int64)


def draw_demands(seed: int, ports: int, contention: float) -> Floats:
    """Requests (J, 6) in units of `RESOURCES`."""
    luck = uniforms(seed, ports, 6, "ports")
    raw = np.array([np.array(sizes)[(luck[:, k] * len(sizes)).astype(np.int64)] for k, sizes in enumerate(REQUESTS)])
    demands: Floats = raw.T * contention / UNIT
    return demands


def draw_channels(seed: int, ports: int, servers: int, density: float) -> NDArray[np.bool_]:
    """Draw channels of job types to servers, (J, R); `Channels` in the settings defines `density`.

    >>> float(draw_channels(1, ports=10, servers=2000, density=3).sum(axis=0).mean().round(1))
    3.0
    """
    count = _channel_counts(seed, ports, servers, density)
    order = uniforms(seed, servers, ports, "channels", "order").argsort(axis=1).argsort(axis=1)
    reach: NDArray[np.bool_] = (order < count[:, None]).T
    for port in np.flatnonzero(~reach.any(axis=1)):
        reach[port, stream(seed, "channels", "alone", int(port)).integers(servers)] = True
    return reach


def _channel_counts(seed: int, ports: int, servers: int, density: float) -> Floats:
    """Number of job types that each server serves, (R,); may exceed the number of job types."""
    luck = uniforms(seed, servers, 2, "channels", "count")
    density = min(density, ports + 2.0)  # larger densities change nothing and could overflow
    halves = np.floor(2 * density + luck[:, 0]) / 2  # one of the two neighbouring halves, to meet the mean
    low = np.maximum(1.0, np.floor(halves) - 1)
    counts: Floats = low + np.floor(luck[:, 1] * (2 * (halves - low) + 1))
    return counts


def draw_channel_list(seed: int, ports: int, servers: int, density: float) -> NDArray[np.int64]:
    """Draw channels as pairs (job type, server), (E, 2): like `draw_channels`, with other draws.

    Each server draws job types until it has as many different ones as it serves. Time and memory grow with the number
    of channels, not with the number of pairs.

    >>> pairs = draw_channel_list(1, ports=1000, servers=2000, density=10)
    >>> round(len(pairs) / 2000, 1), len(np.unique(pairs, axis=0)) == len(pairs)
    (10.0, True)
    """
    count = np.minimum(_channel_counts(seed, ports, servers, density), ports).astype(np.int64)
    drawn = np.full((servers, int(count.max(initial=0))), -1, dtype=np.int64)
    have = np.zeros(servers, dtype=np.int64)
    unfinished, column = np.arange(servers), 0
    while len(unfinished):
        fresh = (stream(seed, "channels", "list", column).random(servers)[unfinished] * ports).astype(np.int64)
        new = ~(drawn[unfinished] == fresh[:, None]).any(axis=1)
        drawn[unfinished[new], have[unfinished[new]]] = fresh[new]
        have[unfinished[new]] += 1
        unfinished, column = unfinished[have[unfinished] < count[unfinished]], column + 1
    drawn.sort(axis=1)
    server, place = np.nonzero(drawn >= 0)
    pairs = np.column_stack([drawn[server, place], server])
    missing = np.flatnonzero(np.bincount(pairs[:, 0], minlength=ports) == 0)
    alone = [(int(port), stream(seed, "channels", "alone", int(port)).integers(servers)) for port in missing]
    return np.concatenate([pairs, np.array(alone, dtype=np.int64).reshape(-1, 2)])


def reach_named(reach: NDArray[np.bool_], named: Sequence[list[str] | None], given: object, cluster: Cluster) -> None:
    """Set the rows of `reach` (J, R) of job types that name servers or groups; None leaves a row unchanged."""
    index = {name: [r] for r, name in enumerate(cluster.servers)}
    if isinstance(given, GivenCluster):
        for entry in given.servers:
            index[entry.name] = [r for name in server_names(entry) for r in index[name]]
    for j, servers in enumerate(named):
        if servers is not None and servers != ["all"]:
            reach[j] = False
            reach[j, [r for name in servers for r in index[name]]] = True


def draw_arrivals(
    arrivals: Bernoulli | Switching | Poisson | Given, own: Sequence[float | None], horizon: int, seed: int
) -> Floats:
    """Number of jobs of each type in each slot, (T, J); `own` holds the probabilities that types set themselves."""
    types = len(own)
    if isinstance(arrivals, Given):
        return np.array(arrivals.slots[:horizon], dtype=np.float64)
    # one table for every process: a larger probability or mean only adds jobs
    luck = uniforms(seed, horizon, types, "arrivals")
    if isinstance(arrivals, Switching):
        spells = -(-horizon // arrivals.every)
        drawn = arrivals.low + (arrivals.high - arrivals.low) * uniforms(seed, spells, types, "rates")
        return (luck < np.repeat(drawn, arrivals.every, axis=0)[:horizon]).astype(np.float64)
    if isinstance(arrivals, Poisson):
        counts = np.zeros((horizon, types))
        for j, mean in enumerate(np.broadcast_to(np.asarray(arrivals.mean, dtype=np.float64), (types,))):
            counts[:, j] = np.searchsorted(_poisson(float(mean), arrivals.most), luck[:, j], side="right")
        return counts
    rates = np.array(np.broadcast_to(np.asarray(arrivals.probability, dtype=np.float64), (types,)))
    for j, rate in enumerate(own):
        rates[j] = rates[j] if rate is None else rate
    return (luck < rates).astype(np.float64)


def _poisson(mean: float, most: int) -> Floats:
    """Cumulative probabilities of 0, 1, … most − 1 jobs."""
    chances = [exp(-mean)]
    for n in range(1, most):
        chances.append(chances[-1] * mean / n)
    return np.cumsum(chances)


def draw_outages(seed: int, slots: int, servers: int, probability: float, repair: float) -> NDArray[np.bool_]:
    """Servers that are up, (T, R): all at first; each fails and recovers with these probabilities a slot."""
    luck = uniforms(seed, slots, servers, "outages")
    up = np.ones((slots, servers), dtype=bool)
    for t in range(1, slots):
        up[t] = np.where(up[t - 1], luck[t] >= probability, luck[t] < repair)
    return up
