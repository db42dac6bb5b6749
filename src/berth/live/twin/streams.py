"""Streams of gangs: types, work, sizes, arrivals, and how long each gang runs on each class of server.

Every draw comes from a stream that is named by the seed, so that all schedulers meet the same gangs, at the same times,
with the same luck.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from berth.files.quantities import MILLI, Amounts
from berth.live.core.jobs import Job, Role, Server
from berth.live.twin.served import ServedQueues
from berth.random import stream

__all__ = ["CLASS", "THREE_CLASSES", "ClassStream", "Gang", "Speeds", "Stream", "class_servers"]

CLASS = "class"
"""The label of a server that tells its class."""
THREE_CLASSES = {
    "solver": {"a": 1.0, "b": 0.4, "c": 0.7},
    "trainer": {"a": 0.4, "b": 1.0, "c": 0.7},
    "render": {"a": 0.5, "b": 0.6, "c": 1.0},
}
"""How fast each of three types of jobs runs on each of three classes of nodes."""

Speeds = Mapping[tuple[str, str, bool], float]
"""True speeds by type, class, and whether a gang is spread over several servers."""


@dataclass(frozen=True)
class Gang:
    """A gang: when it comes after the first, its work in seconds at speed 1, and its run time on each class.

    `seconds` has the classes where it can run. `spread` is its run time on several servers where that is different.
    """

    name: str
    type: str
    tasks: int
    arrival: float
    work: float
    seconds: Mapping[str, float]
    spread: Mapping[str, float] = field(default_factory=dict)
    demand: Amounts | None = None
    """What a task takes of its server, where that is not what the stream says."""
    user: str | None = None
    group: str | None = None
    kind: str | None = None
    """Who submitted it, and its queue, where a trace tells them."""

    def takes(self, class_: str, servers: int) -> float:
        """Its run time on servers of a class."""
        return self.spread.get(class_, self.seconds[class_]) if servers > 1 else self.seconds[class_]


class Stream(Protocol):
    """A cluster and the gangs that come to it."""

    @property
    def servers(self) -> Sequence[Server]:
        """The servers, with their classes as label `CLASS`."""
        ...

    @property
    def demand(self) -> Amounts:
        """What a task takes of its server."""
        ...

    @property
    def speeds(self) -> Speeds:
        """The true speeds, without luck and without the servers' own effects."""
        ...

    @property
    def units(self) -> Amounts:
        """Whole numbers in one unit of resources: thousandths, where nothing is said."""
        ...

    @property
    def mixes(self) -> bool:
        """Whether a plain scheduler places a gang on servers of several classes."""
        ...

    def gangs(self, seed: int) -> list[Gang]:
        """The gangs of a seed, in the order of arrival."""
        ...

    def effects(self, seed: int) -> Mapping[str, float]:
        """How much faster each server is than its class; those that are left out are just as fast."""
        ...


def job_of(gang: Gang, stream: Stream, queues: ServedQueues | None = None) -> Job:
    """The job that a user submits for a gang, to these queues."""
    classes = {server.labels[CLASS] for server in stream.servers}
    needs = {} if classes <= gang.seconds.keys() else {CLASS: "|".join(sorted(gang.seconds))}
    role = Role("task", gang.tasks, stream.demand if gang.demand is None else gang.demand)
    owner = {} if queues is None else queues.submitted(gang.user, gang.group, gang.kind)
    return Job(gang.name, gang.type, (role,), needs=needs, work=gang.work, **owner)


def class_servers(nodes: int, cpus: int = 4) -> tuple[Server, ...]:
    """Nodes of three classes, in three parts that are as equal as they can be.

    >>> "".join(server.labels["class"] for server in class_servers(8))
    'aaabbbcc'
    """
    return tuple(Server(f"n{i + 1}", {"cpu": cpus * MILLI}, {CLASS: "abc"[i * 3 // nodes]}) for i in range(nodes))


def server_effects(servers: Sequence[Server], spread: float, seed: int) -> dict[str, float]:
    """Factors of servers, with this spread of their logarithms."""
    luck = stream(seed, "server-effects").standard_normal(len(servers)) if spread else ()
    return {server.name: math.exp(spread * one) for server, one in zip(servers, luck, strict=bool(spread))}


@dataclass(frozen=True)
class ClassStream:
    """Gangs of a few types, `rate` a second, of .6 to 1.4 times `work` seconds at speed 1.

    A gang has one of the sizes `tasks`, each as likely as the others. `luck` is the spread of the logarithm of a run
    time, drawn for each gang and class, and `effect` that of a server's own speed. The default is the stream that
    `benchmarks.real_clusters` submits to real clusters.

    >>> gang = ClassStream(jobs=3).gangs(0)[2]
    >>> gang.name, gang.type, gang.tasks, sorted(gang.seconds)
    ('g2', 'solver', 4, ['a', 'b', 'c'])
    """

    jobs: int = 110
    rate: float = 1.05
    work: float = 6.0
    servers: tuple[Server, ...] = class_servers(8)
    table: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: THREE_CLASSES)
    tasks: tuple[int, ...] = (1, 2, 3, 4)
    luck: float = 0.15
    effect: float = 0.0
    demand: Amounts = field(default_factory=lambda: {"cpu": MILLI})
    mixes: bool = True
    units: Amounts = field(default_factory=dict)

    @property
    def speeds(self) -> Speeds:
        return {(t, name, s): v for t, row in self.table.items() for name, v in row.items() for s in (False, True)}

    def gangs(self, seed: int) -> list[Gang]:
        rng = stream(seed, "real-clusters")
        arrival = np.cumsum(rng.exponential(1.0 / self.rate, self.jobs))
        types, gangs = list(self.table), []
        for i in range(self.jobs):
            type_ = types[int(rng.integers(len(types)))]
            tasks, work = self.tasks[int(rng.integers(len(self.tasks)))], self.work * float(rng.uniform(0.6, 1.4))
            luck = {name: float(np.exp(self.luck * rng.standard_normal())) for name in self.table[type_]}
            seconds = {name: round(work / speed * luck[name], 3) for name, speed in self.table[type_].items()}
            gangs.append(Gang(f"g{i}", type_, tasks, float(arrival[i] - arrival[0]), work, seconds))
        return gangs

    def effects(self, seed: int) -> Mapping[str, float]:
        return server_effects(self.servers, self.effect, seed)
