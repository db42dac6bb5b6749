"""Instances on which `check_policy` tries placement policies.

Axes: N tasks, T batches, R servers, K resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from berth.families.cases import SLOTS, Case, CheckFamily
from berth.families.placement.policies.printed import DRLDirect
from berth.families.placement.policies.random import RandomPlacement
from berth.families.placement.problem import PlacementDecision, PlacementProblem, Tasks
from berth.families.placement.world import Failure, PlacementWorld
from berth.model import Floats
from berth.random import stream

__all__ = ["PLACEMENT"]


def malformed(problem: PlacementProblem, decision: Any) -> str | None:
    """Reason why this is not a decision; None if it has servers, and optionally starts, of equal length."""
    if not isinstance(decision, PlacementDecision):
        return f"a {type(decision).__name__}"
    server: Any = decision.server
    start: Any = decision.start
    if not isinstance(server, np.ndarray):
        return f"servers in a {type(server).__name__}"
    if not np.issubdtype(server.dtype, np.integer):
        return f"servers in an array of {server.dtype}"
    if server.ndim != 1:
        return f"servers of shape {server.shape}"
    if start is None:
        return None
    if not (isinstance(start, np.ndarray) and np.issubdtype(start.dtype, np.floating)):
        return "starts that are no array of floats"
    return None if start.shape == server.shape else f"{start.shape} starts for {server.shape} servers"


def parts(problem: PlacementProblem) -> Any:
    """Arrays of a problem, including cached ones."""
    graph = problem.instance
    return (graph, graph.capacity, problem.speed, problem.launch, problem.rate, problem.weight, problem.kind)


# Styles of random instance: sizes, whether demands are whole numbers, the scale of capacities, the mean batch size,
# the range of speeds, the scale of launch costs, the idle time until servers go off, times up and down, and the most
# pieces of a task: above 1 the problem has gangs.
@dataclass(frozen=True)
class _Style:
    servers: int = 4
    resources: int = 2
    whole: bool = False
    plenty: float = 1.0
    batch: float = 3.0
    speed: tuple[float, float] = (1.0, 4.0)
    alike: bool = False
    launch: float = 1.0
    rate: float = 0.05
    idle: float = 0.0
    period: float = 1.0
    no_demand: float = 0.0
    no_capacity: float = 0.0
    decay: tuple[float, ...] = (0.5, 1.0, 2.0)
    up_down: tuple[float, float] | None = None
    pieces: int = 1


_STYLES = {
    "ordinary": _Style(),
    "whole numbers": _Style(whole=True),
    "servers all alike": _Style(alike=True, whole=True, servers=6),
    "one server": _Style(servers=1, plenty=3.0),
    "one resource": _Style(resources=1, whole=True),
    "many servers": _Style(servers=20, resources=3),
    "scarce": _Style(servers=2, batch=8.0),
    "plenty": _Style(plenty=50.0),
    "zero demands": _Style(no_demand=0.5),
    "zero capacities": _Style(no_capacity=0.5),
    "free launches": _Style(launch=0.0),
    "dear launches": _Style(launch=20.0),
    "never off": _Style(idle=np.inf),
    "off after a while": _Style(idle=0.7),
    "costs above values": _Style(rate=100.0),
    "no hurry": _Style(decay=(0.0,)),
    "short period": _Style(period=0.1),
    "servers fail and come back": _Style(up_down=(6.0, 2.0), batch=5.0),
    "servers mostly down": _Style(up_down=(1.0, 3.0)),
    "gangs": _Style(pieces=4, servers=6),
    "gangs on equal servers": _Style(pieces=8, servers=5, alike=True, whole=True),
    "gangs while servers fail": _Style(pieces=4, servers=5, plenty=2.0, up_down=(6.0, 2.0)),
}


def random_problem(rng: np.random.Generator, style: _Style, horizon: int | None) -> PlacementProblem:
    """A problem of this style."""
    shape = (style.servers, style.resources)
    capacity = style.plenty * rng.uniform(3.0, 10.0, shape) * (rng.random(shape) >= style.no_capacity)
    speed = rng.uniform(*style.speed, style.servers)
    if style.alike:
        capacity, speed = np.tile(capacity[0], (style.servers, 1)), np.full(style.servers, speed[0])
    if style.whole:
        capacity = np.floor(capacity)
    problem = PlacementProblem.of_servers(
        capacity,
        speed,
        style.launch * capacity.sum(axis=1) / (10 * style.plenty),
        style.rate * speed,
        rng.uniform(0.2, 1.0, style.resources),
        style.idle,
        horizon,
    )
    return problem.replace(gangs=True) if style.pieces > 1 else problem


def _tasks(rng: np.random.Generator, style: _Style, slots: int) -> Tasks:
    arrival: Floats = style.period * np.repeat(np.arange(slots), rng.poisson(style.batch, slots)).astype(np.float64)
    shape = (len(arrival), style.resources)
    demand = rng.integers(1, 5, shape).astype(np.float64) if style.whole else rng.uniform(0.3, 4.0, shape)
    value = rng.uniform(0.5, 10.0, len(arrival))
    work = value * rng.uniform(0.5, 1.5, len(arrival))
    return Tasks(
        arrival,
        demand * (rng.random(shape) >= style.no_demand),
        work,
        value,
        rng.choice(style.decay, len(arrival)),
        arrival + rng.uniform(0.5, 3.0, len(arrival)) * work / 2,
        rng.integers(1, style.pieces + 1, len(arrival)) if style.pieces > 1 else np.ones(len(arrival), dtype=np.int64),
    )


def _failures(rng: np.random.Generator, style: _Style, slots: int) -> list[Failure]:
    found: list[Failure] = []
    if style.up_down is None:
        return found
    for server in range(style.servers):
        time = rng.exponential(style.up_down[0])
        while time < slots * style.period:
            until = time + 1e-3 + rng.exponential(style.up_down[1])
            found.append(Failure(float(time), server, float(until)))
            time = until + rng.exponential(style.up_down[0])
    return found


def _random_world(seed: int, name: str, style: _Style, slots: int) -> PlacementWorld:
    rng = stream(seed, "check_policy", "placement", name)
    problem = random_problem(rng, style, slots if slots > SLOTS or rng.random() < 0.5 else None)
    return PlacementWorld(problem, _tasks(rng, style, slots), slots, style.period, _failures(rng, style, slots))


def random_cases(seed: int) -> Iterator[Case]:
    """Random instances of every style."""
    for name, style in _STYLES.items():
        yield Case(f"random instance {name!r}", partial(_random_world, seed, name, style, SLOTS))


def _scaled(seed: int, name: str, scale: float) -> PlacementWorld:
    """World with scaled capacities and demands, and scaled values and costs."""
    rng = stream(seed, "check_policy", "placement", "edge", name)
    problem = random_problem(rng, _Style(), SLOTS)
    tasks = _tasks(rng, _Style(), SLOTS)
    cluster = problem.instance.cluster.replace(capacity=problem.instance.capacity * scale)
    problem = problem.replace(
        instance=problem.instance.replace(cluster=cluster), launch=problem.launch * scale, rate=problem.rate
    )
    tasks = Tasks(
        tasks.arrival, tasks.demand * scale, tasks.work, tasks.value * scale, tasks.decay * scale, tasks.deadline
    )
    return PlacementWorld(problem, tasks, SLOTS)


def _still(
    seed: int,
    name: str,
    capacity: Sequence[Sequence[float]],
    style: _Style,
    failures: Sequence[Failure] = (),
    first: int = 0,
) -> PlacementWorld:
    """World with given servers; batches before `first` are empty."""
    rng = stream(seed, "check_policy", "placement", "edge", name)
    speed = np.arange(1, len(capacity) + 1).astype(np.float64)
    problem = PlacementProblem.of_servers(
        capacity, speed, np.full(len(speed), style.launch), 0.05 * speed, idle=style.idle, horizon=SLOTS
    ).replace(gangs=style.pieces > 1)
    tasks = _tasks(rng, style, SLOTS)
    return PlacementWorld(problem, tasks.take(np.flatnonzero(tasks.arrival >= first)), SLOTS, 1.0, failures)


def edge_cases(seed: int) -> Iterator[Case]:
    """Edge cases."""
    two = [[5.0, 5.0], [8.0, 3.0]]
    plain, never = _Style(whole=True), _Style(whole=True, idle=np.inf)
    # one server is lost in the middle of a batch, then the other; at the end both are back
    lost = [Failure(4.5, 0, 9.5), Failure(8.0, 1, 13.0)]
    given: dict[str, tuple[list[list[float]], _Style, list[Failure], int]] = {
        "no tasks ever": (two, plain, [], SLOTS),
        "nothing in the first batches": (two, plain, [], 7),
        "zero capacity everywhere": ([[0.0, 0.0], [0.0, 0.0]], plain, [], 0),
        "tasks larger than any server": ([[0.5, 9.0], [9.0, 0.5]], plain, [], 0),
        "one server": ([[5.0, 5.0]], plain, [], 0),
        "one server of room for one": ([[4.0, 4.0]], _Style(whole=True, batch=6.0), [], 0),
        "zero demands everywhere": (two, _Style(no_demand=1.0), [], 0),
        "servers lost mid-run": (two, plain, lost, 0),
        "servers lost mid-run that are never off": (two, never, lost, 0),
        "a server that fails twice at once": (two, plain, [Failure(3.0, 1, 6.0), Failure(3.0, 1, 8.5)], 0),
        "all servers down from the start": (two, plain, [Failure(0.0, 0), Failure(0.0, 1)], 0),
        "gangs of more pieces than servers": (two, _Style(whole=True, pieces=9), [], 0),
        "gangs that lose a server": (two, _Style(whole=True, pieces=3), lost, 0),
        "all servers lost for good": (two, plain, [Failure(6.2, 0), Failure(6.2, 1)], 0),
    }
    for name, (capacity, style, failures, first) in given.items():
        yield Case(name, partial(_still, seed, name, capacity, style, failures, first))
    for scale in (1e9, 1e-6):
        yield Case(f"numbers of size {scale:g}", partial(_scaled, seed, f"{scale:g}", scale))


def plain_cases(seed: int) -> Iterator[Case]:
    """Ordinary small instances, with and without failures, 300 batches each."""
    plain = _Style(servers=3, batch=1.5, whole=True)
    failing = _Style(servers=4, batch=1.5, idle=0.4, up_down=(10.0, 3.0))
    yield Case("ordinary instance", partial(_random_world, seed, "plain", plain, 300))
    yield Case("ordinary instance with failures", partial(_random_world, seed, "plain failing", failing, 300))


def _easy_world(seed: int, idle: float) -> PlacementWorld:
    """Small tasks that all fit on one of eight servers with high launch costs."""
    rng = stream(seed, "check_policy", "placement", "easy")
    problem = PlacementProblem.of_servers(
        np.full((8, 1), 64.0), np.ones(8), np.full(8, 4.0), np.full(8, 0.05), idle=idle, horizon=100
    )
    arrival = np.repeat(np.arange(100.0), 3)
    size = len(arrival)
    work = rng.uniform(0.5, 0.9, size)
    value = rng.uniform(8.0, 10.0, size)
    demand = rng.integers(1, 4, (size, 1)).astype(np.float64)
    return PlacementWorld(problem, Tasks(arrival, demand, work, value, np.ones(size), arrival + 4.0), 100)


def easy_cases(seed: int) -> Iterator[Case]:
    """Filling a server that is on before launching another beats random placement."""
    yield Case("easy instance", partial(_easy_world, seed, 0.0))
    yield Case("easy instance where servers stay on for a while", partial(_easy_world, seed, 0.2))


PLACEMENT = CheckFamily(
    "placement",
    random_cases,
    edge_cases,
    plain_cases,
    easy_cases,
    RandomPlacement,
    (RandomPlacement, DRLDirect),  # untrained without a file
    malformed,
    "a PlacementDecision with a server for each pending task",
    parts,
)
