"""Selection instances that several tests use."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.families.selection.gains import DrawnGains, Drift, NetNormal, Normal, normal_costs
from berth.families.selection.oracle import selection_optima
from berth.families.selection.problem import Roles, SelectionProblem
from berth.families.selection.world import SelectionWorld
from berth.model import Instance
from berth.random import stream
from berth.registry import PolicySpec
from berth.simulation import Result, simulate


def papers(
    seed: int,
    slots: int = 2000,
    *,
    capacity: float = 2.0,
    rho: float = 0.9,
    dead: bool = False,
    drift: Drift | None = None,
    ports: int = 8,
    servers: int = 40,
    density: float = 0.1,
) -> SelectionWorld:
    """The papers' defaults, with costs scaled so that serving can pay: 8 ports, 40 servers, cluster-wide capacity."""
    rng = stream(seed, "papers")
    channels = np.argwhere(rng.random((ports, servers)) < density)
    while len(channels) < 8:
        channels = np.argwhere(rng.random((ports, servers)) < density)
    size = len(channels)
    graph = Instance.from_arrays(np.ones((servers, 3)), np.ones((ports, 3)), channels)
    takes = rng.integers(1, 3, (size, 3)).astype(np.float64)
    cost = normal_costs(rng, size, 3, scale=1.0 / 15.0)
    centre = rng.uniform(0.1, 1.0, size)
    problem = SelectionProblem(graph, cost, takes, pool=np.full(3, capacity), horizon=slots)
    rates = np.full(ports, rho)
    if dead:
        rates[0] = 0.0
    arrivals = (rng.random((slots, ports)) < rates).astype(np.float64)
    return SelectionWorld(problem, arrivals, DrawnGains(NetNormal(0.5, cost, relative=True), centre, seed, drift))


def one_resource(
    means: list[float],
    capacity: float,
    rates: list[float],
    slots: int,
    seed: int = 0,
    sd: float = 0.1,
    **changes: Any,
) -> SelectionWorld:
    """One channel for each port, each taking 1 of a cluster-wide capacity, no costs."""
    size = len(means)
    graph = Instance.from_arrays(np.ones((1, 1)), np.ones((size, 1)), [(port, 0) for port in range(size)])
    problem = SelectionProblem(graph, np.zeros(size), pool=np.array([capacity]), horizon=slots)
    arrivals = (stream(seed, "arrivals").random((slots, size)) < np.array(rates)).astype(np.float64)
    return SelectionWorld(problem, arrivals, DrawnGains(Normal(sd), means, seed), **changes)


def gangs(seed: int, slots: int = 60) -> SelectionWorld:
    """Two jobs of two roles each and one of one, three servers with room for some of them."""
    rng = stream(seed, "gangs")
    demand = np.array([[2.0, 0.0], [1.0, 1.0], [2.0, 0.0], [1.0, 2.0], [1.0, 0.0]])
    channels = [(port, server) for port in range(5) for server in range(3) if server == 0 or rng.random() < 0.8]
    graph = Instance.from_arrays([[4.0, 3.0], [6.0, 2.0], [3.0, 4.0]], demand, channels)
    roles = Roles(np.array([0, 0, 1, 1, 2]), np.array([1, 2, 1, 1, 1]), np.array([2, 4, 1, 3, 5]))
    problem = SelectionProblem(graph, rng.uniform(0.0, 0.2, len(channels)), horizon=slots, roles=roles)
    arrivals = (rng.random((slots, 3)) < 0.8).astype(np.float64)
    return SelectionWorld(problem, arrivals, DrawnGains(Normal(0.1), rng.uniform(0.1, 1.0, len(channels)), seed))


def play(world: SelectionWorld, spec: str, seed: int = 0, infeasible: str = "raise") -> Result:
    """A run of a policy, by its name and settings."""
    policy = PolicySpec.parse(spec).build(world.problem, stream(seed, "policy", spec))
    return simulate(world, policy, infeasible=infeasible)


def share(world: SelectionWorld, spec: str, seed: int = 0, infeasible: str = "raise") -> float:
    """The expected reward of a run, as a share of the oracle's."""
    run = play(world, spec, seed, infeasible)
    return float(run.measures["expected"].sum() / selection_optima(world).reward.sum())
