"""What a policy of the service costs on a long log, and where the time goes: `python -m benchmarks.long_log`.

The jobs of the log are gangs of 1 to 4 tasks, of three types on three classes of servers with 4 CPUs each. The log is
played by the dispatcher of the service on a simulated cluster, as rehearsals do it: every event is handled by itself,
and there is a decision at each moment. Processor times; parts are measured in a second run, under a profiler, which
slows small functions down.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Decided, Submitted
from berth.live.core.queues import Queues
from berth.live.engines.simulated.cluster import SimulatedCluster
from berth.live.simulation import Played, play
from berth.live.twin.runs import PATIENCE, StreamTruth
from berth.live.twin.streams import ClassStream, class_servers, job_of

__all__ = ["PARTS", "log", "main", "parts_table"]

CPUS, WORK, TASKS = 4, 3600.0, 2.5
"""CPUs of a server, mean seconds of work of a job, and its mean number of tasks."""
PARTS = {
    "events of jobs": ("handle", "dispatcher.py"),
    "learned speeds, in them": ("settle", "speeds.py"),
    "view of the decision": ("view_within_limits", "order.py"),
    "runs that are overdue": ("begin", "deferral.py"),
    "when servers become free": ("releases", "deferral.py"),
    "speeds of servers by type": ("paces_of", "deferral.py"),
    "policy, with kernels": ("propose", "completion.py"),
    "checks of the decision": ("violations", "view.py"),
    "whole decision": ("decide", "dispatcher.py"),
    "simulated cluster": ("due", "cluster.py"),
}
"""Functions whose time is shown, with what they call."""


def log(jobs: int, servers: int, load: float) -> ClassStream:
    """A stream that asks for this share of all CPUs at speed 1."""
    rate = load * servers * CPUS / (TASKS * WORK)
    return ClassStream(jobs, rate, WORK, class_servers(servers, CPUS))


def played(stream: ClassStream, policy: str) -> Callable[[], Played]:
    """Make all that is needed to play a log, and leave the playing to the caller."""
    gangs = stream.gangs(0)
    cluster = SimulatedCluster(stream.servers, StreamTruth(gangs={gang.name: gang for gang in gangs}))
    dispatcher = Dispatcher(policy, queues=Queues(aging=0.0, patience=PATIENCE))
    events = [Submitted(gang.arrival, job_of(gang, stream)) for gang in gangs]
    return lambda: play(dispatcher, cluster, events)


def parts_table(profiler: cProfile.Profile, moments: int) -> Table:
    """The time of each part, with what it calls."""
    stats = pstats.Stats(profiler)
    whole = stats.total_tt  # type: ignore[attr-defined]
    table = Table("part", "calls", "share", "ms a decision", title="under the profiler, with what each part calls")
    for part, (function, file) in PARTS.items():
        found = [row for (path, _, name), row in stats.stats.items() if name == function and path.endswith(file)]  # type: ignore[attr-defined]
        calls, seconds = sum(row[1] for row in found), sum(row[3] for row in found)
        table.add_row(part, f"{calls}", f"{seconds / whole:.0%}", f"{1e3 * seconds / moments:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs of the log (default: 100000)")
    parser.add_argument("--servers", type=int, default=1_000, help="servers (default: 1000)")
    parser.add_argument("--load", type=float, default=0.9, help="CPUs asked for, of all CPUs (default: 0.9)")
    parser.add_argument("--policy", default="completion")
    parser.add_argument("--profile", type=int, default=5_000, help="jobs of the run under the profiler (default: 5000)")
    asked = parser.parse_args()
    console = Console(width=100)
    played(log(200, 20, 0.9), asked.policy)()  # compiles kernels
    run = played(log(asked.jobs, asked.servers, asked.load), asked.policy)
    began = time.process_time()
    made = run()
    took = time.process_time() - began
    decisions = sum(isinstance(event, Decided) for event in made.events)
    waits = sum((record.started or 0.0) - record.submitted for record in made.ended.values()) / len(made.ended)
    console.print(
        f"{asked.policy}: {len(made.ended)} jobs on {asked.servers} servers at load {asked.load:g} in {took:.1f} s, "
        f"{len(made.ended) / took:.0f} jobs a second; {decisions} decisions start jobs, mean wait {waits:.0f} s"
    )
    run, profiler = played(log(asked.profile, asked.servers, asked.load), asked.policy), cProfile.Profile()
    profiler.enable()
    made = run()
    profiler.disable()
    console.print(parts_table(profiler, sum(isinstance(event, Decided) for event in made.events)))


if __name__ == "__main__":
    main()
