"""Batch logs per second: `python -m benchmarks.batch` (`--quick` without the million, `--log FILE` for a real log).

The kernel plays a log whole; beside it, on the same jobs, a simpy model of the same rule and the plain reference of the
tests. All must give the same starts, or the benchmark fails. Logs of 10, 100 and 1,000 thousand jobs show how the cost
grows. Without `--log` jobs are drawn: sizes are powers of two up to the pool, run times log-normal, and the offered
load is a little above 1, so that the queue grows with the log. A real log is repeated, one copy after the other.

Times are processor time, the best of several runs; compiling is not counted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.families.placement.pool_runs import run_pool
from berth.families.placement.trace_world import pooled
from berth.model import Floats
from berth.traces.formats import load_trace
from berth.traces.lint import usable

__all__ = ["Log", "drawn", "main", "of_file", "repeated", "with_simpy"]


class Log(NamedTuple):
    """Jobs by arrival, every field (N,), and the size of the pool."""

    submit: Floats
    size: Floats
    run: Floats
    estimate: Floats
    processors: float


def drawn(count: int, seed: int = 0, processors: int = 256, load: float = 1.06) -> Log:
    """A log of this length; times are whole seconds."""
    rng = np.random.default_rng(seed)
    size = np.minimum(2.0 ** rng.integers(0, 9, count), processors)
    run = np.ceil(np.minimum(rng.lognormal(5.5, 2.2, count), 2e5))
    gap = float((size * run).mean()) / (processors * load)
    submit = np.floor(np.cumsum(rng.exponential(gap, count)))
    estimate = np.ceil(run * rng.choice([1.0, 1.5, 3.0, 10.0], count))
    return Log(submit, size, run, estimate, float(processors))


def of_file(path: Path, processors: float) -> Log:
    """The usable jobs of a log."""
    jobs = usable(pooled(load_trace(path), processors))[0].jobs

    def column(name: str) -> Floats:
        return jobs[name].to_numpy().astype(np.float64)

    return Log(column("submit_s"), column("cpu"), column("run_s"), column("estimate_s"), processors)


def repeated(log: Log, times: int) -> Log:
    """The log again and again, each copy after the one before."""
    span = float(log.submit[-1] - log.submit[0]) * (1 + 1 / len(log.submit))
    submit = np.concatenate([log.submit + copy * np.ceil(span) for copy in range(times)])
    size, run, estimate = (np.tile(part, times) for part in (log.size, log.run, log.estimate))
    return Log(submit, size, run, estimate, log.processors)


def play(log: Log, backfill: str) -> Floats:
    """When jobs start, by the kernel."""
    return run_pool(log.submit, log.size, log.run, log.estimate, log.processors, backfill=backfill)


# ---------------------------------------------------------------------------- the peer


def with_simpy(log: Log, backfill: str) -> Floats:
    """When jobs start, by a simpy model: a process for arrivals, one a running job, and the rule at every change."""
    import simpy  # a dependency of this benchmark alone

    world = simpy.Environment(initial_time=float(log.submit[0]))
    submit, size, run, estimate = (part.tolist() for part in (log.submit, log.size, log.run, log.estimate))
    start = [0.0] * len(submit)
    waiting: list[int] = []
    running: dict[int, float] = {}
    free = [log.processors]
    changed = [False]

    def job(i: int) -> Generator[Any, Any, None]:
        yield world.timeout(run[i])
        del running[i]
        free[0] += size[i]
        ask()

    def begin(i: int) -> None:
        start[i] = world.now
        running[i] = world.now + estimate[i]
        free[0] -= size[i]
        world.process(job(i))

    def ask() -> None:
        """Have the rule looked at once all that happens now has happened."""
        if not changed[0]:
            changed[0] = True
            world.process(decide())

    def decide() -> Generator[Any, Any, None]:
        later = simpy.Event(world)
        later._ok, later._value = True, None
        world.schedule(later, priority=9)  # after every other event of this moment
        yield later
        changed[0] = False
        while waiting and size[waiting[0]] <= free[0]:
            begin(waiting.pop(0))
        if waiting and backfill == "easy":
            pass_the_head()

    def pass_the_head() -> None:
        now, need = world.now, size[waiting[0]]
        ends = sorted((max(end, now), size[i]) for i, end in running.items())
        there, shadow, place = free[0], now, 0
        while there < need or (place < len(ends) and ends[place][0] <= shadow):
            shadow = max(shadow, ends[place][0])
            there += ends[place][1]
            place += 1
        extra, kept = there - need, [waiting[0]]
        for i in waiting[1:]:
            late = now + estimate[i] > shadow
            if size[i] <= free[0] and (not late or size[i] <= extra):
                extra -= size[i] if late else 0
                begin(i)
            else:
                kept.append(i)
        waiting[:] = kept

    def arrivals() -> Generator[Any, Any, None]:
        for i, moment in enumerate(submit):
            if moment > world.now:
                yield world.timeout(moment - world.now)
            waiting.append(i)
            ask()

    world.process(arrivals())
    world.run()
    return np.array(start)


# ---------------------------------------------------------------------------- measuring


def _best(work: Callable[[], Floats], times: int) -> tuple[float, Floats]:
    seconds, result = [], np.zeros(0)
    for _ in range(times):
        began = time.process_time()
        result = work()
        seconds.append(time.process_time() - began)
    return min(seconds), result


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 where two ways of playing a log disagree."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batch", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="logs of 10 and 100 thousand jobs only")
    parser.add_argument("--log", type=Path, help="a batch log, instead of drawn jobs")
    parser.add_argument("--processors", type=int, default=256)
    options = parser.parse_args(arguments)
    one = (
        drawn(10_000, processors=options.processors)
        if options.log is None
        else of_file(options.log, options.processors)
    )
    small = drawn(500)
    title = "drawn jobs" if options.log is None else options.log.name
    table = Table(title=f"Batch logs on {one.processors:g} processors: {title}", box=None)
    for name in ("rule", "jobs", "kernel s", "jobs/s", "simpy s", "simpy jobs/s", "ratio", "same starts"):
        table.add_column(name, justify="left" if name == "rule" else "right")
    agreed = True
    cost: dict[str, list[tuple[int, float]]] = {}
    for backfill in ("none", "easy", "any", "conservative"):
        play(small, backfill)  # compile
        for times in (1, 10) if options.quick else (1, 10, 100):
            if backfill == "conservative" and times > 1:
                continue  # it moves every reservation when a job ends early: the longer the queue, the longer it takes
            log = (
                repeated(one, times)
                if options.log is not None
                else drawn(10_000 * times, processors=options.processors)
            )
            seconds, start = _best(lambda: play(log, backfill), 3)  # noqa: B023
            cost.setdefault(backfill, []).append((len(start), seconds))
            peer: list[str] = ["", "", "", ""]
            if times == 1 and backfill in ("none", "easy"):
                slow, theirs = _best(lambda: with_simpy(log, backfill), 1)  # noqa: B023
                same = bool((theirs == start).all())
                agreed = agreed and same
                peer = [f"{slow:.2f}", f"{len(start) / slow:,.0f}", f"{slow / seconds:,.0f}", "yes" if same else "NO"]
            table.add_row(backfill, f"{len(start):,}", f"{seconds:.4f}", f"{len(start) / seconds:,.0f}", *peer)
    console = Console(highlight=False, width=110)
    console.print(table)
    for backfill, points in cost.items():
        if len(points) > 1:
            sizes, times_taken = np.log(np.array(points)).T
            console.print(f"{backfill}: cost grows with jobs to the power {np.polyfit(sizes, times_taken, 1)[0]:.2f}")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
