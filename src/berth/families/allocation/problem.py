"""Allocation problem: how much of each resource every job gets through each channel (the OGASched papers).

In each slot, choose y ≥ 0 (E, K), at most the request through each channel and at most the free capacity of each
server. A job j that has arrived earns Σ f(y) over its channels and resources, minus its dominant overhead
max_k β_k Σ_r y. Nothing is carried to the next slot.

Axes: L ports, R servers, K resources, E channels, J jobs a slot (J = L unless ports are grouped).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from berth.capacity import TOLERANCE, Found, Violation, overfull, usage
from berth.errors import InvalidInput
from berth.families.allocation.kernels.lanes import Lanes, build_lanes
from berth.families.allocation.kernels.reward import decision_gradient, job_rewards
from berth.families.allocation.utility import Utilities
from berth.kernels.small import scale_to_fit
from berth.model import Berth, Floats, FrozenArrays, Instance, Ints, frozen_array

__all__ = ["AllocationOutcome", "AllocationProblem", "AllocationSlot", "Gang"]


@dataclass(frozen=True, eq=False)
class AllocationSlot:
    """One slot: free capacity (R, K) and, if the problem reveals them, the arrivals (J,), 0 or 1."""

    index: int
    free: Floats
    arrivals: Floats | None


@dataclass(frozen=True, eq=False)
class AllocationOutcome:
    """Outcome of the decision of slot `slot`: the arrivals, and reward = gain − overhead."""

    slot: int
    arrivals: Floats
    reward: float
    gain: float
    overhead: float


@dataclass(frozen=True, eq=False)
class Gang(FrozenArrays):
    """All-or-nothing jobs: ports grouped into jobs, each port a task component.

    `job_of_port` (L,) is the job of each component; `minimum` (J,) the number of components that a job needs. A
    component is *seated* if on at least one server it holds `share` of its request there; a job runs if enough
    components are seated, otherwise it must hold nothing. With `share` 0 any positive amount seats a component, as in
    the paper; then the constraint is void, because an arbitrarily small amount meets it.
    """

    job_of_port: Ints
    minimum: Ints
    share: float = 0.5

    def __post_init__(self) -> None:
        for name in ("job_of_port", "minimum"):
            array = np.array(getattr(self, name), dtype=np.int64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        jobs = len(self.minimum)
        if sorted(set(self.job_of_port.tolist())) != list(range(jobs)):
            raise InvalidInput(
                f"every job from 0 to {jobs - 1} at some port", value=self.job_of_port.tolist(), key="gang.job_of_port"
            )
        components = np.bincount(self.job_of_port, minlength=jobs)
        for job in np.flatnonzero((self.minimum < 0) | (self.minimum > components)):
            raise InvalidInput(
                f"between 0 and the job's {components[job]} components",
                value=int(self.minimum[job]),
                key=f"gang.minimum[{job}]",
            )
        if not 0.0 <= self.share <= 1.0:
            raise InvalidInput("a share between 0 and 1", value=self.share, key="gang.share")


@dataclass(frozen=True, eq=False)
class AllocationProblem(FrozenArrays):
    """What an allocation policy may know.

    `overhead` is β, (K,) or one row per job (J, K). `arrivals_known` says whether slots reveal the arrivals before the
    decision; it is equal for all policies compared. `horizon` is the number of slots if known; a policy may use it to
    size its steps.

    >>> graph = Instance.from_arrays([[5.0]], [[4.0], [4.0]], [(0, 0), (1, 0)])
    >>> problem = AllocationProblem(graph, Utilities(("log",), [[0]], [[1.0]]), overhead=[0.3])
    >>> slot = AllocationSlot(0, graph.capacity, None)
    >>> for violation in problem.violations(slot, np.array([[4.5], [2.0]])):
    ...     print(violation)
    request of port-0 on server-0/resource-0: 4.5 used, 4 allowed
    capacity of server-0/resource-0: 6.5 used, 5 allowed
    >>> gain, overhead = problem.reward([1, 0], np.array([[3.0], [2.0]]))
    >>> round(gain, 4), round(overhead, 4)
    (1.3863, 0.9)
    """

    family: ClassVar[str] = "allocation"
    instance: Instance
    utilities: Utilities
    overhead: Floats
    arrivals_known: bool = False
    horizon: int | None = None
    gang: Gang | None = None
    _lanes: dict[Any, Lanes] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.utilities.choice.shape != self.instance.capacity.shape:
            raise InvalidInput(
                f"one utility per server and resource, {self.instance.capacity.shape}",
                value=self.utilities.choice.shape,
                key="utilities",
            )
        if self.gang is not None and len(self.gang.job_of_port) != len(self.instance.ports):
            raise InvalidInput(
                f"one job index per port, {len(self.instance.ports)}",
                value=len(self.gang.job_of_port),
                key="gang.job_of_port",
            )
        resources = len(self.instance.cluster.resources)
        beta = np.asarray(self.overhead, dtype=np.float64)
        if beta.ndim == 1:
            beta = np.broadcast_to(beta, (self.jobs, len(beta)))
        object.__setattr__(self, "overhead", frozen_array(beta, "overhead", (self.jobs, resources)))
        if self.horizon is not None and self.horizon < 1:
            raise InvalidInput("at least 1 slot", value=self.horizon, key="horizon")

    @property
    def jobs(self) -> int:
        """J, the largest number of jobs in a slot."""
        return len(self.instance.ports) if self.gang is None else len(self.gang.minimum)

    @cached_property
    def channel_job(self) -> Ints:
        """Job that each channel serves, (E,)."""
        ports = self.instance.channel_port
        if self.gang is None:
            return ports
        job = self.gang.job_of_port[ports]
        job.setflags(write=False)
        return job

    @cached_property
    def cap(self) -> Floats:
        """Most that each channel may get, (E, K): the request of its port."""
        cap = self.instance.demand[self.instance.channel_port]
        cap.setflags(write=False)
        return cap

    def lanes(self, dtype: Any = np.float64) -> Lanes:
        """The kernels' layout of this problem, cached."""
        key = np.dtype(dtype)
        if key not in self._lanes:
            self._lanes[key] = build_lanes(
                self.instance.server_start,
                self.channel_job,
                self.cap,
                self.instance.capacity,
                self.utilities.kind,
                self.utilities.alpha,
                self.jobs,
                self.utilities.tables,
                key,
            )
        return self._lanes[key]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lanes": {}}

    def replace(self, **changes: Any) -> Self:
        """A copy with these fields changed, validated again."""
        return dataclasses.replace(self, **changes)

    def violations(self, slot: AllocationSlot, decision: Floats) -> Sequence[Violation]:
        """Every constraint that the decision breaks: shape, requests, capacities, gangs."""
        if np.shape(decision) != self.cap.shape:
            raise InvalidInput(f"a decision of shape {self.cap.shape}", value=np.shape(decision))
        graph = self.instance
        slack = TOLERANCE * (1.0 + self.cap)
        inside = (decision >= -TOLERANCE) & (decision <= self.cap + slack)
        full = overfull(graph, usage(graph, decision), slot.free)
        broken = self._broken_gangs(decision)
        if inside.all() and not full and not len(broken):
            return []

        def asked(place: Ints) -> Violation:
            e, k = place
            port = graph.ports[graph.channel_port[e]].name
            server = graph.cluster.servers[graph.channel_server[e]]
            where = f"{port} on {server}/{graph.cluster.resources[k].name}"
            kind = "request" if decision[e, k] > 0 else "sign" if decision[e, k] < 0 else "not a number"
            allowed = float(self.cap[e, k]) if kind == "request" else 0.0
            return Violation(kind, where, float(decision[e, k]), allowed)

        def gang(job: int) -> Violation:
            least = 0 if self.gang is None else self.gang.minimum[job]
            return Violation("gang", f"job-{job} (components seated)", float(self.seated(decision)[job]), float(least))

        return Found((np.argwhere(~inside), asked), (full, lambda one: one), (broken, gang))

    def seated(self, decision: Floats) -> Ints:
        """Number of seated components of each job, (J,); only for problems with gangs."""
        if self.gang is None:
            raise InvalidInput("a problem with gangs", key="gang")
        asked = self.cap > 0
        enough = (decision >= self.gang.share * self.cap * (1 - TOLERANCE)) | ~asked
        seat = enough.all(axis=1) & ((decision > 0) & asked).any(axis=1)
        ports = np.zeros(len(self.instance.ports), dtype=bool)
        ports[self.instance.channel_port[seat]] = True
        return np.bincount(self.gang.job_of_port, weights=ports, minlength=self.jobs).astype(np.int64)

    def _broken_gangs(self, decision: Floats) -> Ints:
        """Jobs that hold something without enough seated components."""
        if self.gang is None:
            return np.zeros(0, dtype=np.int64)
        holds = np.bincount(self.channel_job, weights=decision.sum(axis=1), minlength=self.jobs) > TOLERANCE
        return np.flatnonzero(holds & (self.seated(decision) < self.gang.minimum))

    def repaired(self, slot: AllocationSlot, decision: Floats) -> Floats:
        """Make the decision feasible: clip to requests, scale overfull servers down, empty broken gangs."""
        fixed = np.clip(np.nan_to_num(decision), 0.0, self.cap)
        scale_to_fit(self.instance.server_start, slot.free, fixed)
        if self.gang is not None:
            fixed[np.isin(self.channel_job, self._broken_gangs(fixed))] = 0.0
        return fixed

    def reward(self, arrivals: ArrayLike, decision: Floats) -> tuple[float, float]:
        """Gain and overhead of the jobs that arrived, (J,) 0 or 1; with arrival rates, their means."""
        gain, overhead = job_rewards(
            self.instance.server_start,
            self.channel_job,
            np.ascontiguousarray(decision, dtype=np.float64),
            self.utilities.kind,
            self.utilities.alpha,
            *self.utilities.tables,
            self.overhead,
            np.asarray(arrivals, dtype=np.float64),
            np.empty(self.overhead.shape),
        )
        return float(gain), float(overhead)

    def gradient(self, arrivals: ArrayLike, decision: Floats) -> Floats:
        """(Super)gradient of the reward at this decision, (E, K); ties in the overhead go to the first resource."""
        gradient = np.empty(self.cap.shape)
        slopes, _, steps = self.utilities.tables
        decision_gradient(
            self.instance.server_start,
            self.channel_job,
            np.ascontiguousarray(decision, dtype=np.float64),
            self.utilities.kind,
            self.utilities.alpha,
            slopes,
            steps,
            self.overhead,
            np.asarray(arrivals, dtype=np.float64),
            np.empty(self.overhead.shape),
            np.empty(self.jobs, dtype=np.int64),
            gradient,
        )
        return gradient

    def berths(self, slot: AllocationSlot, decision: Floats) -> list[Berth]:
        """A berth for each channel through which a job of this slot gets something."""
        graph = self.instance
        busy = (decision > 0).any(axis=1)
        if slot.arrivals is not None:
            busy &= slot.arrivals[self.channel_job] > 0
        return [
            Berth(
                graph.ports[graph.channel_port[e]].name,
                graph.cluster.servers[graph.channel_server[e]],
                tuple(float(v) for v in decision[e]),
                slot.index,
            )
            for e in np.flatnonzero(busy)
        ]
