"""Baselines of the DRL-Greedy paper: OptRA, OSSA and HMAO."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from berth.errors import InvalidInput
from berth.families.placement.kernels.baselines import decode, evolve
from berth.families.placement.kernels.greedy import Batch, Servers
from berth.families.placement.policies.ordered import OrderedPolicy
from berth.families.placement.policies.preferred import PreferredPolicy
from berth.families.placement.problem import WAIT, PlacementDecision, PlacementOutcome, PlacementProblem, PlacementSlot
from berth.model import Floats

__all__ = ["HMAO", "OSSA", "OptRA"]


class OptRA(PreferredPolicy):
    """The shortest task first, on the fastest server that is on and has room, else on a new one of the fastest.

    "Efficiency" is read as clock speed, and shortest-first within a batch: waiting tasks come before later batches,
    unless `across`, with which the shortest of all comes first. Gains are ignored (`paying` false), and a task that
    fits nowhere waits: the paper says none of this.

    >>> from berth.testing import example_placement
    >>> OptRA(example_placement(), np.random.default_rng(0)).waiting
    'queue'
    """

    reference = "Yang & Shen, DRL Enhanced Greedy Optimization for Online Scheduling of Batched Tasks, section 7.2"

    def __init__(
        self,
        problem: PlacementProblem,
        rng: np.random.Generator,
        *,
        across: bool = False,
        waiting: str = "queue",
        paying: bool = False,
    ) -> None:
        super().__init__(problem, waiting=waiting, paying=paying)
        self.across = bool(across)
        self._slow = -np.array(problem.speed)

    def rank(self, slot: PlacementSlot) -> Floats:
        tasks = slot.tasks
        if self.across:
            return -tasks.work
        rank = np.empty(len(tasks))
        rank[np.lexsort((tasks.work, tasks.arrival))] = -np.arange(len(tasks))
        return rank

    def keys(self, slot: PlacementSlot, on: NDArray[np.bool_]) -> tuple[Floats, Floats, float]:
        return self._slow, self._slow, -1.0


class OSSA(OrderedPolicy):
    """Greedy in order of arrival on value less launch cost; ignores the cost of running a task.

    The paper names OSSA, which knows the price of servers alone, without details; this is one reading of it. `waiting`
    is `commit-immediate`, as in the paper's own greedy.

    >>> from berth.testing import example_placement
    >>> OSSA(example_placement(), np.random.default_rng(0)).waiting
    'commit-immediate'
    """

    reference = "Yang & Shen, DRL Enhanced Greedy Optimization for Online Scheduling of Batched Tasks, section 7.2"

    def __init__(
        self, problem: PlacementProblem, rng: np.random.Generator, *, waiting: str = "commit-immediate"
    ) -> None:
        super().__init__(problem, waiting=waiting)
        self._servers = self._servers._replace(rate=np.zeros(len(problem.speed)))

    def rank(self, slot: PlacementSlot) -> Floats:
        return np.zeros(len(slot.ids))


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
