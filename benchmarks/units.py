"""What fine units of resources change in rehearsals of a log: `python -m benchmarks.units`.

A rehearsal of a log counts amounts on a grid of 2^-40 of the largest machine. Here the same jobs are also rehearsed in
thousandths, rounded to the nearest, as before. Logs are drawn from fitted workloads, scaled down to a few machines, and
rehearsed on two servers of half a machine, where jobs wait. Of each resource: how many requests thousandths round to
nothing, and how many they change by more than a tenth.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.files.quantities import MILLI
from berth.live.core.jobs import Server
from berth.live.twin.runs import Runner, run
from berth.live.twin.streams import CLASS
from berth.live.twin.traces import OTHERS, TraceStream, fine_units, in_units, trace_gangs
from berth.traces.fitting.generate import generate
from berth.traces.fitting.workload import load_workload
from berth.traces.formats.generic import write_trace

__all__ = ["in_thousandths", "main", "stream_of"]

SPEEDS = {OTHERS: {"all": 1.0}}


def stream_of(workload: str, jobs: int, machines: int, load: float) -> TraceStream:
    """A log of a workload in fine units, on two servers of half a machine."""
    trace = generate(load_workload(workload), jobs=jobs, machines=machines, load=load, seed=1)
    half = {resource.name: MILLI // 2 for resource in trace.resources if resource.name in trace.machines}
    servers = [Server(f"m{i}", half, {CLASS: "all"}) for i in range(2)]
    units = fine_units(servers)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log.csv"
        write_trace(trace, file)
        gangs = tuple(trace_gangs(file, SPEEDS, None, units))
    return TraceStream(gangs, tuple(in_units(server, units) for server in servers), SPEEDS, 0.0, units=units)


def in_thousandths(stream: TraceStream) -> TraceStream:
    """The same jobs and servers, with amounts in thousandths; a request that becomes nothing is left out."""

    def rounded(amounts: dict[str, int]) -> dict[str, int]:
        found = {name: round(Fraction(MILLI * much, stream.units[name])) for name, much in amounts.items()}
        return {name: much for name, much in found.items() if much}

    gangs = tuple(replace(gang, demand=rounded(dict(gang.demand or {}))) for gang in stream.jobs)
    servers = tuple(replace(server, capacity=rounded(dict(server.capacity))) for server in stream.servers)
    return replace(stream, jobs=gangs, servers=servers, units={})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=["google-2011", "google-2019"])
    parser.add_argument("--jobs", type=int, default=1_500, help="jobs of each log (default: 1500)")
    parser.add_argument("--machines", type=int, default=12, help="machines that each log is scaled to (default: 12)")
    parser.add_argument("--load", type=float, default=2.5, help="offered load (default: 2.5)")
    parser.add_argument("--policies", nargs="+", default=["pack", "completion"])
    asked = parser.parse_args()
    requests = Table("workload", "resource", "requests", "to nothing", "by > 10 %", title="rounded to thousandths")
    waits = Table("workload", "policy", "thousandths", "fine units", title="mean wait, seconds")
    for name in asked.workloads:
        fine = stream_of(name, asked.jobs, asked.machines, asked.load)
        coarse = in_thousandths(fine)
        for resource, unit in fine.units.items():
            pairs = [(gang.demand or {}, then.demand or {}) for gang, then in zip(fine.jobs, coarse.jobs, strict=True)]
            kept = [
                then.get(resource, 0) * unit / (MILLI * gang[resource]) for gang, then in pairs if gang.get(resource)
            ]
            ratio = np.array(kept)
            nothing, off = np.mean(ratio == 0), np.mean(np.abs(ratio - 1) > 0.1)
            requests.add_row(name, resource, f"{len(ratio)}", f"{nothing:.1%}", f"{off:.1%}")
        for policy in asked.policies:
            mean = [run(stream, Runner.parse(policy), 0).wait.mean() for stream in (coarse, fine)]
            waits.add_row(name, policy, *(f"{seconds:,.0f}" for seconds in mean))
    console = Console(width=100)
    console.print(requests)
    console.print(waits)


if __name__ == "__main__":
    main()
