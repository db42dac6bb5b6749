"""Whole logs on machines, jobs per second: `python -m benchmarks.clusters` (`--quick` for a short run).

The kernels play a log whole. Beside them, on the first jobs of the same log, the engine asks the policy at every moment
and, for two rules, a simpy model does the same. All must give the same starts, or the benchmark fails. Growth with jobs
and with machines is measured on drawn logs.

Logs are openb (pods that share GPUs), wagap-2013 and HPC2N (gangs on machines) if the folder `BERTH_TRACES` has them,
the first 1,000 jobs of the last two also at one and a half times the capacity; else drawn ones. Times are processor
time, the best of several runs; compiling is not counted. The kernels play the whole log, the others its beginning. Set
OMP_NUM_THREADS=1: threads of a BLAS use processor time while they wait.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.families.placement.cluster_runs import run_cluster
from berth.families.placement.trace_world import BatchJobs, batch_jobs, batch_world, squeezed
from berth.model import Floats
from berth.registry import PolicySpec
from berth.simulation import simulate
from berth.traces.formats import load_trace
from berth.traces.lint import usable
from berth.traces.trace import CORES, GPUS, MEMORY, Trace

__all__ = ["drawn_gangs", "drawn_pods", "main", "with_simpy"]

FILES = {
    "openb": "alibaba-gpu-v2023/openb_pod_list_default.csv.gz",
    "wagap-2013": "swf/wagap-2013.swf.gz",
    "HPC2N": "swf/HPC2N-2002-head.swf.gz",
}
PODS = ("fcfs", "best-fit", "fgd")
GANGS = ("fcfs", "sjf", "easy", "conservative")
IN_SIMPY = {"fcfs": ("first", False), "best-fit": ("best", True)}


class Case(NamedTuple):
    name: str
    trace: Trace
    policies: tuple[str, ...]


# ---------------------------------------------------------------------------- logs


def drawn_pods(count: int, nodes: int, seed: int = 0, load: float = 0.8) -> Trace:
    """Pods that share GPUs, on nodes of three kinds."""
    rng = np.random.default_rng(seed)
    share = rng.choice(
        [0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 4.0, 8.0], count, p=[0.2, 0.1, 0.15, 0.05, 0.35, 0.06, 0.04, 0.05]
    )
    jobs = {
        "submit_s": np.floor(np.cumsum(rng.exponential(10.0, count))).tolist(),
        "run_s": np.ceil(np.minimum(rng.lognormal(7.0, 1.5, count), 1e6)).tolist(),
        "cpu": rng.choice([2.0, 4.0, 8.0, 12.0], count).tolist(),
        "memory": rng.choice([4.0, 16.0, 30.0, 60.0], count).tolist(),
        "gpu": share.tolist(),
    }
    kinds = [max(nodes // 3, 1), max(nodes // 3, 1), max(nodes - 2 * (nodes // 3), 1)]
    machines: dict[str, list[Any]] = {
        "machine": ["a", "b", "c"],
        "count": kinds,
        "cpu": [64.0, 96.0, 128.0],
        "memory": [256.0, 384.0, 768.0],
        "gpu": [2.0, 4.0, 8.0],
    }
    return squeezed(usable(Trace.of(jobs, machines, (CORES, MEMORY, GPUS)))[0], load)


def drawn_gangs(count: int, machines: int, seed: int = 0, load: float = 0.9) -> Trace:
    """Gangs of up to 32 pieces, with estimates that are too long, on machines of two kinds."""
    rng = np.random.default_rng(seed)
    run = np.ceil(np.minimum(rng.lognormal(6.0, 2.0, count), 2e5))
    jobs = {
        "submit_s": np.floor(np.cumsum(rng.exponential(10.0, count))).tolist(),
        "run_s": run.tolist(),
        "estimate_s": np.ceil(run * rng.choice([1.0, 1.5, 3.0, 10.0], count)).tolist(),
        "pieces": (2 ** rng.integers(0, 6, count)).tolist(),
        "cpu": rng.choice([1.0, 2.0, 4.0, 8.0], count).tolist(),
        "memory": rng.choice([1.0, 4.0, 16.0], count).tolist(),
    }
    small = machines // 2
    table: dict[str, list[Any]] = {
        "machine": ["a", "b"],
        "count": [small, machines - small],
        "cpu": [16.0, 64.0],
        "memory": [64.0, 512.0],
    }
    return squeezed(usable(Trace.of(jobs, table, (CORES, MEMORY)))[0], load)


def cases(folder: str, quick: bool) -> list[Case]:
    """The logs to play."""
    if not folder:
        size = 3000 if quick else 20_000
        gangs = drawn_gangs(size, 68)
        return [
            Case("drawn pods", drawn_pods(size, 1213), PODS),
            Case("drawn gangs", gangs, GANGS),
            Case("drawn gangs, load 1.5", squeezed(gangs, 1.5), GANGS),
        ]
    found: list[Case] = []
    for name, file in FILES.items():
        trace = usable(load_trace(Path(folder) / file))[0]
        if quick:
            trace = trace.replace(jobs=trace.jobs.head(2000))
        found.append(Case(name, trace, PODS if name == "openb" else GANGS))
        if name != "openb":
            found.append(Case(f"{name}, load 1.5", squeezed(trace.replace(jobs=trace.jobs.head(1000)), 1.5), GANGS))
    return found


# ---------------------------------------------------------------------------- peers


def built(policy: str, batch: BatchJobs) -> Any:
    return PolicySpec.parse(policy).build(batch.problem, np.random.default_rng(0))


def with_kernel(batch: BatchJobs, policy: str) -> Floats:
    """Starts by the kernel."""
    played = run_cluster(built(policy, batch), batch.tasks, batch.runs)
    if played is None:
        raise SystemExit(f"{policy}: no kernel")
    return played.start


def with_engine(batch: BatchJobs, trace: Trace, policy: str) -> Floats:
    """Starts if the policy is asked at every moment."""
    start = np.full(len(batch.tasks), np.nan)

    def note(slot: Any, decision: Any, outcome: Any) -> None:
        start[outcome.started] = outcome.time

    simulate(batch_world(batch, trace), built(policy, batch), observers=[note], infeasible="raise")
    return start


def with_simpy(batch: BatchJobs, policy: str) -> Floats:
    """Starts by a simpy model: a process for arrivals, one a running job, and the rule at every change."""
    import simpy  # a dependency of benchmarks alone

    fit, passing = IN_SIMPY[policy]
    problem, tasks = batch.problem, batch.tasks
    capacity, reach, gpu = problem.instance.capacity.tolist(), problem.reach.tolist(), problem.devices
    slack = [[1e-9 * (1 + amount) for amount in row] for row in capacity]
    most = problem.instance.capacity.max(axis=0).tolist()
    free, devices = [list(row) for row in capacity], [list(row) for row in problem.all_devices.tolist()]
    demand, pieces, port = tasks.demand.tolist(), tasks.pieces.tolist(), tasks.port.tolist()
    start: list[float] = [np.nan] * len(pieces)
    waiting: list[int] = []
    world = simpy.Environment(initial_time=float(tasks.arrival[0]))
    asked = [False]

    def share_fits(i: int, r: int) -> int:
        need = 0.0 if gpu is None else demand[i][gpu]
        if need <= 1e-9:
            return 1 << 40
        if need < 1 - 1e-9:
            return sum(int((left + 1e-9) / need) for left in devices[r])
        return len([left for left in devices[r] if left >= 1 - 1e-9]) // int(need + 0.5)

    def room(i: int, r: int) -> int:
        if not reach[port[i]][r]:
            return 0
        count = share_fits(i, r)
        for need, left, more in zip(demand[i], free[r], slack[r], strict=True):
            if need > left + more:
                return 0
            if need > 0:
                count = min(count, int((left + more) / need))
        return count

    def left_over(i: int, r: int) -> float:
        total = 0.0
        for k, need in enumerate(demand[i]):
            if most[k] > 0:
                total += (free[r][k] - need) / most[k]
        return total

    def places(i: int) -> list[tuple[int, int]]:
        there = [(r, room(i, r)) for r in range(len(free))]
        there = [(r, count) for r, count in there if count]
        if sum(count for _, count in there) < pieces[i]:
            return []
        if fit == "best":
            there.sort(key=lambda place: left_over(i, place[0]))
        chosen, wanted = [], pieces[i]
        for r, count in there:
            if wanted:
                chosen.append((r, min(count, wanted)))
                wanted -= chosen[-1][1]
        return chosen

    def hold(i: int, r: int) -> list[tuple[int, float]]:
        need = 0.0 if gpu is None else demand[i][gpu]
        if need <= 1e-9:
            return []
        if need < 1 - 1e-9:
            able = [g for g, left in enumerate(devices[r]) if left + 1e-9 >= need]
            held = [(min(able, key=lambda g: devices[r][g]), need)]
        else:
            able = [g for g, left in enumerate(devices[r]) if left >= 1 - 1e-9]
            held = [(g, 1.0) for g in able[: int(need + 0.5)]]
        for g, part in held:
            devices[r][g] -= part
        return held

    def job(i: int, chosen: list[tuple[int, int]]) -> Generator[Any, Any, None]:
        held = []
        for r, count in chosen:
            free[r] = [left - need * count for left, need in zip(free[r], demand[i], strict=True)]
            held += [(r, g, part) for _ in range(count) for g, part in hold(i, r)]
        speed = min(float(problem.speed[r]) for r, _ in chosen)
        start[i] = world.now
        yield world.timeout(float(batch.runs[i]) / speed)
        for r, count in chosen:
            free[r] = [left + need * count for left, need in zip(free[r], demand[i], strict=True)]
        for r, g, part in held:
            devices[r][g] += part
        ask()

    def ask() -> None:
        """Have the rule looked at once all that happens now has happened."""
        if not asked[0]:
            asked[0] = True
            world.process(decide())

    def decide() -> Generator[Any, Any, None]:
        later = simpy.Event(world)
        later._ok, later._value = True, None
        world.schedule(later, priority=9)  # after every other event of this moment
        yield later
        asked[0] = False
        kept: list[int] = []
        for i in waiting:
            chosen = [] if kept and not passing else places(i)
            if not chosen:
                kept.append(i)
                continue
            running = job(i, chosen)
            world.process(_begun(running))
        waiting[:] = kept

    def arrivals() -> Generator[Any, Any, None]:
        for i, moment in enumerate(tasks.arrival.tolist()):
            if moment > world.now:
                yield world.timeout(moment - world.now)
            waiting.append(i)
            ask()

    world.process(arrivals())
    world.run()
    return np.array(start)


def _begun(running: Generator[Any, Any, None]) -> Generator[Any, Any, None]:
    """A process whose first step is taken at once, so that the next decision sees it."""
    first = next(running)

    def rest() -> Generator[Any, Any, None]:
        yield first
        yield from running

    return rest()


# ---------------------------------------------------------------------------- measurements


def timed(play: Callable[[], Floats], runs: int) -> tuple[float, Floats]:
    """Best processor time of several runs, and the starts."""
    best, start = np.inf, np.zeros(0)
    for _ in range(runs):
        began = time.process_time()
        start = play()
        best = min(best, time.process_time() - began)
    return best, start


def compared(case: Case, first: int, table: Table, errors: list[str]) -> None:
    """One line for each policy."""
    head = case.trace.replace(jobs=case.trace.jobs.head(first))
    few = case.trace.replace(jobs=case.trace.jobs.head(20))
    batch, part = batch_jobs(case.trace), batch_jobs(head)
    jobs, servers, easy = len(batch.tasks), len(batch.problem.speed), 0.0
    for policy in case.policies:
        of_head = with_kernel(part, policy)  # compiles, as the next line does
        with_engine(batch_jobs(few), few, policy)
        seconds, _ = timed(lambda: with_kernel(batch, policy), 1 if policy == "conservative" else 3)  # noqa: B023
        slow, starts = timed(lambda: with_engine(part, head, policy), 1)  # noqa: B023
        if not np.array_equal(starts, of_head, equal_nan=True):
            errors.append(f"{case.name}, {policy}: the engine starts other jobs")
        simpy = "–"
        if policy in IN_SIMPY:
            taken, starts = timed(lambda: with_simpy(part, policy), 1)  # noqa: B023
            simpy = f"{len(part.tasks) / taken:,.0f}"
            if not np.array_equal(starts, of_head, equal_nan=True):
                errors.append(f"{case.name}, {policy}: simpy starts other jobs")
        easy = seconds if policy == "easy" else easy
        beside = f"{seconds / easy:.0f}" if policy == "conservative" else "–"
        rate = f"{jobs / seconds:,.0f}"
        line = (case.name, policy, f"{jobs:,}", f"{servers:,}", rate, f"{len(part.tasks) / slow:,.0f}", simpy, beside)
        print(" | ".join(line), flush=True)  # the table comes at the end
        table.add_row(*line)


def growth(quick: bool) -> Table:
    """Kernel alone, on drawn gangs: more jobs, more machines."""
    table = Table(
        "jobs", "machines", *(f"{policy} jobs/s" for policy in GANGS), title="Growth, drawn gangs at load 0.9"
    )
    sizes = [(2000, 68), (4000, 68)] if quick else [(5000, 68), (10_000, 68), (20_000, 68), (5000, 272), (5000, 1088)]
    for count, machines in sizes:
        batch = batch_jobs(drawn_gangs(count, machines))
        rates = [count / timed(lambda: with_kernel(batch, policy), 1)[0] for policy in GANGS]  # noqa: B023
        table.add_row(f"{count:,}", f"{machines:,}", *(f"{rate:,.0f}" for rate in rates))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="Play short logs only.")
    quick = parser.parse_args().quick
    console, errors = Console(width=120), list[str]()
    names = ("log", "policy", "jobs", "machines", "kernel jobs/s", "engine jobs/s", "simpy jobs/s", "times EASY")
    table = Table(*names, title="Whole logs on machines")
    for case in cases(os.environ.get("BERTH_TRACES", ""), quick):
        compared(case, 200 if quick else 500, table, errors)
    console.print(table)
    console.print(growth(quick))
    for error in errors:
        console.print(error, style="red")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
