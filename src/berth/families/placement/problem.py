"""Placement problem: which server for each task of a batch, and when (the DRL-Greedy paper).

Tasks arrive in batches. A task takes `demand` (K,) of one server for `work` / speed, and its value falls with time:
`value` − `decay` · (completion − arrival), never below 0, and 0 after its `deadline`. Running it costs; so does
launching a server that is off. The gain is value minus both.

Unlike in the other families, earlier decisions persist: tasks hold their servers until they end, and waiting tasks come
again in the next slot.

Batch jobs of real clusters need extensions, each optional: a task of several `pieces` takes its demand once for each,
on one server or several, all at the same time (`gangs`); tasks of a port may use only servers to which it has a
channel; the true run time may be unknown (`exact` false), `work` being the user's estimate; and one resource may come
in `devices` such as GPUs, of which tasks take a share of one, or whole ones.

Axes: N tasks, n pending tasks of a slot, R servers, K resources, Q kinds of servers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from berth.capacity import TOLERANCE, Violation
from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.placement.kernels.gathering import hold_all
from berth.families.placement.usage import usage
from berth.model import Berth, Cluster, Floats, FrozenArrays, Instance, Ints, JobType, Resource, frozen_array

__all__ = [
    "REJECT",
    "WAIT",
    "Berths",
    "PlacementDecision",
    "PlacementOutcome",
    "PlacementProblem",
    "PlacementSlot",
    "Tasks",
]

WAIT, REJECT = -1, -2
"""Entries of a decision instead of a server: ask again later, or never."""


def _left_out() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Tasks(FrozenArrays):
    """Tasks in order of arrival; every field (N,), `demand` (N, K).

    `demand` is that of each of the task's `pieces` (default: 1); `port` and `owner` are indices (default: 0).

    >>> tasks = Tasks(arrival=[0, 0], demand=[[2], [1]], work=[4, 2], value=[9, 5], decay=[1, 0.5], deadline=[6, 3])
    >>> tasks.worth(np.array([2.0, 3.5]))
    array([7., 0.])
    """

    arrival: Floats
    demand: Floats
    work: Floats
    value: Floats
    decay: Floats
    deadline: Floats
    pieces: Ints = field(default_factory=_left_out)
    port: Ints = field(default_factory=_left_out)
    owner: Ints = field(default_factory=_left_out)

    def __post_init__(self) -> None:
        size = len(np.atleast_1d(np.asarray(self.arrival)))
        for name, least in (("pieces", 1), ("port", 0), ("owner", 0)):
            given = np.asarray(getattr(self, name))
            numbers = np.full(size, least) if given.size == 0 else frozen_array(given, f"tasks.{name}", (size,), least)
            whole = numbers.astype(np.int64)
            for place in np.flatnonzero(whole != numbers):
                raise InvalidInput("a whole number", value=float(numbers[place]), key=f"tasks.{name}[{place}]")
            whole.setflags(write=False)
            object.__setattr__(self, name, whole)
        for name in ("arrival", "work", "value", "decay", "deadline"):
            object.__setattr__(self, name, frozen_array(getattr(self, name), f"tasks.{name}", (size,)))
        demand = frozen_array(self.demand, "tasks.demand")
        if demand.ndim != 2 or len(demand) != size:
            raise InvalidInput(f"demand ({size}, K)", value=demand.shape, key="tasks.demand")
        object.__setattr__(self, "demand", demand)
        for place in np.flatnonzero(self.work <= 0):
            raise InvalidInput("work > 0", value=float(self.work[place]), key=f"tasks.work[{place}]")
        for place in np.flatnonzero(np.diff(self.arrival) < 0):
            raise InvalidInput(
                "tasks in the order of their arrival", value=float(self.arrival[place + 1]), key=f"arrival[{place + 1}]"
            )

    def __len__(self) -> int:
        return len(self.arrival)

    def take(self, places: Ints) -> Tasks:
        """Subset of the tasks; `places` must be ascending."""
        some = object.__new__(Tasks)  # validated already: called in every slot
        for name in Tasks.__dataclass_fields__:
            part = getattr(self, name)[places]
            part.setflags(write=False)
            object.__setattr__(some, name, part)
        return some

    def worth(self, completion: Floats) -> Floats:
        """Value of each task (N,) if it is done at `completion` (N,)."""
        late = completion > self.deadline
        return np.where(late, 0.0, np.maximum(self.value - self.decay * (completion - self.arrival), 0.0))


@dataclass(frozen=True, eq=False)
class Berths:
    """Placed tasks, a row for each server of a task; every field (m,), `demand` (m, K).

    `end` is the estimated end; it lies in the past for a task that runs longer. `devices` (m, G) are the shares of each
    device of its server, if the problem has devices.
    """

    task: Ints
    server: Ints
    start: Floats
    end: Floats
    demand: Floats
    devices: Floats | None = None


@dataclass(frozen=True, eq=False)
class PlacementSlot:
    """A moment to decide: a batch has arrived, a task has ended, or a server was lost or came back.

    `index` numbers the intervals between batches; an interval has as many slots as moments. Pending are `tasks` (n,)
    with numbers `ids` (n,), the latest of which arrived now. `free` (R, K) is the free capacity of each server, 0 if it
    is down. A server is launched while `time` ≤ `on_until` (R,). `berths` are all running and reserved tasks. `devices`
    (R, G) is the free share of each device, 0 if a server has fewer, in problems with devices.
    """

    index: int
    time: float
    ids: Ints
    tasks: Tasks
    free: Floats
    on_until: Floats
    up: NDArray[np.bool_]
    berths: Berths
    devices: Floats | None = None


@dataclass(frozen=True, eq=False)
class PlacementDecision:
    """Server of each pending task (n,), `WAIT` or `REJECT`; and its start: now, unless `start` (n,) is given.

    For a task of several pieces `gangs` has, under its index among the pending, the server of each piece; its entry in
    `server` is then any of them. `order` has the indices of placed tasks as they take devices (default: ascending).
    """

    server: Ints
    start: Floats | None = None
    gangs: Mapping[int, Ints] = field(default_factory=dict)
    order: Ints | None = None


@dataclass(frozen=True, eq=False)
class PlacementOutcome:
    """Events since the slot before, and those of this slot's decision.

    `started`, `ended` and `lost` are numbers of tasks; `reward` is their sum: the value of those that started (certain
    then, unless the server fails), less the cost of running them and of launches. A lost task's value is subtracted
    again, and it is pending again.
    """

    slot: int
    time: float
    started: Ints
    ended: Ints
    lost: Ints
    value: float
    execution: float
    launch: float

    @property
    def reward(self) -> float:
        return self.value - self.execution - self.launch


@dataclass(frozen=True, eq=False)
class PlacementProblem(FrozenArrays):
    """What a placement policy may know besides the slots.

    A task of work w runs for w / `speed` (R,) and costs `rate` (R,) · `weight` (K,) · demand per unit of that time.
    Launching a server costs `launch` (R,); it stays on for `idle` after its last task, for ever if that is inf. A gang
    runs at the speed of its slowest server.

    With `gangs` tasks may have several pieces. Without `exact`, `work` is only an estimate, and nothing can be reserved
    for later. `devices` is the index of the resource that comes in devices; a piece takes either a share of one, the
    fullest that fits, or several whole ones.

    >>> problem = PlacementProblem.of_servers([[4.0], [2.0]], speed=[2.0, 1.0], launch=[1.0, 0.5], rate=[0.1, 0.1])
    >>> problem.kind
    array([1, 0])
    """

    family: ClassVar[str] = "placement"
    instance: Instance
    speed: Floats
    launch: Floats
    rate: Floats
    weight: Floats
    idle: float = 0.0
    horizon: int | None = None
    gangs: bool = False
    exact: bool = True
    devices: int | None = None

    def __post_init__(self) -> None:
        servers, resources = self.instance.capacity.shape
        if self.devices is not None:
            if not 0 <= self.devices < resources:
                raise InvalidInput(f"the number of a resource, below {resources}", value=self.devices, key="devices")
            amounts = self.instance.capacity[:, self.devices]
            for place in np.flatnonzero(amounts != np.floor(amounts)):
                raise InvalidInput("whole devices", value=float(amounts[place]), key=f"capacity[{place}]")
        for name in ("speed", "launch", "rate"):
            object.__setattr__(self, name, frozen_array(getattr(self, name), name, (servers,)))
        object.__setattr__(self, "weight", frozen_array(self.weight, "weight", (resources,)))
        for place in np.flatnonzero(self.speed <= 0):
            raise InvalidInput("a speed > 0", value=float(self.speed[place]), key=f"speed[{place}]")
        if not self.idle >= 0:
            raise InvalidInput("a time ≥ 0", value=self.idle, key="idle")
        if self.horizon is not None and self.horizon < 1:
            raise InvalidInput("at least 1 slot", value=self.horizon, key="horizon")

    @classmethod
    def of_servers(
        cls,
        capacity: ArrayLike,
        speed: ArrayLike,
        launch: ArrayLike,
        rate: ArrayLike,
        weight: ArrayLike | None = None,
        idle: float = 0.0,
        horizon: int | None = None,
        resources: tuple[Resource, ...] | None = None,
    ) -> PlacementProblem:
        """Build servers with generated names and one port with a channel to all."""
        array = np.asarray(capacity, dtype=np.float64)
        if array.ndim != 2:
            raise InvalidInput("capacity (R, K)", value=array.shape, key="capacity")
        named = resources or tuple(Resource(f"resource-{k}") for k in range(array.shape[1]))
        cluster = Cluster(named, tuple(f"server-{r}" for r in range(len(array))), array)
        pairs = np.stack([np.zeros(len(array), dtype=np.int64), np.arange(len(array))], axis=1)
        graph = Instance(cluster, (JobType("tasks", array.max(axis=0)),), pairs)
        given = np.ones(array.shape[1]) if weight is None else np.asarray(weight, dtype=np.float64)
        speed, launch, rate = (np.asarray(part, dtype=np.float64) for part in (speed, launch, rate))
        return cls(graph, speed, launch, rate, given, idle, horizon)

    @cached_property
    def kind(self) -> Ints:
        """Kind of each server (R,): identical servers are of one kind."""
        columns = [self.instance.capacity, self.speed[:, None], self.launch[:, None], self.rate[:, None]]
        kind: Ints = np.unique(np.hstack(columns), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
        kind.setflags(write=False)
        return kind

    @cached_property
    def reach(self) -> NDArray[np.bool_]:
        """Servers that each port's tasks may use, (L, R)."""
        reach = np.zeros((len(self.instance.ports), len(self.speed)), dtype=bool)
        reach[self.instance.channel_port, self.instance.channel_server] = True
        reach.setflags(write=False)
        return reach

    @cached_property
    def all_devices(self) -> Floats:
        """Total share of each device, (R, G): 1, or 0 if a server has fewer; (R, 0) without devices."""
        amounts = np.zeros(len(self.speed)) if self.devices is None else self.instance.capacity[:, self.devices]
        every: Floats = (np.arange(int(amounts.max(initial=0.0))) < amounts[:, None]).astype(np.float64)
        every.setflags(write=False)
        return every

    @cached_property
    def beyond_single(self) -> str:
        """Name of what goes beyond single tasks that may use any server; empty if nothing does."""
        if self.gangs:
            return "gangs"
        if not self.reach.all():
            return "ports that do not reach every server"
        return "" if self.devices is None else "devices"

    def require_single(self, who: str, *, exact: bool = False) -> None:
        """Refuse problems beyond single tasks that may use any server, for a policy that cannot serve them."""
        beyond = self.beyond_single or ("times that are not known exactly" if exact and not self.exact else "")
        if beyond:
            raise UnsupportedProblem(f"{who} cannot serve a problem with {beyond}")

    def replace(self, **changes: Any) -> Self:
        """A copy with these fields changed, validated again."""
        return dataclasses.replace(self, **changes)

    def placed(self, slot: PlacementSlot, decision: PlacementDecision) -> Berths:
        """Berths of a well-formed decision."""
        given = decision.server >= 0
        places = np.flatnonzero(given)
        if (order := decision.order) is not None:  # tasks that it leaves out come last
            first = order[(order >= 0) & (order < len(given))]
            first = first[given[first]]
            given[first] = False
            places = np.concatenate([first, np.flatnonzero(given)])
        server, count = decision.server[places].astype(np.int64), np.ones(len(places))
        slowest = self.speed[server]
        if decision.gangs:
            rows = [
                np.unique(np.asarray(decision.gangs.get(int(i), server[j : j + 1])), return_counts=True)
                for j, i in enumerate(places)
            ]
            slowest = np.repeat([self.speed[r].min() for r, _ in rows], [len(r) for r, _ in rows])
            places = np.repeat(places, [len(r) for r, _ in rows])
            server = np.concatenate([r for r, _ in rows]) if rows else server
            count = np.concatenate([c for _, c in rows]) if rows else count
        start = np.full(len(places), slot.time) if decision.start is None else decision.start[places]
        end = start + slot.tasks.work[places] / slowest
        demand = slot.tasks.demand[places] * count[:, None]
        devices = None
        if self.devices is not None and slot.devices is not None:
            devices = np.zeros((len(places), slot.devices.shape[1]))
            share = np.ascontiguousarray(slot.tasks.demand[places, self.devices])
            hold_all(server, share, count.astype(np.int64), slot.devices.copy(), devices)
        return Berths(slot.ids[places], server, start, end, demand, devices)

    def violations(self, slot: PlacementSlot, decision: PlacementDecision) -> list[Violation]:
        """Every constraint that the decision breaks: servers that are up, no start in the past, capacities."""
        self._check_shape(slot, decision)
        servers = len(self.speed)
        found = [
            Violation("server", f"task {slot.ids[i]}", float(decision.server[i]), float(servers - 1))
            for i in np.flatnonzero((decision.server >= servers) | (decision.server < REJECT))
        ]
        found = found or self._broken_gangs(slot, decision)
        if found:
            return found
        new = self.placed(slot, decision)
        if decision.start is not None:
            found = [
                Violation("start", f"task {new.task[i]}", float(new.start[i]), slot.time)
                for i in np.flatnonzero(~(new.start >= slot.time) | ((new.start > slot.time) & ~self._may_reserve))
            ]
            if found:
                return found
        port = slot.tasks.port[np.searchsorted(slot.ids, new.task)]
        names, resources = self.instance.cluster.servers, self.instance.cluster.resources
        found = [
            Violation("channel", f"task {new.task[i]} on {names[new.server[i]]}", 1.0, 0.0)
            for i in np.flatnonzero(~self.reach[port, new.server])
        ]
        later = decision.start is not None or (slot.berths.start > slot.time).any()
        total = np.zeros_like(self.instance.capacity)
        np.add.at(total, slot.berths.server, slot.berths.demand)
        np.add.at(total, new.server, new.demand)
        room = self.instance.capacity + TOLERANCE * (1.0 + self.instance.capacity)
        suspect = ~slot.up | later | (total > room).any(axis=1)
        for r in np.unique(new.server[suspect[new.server]]) if suspect.any() else ():
            if not slot.up[r]:
                found.append(Violation("server", f"{names[r]}, which is down", float((new.server == r).sum()), 0.0))
                continue
            used = self._most_used(slot, new, int(r)) if later else total[r]
            for k in np.flatnonzero(used > room[r]):
                where = f"{names[r]}/{resources[k].name}"
                found.append(Violation("capacity", where, float(used[k]), float(self.instance.capacity[r, k])))
        if new.devices is not None:
            lacking = new.demand[:, self.devices] - new.devices.sum(axis=1)
            found += [
                Violation("device", f"{names[new.server[i]]} for task {new.task[i]}", float(lacking[i]), 0.0)
                for i in np.flatnonzero(lacking > TOLERANCE * (1.0 + new.demand[:, self.devices]))
            ]
        return found

    @property
    def _may_reserve(self) -> bool:
        return self.exact and self.devices is None

    def _broken_gangs(self, slot: PlacementSlot, decision: PlacementDecision) -> list[Violation]:
        """Incomplete gangs: every piece of a task that starts needs a server that is up."""
        found: list[Violation] = []
        for i, servers in decision.gangs.items():
            if not 0 <= i < len(slot.ids):
                found.append(Violation("task", f"place {i} among the pending", float(i), float(len(slot.ids) - 1)))
                continue
            listed = np.asarray(servers)
            whole = listed.ndim == 1 and np.issubdtype(listed.dtype, np.integer)
            if not whole or ((listed < 0) | (listed >= len(self.speed))).any():
                found.append(Violation("server", f"gang of task {slot.ids[i]}", -1.0, float(len(self.speed) - 1)))
        if found:
            return found
        if not decision.gangs and (slot.tasks.pieces == 1).all():
            return []
        for place in np.flatnonzero(decision.server >= 0).tolist():
            given = len(decision.gangs[place]) if place in decision.gangs else 1
            if given != slot.tasks.pieces[place]:
                wanted = float(slot.tasks.pieces[place])
                found.append(Violation("pieces", f"task {slot.ids[place]}", float(given), wanted))
        return found

    def _check_shape(self, slot: PlacementSlot, decision: PlacementDecision) -> None:
        size = len(slot.ids)
        if not isinstance(decision, PlacementDecision):
            raise InvalidInput("a PlacementDecision", value=type(decision).__name__)
        if np.shape(decision.server) != (size,):
            raise InvalidInput(f"a server for each of {size} tasks", value=np.shape(decision.server))
        if decision.start is not None and np.shape(decision.start) != (size,):
            raise InvalidInput(f"a start for each of {size} tasks", value=np.shape(decision.start))

    def _most_used(self, slot: PlacementSlot, new: Berths, server: int) -> Floats:
        """Highest use of each resource (K,) at any time on a server: it only rises when a task starts."""
        here, there = new.server == server, slot.berths.server == server
        start = np.concatenate([slot.berths.start[there], new.start[here]])
        end = np.concatenate([slot.berths.end[there], new.end[here]])
        demand = np.concatenate([slot.berths.demand[there], new.demand[here]])
        most: Floats = usage(slot.time, start, end, demand)[1].max(axis=0)
        return most

    def repaired(self, slot: PlacementSlot, decision: PlacementDecision) -> PlacementDecision:
        """Make the decision feasible: a task that does not fit beside those before it waits."""
        server = np.nan_to_num(np.asarray(decision.server, dtype=np.float64), nan=WAIT, posinf=WAIT, neginf=WAIT)
        fixed = np.where((server < REJECT) | (server >= len(self.speed)), WAIT, server).astype(np.int64)
        start = None if decision.start is None else np.array(decision.start, dtype=np.float64)
        if start is not None:
            fixed = np.where((fixed >= 0) & ~(np.isfinite(start) & (start >= slot.time)), WAIT, fixed)
            start = np.where(np.isfinite(start), start, slot.time)
        kept = np.full(len(fixed), WAIT)
        kept[fixed == REJECT] = REJECT
        gangs = {i: servers for i, servers in decision.gangs.items() if 0 <= i < len(fixed)}
        for i in np.flatnonzero(fixed >= 0).tolist():
            kept[i] = fixed[i]
            if gangs:  # tasks that share a server with a gang may be anywhere
                beside, whole = kept, {j: gangs[j] for j in gangs if kept[j] >= 0}
            else:
                beside, whole = np.where((kept == fixed[i]) | (kept < 0), kept, WAIT), {}
            if self.violations(slot, PlacementDecision(beside, start, whole, decision.order)):
                kept[i] = WAIT
        return PlacementDecision(kept, start, {i: gangs[i] for i in gangs if kept[i] >= 0}, decision.order)

    def berths(self, slot: PlacementSlot, decision: PlacementDecision) -> list[Berth]:
        """A berth for each placed task and each of its servers."""
        new = self.placed(slot, decision)
        ports, names = self.instance.ports, self.instance.cluster.servers
        port = slot.tasks.port[np.searchsorted(slot.ids, new.task)]
        return [
            Berth(ports[p].name, names[r], tuple(float(v) for v in demand), slot.index)
            for p, r, demand in zip(port, new.server, new.demand, strict=True)
        ]
