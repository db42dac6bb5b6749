"""Data model of all families: cluster, ports, channels and berths.

A cluster of servers holds resources; a job type arrives at a **port**; an edge port-server is a **channel**; a job's
place on a server is a **berth**. All objects are frozen and validated when built, arrays are read-only, and
`.replace()` gives a changed copy.

Axes: L ports, R servers, K resources, E channels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from berth.errors import InvalidInput, UnknownName

__all__ = [
    "Berth",
    "Cluster",
    "Floats",
    "FrozenArrays",
    "Instance",
    "Ints",
    "JobType",
    "Resource",
    "frozen_array",
    "replicate_ports",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def frozen_array(values: ArrayLike, key: str, shape: tuple[int, ...] | None = None, low: float = 0.0) -> Floats:
    """Read-only float array with a checked shape and entries that are finite and ≥ `low`.

    >>> frozen_array([1, -2], "capacity")
    Traceback (most recent call last):
    berth.errors.InvalidInput: capacity[1]: got -2.0, expected a finite number ≥ 0
    """
    array = np.array(values, dtype=np.float64, order="C")  # kernels are compiled for one kind
    if shape is not None and array.shape != shape:
        raise InvalidInput(f"an array of shape {shape}", value=array.shape, key=key)
    wrong = ~np.isfinite(array) | (array < low)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        index = "".join(f"[{i}]" for i in place)
        raise InvalidInput(f"a finite number ≥ {low:g}", value=float(array[place]), key=f"{key}{index}")
    array.setflags(write=False)
    return array


class FrozenArrays:
    """Keeps arrays read-only through pickling and copying, where NumPy drops the flag."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        for value in state.values():
            for array in value if isinstance(value, tuple) else (value,):
                if isinstance(array, np.ndarray):
                    array.setflags(write=False)
        self.__dict__.update(state)


def _unique(names: Iterable[str], key: str) -> None:
    seen: dict[str, int] = {}
    for place, name in enumerate(names):
        if name in seen:
            raise InvalidInput(f"a name not already used at {key}[{seen[name]}]", value=name, key=f"{key}[{place}]")
        seen[name] = place


@dataclass(frozen=True)
class Resource:
    """A resource that servers hold and jobs request.

    >>> Resource("memory", unit="64 GB").unit
    '64 GB'
    """

    name: str
    unit: str = ""


