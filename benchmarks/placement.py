"""Time of placement: `python -m benchmarks.placement` (`--quick` for a look).

Two tables. Whole runs: processor time a placement of the indexed engine (`berth.families.placement.rule_runs.run_rule`:
all of it, and the events alone), beside the scan of all servers, compiled too, on the first of the same tasks in the
same run. One decision: how long a policy takes for a batch on a busy cluster.

The load is the work that arrives, in cores and time, over what all cores can do. Processor time, the best of several
runs: other work on the machine lengthens wall time.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.families.placement.kernels.run import play, prepare
from berth.families.placement.kernels.run_state import EVENTS
from berth.families.placement.policies.greedy import Greedy
from berth.families.placement.problem import PlacementProblem, PlacementSlot, Tasks
from berth.families.placement.rule_runs import batch_of, run_of, run_rule, servers_of, shelves_of
from berth.families.placement.world import PlacementWorld
from berth.model import Floats
from tests.reference import placement as twin

RULE = {"beta": 0.3, "price": 0.05}
LOADS = (0.1, 0.65, 1.1)
SERVERS = (100, 1000, 10_000)
SCANNED = 3000  # the first tasks only: the scan of all would take hours
CORE_TIME = 29.0  # cores times work of a task, on average


def cluster(servers: int) -> PlacementProblem:
    """Three kinds of servers of 32 or 16 cores and 32 GB, at clocks 4, 3.2 and 2.2: 30, 30 and 40 of 100."""
    kind = np.repeat([0, 1, 2], [3 * servers // 10, 3 * servers // 10, servers - 2 * (3 * servers // 10)])
    capacity = np.array([[32.0, 32.0], [16.0, 32.0], [16.0, 32.0]])[kind]
    speed = np.array([4.0, 3.2, 2.2])[kind]
    weight = np.array([1.0, 0.25])
    return PlacementProblem.of_servers(capacity, speed, 0.04 * (capacity @ weight), 0.02 * speed, weight)


def tasks_at(problem: PlacementProblem, load: float, size: int, seed: int = 0) -> tuple[Tasks, float]:
    """About `size` tasks at this load, and the load that they really are."""
    rng = np.random.default_rng(seed)
    power = float(problem.instance.capacity[:, 0] @ problem.speed)
    each = load * power / CORE_TIME
    batches = max(int(size / each), 8)
    arrival = np.repeat(np.arange(batches), rng.poisson(each, batches)).astype(np.float64)
    value = rng.normal(6.0, np.sqrt(12.0), len(arrival))
    while (value < 0.6).any():
        value[value < 0.6] = rng.normal(6.0, np.sqrt(12.0), int((value < 0.6).sum()))
    demand = np.stack([rng.integers(1, 9, len(arrival)), rng.uniform(0.5, 2.0, len(arrival))], axis=1)
    deadline = arrival + rng.uniform(1.0, 3.0, len(arrival)) * value / 2.2
    tasks = Tasks(arrival, demand, value, value, rng.choice([0.5, 1.0, 2.0], len(arrival)), deadline)
    return tasks, float(tasks.work @ tasks.demand[:, 0]) / batches / power


class Timed(NamedTuple):
    """Processor seconds: everything, the events alone; what was placed and how many events there were."""

    whole: float
    events_alone: float
    placed: int
    events: int


def rank_of(tasks: Tasks) -> Floats:
    return tasks.value / (tasks.demand[:, 0] * tasks.work)


def indexed(problem: PlacementProblem, tasks: Tasks, repeats: int) -> Timed:
    rank, whole, alone = rank_of(tasks), np.inf, np.inf
    for _ in range(repeats):
        begin = time.process_time()
        found = run_rule(problem, tasks, rank, **RULE)
        whole = min(whole, time.process_time() - begin)
        run, shelves = run_of(problem, tasks), shelves_of(problem)
        order = np.argsort(-rank, kind="stable")
        prepare(batch_of(tasks), servers_of(problem), shelves, run, order, RULE["beta"], RULE["price"])
        begin = time.process_time()
        play(shelves, run, problem.idle)
        alone = min(alone, time.process_time() - begin)
        if run.counts[EVENTS] != found.events:
            raise SystemExit("two runs of the same rule differ")
    return Timed(whole, alone, int((found.server >= 0).sum()), found.events)


def scan(problem: PlacementProblem, tasks: Tasks) -> tuple[float, int]:
    """Processor seconds of the scan and how many tasks it placed; it must have placed them as the engine does."""
    rank = rank_of(tasks)
    begin = time.process_time()
    server, start = twin.play(problem, tasks, rank, RULE["beta"], RULE["price"])
    seconds = time.process_time() - begin
    found = run_rule(problem, tasks, rank, **RULE)
    if not (np.array_equal(server, found.server) and np.array_equal(start[server >= 0], found.start[server >= 0])):
        raise SystemExit("the scan and the engine differ")
    return seconds, int((server >= 0).sum())


def runs(quick: bool) -> Table:
    table = Table(
        "servers",
        "load",
        "placed",
        "µs a placement",
        "events alone",
        "goal",
        "M events/s",
        "scan, µs",
        "scan ÷ engine",
        title="whole runs, processor time",
    )
    for servers in SERVERS:
        problem = cluster(servers)
        for load in LOADS:
            tasks, real = tasks_at(problem, load, 40_000 if servers < 10_000 or quick else 200_000)
            found = indexed(problem, tasks, 2 if quick else 6)
            seconds, placed = scan(problem, tasks.take(np.arange(min(SCANNED, len(tasks)))))
            each = 1e6 * found.whole / found.placed
            goal = "" if servers < 10_000 else "≤ 0.5" if load < 1 else "≤ 1.2"
            slow = 1e6 * seconds / placed
            table.add_row(
                f"{servers}",
                f"{100 * real:.0f} %",
                f"{found.placed}",
                f"{each:.3f}",
                f"{1e6 * found.events_alone / found.placed:.3f}",
                goal,
                f"{found.events / found.whole / 1e6:.1f}" + (" (goal ≥ 5)" if servers == 100 and load < 0.5 else ""),
                f"{slow:.1f}",
                f"{slow / each:.0f}",
            )
    return table


def decisions(servers: int, size: int, waiting: str, count: int) -> Floats:
    """Wall seconds of single decisions about a batch of `size` tasks, while the cluster runs half full."""
    problem = cluster(servers)
    tasks, _ = tasks_at(problem, 0.5, 4000)
    world = PlacementWorld(problem, tasks, int(tasks.arrival[-1]) + 1)
    policy = Greedy(problem, np.random.default_rng(0), order="densest", waiting=waiting)
    busy: PlacementSlot | None = None
    for slot in world:
        if slot.index == 6 and len(slot.ids):
            busy = slot
            break
        world.step(policy.decide(slot))
    if busy is None:
        raise SystemExit("nothing arrives in slot 6")
    rng = np.random.default_rng(1)
    took = np.empty(count)
    for at in range(count):
        some = np.sort(rng.choice(len(busy.ids), min(size, len(busy.ids)), replace=False))
        slot = PlacementSlot(
            busy.index, busy.time, busy.ids[some], busy.tasks.take(some), busy.free, busy.on_until, busy.up, busy.berths
        )
        begin = time.perf_counter()
        policy.decide(slot)
        took[at] = time.perf_counter() - begin
    return took


def latency(quick: bool) -> Table:
    table = Table("servers", "batch", "waiting", "p50, ms", "p99, ms", "goal", title="one decision, wall time")
    for servers, size, goal in ((100, 10, 0.5), (100, 20, 0.5), (1000, 100, 3.0)):
        for waiting in ("queue", "commit-immediate", "commit-any"):
            took = 1e3 * decisions(servers, size, waiting, 50 if quick else 500)[5:]
            p50, p99 = np.percentile(took, [50, 99])
            table.add_row(f"{servers}", f"{size}", waiting, f"{p50:.3f}", f"{p99:.3f}", f"p50 ≤ {goal:g}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer tasks and repeats")
    quick = parser.parse_args().quick
    problem = cluster(10)
    few = tasks_at(problem, 0.5, 50)[0]
    run_rule(problem, few, rank_of(few))  # compiles
    console = Console(width=130)
    console.print(latency(quick))
    console.print(runs(quick))


if __name__ == "__main__":
    main()
