"""Instances on which `check_policy` tries allocation policies.

Axes: T slots, L ports, R servers, K resources, E channels, J jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from berth.families.allocation.policies.baselines import RandomAllocation
from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot, Gang
from berth.families.allocation.utility import Utilities, Utility
from berth.families.allocation.world import AllocationWorld
from berth.families.arrivals import bernoulli_arrivals
from berth.families.cases import SLOTS, Case, CheckFamily, Style, no_such_array
from berth.model import Floats, Instance
from berth.protocols import Environment, Policy
from berth.random import stream

__all__ = ["ALLOCATION", "AMDAHL", "KINDS", "RandomGangs", "ShrinkingWorld"]


class ShrinkingWorld(AllocationWorld):
    """World with free capacity given slot by slot, (T, R, K): it may shrink in part and recover."""

    def __init__(self, problem: AllocationProblem, arrivals: ArrayLike, free: Floats) -> None:
        super().__init__(problem, arrivals)
        self.all_free = np.array(free)
        self.all_free.setflags(write=False)

    def free(self, index: int) -> Floats:
        free: Floats = self.all_free[index]
        return free


class RandomGangs:
    """Random allocation in which unseated gangs get nothing: the random floor for gangs."""

    family = "allocation"
    reference = "none: a floor for comparisons"

    def __init__(self, problem: AllocationProblem, rng: np.random.Generator) -> None:
        self.problem, self.rng = problem, rng

    def decide(self, slot: AllocationSlot, /) -> Floats:
        wanted = self.problem.cap * self.rng.random(self.problem.cap.shape)
        if slot.arrivals is not None:
            wanted *= slot.arrivals[self.problem.channel_job][:, None]
        return self.problem.repaired(slot, wanted)

    def observe(self, outcome: AllocationOutcome, /) -> None:
        """Learns nothing."""


def random_policy(problem: AllocationProblem, rng: np.random.Generator) -> Policy[Any, Any, Any]:
    """A random policy that serves this problem, gangs or not."""
    return RandomAllocation(problem, rng) if problem.gang is None else RandomGangs(problem, rng)


def malformed(problem: AllocationProblem, decision: Any) -> str | None:
    """Reason why this is not a decision; None if it has the right type, dtype, shape and is finite."""
    wrong_array = no_such_array(decision, np.float64, problem.cap.shape)
    if wrong_array:
        return wrong_array
    wrong = np.argwhere(~np.isfinite(decision))
    if len(wrong):
        e, k = (int(i) for i in wrong[0])
        return f"{decision[e, k]} at [{e}, {k}]"
    return None


def parts(problem: AllocationProblem) -> Any:
    """Arrays of a problem, including cached ones."""
    graph = problem.instance
    return (
        graph,
        graph.capacity,
        graph.demand,
        graph.port_channels,
        problem.utilities,
        problem.overhead,
        problem.gang,
        problem.cap,
        problem.channel_job,
    )


@dataclass(frozen=True)
class _Style(Style):
    """Also: the share of zero requests, the scale of requests against capacities, utilities, and the seating share."""

    no_request: float = 0.0
    contention: float = 1.0
    arrival: float = 0.6
    overhead: tuple[float, float] = (0.1, 0.6)
    kinds: tuple[int, ...] = (0, 1, 2, 3, 4)
    share: float = 0.5


_STYLES = {
    "mixed utilities": _Style(),
    "one server": _Style(servers=1, ports=5, density=1.0),
    "one port": _Style(ports=1, density=1.0),
    "one resource": _Style(resources=1, servers=5),
    "dense": _Style(ports=7, servers=6, resources=3, density=1.0),
    "sparse": _Style(ports=6, servers=9, density=0.15),
    "zero requests": _Style(no_request=0.5),
    "zero capacities": _Style(no_capacity=0.5),
    "zero requests and capacities": _Style(no_request=0.4, no_capacity=0.4, resources=3),
    "scarce": _Style(contention=8.0, ports=6),
    "plenty": _Style(contention=0.05),
    "no overhead": _Style(overhead=(0.0, 0.0)),
    "ruinous overhead": _Style(overhead=(3.0, 9.0)),
    "always arriving": _Style(arrival=1.0, kinds=(0, 1)),
    "table utilities only": _Style(kinds=(4,)),
}

_GANG_STYLES = {
    "gangs": _Style(ports=6, servers=4, gangs=3, density=0.8),
    "scarce gangs": _Style(ports=6, servers=3, gangs=2, density=0.8, contention=3.0),
    "gangs seated by anything": _Style(ports=5, servers=3, gangs=2, share=0.0),
    "gangs seated in full": _Style(ports=5, servers=3, gangs=3, share=1.0, no_request=0.2),
}

AMDAHL = Utility.from_function("amdahl", lambda y: y / (1 + 0.1 * y), upto=40.0, knots=129)
"""A tabulated utility."""

KINDS: tuple[str | Utility, ...] = ("linear", "log", "reciprocal", "poly", AMDAHL)


def _utilities(rng: np.random.Generator, shape: tuple[int, int], kinds: tuple[int, ...]) -> Utilities:
    return Utilities(KINDS, rng.choice(np.array(kinds), shape), rng.uniform(0.5, 1.5, shape))


def _gang(rng: np.random.Generator, style: _Style) -> Gang:
    job = style.jobs(rng)
    return Gang(job, rng.integers(0, np.bincount(job, minlength=style.gangs) + 1), style.share)


def random_problem(rng: np.random.Generator, style: _Style, known: bool) -> AllocationProblem:
    """A problem of this style."""
    capacity = style.capacity(rng)
    wants = (style.ports, style.resources)
    demand = style.contention * rng.uniform(0.5, 4.0, wants) * (rng.random(wants) >= style.no_request)
    channels = style.channels(rng)
    gang = _gang(rng, style) if style.gangs else None
    jobs = style.gangs or style.ports
    return AllocationProblem(
        Instance.from_arrays(capacity, demand, channels),
        _utilities(rng, capacity.shape, style.kinds),
        rng.uniform(*style.overhead, (jobs, style.resources)),
        arrivals_known=known,
        horizon=SLOTS if rng.random() < 0.5 else None,
        gang=gang,
    )


def _random_world(seed: int, name: str, style: _Style, known: bool) -> AllocationWorld:
    rng = stream(seed, "check_policy", name)  # the same instance and arrivals, hidden or revealed
    problem = random_problem(rng, style, known)
    return AllocationWorld(problem, bernoulli_arrivals(rng, SLOTS, np.full(problem.jobs, style.arrival)))


def _both(name: str, make: Callable[[bool], Environment]) -> Iterator[Case]:
    yield Case(f"{name} (arrivals hidden)", partial(make, False))
    yield Case(f"{name} (arrivals revealed)", partial(make, True))


def random_cases(seed: int) -> Iterator[Case]:
    """Random instances of every style, each with arrivals hidden and revealed."""
    for name, style in {**_STYLES, **_GANG_STYLES}.items():
        yield from _both(f"random instance {name!r}", partial(_random_world, seed, name, style))


def _edge_problem(
    known: bool,
    capacity: ArrayLike,
    demand: ArrayLike,
    channels: list[tuple[int, int]],
    kinds: tuple[int, ...] = (0, 1, 2, 3, 4),
) -> AllocationProblem:
    graph = Instance.from_arrays(capacity, demand, channels)
    shape = graph.capacity.shape
    choice = np.resize(np.array(kinds), shape)
    utilities = Utilities(KINDS, choice, np.ones(shape))
    return AllocationProblem(graph, utilities, np.full(shape[1], 0.3), arrivals_known=known, horizon=SLOTS)


_FULL = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
_CAPACITY = np.array([[6.0, 3.0], [4.0, 5.0]])
_DEMAND = np.array([[4.0, 2.0], [3.0, 3.0], [1.0, 4.0]])


def _arriving(seed: int, problem: AllocationProblem, name: str) -> Floats:
    rng = stream(seed, "check_policy", "edge", name)
    return bernoulli_arrivals(rng, SLOTS, np.full(problem.jobs, 0.7))


def _still(
    seed: int,
    name: str,
    capacity: ArrayLike,
    demand: ArrayLike,
    channels: list[tuple[int, int]],
    kinds: tuple[int, ...],
    known: bool,
) -> AllocationWorld:
    problem = _edge_problem(known, capacity, demand, channels, kinds)
    return AllocationWorld(problem, _arriving(seed, problem, name))


def _nobody(known: bool) -> AllocationWorld:
    problem = _edge_problem(known, _CAPACITY, _DEMAND, _FULL)
    return AllocationWorld(problem, np.zeros((SLOTS, problem.jobs)))


def _server_lost(seed: int, known: bool) -> AllocationWorld:
    problem = _edge_problem(known, _CAPACITY, _DEMAND, _FULL)
    up = np.ones((SLOTS, 2), dtype=bool)
    up[5:10, 0] = False
    up[8:14, 1] = False  # for two slots both are gone
    return AllocationWorld(problem, _arriving(seed, problem, "lost"), up)


def _shrinking(seed: int, known: bool) -> AllocationWorld:
    problem = _edge_problem(known, _CAPACITY, _DEMAND, _FULL)
    part = stream(seed, "check_policy", "shrink").uniform(0.0, 1.0, (SLOTS, 2, 2))
    part[:3] = 1.0
    part[10:13] = 1.0
    return ShrinkingWorld(problem, _arriving(seed, problem, "shrink"), _CAPACITY * part)


def _gang_server_lost(seed: int, known: bool) -> AllocationWorld:
    gang = Gang(np.array([0, 0, 1]), np.array([2, 1]))
    problem = _edge_problem(known, _CAPACITY, _DEMAND, _FULL).replace(gang=gang, overhead=np.full(2, 0.3))
    up = np.ones((SLOTS, 2), dtype=bool)
    up[5:10, 0] = False
    return AllocationWorld(problem, _arriving(seed, problem, "gang lost"), up)


def edge_cases(seed: int) -> Iterator[Case]:
    """Edge cases, each with arrivals hidden and revealed."""
    every = (0, 1, 2, 3, 4)
    one: list[tuple[int, int]] = [(0, 0)]
    unreachable = [(0, 0), (0, 1), (2, 0)]
    still: dict[str, tuple[ArrayLike, ArrayLike, list[tuple[int, int]], tuple[int, ...]]] = {
        "zero capacity everywhere": (0 * _CAPACITY, _DEMAND, _FULL, every),
        "zero requests everywhere": (_CAPACITY, 0 * _DEMAND, _FULL, every),
        "one server, one port": ([[2.0]], [[3.0]], one, (1,)),
        "a port with no channel": (_CAPACITY, _DEMAND, unreachable, every),
        "very large numbers (1e9)": (1e9 * _CAPACITY, 1e9 * _DEMAND, _FULL, every),
        "very small numbers (1e-9)": (1e-9 * _CAPACITY, 1e-9 * _DEMAND, _FULL, every),
        "1e9 beside 1e-9": (_CAPACITY * [1e9, 1e-9], _DEMAND * [1e9, 1e-9], _FULL, every),
        "requests of 1e9 for capacities of 1e-9": (1e-9 * _CAPACITY, 1e9 * _DEMAND, _FULL, every),
    }
    yield from _both("no arrivals ever", _nobody)
    for name, (capacity, demand, channels, kinds) in still.items():
        yield from _both(name, partial(_still, seed, name, capacity, demand, channels, kinds))
    yield from _both("a server lost mid-run", partial(_server_lost, seed))
    yield from _both("free capacity that shrinks", partial(_shrinking, seed))
    yield from _both("gangs, and a server lost mid-run", partial(_gang_server_lost, seed))


_PLAIN = _Style(ports=4, servers=3, density=0.8, contention=1.5, kinds=(0, 1, 2, 3))


def _plain_world(seed: int, style: _Style, known: bool) -> AllocationWorld:
    rng = stream(seed, "check_policy", "plain", style.gangs)
    problem = random_problem(rng, style, known).replace(horizon=300)
    return AllocationWorld(problem, bernoulli_arrivals(rng, 300, rng.uniform(0.3, 0.9, problem.jobs)))


def plain_cases(seed: int) -> Iterator[Case]:
    """An ordinary small instance for each information setting, without and with gangs, 300 slots each."""
    yield from _both("ordinary instance", partial(_plain_world, seed, _PLAIN))
    gangs = _Style(ports=5, servers=4, density=0.9, gangs=3, kinds=(0, 1, 2, 3))
    yield from _both("ordinary instance with gangs", partial(_plain_world, seed, gangs))


def _easy_world(seed: int, gangs: bool, known: bool) -> AllocationWorld:
    slots = 300
    demand = [[4.0, 4.0], [4.0, 4.0], [1.0, 1.0]]
    graph = Instance.from_arrays([[6.0, 6.0]] * 3, demand, [(port, r) for port in range(3) for r in range(3)])
    utilities = Utilities(("log",), np.zeros((3, 2), dtype=np.int64), np.full((3, 2), 1.5))
    gang = Gang(np.array([0, 0, 1]), np.array([2, 1]), 0.25) if gangs else None
    good, bad = [0.1, 0.1], [4.0, 4.0]
    beta = np.array([good, bad] if gangs else [good, good, bad])
    problem = AllocationProblem(graph, utilities, beta, known, slots, gang)
    chance = [0.9, 0.2] if gangs else [0.9, 0.9, 0.2]
    return AllocationWorld(problem, bernoulli_arrivals(stream(seed, "check_policy", "easy"), slots, chance))


def easy_cases(seed: int) -> Iterator[Case]:
    """Valuable ports that could fill every server, and one small port whose overhead exceeds its gain."""
    yield from _both("easy instance", partial(_easy_world, seed, False))
    yield from _both("easy instance with gangs", partial(_easy_world, seed, True))


ALLOCATION = CheckFamily(
    "allocation",
    random_cases,
    edge_cases,
    plain_cases,
    easy_cases,
    random_policy,
    (RandomAllocation, RandomGangs),
    malformed,
    "a finite float array of shape (E, K)",
    parts,
)
