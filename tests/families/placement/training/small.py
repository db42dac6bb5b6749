"""A small scarce cluster to learn on: two kinds of servers, a few batches."""

from __future__ import annotations

import numpy as np

from berth.families.placement.policies.network import Network
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.families.placement.world import PlacementWorld
from berth.random import stream

BATCHES = 5


def poor_network() -> Network:
    """A network that puts the least valuable tasks first, so that there is much to learn."""
    fresh = Network.fresh(stream(0, "net"), 4)
    weights, at = fresh.weights.copy(), 0
    for name, shape in fresh.shapes().items():
        size = int(np.prod(shape))
        if name == "direct":
            weights[at : at + size] *= -1.0
        at += size
    return fresh.replace(weights)


def small_world(seed: int) -> PlacementWorld:
    rng = stream(seed, "small")
    capacity = np.array([[8.0, 4.0], [8.0, 4.0], [4.0, 4.0]])
    speed = np.array([2.0, 2.0, 1.0])
    problem = PlacementProblem.of_servers(capacity, speed, 0.1 * capacity[:, 0], 0.02 * speed, [1.0, 0.25])
    sizes = rng.poisson(14, BATCHES)
    arrival = np.repeat(np.arange(BATCHES, dtype=float), sizes)
    size = len(arrival)
    demand = np.stack([rng.integers(1, 6, size), rng.uniform(0.2, 2.0, size)], axis=1)
    value = rng.uniform(1.0, 8.0, size)
    decay, slack = rng.choice([0.5, 1.0, 2.0], size), rng.uniform(1.0, 3.0, size)
    return PlacementWorld(problem, Tasks(arrival, demand, value, value, decay, arrival + slack * value), BATCHES)
