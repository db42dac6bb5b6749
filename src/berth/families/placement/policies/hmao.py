"""HMAO, a baseline of the DRL-Greedy paper: a genetic algorithm for each batch."""

from __future__ import annotations

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.kernels.baselines import decode, evolve
from berth.families.placement.kernels.greedy import Batch, Servers
from berth.families.placement.problem import WAIT, PlacementDecision, PlacementOutcome, PlacementProblem, PlacementSlot

__all__ = ["HMAO"]

POPULATION, CROSSOVER, MUTATION = 16, 0.25, 0.25


class HMAO:
    """Evolves assignments of all pending tasks to servers for some `generations`, and plays the best.

    The fitness of an assignment is its immediate gain: the value of the tasks that fit, less the cost of running them
    and of launches. 16 assignments, crossover and mutation with probability 0.25 as in the paper, and the best always
    survives. The paper gives neither the number of generations nor the fate of a task that does not fit where it is
    assigned: here it waits.

    >>> from berth.testing import example_placement
    >>> HMAO(example_placement(), np.random.default_rng(0)).generations
    50
    """

    family = "placement"
    reference = "Yang & Shen, DRL Enhanced Greedy Optimization for Online Scheduling of Batched Tasks, section 7.2"

    def __init__(self, problem: PlacementProblem, rng: np.random.Generator, *, generations: int = 50) -> None:
        if generations < 1:
            raise InvalidInput("at least 1 generation", value=generations, key="generations")
        problem.require_single("hmao")
        self.problem, self.rng, self.generations = problem, rng, int(generations)
        self._servers = Servers(problem.instance.capacity, problem.speed, problem.launch, problem.rate, problem.weight)

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        size, servers = len(slot.ids), len(self.problem.speed)
        chosen = np.full(size, WAIT, dtype=np.int64)
        if not size:
            return PlacementDecision(chosen)
        tasks = slot.tasks
        batch = Batch(tasks.arrival, tasks.demand, tasks.work, tasks.value, tasks.decay, tasks.deadline)
        on = slot.up & (slot.time <= slot.on_until)
        free = np.where(slot.up[:, None], slot.free, -1.0)  # servers that are down take no task at all
        genes = self.rng.integers(servers, size=(POPULATION, size))
        evolve(
            batch,
            self._servers,
            slot.time,
            on,
            free,
            self.rng.random((self.generations, POPULATION, 9)),
            CROSSOVER,
            MUTATION,
            genes,
            np.empty_like(genes),
            np.empty(POPULATION),
            np.empty_like(free),
            np.zeros(servers, dtype=np.bool_),
        )
        decode(batch, genes, self._servers, slot.time, free, chosen)
        return PlacementDecision(chosen)

    def observe(self, outcome: PlacementOutcome, /) -> None:
        return None  # learns nothing
