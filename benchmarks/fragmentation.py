"""How full a GPU cluster gets before shares of GPUs spoil it: `python -m benchmarks.fragmentation`.

As in "Beware of Fragmentation": pods drawn from the openb trace come one by one and stay for good, until they have
asked for more GPUs than there are; a pod that does not fit at once is turned away. What counts is the share of GPUs
that are taken when requests have reached 100 % and 130 % of them. The cluster is the openb mix of machines, scaled to
`--machines`. Pods come from the fitted workload that comes with berth, or with BERTH_TRACES set from the trace itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console
from rich.progress import track
from rich.table import Table

from berth.families.placement.problem import PlacementDecision, PlacementOutcome, PlacementSlot
from berth.families.placement.trace_world import batch_jobs
from berth.families.placement.world import PlacementWorld
from berth.lab.show.words import plus_minus
from berth.model import Floats
from berth.random import stream
from berth.registry import PolicySpec
from berth.simulation import simulate
from berth.statistics import estimate
from berth.traces.fitting.generate import generate
from berth.traces.fitting.workload import load_workload
from berth.traces.formats import load_trace
from berth.traces.lint import usable
from berth.traces.trace import Trace

__all__ = ["POLICIES", "filled_share", "main", "pods"]

POLICIES = ("first-fit", "best-fit", "fcfs:backfill=any,fit=worst", "fcfs:backfill=any,fit=aligned", "fgd")
LEVELS = (1.0, 1.3)
POD_LIST = "alibaba-gpu-v2023/openb_pod_list_default.csv.gz"


def pods(count: int, machines: int, seed: int) -> Trace:
    """Pods in a random order, one a second, on a cluster of the openb mix."""
    trace = generate(load_workload("openb"), jobs=count, machines=machines, seed=seed)
    folder = os.environ.get("BERTH_TRACES")
    if folder:
        real = usable(load_trace(Path(folder) / POD_LIST))[0]
        places = stream(seed, "pods").integers(len(real), size=count)
        trace = trace.replace(jobs=real.jobs.select(trace.jobs.columns)[places])
    order = pl.int_range(len(trace), dtype=pl.Int64)
    jobs = trace.jobs.with_columns(
        order.cast(pl.Float64).alias("submit_s"),
        order.cast(pl.String).alias("job"),
        pl.lit(1e9).alias("run_s"),
        pl.lit(1e9).alias("estimate_s"),
    )
    return usable(trace.replace(jobs=jobs))[0]


def filled_share(trace: Trace, policy: str, seed: int) -> tuple[float, ...]:
    """The share of GPUs that are taken when requests have reached each of `LEVELS` of all GPUs."""
    batch = batch_jobs(trace)
    problem, device = batch.problem, batch.problem.devices
    if device is None:
        raise ValueError("no pod takes a share of a GPU")
    total = float(problem.instance.capacity[:, device].sum())
    asked: Floats = np.cumsum(batch.tasks.demand[:, device]) / total
    if asked[-1] < LEVELS[-1]:
        raise ValueError(f"pods ask for {asked[-1]:.2f} of the GPUs, less than {LEVELS[-1]}")
    count = int(np.searchsorted(asked, LEVELS[-1])) + 1
    tasks = batch.tasks.take(np.arange(count))
    once = dataclasses.replace(tasks, deadline=tasks.arrival + 0.5)  # turned away before the next comes
    taken = np.zeros(count)

    def note(slot: PlacementSlot, decision: PlacementDecision, outcome: PlacementOutcome) -> None:
        taken[outcome.started] = once.demand[outcome.started, device]

    world = PlacementWorld(problem, once, len(np.unique(once.arrival)), None)
    simulate(world, PolicySpec.parse(policy).build(problem, stream(seed, "policy", policy)), observers=[note])
    reached: Floats = np.cumsum(taken) / total
    return tuple(float(reached[min(int(np.searchsorted(asked, level)), count - 1)]) for level in LEVELS)


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fragmentation", description=__doc__.split("\n")[0])
    parser.add_argument("--machines", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args(arguments)
    found: dict[str, list[tuple[float, ...]]] = {policy: [] for policy in POLICIES}
    console = Console(highlight=False, width=100)
    for seed in track(range(options.seeds), description="seeds", console=Console(stderr=True), transient=True):
        trace = pods(12 * options.machines, options.machines, seed)
        for policy in POLICIES:
            found[policy].append(filled_share(trace, policy, seed))
    source = "trace" if os.environ.get("BERTH_TRACES") else "fitted workload"
    table = Table(
        title=f"% of GPUs taken, {options.machines} machines, pods of the {source}, {options.seeds} seeds", box=None
    )
    table.add_column("policy")
    for level in LEVELS:
        table.add_column(f"requests at {level:.0%}", justify="right")
    for policy, shares in found.items():
        cells = []
        for column in np.array(shares).T:
            mean, half = plus_minus(estimate(100 * column))
            cells.append(f"{mean} {half}")
        table.add_row(policy, *cells)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
