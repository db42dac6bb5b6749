"""DRL-Greedy on workloads: random problems against the rule, and the contended scenarios against other policies.

python -m benchmarks.drl_workloads --fuzz 200
python -m benchmarks.drl_workloads --seeds 20
python -m benchmarks.drl_workloads --decision
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.table import said
from berth import load_scenario, make_policy, simulate
from berth.errors import UnsupportedProblem
from berth.families.placement.problem import PlacementDecision, PlacementOutcome, PlacementProblem, PlacementSlot, Tasks
from berth.families.placement.world import Failure, PlacementWorld
from berth.model import Cluster, Instance, JobType, Resource
from berth.random import stream
from berth.statistics import paired

SCENARIOS = tuple(f"trace-{name}-contended" for name in ("openb", "philly", "sdsc-sp2", "google-2011", "itp"))
POLICIES = (
    "drl-greedy",
    "drl-greedy:file=slowdown",
    "placement-rule",
    "greedy:order=densest,waiting=queue",
    "sjf",
    "easy",
    "conservative",
    "tetris",
    "best-fit",
    "fgd",
)
FIRST = 5000
"""First seed of comparisons: training and validation use others."""


def random_world(seed: int) -> PlacementWorld:
    """A random problem: sizes, loads, tails, gangs, ports, devices, costs and failures are drawn."""
    rng = stream(seed, "fuzz")
    servers, resources = int(rng.integers(2, 25)), int(rng.integers(1, 4))
    devices = resources - 1 if resources > 1 and rng.random() < 0.4 else None
    kinds = int(rng.integers(1, 4))
    shapes, kind = np.floor(2.0 ** rng.uniform(1, 6, (kinds, resources))), rng.integers(0, kinds, servers)
    if devices is not None:
        shapes[:, devices] = rng.choice([2.0, 4.0, 8.0], kinds)
    capacity, speed = shapes[kind], rng.choice([1.0, 1.0, 2.0, 3.0], kinds)[kind]
    ports = int(rng.integers(1, 4))
    reach = np.array([[p == 0 or rng.random() < 0.6 for _ in range(servers)] for p in range(ports)])
    reach[:, 0] = True
    cluster = Cluster(
        tuple(Resource(f"resource-{k}") for k in range(resources)), tuple(f"s{r}" for r in range(servers)), capacity
    )
    graph = Instance(cluster, tuple(JobType(f"p{p}", capacity.max(axis=0)) for p in range(ports)), np.argwhere(reach))
    weight = 16.0 / resources / capacity.max(axis=0)
    launch = rng.choice([0.0, 0.04, 0.2]) * (capacity @ weight)
    rate = rng.choice([0.0, 0.002, 0.02]) * speed
    gangs = bool(rng.random() < 0.6)
    idle = float(rng.choice([0.0, 1.0, np.inf]))
    problem = PlacementProblem(graph, speed, launch, rate, weight, idle, gangs=gangs, devices=devices)
    batches, size = 60, int(rng.integers(100, 600))
    arrival = np.sort(rng.integers(0, batches, size)).astype(np.float64)
    port = rng.integers(0, ports, size)
    share = np.minimum(rng.lognormal(-2.5, 0.8, (size, resources)), 1.0)
    demand = np.maximum(share * capacity[0], 0.01)  # every port reaches the first server
    if devices is not None:
        part, most = rng.choice([0.0, 0.25, 0.5], size), capacity[0, devices]
        demand[:, devices] = np.where(rng.random(size) < 0.5, part, np.minimum(np.ceil(demand[:, devices]), most))
    pieces = np.ones(size, dtype=np.int64)
    if gangs:
        room = int(np.floor((capacity[0] / np.maximum(demand, 1e-9)).min(axis=1)).min())
        pieces = np.minimum(2 ** rng.integers(0, 5, size), max(room, 1))
    amount = pieces * (demand @ weight)
    work = rng.lognormal(0.0, rng.uniform(0.3, 2.2), size)
    load = rng.uniform(0.2, 3.0)
    work *= load * float(((capacity @ weight) * speed).sum()) * batches / float((amount * work).sum())
    value = 0.2 * (amount * work) ** rng.choice([0.5, 0.75, 1.0]) * rng.lognormal(0.0, rng.uniform(0.0, 1.5), size)
    decay = rng.choice([0.0, 0.2, 0.8], size) * value / work
    deadline = arrival + rng.uniform(1.0, rng.choice([3.0, 20.0]), size) * work / speed.min()
    failures = []
    if rng.random() < 0.3:
        failures = [Failure(float(t), int(rng.integers(0, servers)), float(t) + 5.0) for t in rng.uniform(0, 50, 6)]
    tasks = Tasks(arrival, demand, work, value, decay, deadline, pieces, port)
    return PlacementWorld(problem, tasks, batches, 1.0, sorted(failures))


def ratio(seed: int) -> float | None:
    """Gain of drl-greedy relative to the rule's in the random problem of a seed; None if the rule gains nothing."""
    world = random_world(seed)
    rule = simulate(world, make_policy("placement-rule", world.problem)).total
    return simulate(world, make_policy("drl-greedy", world.problem)).total / rule if rule > 0 else None


