"""Training runs: placement scenarios with the gain of a plain rule in each, and runs under a network."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.placement.kernels.committed_run import play_committed
from berth.families.placement.kernels.learned_run import Ranked, play_learned
from berth.families.placement.kernels.network import CLUSTER
from berth.families.placement.kernels.run import prepare
from berth.families.placement.policies.gang_runs import run_gangs
from berth.families.placement.policies.network import Network
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.families.placement.rule_runs import (
    Schedule,
    audit,
    batch_of,
    run_of,
    run_rule,
    schedule_of,
    servers_of,
    shelves_of,
)
from berth.families.placement.world import PlacementWorld
from berth.model import Floats

__all__ = ["WHOLE", "Episode", "Scope", "Source", "gang_result", "run_network", "seen_by"]

Build = Callable[[int], PlacementWorld]
FOREVER = 1e15


class Episode(NamedTuple):
    """One run: servers, tasks, the gain of greedy with a queue, its world, and the time between batches.

    With gangs, `plain` is the gain of the rule or, for another objective, the cost of the shortest task first; `runs`
    (N,) is then the true work.
    """

    problem: PlacementProblem
    tasks: Tasks
    plain: float
    world: int
    period: float
    runs: Floats | None = None


@dataclass(frozen=True)
class Source:
    """Runs by number, alternating over worlds; `builds` make the world of a seed.

    With `gangs` the runs are for networks that see gangs; for an `objective` beside the gain no task has a deadline.
    """

    builds: Sequence[Build]
    gangs: bool = False
    objective: str = "gain"

    def __post_init__(self) -> None:
        if not self.builds:
            raise InvalidInput("at least one scenario", key="scenarios")

    def episode(self, number: int) -> Episode:
        """Run `number`; deterministic."""
        which = number % len(self.builds)
        world = self.builds[which](number // len(self.builds))
        if world.failures:
            raise UnsupportedProblem(
                "training runs have no failures: train without (--set failures=null), then compare with them"
            )
        if self.gangs:
            return gang_episode(world, which, self.objective)
        world.problem.require_single("training", exact=True)
        plain = run_rule(world.problem, world.tasks, np.zeros(len(world.tasks))).gain
        return Episode(world.problem, world.tasks, plain, which, world.period)

    def some(self, first: int, count: int) -> list[Episode]:
        """`count` runs of every world from number `first` of each, without runs that can earn nothing."""
        worlds = len(self.builds)
        found = (self.episode(number) for number in range(first * worlds, (first + count) * worlds))
        return [episode for episode in found if episode.plain > 0]


def gang_episode(world: PlacementWorld, which: int, objective: str) -> Episode:
    """A run with gangs, and what its safe side reaches: the rule's gain, or the cost of the shortest task first."""
    problem, tasks, runs = world.problem, world.tasks, world.runs
    if objective == "gain":
        return Episode(problem, tasks, run_gangs(problem, tasks, runs=runs).gain, which, world.period, runs)
    tasks = dataclasses.replace(tasks, deadline=np.full(len(tasks), FOREVER))
    shortest = run_gangs(problem, tasks, -tasks.work, runs=runs, forced=True, only_order=True)
    return Episode(problem, tasks, shortest.cost(tasks, objective, short_of(world)), which, short_of(world), runs)


def short_of(world: PlacementWorld) -> float:
    """Run times below this count as this in the bounded slowdown: a hundredth of the mean."""
    return float(world.runs.mean()) / 100.0 if len(world.runs) else 1.0


def gang_result(network: Network, episode: Episode, scope: Scope) -> float:
    """Gain of the network relative to the rule's; for another objective, the safe side's cost relative to its own."""
    other = scope.objective != "gain"
    run = run_gangs(
        episode.problem, episode.tasks, network, runs=episode.runs, forced=other, only_order=scope.only_order or other
    )
    if not other:
        return run.gain / episode.plain
    return episode.plain / max(run.cost(episode.tasks, scope.objective, episode.period), 1e-300)


NOTHING_MET = np.zeros((0, CLUSTER))


class Scope(NamedTuple):
    """What a network decides, and for which objective: `waiting` as in every greedy policy; whether only the order."""

    waiting: str = "queue"
    only_order: bool = False
    objective: str = "gain"


WHOLE = Scope()


def run_network(
    problem: PlacementProblem, tasks: Tasks, network: Network, scope: Scope = WHOLE, met: Floats = NOTHING_MET
) -> Schedule:
    """Play greedy in the order of a network.

    With a queue, `met` (2, G) gets the smallest and largest cluster features that the network meets.

    >>> from berth.testing import example_placement
    >>> tasks = Tasks(arrival=[0, 0], demand=[[2], [4]], work=[4, 2], value=[9, 5], decay=[1, 0.5], deadline=[6, 3])
    >>> run_network(example_placement(), tasks, Network.fresh(np.random.default_rng(0))).server
    array([0, 0])
    """
    if scope.waiting != "queue":
        return _committed(problem, tasks, network, scope)
    run, shelves, size = run_of(problem, tasks), shelves_of(problem), len(tasks)
    batch, servers = batch_of(tasks), servers_of(problem)
    prepare(batch, servers, shelves, run, np.arange(size), 1.0, 0.0)
    room = Ranked(
        np.zeros(size), np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64), np.zeros(len(problem.speed))
    )
    play_learned(
        batch, servers, shelves, run, network.net(), network.scratch(size), met, room, scope.only_order, problem.idle
    )
    return schedule_of(run)


def seen_by(problem: PlacementProblem, tasks: Tasks, network: Network) -> Floats:
    """Smallest and largest cluster features (2, G) that a network meets in a run with a queue."""
    met = np.stack([np.full(CLUSTER, np.inf), np.full(CLUSTER, -np.inf)])
    run_network(problem, tasks, network, met=met)
    return met


def _committed(problem: PlacementProblem, tasks: Tasks, network: Network, scope: Scope) -> Schedule:
    """Play a run in which every task is placed for good at its arrival."""
    size = len(tasks)
    chosen, starts = np.full(size, -1, dtype=np.int64), np.zeros(size)
    play_committed(
        batch_of(tasks),
        servers_of(problem),
        network.net(),
        network.scratch(size),
        scope.only_order,
        scope.waiting == "commit-any",
        problem.idle,
        size,
        chosen,
        starts,
    )
    found = audit(problem, tasks, chosen, starts)
    return Schedule(chosen, starts, found.value, found.execution, found.launch, 0)
