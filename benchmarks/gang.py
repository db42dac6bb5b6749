"""Choosing gangs: `python -m benchmarks.gang` (`--quick` for about a minute).

Time, certified gap and value of `choose_gang`, next to HiGHS on the same questions in the same run, with a time limit.
HiGHS solves the integer programme with tangents of the root. Processor time is given next to wall time, which other
work on the machine lengthens.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.families.selection.solvers import GangQuestion, choose_gang
from tests.reference.gang import best_by_programme, is_gang


class Size(NamedTuple):
    jobs: int
    servers: int
    gap: float  # asked for
    goal: float | None = None  # milliseconds


SIZES = [
    Size(10, 10, 5e-3),
    Size(20, 20, 5e-3),
    Size(30, 40, 5e-3, 50.0),
    Size(60, 40, 1e-2),
    Size(100, 40, 1e-2, 150.0),
]


def gang_question(jobs: int, servers: int, seed: int = 0, gpus: tuple[int, ...] = (1,)) -> GangQuestion:
    """Machines and jobs of a training cluster, all jobs arrived.

    Servers have 96 cores/384 GB, 64/256 and 4 GPUs, or 96/768 and 8 GPUs (.4/.3/.3). Of the jobs 70 % have 1–2
    parameter servers (4 cores, 16 GB) and 2–16 workers with a number of GPUs from `gpus` each; the rest are 4–32 CPU
    tasks. A job needs 25–100 % of its tasks; a role can use a server with probability .3. A task gains by its size,
    the quality of its job (.1–1) and the channel (.5–1.5); spreads are those of channels seen about 100 times in 2000
    slots.

    >>> question = gang_question(3, 4)
    >>> question.takes.shape[1], question.free.shape
    (3, (4, 3))
    """
    rng = np.random.default_rng(seed)
    kinds = np.array([[96.0, 384.0, 0.0], [64.0, 256.0, 4.0], [96.0, 768.0, 8.0]])
    free = kinds[rng.choice(3, servers, p=[0.4, 0.3, 0.3])]
    demand, low, high, job_of_port, worth = [], [], [], [], []
    for job in range(jobs):
        quality = rng.uniform(0.1, 1.0)
        if rng.random() < 0.7:
            gpu = float(rng.choice(gpus))
            parameter_server = ((4.0, 16.0, 0.0), int(rng.integers(1, 3)), 0.25)
            need = (float(rng.choice([2, 4, 8])) * gpu, float(rng.choice([16, 32, 64])) * gpu, gpu)
            roles = [parameter_server, (need, int(rng.integers(2, 17)), gpu)]
        else:
            cores = float(rng.choice([1, 2, 4, 8]))
            memory = cores * float(rng.choice([1, 2, 4, 8]))
            roles = [((cores, memory, 0.0), int(rng.integers(4, 33)), 0.05 * cores)]
        share = rng.uniform(0.25, 1.0)
        for need, tasks, size in roles:
            demand.append(need)
            high.append(tasks)
            low.append(max(1, round(share * tasks)))
            job_of_port.append(job)
            worth.append(quality * size)
    port, server = np.nonzero(rng.random((len(demand), servers)) < 0.3)
    return GangQuestion(
        gain=np.array(worth)[port] * rng.uniform(0.5, 1.5, len(port)),
        spread=np.log(2001.0) / (2.0 * np.maximum(rng.exponential(100.0, len(port)), 1.0)),
        takes=np.array(demand)[port],
        pool=server,
        free=free,
        port=port,
        job_of_port=np.array(job_of_port),
        minimum=np.array(low),
        most=np.array(high),
        arrived=np.ones(jobs, dtype=bool),
    )


class Run(NamedTuple):
    wall: float  # milliseconds
    processor: float
    gap: float
    value: float


def time_berth(question: GangQuestion, gap: float) -> Run:
    wall, processor = time.perf_counter(), time.thread_time()
    choice = choose_gang(question, gap)
    run = Run(1e3 * (time.perf_counter() - wall), 1e3 * (time.thread_time() - processor), choice.gap, choice.value)
    if not is_gang(question, choice.tasks):
        raise RuntimeError("an answer that breaks a constraint")
    return run


def time_highs(question: GangQuestion, gap: float, seconds: float) -> Run:
    wall, processor = time.perf_counter(), time.process_time()
    found = best_by_programme(question, gap, seconds, rounds=1)
    away = (found.bound - found.value) / max(abs(found.bound), 1e-12)
    return Run(1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - processor), away, found.value)


def row(size: Size, gpus: tuple[int, ...], seeds: int, seconds: float) -> list[str]:
    ours, theirs = [], []
    channels = 0
    for seed in range(seeds):
        question = gang_question(size.jobs, size.servers, seed, gpus)
        channels += len(question.gain)
        ours.append(time_berth(question, size.gap))
        theirs.append(time_highs(question, size.gap, seconds))
    gaps = np.array([run.gap for run in ours])
    processor = [run.processor for run in ours]
    ratio = np.mean([a.value / max(b.value, 1e-12) for a, b in zip(ours, theirs, strict=True)])
    return [
        f"{size.jobs} × {size.servers}, GPUs {'/'.join(map(str, gpus))}",
        f"{channels / seeds:.0f}",
        f"{100 * size.gap:g} %" + ("" if size.goal is None else f" in {size.goal:g} ms"),
        f"{np.median([run.wall for run in ours]):.1f}",
        f"{np.median(processor):.1f}",
        f"{max(processor):.1f}",
        f"{100 * np.median(gaps):.2f}",
        f"{100 * gaps.max():.2f}",
        f"{np.count_nonzero(gaps <= size.gap)}/{seeds}",
        f"{np.median([run.processor for run in theirs]):.0f}",
        f"{100 * np.median([run.gap for run in theirs]):.2f}",
        f"{100 * ratio:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few seeds, a short limit for HiGHS")
    quick = parser.parse_args().quick
    seeds, seconds = (3, 2.0) if quick else (10, 10.0)
    choose_gang(gang_question(5, 5), gap=0.0, effort=2)  # compile
    table = Table(title=f"Gangs: median of {seeds} questions; HiGHS asked for the same gap within {seconds:g} s")
    for name in ("jobs × servers", "channels", "asked", "ms", "CPU ms", "worst", "gap %", "worst", "reached"):
        table.add_column(name, justify="left" if name.startswith("jobs") else "right")
    for name in ("HiGHS CPU ms", "its gap %", "our value, % of its"):
        table.add_column(name, justify="right")
    for gpus in ((1,), (1, 2)):
        for size in SIZES:
            table.add_row(*row(size, gpus, seeds, seconds))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