class Slowdowns:
    """Observer of the mean bounded slowdown; a task that never starts counts until its deadline."""

    def __init__(self, world: PlacementWorld) -> None:
        self.world, self.start = world, np.full(len(world.tasks), np.nan)
        self.end = np.full(len(world.tasks), np.nan)

    def __call__(self, slot: PlacementSlot, decision: PlacementDecision, outcome: PlacementOutcome, /) -> None:
        new = self.world.problem.placed(slot, decision)
        slowest = np.full(len(self.start), np.inf)
        np.minimum.at(slowest, new.task, self.world.problem.speed[new.server])
        self.start[new.task] = new.start
        self.end[new.task] = new.start + self.world.runs[new.task] / slowest[new.task]

    def mean(self) -> float:
        tasks, runs = self.world.tasks, self.world.runs
        never = np.isnan(self.start)
        end, start = np.where(never, tasks.deadline, self.end), np.where(never, tasks.deadline, self.start)
        time = np.where(never, runs, end - start)
        return float(np.maximum((end - tasks.arrival) / np.maximum(time, 0.01 * runs.mean()), 1.0).mean())


def played(scenario: str, policy: str, seed: int) -> tuple[float, float]:
    """Gain and mean bounded slowdown of one run."""
    world = load_scenario(scenario).build(seed)
    seen = Slowdowns(world)
    return simulate(world, make_policy(policy, world.problem, seed=seed), observers=[seen]).total, seen.mean()


def show(scenario: str, seeds: Sequence[int]) -> None:
    """Print gain and slowdown of each policy, and both relative to the rule's, paired by seed."""
    results: dict[str, dict[int, tuple[float, float]]] = {}
    for policy in POLICIES:
        try:
            results[policy] = {seed: played(scenario, policy, seed) for seed in seeds}
        except UnsupportedProblem:
            continue
    print(f"{scenario:<36}{'gain':>10}{'to the rule':>26}{'slowdown':>10}{'to the rule':>26}")
    for policy, found in results.items():
        cells = [f"{policy:<36}"]
        for part, width, digits in ((0, 10, 5), (1, 10, 4)):
            ours, rule = (
                {seed: run[part] for seed, run in some.items()} for some in (found, results["placement-rule"])
            )
            cells.append(
                f"{np.mean(list(ours.values())):>{width}.{digits}g}{said(paired(ours, rule), change=True):>18}"
            )
        print("".join(cells), flush=True)


def decision_times(tasks: int = 1000, servers: int = 1000, rounds: int = 5) -> list[float]:
    """Processor seconds of decisions with this many waiting gangs, nine of ten servers being full."""
    rng = stream(0, "decision")
    speed = rng.choice([1.0, 2.0, 3.0], servers)
    problem = PlacementProblem.of_servers(
        np.full((servers, 2), 8.0), speed, np.zeros(servers), 0.001 * speed, idle=np.inf
    ).replace(gangs=True)
    found = []
    for _ in range(rounds):
        arrival = np.zeros(tasks)
        work = rng.lognormal(1.0, 1.0, tasks)
        waiting = Tasks(
            arrival,
            rng.integers(1, 5, (tasks, 2)).astype(float),
            work,
            work,
            0.1 + arrival,
            9.0 * work,
            rng.integers(1, 17, tasks),
        )
        slot = next(iter(PlacementWorld(problem, waiting, 1)))
        slot.free[:] *= rng.random((servers, 1)) < 0.1
        policy = make_policy("drl-greedy:guard=0", problem)
        policy.decide(slot)  # compiles
        policy._known = np.zeros(0, dtype=np.int64)  # the network ranks all tasks again
        began = time.process_time()
        policy.decide(slot)
        found.append(time.process_time() - began)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fuzz", type=int, help="random problems to play")
    parser.add_argument("--first", type=int, default=0, help="first seed of the random problems")
    parser.add_argument("--seeds", type=int, help="seeds of each contended scenario")
    parser.add_argument("--scenario", action="append", help="scenario (default: the contended ones)")
    parser.add_argument("--decision", action="store_true", help="time of a decision")
    chosen = parser.parse_args()
    if chosen.fuzz:
        seeds = range(chosen.first, chosen.first + chosen.fuzz)
        found = {seed: share for seed in seeds if (share := ratio(seed)) is not None}
        worst = sorted(found, key=lambda seed: found[seed])
        print(f"{len(found)} random problems: mean {np.mean(list(found.values())):.4f} of the rule's gain; the worst:")
        for seed in worst[:10]:
            print(f"  seed {seed}: {found[seed]:.4f}")
    if chosen.seeds:
        for scenario in chosen.scenario or SCENARIOS:
            show(scenario, range(FIRST, FIRST + chosen.seeds))
    if chosen.decision:
        print(f"1000 gangs, 1000 servers: median {1e3 * np.median(decision_times()):.1f} ms a decision")


if __name__ == "__main__":
    main()