@dataclass(frozen=True, eq=False)
class Cluster(FrozenArrays):
    """Servers and their resources; `capacity` has shape (R, K).

    >>> cluster = Cluster((Resource("cpu"), Resource("gpu")), ("a", "b"), [[8, 1], [4, 0]])
    >>> cluster.capacity.sum(axis=0)
    array([12.,  1.])
    """

    resources: tuple[Resource, ...]
    servers: tuple[str, ...]
    capacity: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "resources", tuple(self.resources))
        object.__setattr__(self, "servers", tuple(self.servers))
        if not self.resources:
            raise InvalidInput("at least one resource", key="resources")
        if not self.servers:
            raise InvalidInput("at least one server", key="servers")
        _unique((r.name for r in self.resources), "resources")
        _unique(self.servers, "servers")
        shape = (len(self.servers), len(self.resources))
        object.__setattr__(self, "capacity", frozen_array(self.capacity, "capacity", shape))

    def replace(self, **changes: Any) -> Self:
        """A copy with these fields changed, validated again."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, eq=False)
class JobType(FrozenArrays):
    """A port: a type of job, and the most of each resource it can use on one server, shape (K,).

    >>> JobType("train", [4, 1]).demand
    array([4., 1.])
    """

    name: str
    demand: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "demand", frozen_array(self.demand, "demand"))
        if self.demand.ndim != 1:
            raise InvalidInput("one number per resource", value=self.demand.shape, key="demand")


@dataclass(frozen=True)
class Berth:
    """A job's place on a server: which port's job, on which server, how much of each resource."""

    port: str
    server: str
    amounts: tuple[float, ...]
    slot: int = 0


@dataclass(frozen=True, eq=False)
class Instance(FrozenArrays):
    """Cluster, ports and the channels between them, sorted by server and then port.

    `channel_port` and `channel_server` have shape (E,); the channels of server r are
    `server_start[r]:server_start[r + 1]`, and `server_start` has shape (R+1,).

    >>> cluster = Cluster((Resource("cpu"),), ("a", "b"), [[8], [4]])
    >>> ports = (JobType("train", [4]), JobType("query", [1]))
    >>> graph = Instance(cluster, ports, channels=[(0, 0), (0, 1), (1, 0)])
    >>> graph.channel_port, graph.channel_server
    (array([0, 1, 0]), array([0, 0, 1]))
    >>> graph.reach("train")
    ('a', 'b')
    """

    cluster: Cluster
    ports: tuple[JobType, ...]
    channels: dataclasses.InitVar[Iterable[tuple[int, int]] | Ints]
    channel_port: Ints = field(init=False)
    channel_server: Ints = field(init=False)
    server_start: Ints = field(init=False)

    def __post_init__(self, channels: Iterable[tuple[int, int]] | Ints) -> None:
        object.__setattr__(self, "ports", tuple(self.ports))
        if not self.ports:
            raise InvalidInput("at least one port", key="ports")
        _unique((p.name for p in self.ports), "ports")
        resources = len(self.cluster.resources)
        for place, port in enumerate(self.ports):
            if port.demand.shape != (resources,):
                raise InvalidInput(
                    f"{resources} numbers, one per resource", value=port.demand.shape, key=f"ports[{place}].demand"
                )
        try:
            listed: NDArray[Any] = channels if isinstance(channels, np.ndarray) else np.array(list(channels))
        except ValueError as error:  # rows of different length
            raise InvalidInput("pairs of integers (port, server)", key="channels") from error
        if listed.size and (listed.ndim != 2 or listed.shape[1] != 2 or not np.issubdtype(listed.dtype, np.integer)):
            found = f"an array of {listed.dtype} and shape {listed.shape}"
            raise InvalidInput("pairs of integers (port, server)", found=found, key="channels")
        pairs = listed.reshape(-1, 2).astype(np.int64)
        for column, (what, size) in enumerate((("port", len(self.ports)), ("server", len(self.cluster.servers)))):
            wrong = np.flatnonzero((pairs[:, column] < 0) | (pairs[:, column] >= size))
            if wrong.size:
                place = int(wrong[0])
                raise InvalidInput(
                    f"a {what} index below {size}", value=int(pairs[place, column]), key=f"channels[{place}]"
                )
        place_of = pairs[:, 1] * len(self.ports) + pairs[:, 0]
        if (np.diff(place_of) < 0).any():  # sorting ten million channels takes seconds
            order = np.argsort(place_of, kind="stable")
            pairs, place_of = pairs[order], place_of[order]
        twice = np.flatnonzero(np.diff(place_of) == 0)
        if twice.size:
            value = tuple(int(i) for i in pairs[int(twice[0])])
            raise InvalidInput("each channel (port, server) once", value=value, key="channels")
        start = np.searchsorted(pairs[:, 1], np.arange(len(self.cluster.servers) + 1))
        for name, array in (
            ("channel_port", pairs[:, 0].copy()),
            ("channel_server", pairs[:, 1].copy()),
            ("server_start", start.astype(np.int64)),
        ):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def capacity(self) -> Floats:
        """Capacity of each server, (R, K)."""
        return self.cluster.capacity

    @cached_property
    def demand(self) -> Floats:
        """Most that each port's job can use on one server, (L, K)."""
        demand = np.array([port.demand for port in self.ports])
        demand.setflags(write=False)
        return demand

    @cached_property
    def port_channels(self) -> tuple[Ints, Ints]:
        """Channels by port: start (L+1,) and channel (E,); port l has `channel[start[l]:start[l + 1]]`."""
        channel = np.argsort(self.channel_port, kind="stable")
        start = np.searchsorted(self.channel_port[channel], np.arange(len(self.ports) + 1))
        for array in (start, channel):
            array.setflags(write=False)
        return start, channel

    def reach(self, port: str) -> tuple[str, ...]:
        """The servers that this port has a channel to."""
        names = [p.name for p in self.ports]
        if port not in names:
            raise UnknownName("port", port, names)
        index = names.index(port)
        return tuple(self.cluster.servers[r] for r in self.channel_server[self.channel_port == index])

    def replace(self, **changes: Any) -> Instance:
        """A copy with `cluster`, `ports` or `channels` changed, validated again."""
        return Instance(
            changes.pop("cluster", self.cluster),
            changes.pop("ports", self.ports),
            changes.pop("channels", np.stack([self.channel_port, self.channel_server], axis=1)),
            **changes,
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For IPython and hypothesis, which otherwise look for `channels`, an argument that is not stored."""
        printer.text(repr(self))

    @classmethod
    def from_arrays(
        cls,
        capacity: ArrayLike,
        demand: ArrayLike,
        channels: Iterable[tuple[int, int]] | Ints,
        resources: Sequence[Resource] | None = None,
    ) -> Instance:
        """Build an instance from capacity (R, K), demand (L, K) and channels (E, 2), with generated names.

        >>> Instance.from_arrays([[5.0]], [[2.0], [1.0]], [(0, 0), (1, 0)]).ports[1].name
        'port-1'
        """
        capacity, demand = np.asarray(capacity, dtype=np.float64), np.asarray(demand, dtype=np.float64)
        if capacity.ndim != 2 or demand.ndim != 2:
            raise InvalidInput("capacity (R, K) and demand (L, K)", value=(capacity.shape, demand.shape))
        named = tuple(resources or (Resource(f"resource-{k}") for k in range(capacity.shape[1])))
        cluster = Cluster(named, tuple(f"server-{r}" for r in range(len(capacity))), capacity)
        return cls(cluster, tuple(JobType(f"port-{i}", row) for i, row in enumerate(demand)), channels)


def replicate_ports(instance: Instance, most: ArrayLike) -> Instance:
    """Allow several jobs a port and slot (section 3.4): port l becomes `most[l]` ports, one for each job.

    The j-th copy has a job if at least j jobs arrive at port l; everything else is unchanged.

    >>> graph = Instance.from_arrays([[5.0]], [[2.0], [1.0]], [(0, 0), (1, 0)])
    >>> [port.name for port in replicate_ports(graph, [2, 1]).ports]
    ['port-0#1', 'port-0#2', 'port-1']
    """
    counts = np.asarray(most, dtype=np.int64)
    if counts.shape != (len(instance.ports),) or (counts < 1).any():
        raise InvalidInput("one number ≥ 1 for each port", value=counts.tolist(), key="most")
    ports: list[JobType] = []
    channels: list[tuple[int, int]] = []
    for index, port in enumerate(instance.ports):
        servers = instance.channel_server[instance.channel_port == index]
        for copy in range(int(counts[index])):
            name = port.name if counts[index] == 1 else f"{port.name}#{copy + 1}"
            channels.extend((len(ports), int(r)) for r in servers)
            ports.append(JobType(name, port.demand))
    return Instance(instance.cluster, tuple(ports), channels)
