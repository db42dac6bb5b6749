"""Selection problem: which channels to open when the gain of each is unknown (the ESDP papers).

In each slot some ports have a job. Through a channel e of such a port n_e tasks may be placed (0 or 1, unless the
problem has gangs); each yields a noisy gain with an unknown mean and costs a known amount. A task takes `demand` (E,
K), which must fit in the free capacity of the channel's **pool**: its server, or the whole cluster as in the papers.
Only the gains of opened channels are observed.

Axes: L ports, R servers, K resources, E channels, G pools, J jobs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from berth.capacity import TOLERANCE, Violation
from berth.errors import InvalidInput
from berth.model import Berth, Floats, FrozenArrays, Instance, Ints, frozen_array

__all__ = ["Roles", "SelectionOutcome", "SelectionProblem", "SelectionSlot"]


@dataclass(frozen=True, eq=False)
class SelectionSlot:
    """One slot: free capacity of each pool (G, K), and arrived jobs (J,), 0 or 1."""

    index: int
    free: Floats
    arrivals: Floats


@dataclass(frozen=True, eq=False)
class SelectionOutcome:
    """Outcome of the decision of slot `slot`.

    `channels` (n,) were opened with `tasks` (n,) each; `gains` (n,) is the total gain of each, before costs. `reward`
    is all gains minus all costs.
    """

    slot: int
    channels: Ints
    tasks: Ints
    gains: Floats
    reward: float


@dataclass(frozen=True, eq=False)
class Roles(FrozenArrays):
    """Gangs: every port is a role of a job, and a job starts with enough tasks of every role or not at all.

    `job_of_port` (L,) is the job of each role, `minimum` and `most` (L,) bound the number of tasks of the role in a
    started job. Any number of them may share a channel while they fit.
    """

    job_of_port: Ints
    minimum: Ints
    most: Ints

    def __post_init__(self) -> None:
        for name in ("job_of_port", "minimum", "most"):
            array = np.array(getattr(self, name), dtype=np.int64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if not self.job_of_port.shape == self.minimum.shape == self.most.shape:
            raise InvalidInput("one entry per port in job_of_port, minimum and most", key="roles")
        jobs = self.jobs
        if sorted(set(self.job_of_port.tolist())) != list(range(jobs)):
            raise InvalidInput(
                f"every job from 0 to {jobs - 1} at some port", value=self.job_of_port.tolist(), key="roles.job_of_port"
            )
        for port in np.flatnonzero((self.minimum < 0) | (self.minimum > self.most) | (self.most < 1)):
            raise InvalidInput(
                "0 ≤ minimum ≤ most and most ≥ 1",
                value=(int(self.minimum[port]), int(self.most[port])),
                key=f"roles[{port}]",
            )

    @property
    def jobs(self) -> int:
        """J, the number of jobs."""
        return int(self.job_of_port.max()) + 1 if self.job_of_port.size else 0


@dataclass(frozen=True, eq=False)
class SelectionProblem(FrozenArrays):
    """What a selection policy may know.

    `cost` (E,) is the supply cost of a task through each channel; `demand` (E, K) its demand, by default the request of
    the port. With `pool` (K,) capacity is one pool for the whole cluster, as in the papers; without it, each server is
    its own pool. `horizon` is the number of slots if known.

    >>> graph = Instance.from_arrays([[2.0], [1.0]], [[1.0], [1.0]], [(0, 0), (1, 0), (1, 1)])
    >>> problem = SelectionProblem(graph, cost=[0.1, 0.2, 0.0])
    >>> slot = SelectionSlot(0, problem.limits, np.array([1.0, 0.0]))
    >>> [str(v) for v in problem.violations(slot, np.array([1, 0, 1]))]
    ['arrival of port-1 on server-1: 1 used, 0 allowed']
    """

    family: ClassVar[str] = "selection"
    instance: Instance
    cost: Floats
    demand: Floats | None = None
    pool: Floats | None = None
    horizon: int | None = None
    roles: Roles | None = None

    def __post_init__(self) -> None:
        graph = self.instance
        channels, resources = len(graph.channel_port), len(graph.cluster.resources)
        object.__setattr__(self, "cost", frozen_array(self.cost, "cost", (channels,), low=-np.inf))
        demand = graph.demand[graph.channel_port] if self.demand is None else self.demand
        object.__setattr__(self, "demand", frozen_array(demand, "demand", (channels, resources)))
        if self.pool is not None:
            object.__setattr__(self, "pool", frozen_array(self.pool, "pool", (resources,)))
        if self.roles is not None and len(self.roles.job_of_port) != len(graph.ports):
            raise InvalidInput(
                f"one role per port, {len(graph.ports)}", value=len(self.roles.job_of_port), key="roles.job_of_port"
            )
        if self.horizon is not None and self.horizon < 1:
            raise InvalidInput("at least 1 slot", value=self.horizon, key="horizon")

    @property
    def takes(self) -> Floats:
        """Demand of one task through each channel, (E, K)."""
        if self.demand is None:  # set in __post_init__
            raise InvalidInput("a demand", key="demand")
        return self.demand

    @property
    def jobs(self) -> int:
        """J, the largest number of jobs in a slot."""
        return len(self.instance.ports) if self.roles is None else self.roles.jobs

    @cached_property
    def channel_job(self) -> Ints:
        """Job that each channel serves, (E,)."""
        ports = self.instance.channel_port
        if self.roles is None:
            return ports
        jobs = self.roles.job_of_port[ports]
        jobs.setflags(write=False)
        return jobs

    @cached_property
    def channel_pool(self) -> Ints:
        """Pool that each channel draws from, (E,)."""
        if self.pool is None:
            return self.instance.channel_server
        pools = np.zeros(len(self.instance.channel_port), dtype=np.int64)
        pools.setflags(write=False)
        return pools

    @cached_property
    def limits(self) -> Floats:
        """Whole capacity of each pool, (G, K)."""
        return self.instance.capacity if self.pool is None else frozen_array(self.pool[None], "pool")

    def replace(self, **changes: Any) -> Self:
        """A copy with these fields changed, validated again."""
        return dataclasses.replace(self, **changes)

    def available(self, slot: SelectionSlot) -> Any:
        """Channels (E,) of jobs that have arrived."""
        return slot.arrivals[self.channel_job] > 0

    def usage(self, decision: ArrayLike) -> Floats:
        """Use of each pool by a decision (E,), (G, K)."""
        tasks = np.asarray(decision, dtype=np.float64)
        used = np.zeros(self.limits.shape)
        np.add.at(used, self.channel_pool, tasks[:, None] * self.takes)
        return used

    def violations(self, slot: SelectionSlot, decision: Ints) -> list[Violation]:
        """Every constraint that the decision breaks: whole numbers, arrivals, capacities, gangs."""
        graph = self.instance
        tasks = np.asarray(decision)
        if tasks.shape != self.cost.shape:
            raise InvalidInput(f"a decision of shape {self.cost.shape}", value=tasks.shape)
        found: list[Violation] = []
        most = np.inf if self.roles is not None else 1.0
        whole = (tasks >= 0) & (tasks <= most) & (tasks == np.floor(tasks))
        allowed = 1.0 if self.roles is None else 0.0
        absent = (tasks > 0) & ~self.available(slot)
        found += [Violation("count", self._channel(int(e)), float(tasks[e]), allowed) for e in np.flatnonzero(~whole)]
        found += [Violation("arrival", self._channel(int(e)), float(tasks[e]), 0.0) for e in np.flatnonzero(absent)]
        used = self.usage(np.where(np.isfinite(tasks), tasks, 0.0))
        for g, k in np.argwhere(used > slot.free + TOLERANCE * (1.0 + slot.free)):
            where = f"{self._pool_name(int(g))}/{graph.cluster.resources[k].name}"
            found.append(Violation("capacity", where, float(used[g, k]), float(slot.free[g, k])))
        if self.roles is not None:
            found.extend(violation for _, violation in self._broken_gangs(tasks))
        return found

    def _pool_name(self, pool: int) -> str:
        return "the cluster" if self.pool is not None else self.instance.cluster.servers[pool]

    def _channel(self, e: int) -> str:
        graph = self.instance
        return f"{graph.ports[graph.channel_port[e]].name} on {graph.cluster.servers[graph.channel_server[e]]}"

    def _broken_gangs(self, tasks: Any) -> list[tuple[int, Violation]]:
        """Every port (role) whose gang is broken, and how."""
        roles = self.roles
        if roles is None:
            return []
        placed = np.bincount(self.instance.channel_port, weights=tasks, minlength=len(self.instance.ports))
        started = np.bincount(roles.job_of_port, weights=placed, minlength=roles.jobs) > 0
        found = []
        few, many = started[roles.job_of_port] & (placed < roles.minimum), placed > roles.most
        for broken, words, limit in ((few, "at least", roles.minimum), (many, "at most", roles.most)):
            for port in np.flatnonzero(broken):
                where = f"{self.instance.ports[port].name} (tasks, {words})"
                found.append((int(port), Violation("gang", where, float(placed[port]), float(limit[port]))))
        return found

    def repaired(self, slot: SelectionSlot, decision: Ints) -> Ints:
        """Make the decision feasible: drop absent jobs, the last channels of overfull pools, and broken gangs."""
        tasks = np.nan_to_num(np.asarray(decision, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        fixed = np.maximum(np.floor(tasks), 0).astype(np.int64)
        if self.roles is None:
            fixed = np.minimum(fixed, 1)
        fixed[~self.available(slot)] = 0
        limit = slot.free + TOLERANCE * (1.0 + slot.free)
        over = (self.usage(fixed) > limit).any(axis=1)
        for pool in np.flatnonzero(over):
            opened = np.flatnonzero((self.channel_pool == pool) & (fixed > 0))
            # cumulative use by the first channels of the pool; the last ones are dropped
            used = np.cumsum(fixed[opened, None] * self.takes[opened], axis=0)
            fixed[opened[(used > limit[pool]).any(axis=1)]] = 0
        if self.roles is not None:
            while broken := self._broken_gangs(fixed):
                fixed[self.channel_job == self.roles.job_of_port[broken[0][0]]] = 0
        return fixed

    def unserved(self, slot: SelectionSlot, decision: ArrayLike) -> list[str]:
        """Reason why each arrived but unserved job got nothing, one line each.

        It reaches no server; or there is no room for it even alone; or others were chosen.

        >>> graph = Instance.from_arrays([[2.0], [1.0]], [[1.0], [2.0], [1.0]], [(0, 0), (1, 1)])
        >>> problem = SelectionProblem(graph, cost=[0.1, 0.2])
        >>> slot = SelectionSlot(0, problem.limits, np.ones(3))
        >>> for line in problem.unserved(slot, np.array([0, 0])):
        ...     print(line)
        port-0: others were chosen, or it would not pay
        port-1: no room: server-1 has 1 resource-0 free, and a task takes 2
        port-2: no channel to any server
        """
        served = np.bincount(self.channel_job, weights=np.asarray(decision), minlength=self.jobs) > 0
        return [self._reason(slot, int(job)) for job in np.flatnonzero((slot.arrivals > 0) & ~served)]

    def _reason(self, slot: SelectionSlot, job: int) -> str:
        graph, roles = self.instance, self.roles
        ports = [job] if roles is None else [int(port) for port in np.flatnonzero(roles.job_of_port == job)]
        for port in ports:
            name, least = graph.ports[port].name, 1 if roles is None else int(roles.minimum[port])
            channels = np.flatnonzero(graph.channel_port == port)
            takes, room = self.takes[channels], slot.free[self.channel_pool[channels]]
            with np.errstate(divide="ignore", invalid="ignore"):
                fits = np.where(takes > 0, np.floor(room / takes + TOLERANCE), np.inf)
            count = fits.min(axis=1, initial=np.inf)  # tasks of this role alone, (channels,)
            if count.sum() >= least:
                continue
            if not len(channels):
                return f"{name}: no channel to any server"
            if count.any():
                return f"{name}: room for {count.sum():g} tasks at most, and a job needs {least}"
            near = int((fits < 1).sum(axis=1).argmin())  # the server that lacks the fewest resources
            k = int((fits[near] < 1).argmax())
            pool, resource = self._pool_name(int(self.channel_pool[channels[near]])), graph.cluster.resources[k].name
            return f"{name}: no room: {pool} has {room[near, k]:g} {resource} free, and a task takes {takes[near, k]:g}"
        together = "" if len(ports) == 1 else ", or its roles do not fit together"
        return f"{graph.ports[ports[0]].name}: others were chosen, or it would not pay{together}"

    def berths(self, slot: SelectionSlot, decision: Ints) -> list[Berth]:
        """A berth for each opened channel."""
        graph = self.instance
        return [
            Berth(
                graph.ports[graph.channel_port[e]].name,
                graph.cluster.servers[graph.channel_server[e]],
                tuple(float(v) for v in decision[e] * self.takes[e]),
                slot.index,
            )
            for e in np.flatnonzero(decision)
        ]
