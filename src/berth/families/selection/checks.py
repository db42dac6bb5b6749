"""Instances on which `check_policy` tries selection policies.

Axes: T slots, L ports, R servers, K resources, E channels, J jobs, G pools.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from berth.families.arrivals import bernoulli_arrivals
from berth.families.cases import SLOTS, Case, CheckFamily, Style, no_such_array
from berth.families.selection.gains import DrawnGains, Normal, Redraw
from berth.families.selection.policies.random import RandomSelection
from berth.families.selection.problem import Roles, SelectionProblem
from berth.families.selection.world import Gains, SelectionWorld
from berth.model import Floats, Instance
from berth.random import stream

__all__ = ["SELECTION", "ShrinkingSelection"]


class ShrinkingSelection(SelectionWorld):
    """World with free capacity given slot by slot, (T, G, K): it may shrink in part and recover."""

    def __init__(self, problem: SelectionProblem, arrivals: ArrayLike, gains: Gains, free: Floats) -> None:
        super().__init__(problem, arrivals, gains)
        self.all_free = np.array(free)
        self.all_free.setflags(write=False)

    def free(self, index: int) -> Floats:
        free: Floats = self.all_free[index]
        return free


def malformed(problem: SelectionProblem, decision: Any) -> str | None:
    """Reason why this is not a decision; None if it is an array of whole numbers of the right shape."""
    return no_such_array(decision, np.integer, problem.cost.shape)


def parts(problem: SelectionProblem) -> Any:
    """Arrays of a problem, including cached ones."""
    graph = problem.instance
    return (
        graph,
        graph.capacity,
        graph.demand,
        graph.port_channels,
        problem.cost,
        problem.takes,
        problem.pool,
        problem.roles,
        problem.limits,
        problem.channel_job,
        problem.channel_pool,
    )


@dataclass(frozen=True)
class _Style(Style):
    """Also: whether demands are whole, the scale of capacities, one pool or one per server, costs and mean gains."""

    whole: bool = False
    plenty: float = 1.0
    one_pool: bool = False
    no_demand: float = 0.0
    arrival: float = 0.7
    cost: tuple[float, float] = (0.0, 0.3)
    gain: tuple[float, float] = (0.1, 1.0)
    drift: bool = False


_STYLES = {
    "ordinary": _Style(),
    "whole numbers": _Style(whole=True),
    "one pool": _Style(one_pool=True, whole=True),
    "one pool, many channels": _Style(ports=5, servers=4, density=0.9, one_pool=True, whole=True),
    "one server": _Style(servers=1, ports=5, density=1.0),
    "one port": _Style(ports=1, density=1.0),
    "sparse": _Style(ports=6, servers=9, density=0.15),
    "dense": _Style(ports=6, servers=5, resources=3, density=1.0, plenty=2.0),
    "zero demands": _Style(no_demand=0.5),
    "zero capacities": _Style(no_capacity=0.5),
    "scarce": _Style(plenty=0.3, ports=6),
    "plenty": _Style(plenty=50.0),
    "costs above gains": _Style(cost=(1.0, 3.0)),
    "negative gains": _Style(gain=(-1.0, 0.2)),
    "large gains": _Style(gain=(1e5, 1e6), cost=(0.0, 1e5)),
    "drift": _Style(drift=True),
}

_GANG_STYLES = {
    "gangs": _Style(ports=4, servers=3, gangs=2, density=0.9, whole=True),
    "scarce gangs": _Style(ports=5, servers=3, gangs=3, density=0.8, plenty=0.5),
    "gangs in one pool": _Style(ports=3, servers=2, gangs=2, density=1.0, one_pool=True),
}


def _demands(rng: np.random.Generator, style: _Style, channels: int) -> Floats:
    shape = (channels, style.resources)
    drawn = rng.integers(1, 4, shape).astype(np.float64) if style.whole else rng.uniform(0.5, 3.0, shape)
    kept: Floats = drawn * (rng.random(shape) >= style.no_demand)
    return kept


def _roles(rng: np.random.Generator, style: _Style) -> Roles:
    job, most = style.jobs(rng), rng.integers(1, 5, style.ports)
    return Roles(job, rng.integers(0, most + 1), most)


def random_problem(rng: np.random.Generator, style: _Style) -> SelectionProblem:
    """A problem of this style."""
    capacity = style.plenty * style.capacity(rng)
    if style.whole:
        capacity = np.floor(capacity)
    channels = style.channels(rng)
    ports = _demands(rng, style, style.ports)
    return SelectionProblem(
        Instance.from_arrays(capacity, ports, channels),
        rng.uniform(*style.cost, len(channels)),
        # with gangs, the tasks of a role are all equal
        demand=None if style.gangs or rng.random() < 0.3 else _demands(rng, style, len(channels)),
        pool=np.floor(capacity.mean(axis=0)) if style.one_pool else None,
        horizon=SLOTS if rng.random() < 0.5 else None,
        roles=_roles(rng, style) if style.gangs else None,
    )


def _gains(seed: int, style: _Style, problem: SelectionProblem) -> DrawnGains:
    low, high = style.gain
    centre = stream(seed, "check_policy", "means").uniform(low, high, len(problem.cost))
    drift = Redraw(every=7, share=0.5, low=low, high=high) if style.drift else None
    return DrawnGains(Normal(0.3, relative=True), centre, seed, drift)


def _random_world(seed: int, name: str, style: _Style, slots: int) -> SelectionWorld:
    rng = stream(seed, "check_policy", "selection", name)
    problem = random_problem(rng, style)
    if slots > SLOTS:
        problem = problem.replace(horizon=slots)
    arrivals = bernoulli_arrivals(rng, slots, np.full(problem.jobs, style.arrival))
    return SelectionWorld(problem, arrivals, _gains(seed, style, problem))


def random_cases(seed: int) -> Iterator[Case]:
    """Random instances of every style."""
    for name, style in {**_STYLES, **_GANG_STYLES}.items():
        yield Case(f"random instance {name!r}", partial(_random_world, seed, name, style, SLOTS))


_FULL = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
_CAPACITY = np.array([[3.0, 3.0], [4.0, 2.0]])
_DEMAND = np.array([[2.0, 1.0], [1.0, 1.0], [1.0, 2.0]])


def _problem(capacity: ArrayLike, demand: ArrayLike, channels: list[tuple[int, int]]) -> SelectionProblem:
    graph = Instance.from_arrays(capacity, demand, channels)
    return SelectionProblem(graph, np.full(len(graph.channel_port), 0.1), horizon=SLOTS)


def _arriving(seed: int, problem: SelectionProblem, name: str) -> Floats:
    rng = stream(seed, "check_policy", "selection", "edge", name)
    return bernoulli_arrivals(rng, SLOTS, np.full(problem.jobs, 0.7))


def _still(
    seed: int, name: str, capacity: ArrayLike, demand: ArrayLike, channels: list[tuple[int, int]], scale: float
) -> SelectionWorld:
    problem = _problem(capacity, demand, channels)
    problem = problem.replace(cost=problem.cost * scale)
    gains = _gains(seed, _Style(gain=(0.1 * scale, scale)), problem)
    return SelectionWorld(problem, _arriving(seed, problem, name), gains)


def _nobody(seed: int) -> SelectionWorld:
    problem = _problem(_CAPACITY, _DEMAND, _FULL)
    return SelectionWorld(problem, np.zeros((SLOTS, problem.jobs)), _gains(seed, _Style(), problem))


def _server_lost(seed: int) -> SelectionWorld:
    problem = _problem(_CAPACITY, _DEMAND, _FULL)
    up = np.ones((SLOTS, 2), dtype=bool)
    up[5:10, 0] = False
    up[8:14, 1] = False  # for two slots both are gone
    return SelectionWorld(problem, _arriving(seed, problem, "lost"), _gains(seed, _Style(), problem), up)


def _shrinking(seed: int, pool: bool) -> SelectionWorld:
    problem = _problem(_CAPACITY, _DEMAND, _FULL)
    if pool:
        problem = problem.replace(pool=np.array([4.0, 4.0]))
    part = stream(seed, "check_policy", "selection", "shrink").uniform(0.0, 1.0, (SLOTS, *problem.limits.shape))
    part[:3] = 1.0
    part[10:13] = 1.0
    arrivals = _arriving(seed, problem, "shrink")
    return ShrinkingSelection(problem, arrivals, _gains(seed, _Style(), problem), problem.limits * part)


def _late(seed: int) -> SelectionWorld:
    problem = _problem(_CAPACITY, _DEMAND, _FULL)
    delay = stream(seed, "check_policy", "selection", "late").integers(-1, 6, SLOTS)
    return SelectionWorld(
        problem, _arriving(seed, problem, "late"), _gains(seed, _Style(), problem), None, delay.astype(np.int64)
    )


def _gang_lost(seed: int, most: tuple[int, int, int]) -> SelectionWorld:
    roles = Roles(np.array([0, 0, 1]), np.array([1, 1, 1]), np.array(most))
    problem = _problem(_CAPACITY, _DEMAND, _FULL).replace(roles=roles)
    up = np.ones((SLOTS, 2), dtype=bool)
    up[5:10, 0] = False
    return SelectionWorld(problem, _arriving(seed, problem, "gang lost"), _gains(seed, _Style(), problem), up)


def edge_cases(seed: int) -> Iterator[Case]:
    """Edge cases."""
    one: list[tuple[int, int]] = [(0, 0)]
    unreachable = [(0, 0), (0, 1), (2, 0)]
    still: dict[str, tuple[ArrayLike, ArrayLike, list[tuple[int, int]], float]] = {
        "zero capacity everywhere": (0 * _CAPACITY, _DEMAND, _FULL, 1.0),
        "zero demands everywhere": (_CAPACITY, 0 * _DEMAND, _FULL, 1.0),
        "one channel": ([[2.0]], [[2.0]], one, 1.0),
        "one channel that never fits": ([[2.0]], [[3.0]], one, 1.0),
        "no channel at all": ([[2.0]], [[3.0]], [], 1.0),
        "a port with no channel": (_CAPACITY, _DEMAND, unreachable, 1.0),
        "gains without worth": (_CAPACITY, _DEMAND, _FULL, 0.0),
        "very large numbers (1e9)": (1e9 * _CAPACITY, 1e9 * _DEMAND, _FULL, 1e9),
        "very small numbers (1e-9)": (1e-9 * _CAPACITY, 1e-9 * _DEMAND, _FULL, 1e-9),
        "1e9 beside 1e-9": (_CAPACITY * [1e9, 1e-9], _DEMAND * [1e9, 1e-9], _FULL, 1.0),
    }
    yield Case("no arrivals ever", partial(_nobody, seed))
    for name, given in still.items():
        yield Case(name, partial(_still, seed, name, *given))
    yield Case("a server lost mid-run", partial(_server_lost, seed))
    yield Case("free capacity that shrinks", partial(_shrinking, seed, False))
    yield Case("one pool that shrinks", partial(_shrinking, seed, True))
    yield Case("late and lost feedback", partial(_late, seed))
    yield Case("gangs, and a server lost mid-run", partial(_gang_lost, seed, (2, 2, 3)))
    yield Case("gangs of one task each", partial(_gang_lost, seed, (1, 1, 1)))


def plain_cases(seed: int) -> Iterator[Case]:
    """Ordinary small instances, without and with gangs, 300 slots each."""
    plain = _Style(ports=4, servers=3, density=0.8, whole=True)
    # with room to spare a gang solver reaches its gap soon: 300 slots should take a moment, not a minute
    gangs = _Style(ports=3, servers=2, density=1.0, whole=True, gangs=2, plenty=2.0)
    yield Case("ordinary instance", partial(_random_world, seed, "plain", plain, 300))
    yield Case("ordinary instance with gangs", partial(_random_world, seed, "plain gangs", gangs, 300))


def _easy_world(seed: int, gangs: bool) -> SelectionWorld:
    """Room for one: a channel (or gang) that is cheap and gains much, or one that costs more than it gains."""
    slots = 120 if gangs else 300
    chance = stream(seed, "check_policy", "selection", "easy")
    if gangs:
        graph = Instance.from_arrays([[3.0]], np.ones((4, 1)), [(port, 0) for port in range(4)])
        good = np.array([True, True, False, False])
        roles = Roles(np.array([0, 0, 1, 1]), np.array([1, 2, 1, 2]), np.array([1, 2, 1, 2]))
        problem = SelectionProblem(graph, np.where(good, 0.1, 0.5), horizon=slots, roles=roles)
    else:
        graph = Instance.from_arrays(np.ones((2, 1)), np.ones((2, 1)), [(0, 0), (1, 0), (0, 1), (1, 1)])
        good = graph.channel_port == graph.channel_server
        problem = SelectionProblem(graph, np.where(good, 0.1, 0.5), pool=np.ones(1), horizon=slots)
    arrivals = bernoulli_arrivals(chance, slots, np.full(problem.jobs, 0.9))
    return SelectionWorld(problem, arrivals, DrawnGains(Normal(0.05), np.where(good, 0.9, 0.2), seed))


def easy_cases(seed: int) -> Iterator[Case]:
    """Room for one per slot, and half of the choices are not worth their cost."""
    yield Case("easy instance", partial(_easy_world, seed, False))
    yield Case("easy instance with gangs", partial(_easy_world, seed, True))


SELECTION = CheckFamily(
    "selection",
    random_cases,
    edge_cases,
    plain_cases,
    easy_cases,
    RandomSelection,
    (RandomSelection,),
    malformed,
    "an array of whole numbers of shape (E,)",
    parts,
)
