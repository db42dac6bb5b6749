"""Hypothesis strategies for all families: problems, worlds, decisions; and for projections.

They need `pip install 'berth-scheduler[test]'`. Numbers are drawn from few plain values besides arbitrary ones, so
ties, zeros and exact fits come up often.

Axes: T slots, L ports, R servers, K resources, E channels, G pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from berth.errors import MissingExtra
from berth.families.allocation.checks import KINDS, ShrinkingWorld
from berth.families.allocation.problem import AllocationProblem, AllocationSlot, Gang
from berth.families.allocation.utility import Utilities
from berth.families.placement.problem import PlacementDecision, PlacementProblem, PlacementSlot, Tasks
from berth.families.placement.world import Failure, PlacementWorld
from berth.families.selection.checks import ShrinkingSelection
from berth.families.selection.gains import DrawnGains, Normal
from berth.families.selection.problem import Roles, SelectionProblem, SelectionSlot
from berth.model import Floats, Instance, Ints

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    raise MissingExtra("berth.testing.strategies", "test") from error

__all__ = [
    "ProjectionCase",
    "allocation_problems",
    "allocation_worlds",
    "decisions",
    "placement_decisions",
    "placement_problems",
    "placement_worlds",
    "projection_cases",
    "selection_decisions",
    "selection_problems",
    "selection_worlds",
]


def _amounts(most: float = 20.0) -> st.SearchStrategy[float]:
    """Numbers ≥ 0, often plain ones."""
    return st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0]) | st.floats(0.0, most, allow_subnormal=False)


def _array(values: Sequence[float], shape: tuple[int, ...]) -> Floats:
    return np.array(values, dtype=np.float64).reshape(shape)


@st.composite
def allocation_problems(
    draw: st.DrawFn, *, gangs: bool | None = False, arrivals_known: bool | None = None, largest: int = 4
) -> AllocationProblem:
    """Problems of up to `largest` ports and servers and 3 resources; `gangs` None draws both with and without."""
    ports, servers, resources = (draw(st.integers(1, n)) for n in (largest, largest, 3))
    cells = servers * resources
    capacity = _array(draw(st.lists(_amounts(), min_size=cells, max_size=cells)), (servers, resources))
    size = ports * resources
    demand = _array(draw(st.lists(_amounts(), min_size=size, max_size=size)), (ports, resources))
    every = [(port, server) for port in range(ports) for server in range(servers)]
    channels = draw(st.lists(st.sampled_from(every), unique=True))
    choice = np.array(draw(st.lists(st.integers(0, len(KINDS) - 1), min_size=cells, max_size=cells)))
    alpha = _array(draw(st.lists(st.floats(0.25, 2.0), min_size=cells, max_size=cells)), (servers, resources))
    gang = None
    if gangs or (gangs is None and draw(st.booleans())):
        jobs = draw(st.integers(1, ports))
        job = [*range(jobs), *draw(st.lists(st.integers(0, jobs - 1), min_size=ports - jobs, max_size=ports - jobs))]
        components = np.bincount(job, minlength=jobs)
        minimum = [draw(st.integers(0, int(n))) for n in components]
        gang = Gang(np.array(job), np.array(minimum), draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])))
    rows = (ports if gang is None else len(gang.minimum)) * resources
    overhead = _array(draw(st.lists(st.floats(0.0, 2.0), min_size=rows, max_size=rows)), (-1, resources))
    return AllocationProblem(
        Instance.from_arrays(capacity, demand, channels),
        Utilities(KINDS, choice.reshape(servers, resources), alpha),
        overhead,
        arrivals_known=draw(st.booleans()) if arrivals_known is None else arrivals_known,
        gang=gang,
    )


@st.composite
def allocation_worlds(
    draw: st.DrawFn, *, gangs: bool | None = False, arrivals_known: bool | None = None, longest: int = 6
) -> ShrinkingWorld:
    """Worlds of up to `longest` slots in which servers may lose part or all of their capacity, and regain it."""
    problem = draw(allocation_problems(gangs=gangs, arrivals_known=arrivals_known))
    slots = draw(st.integers(1, longest))
    many = slots * problem.jobs
    arrivals = _array(draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=many, max_size=many)), (slots, -1))
    servers = len(problem.instance.capacity)
    left = draw(st.lists(st.sampled_from([1.0, 1.0, 0.5, 0.0]), min_size=slots * servers, max_size=slots * servers))
    free = problem.instance.capacity * _array(left, (slots, servers, 1))
    return ShrinkingWorld(problem, arrivals, free)


@st.composite
def decisions(
    draw: st.DrawFn, problem: AllocationProblem, *, feasible: bool = True, free: Floats | None = None
) -> Floats:
    """Decisions (E, K) for this problem: feasible ones, or any array of numbers, NaN and infinity included."""
    shape = problem.cap.shape
    size = int(np.prod(shape))
    if not feasible:
        return _array(draw(st.lists(st.floats(width=64), min_size=size, max_size=size)), shape)
    parts = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0.0, 1.0), min_size=size, max_size=size))
    slot = AllocationSlot(0, problem.instance.capacity if free is None else free, None)
    return problem.repaired(slot, problem.cap * _array(parts, shape))


@dataclass(frozen=True, eq=False)
class ProjectionCase:
    """Project `target` (n,) onto 0 ≤ y ≤ `cap` (n,) with Σ y ≤ `capacity`."""

    target: Floats
    cap: Floats
    capacity: float


@st.composite
def projection_cases(draw: st.DrawFn, *, longest: int = 8, scale: float = 20.0) -> ProjectionCase:
    """Projections of one server and resource, with zeros, ties, and capacities that exactly fit all caps."""
    size = draw(st.integers(1, longest))
    target = draw(st.lists(st.integers(-5, 5) | st.floats(-scale, scale), min_size=size, max_size=size))
    cap = _array(draw(st.lists(_amounts(scale), min_size=size, max_size=size)), (size,))
    capacity = draw(st.sampled_from([0.0, float(cap.sum())]) | _amounts(scale))
    return ProjectionCase(_array(target, (size,)), cap, capacity)


@st.composite
def selection_problems(draw: st.DrawFn, *, gangs: bool | None = False, largest: int = 4) -> SelectionProblem:
    """Problems of up to `largest` ports and servers and 3 resources; `gangs` None draws both with and without."""
    ports, servers, resources = (draw(st.integers(1, n)) for n in (largest, largest, 3))

    def table(rows: int) -> Floats:
        size = rows * resources
        return _array(draw(st.lists(_amounts(), min_size=size, max_size=size)), (rows, resources))

    capacity, demand = table(servers), table(ports)
    every = [(port, server) for port in range(ports) for server in range(servers)]
    channels = draw(st.lists(st.sampled_from(every), unique=True))
    count = len(channels)
    roles = None
    if gangs or (gangs is None and draw(st.booleans())):
        jobs = draw(st.integers(1, ports))
        job = [*range(jobs), *draw(st.lists(st.integers(0, jobs - 1), min_size=ports - jobs, max_size=ports - jobs))]
        most = [draw(st.integers(1, 4)) for _ in range(ports)]
        roles = Roles(np.array(job), np.array([draw(st.integers(0, n)) for n in most]), np.array(most))
    cost = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]) | st.floats(-1.0, 2.0), min_size=count, max_size=count))
    return SelectionProblem(
        Instance.from_arrays(capacity, demand, channels),
        _array(cost, (count,)),
        # with gangs, the tasks of a role are all equal
        demand=table(count) if roles is None and draw(st.booleans()) else None,
        pool=table(1)[0] if draw(st.booleans()) else None,
        roles=roles,
    )


@st.composite
def selection_worlds(draw: st.DrawFn, *, gangs: bool | None = False, longest: int = 6) -> ShrinkingSelection:
    """Worlds of up to `longest` slots in which pools may lose part or all of their capacity, and regain it."""
    problem = draw(selection_problems(gangs=gangs))
    slots = draw(st.integers(1, longest))
    many = slots * problem.jobs
    arrivals = _array(draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=many, max_size=many)), (slots, -1))
    pools, count = len(problem.limits), len(problem.cost)
    left = draw(st.lists(st.sampled_from([1.0, 1.0, 0.5, 0.0]), min_size=slots * pools, max_size=slots * pools))
    means = draw(st.lists(st.floats(-1.0, 2.0), min_size=count, max_size=count))
    gains = DrawnGains(Normal(draw(st.sampled_from([0.0, 0.3]))), _array(means, (count,)), draw(st.integers(0, 2**32)))
    return ShrinkingSelection(problem, arrivals, gains, problem.limits * _array(left, (slots, pools, 1)))


@st.composite
def selection_decisions(
    draw: st.DrawFn, problem: SelectionProblem, slot: SelectionSlot, *, feasible: bool = True
) -> Ints:
    """Decisions (E,) for this slot: feasible ones, or any whole numbers."""
    count = len(problem.cost)
    tasks = st.integers(-3, 9) if not feasible else st.integers(0, 1 if problem.roles is None else 3)
    drawn = np.array(draw(st.lists(tasks, min_size=count, max_size=count)), dtype=np.int64)
    return problem.repaired(slot, drawn) if feasible else drawn


@st.composite
def placement_problems(draw: st.DrawFn, *, largest: int = 4) -> PlacementProblem:
    """Problems of up to `largest` servers and 2 resources."""
    servers, resources = draw(st.integers(1, largest)), draw(st.integers(1, 2))

    def column(values: st.SearchStrategy[float], size: int = servers) -> Floats:
        return _array(draw(st.lists(values, min_size=size, max_size=size)), (size,))

    return PlacementProblem.of_servers(
        column(_amounts(), servers * resources).reshape(servers, resources),
        column(st.sampled_from([1.0, 2.0]) | st.floats(0.5, 4.0)),
        column(st.sampled_from([0.0, 0.5, 2.0])),
        column(st.sampled_from([0.0, 0.1])),
        column(st.sampled_from([0.0, 0.25, 1.0]), resources),
        draw(st.sampled_from([0.0, 0.5, np.inf])),
    )


@st.composite
def placement_worlds(
    draw: st.DrawFn, *, failures: bool | None = None, longest: int = 5, most: int = 12
) -> PlacementWorld:
    """Worlds of up to `longest` batches and `most` tasks; with `failures` None servers may fail or not."""
    problem = draw(placement_problems())
    slots, size = draw(st.integers(1, longest)), draw(st.integers(0, most))
    period = draw(st.sampled_from([1.0, 0.5, 0.1]))
    resources = problem.instance.capacity.shape[1]

    def column(values: st.SearchStrategy[float], count: int = size) -> Floats:
        return _array(draw(st.lists(values, min_size=count, max_size=count)), (count,))

    arrival = period * np.sort(column(st.integers(0, slots - 1).map(float)))
    tasks = Tasks(
        arrival,
        column(_amounts(8.0), size * resources).reshape(size, resources),
        column(st.sampled_from([0.5, 1.0, 2.0]) | st.floats(0.1, 5.0)),
        column(_amounts(10.0)),
        column(st.sampled_from([0.0, 0.5, 1.0, 2.0])),
        arrival + column(st.sampled_from([0.0, 1.0, 3.0]) | st.floats(0.0, 8.0)),
    )
    found: list[Failure] = []
    if failures or (failures is None and draw(st.booleans())):
        moments = st.sampled_from([0.0, period, 1.5 * period]) | st.floats(0.0, 4.0)
        for _ in range(draw(st.integers(1, 3))):
            time, server = draw(moments), draw(st.integers(0, len(problem.speed) - 1))
            found.append(Failure(time, server, time + draw(st.sampled_from([0.5, 2.0, np.inf]))))
    return PlacementWorld(problem, tasks, slots, period, found)


@st.composite
def placement_decisions(
    draw: st.DrawFn, problem: PlacementProblem, slot: PlacementSlot, *, feasible: bool = True
) -> PlacementDecision:
    """Decisions for this slot, some of which start later: feasible ones, or any servers and starts."""
    size, servers = len(slot.ids), len(problem.speed)
    numbers = st.integers(-2, servers - 1) if feasible else st.integers(-4, servers + 2)
    server = np.array(draw(st.lists(numbers, min_size=size, max_size=size)), dtype=np.int64)
    start = None
    if draw(st.booleans()):
        later = st.sampled_from([0.0, 0.5, 1.0]) if feasible else st.floats(width=64)
        start = slot.time + _array(draw(st.lists(later, min_size=size, max_size=size)), (size,))
    decision = PlacementDecision(server, start)
    return problem.repaired(slot, decision) if feasible else decision
