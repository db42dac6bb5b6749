"""What a seed draws: servers and job types like those of the Alibaba trace, channels, outages.

Every column of every table has a stream of its own. So more servers, more job types or more slots
only add to what a seed gives, and a changed setting shifts nothing else.

Axes: T slots, J job types, R servers, K resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from berth.model import Floats, Resource
from berth.random import stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from berth.scenario.settings import ServerEntry

__all__ = ["RESOURCES", "draw_channels", "draw_demands", "draw_outages", "draw_servers", "server_names", "uniforms"]

RESOURCES = (
    Resource("cpu", unit="12 cores"),
    Resource("memory", unit="64 GB"),
    Resource("gpu", unit="1 device"),
    Resource("npu", unit="1 device"),
    Resource("tpu", unit="1 device"),
    Resource("fpga", unit="1 device"),
)
"""What drawn servers have. In raw cores and gigabytes full allocation would earn less than nothing
under most utilities, so that one unit of each is about an eighth of a large server."""

UNIT = np.array([12.0, 64.0, 1.0, 1.0, 1.0, 1.0])
MACHINES = np.array([[96.0, 256.0, 0.0], [96.0, 512.0, 8.0], [64.0, 512.0, 2.0]])  # cores, GB, GPUs
MACHINE_CHANCES = (0.35, 0.35, 0.30)
DEVICES = (  # NPU, TPU, FPGA: how many a server may have, and how often
    ((0.0, 4.0, 8.0), (0.4, 0.3, 0.3)),
    ((0.0, 4.0, 8.0), (0.5, 0.25, 0.25)),
    ((0.0, 2.0, 4.0), (0.4, 0.3, 0.3)),
)
REQUESTS = (  # in cores, GB and devices, before the contention level; each as likely as the others
    (0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 12.0),
    (2.0, 4.0, 8.0, 16.0, 29.0, 32.0, 64.0),
    (0.0, 0.25, 0.5, 1.0, 2.0),
    (0.0, 0.25, 0.5, 1.0),
    (0.0, 0.25, 0.5, 1.0),
    (0.0, 0.25, 0.5),
)


def uniforms(seed: int, rows: int, columns: int, *names: str | int) -> Floats:
    """Numbers in [0, 1), (rows, columns), one stream a column.

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
    """Which job type reaches which server, (J, R); the settings' `Channels` say how `density` is read.

    >>> float(draw_channels(1, ports=10, servers=2000, density=3).sum(axis=0).mean().round(1))
    3.0
    """
    luck = uniforms(seed, servers, 2, "channels", "count")
    density = min(density, ports + 2.0)  # all the same from there on, and no number too large to count with
    halves = np.floor(2 * density + luck[:, 0]) / 2  # one of the two halves around it, so that the mean is met
    low = np.maximum(1.0, np.floor(halves) - 1)
    count = low + np.floor(luck[:, 1] * (2 * (halves - low) + 1))
    order = uniforms(seed, servers, ports, "channels", "order").argsort(axis=1).argsort(axis=1)
    reach: NDArray[np.bool_] = (order < count[:, None]).T
    for port in np.flatnonzero(~reach.any(axis=1)):
        reach[port, stream(seed, "channels", "alone", int(port)).integers(servers)] = True
    return reach


def draw_outages(seed: int, slots: int, servers: int, probability: float, repair: float) -> NDArray[np.bool_]:
    """Which servers are up, (T, R): all are at first; then they fail and come back with these chances a slot."""
    luck = uniforms(seed, slots, servers, "outages")
    up = np.ones((slots, servers), dtype=bool)
    for t in range(1, slots):
        up[t] = np.where(up[t - 1], luck[t] >= probability, luck[t] < repair)
    return up
