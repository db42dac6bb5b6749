"""Whether forecasts of starts hold: `python -m benchmarks.forecasts`.

Gangs come to a simulated cluster whose speeds the scheduler does not know. Every 20 seconds one of those that wait is
foretold, and it is seen when it starts. Of what is told 80 of 100 starts are to be between the ends; beside it, what
playing the queue says by itself.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.live.core.dispatcher import FALLBACK, Dispatcher
from berth.live.core.events import Decided, Event, Foretold, Submitted
from berth.live.core.forecast import played
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.learning import Range
from berth.live.core.order import ordered
from berth.live.core.records import Handled
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from berth.live.simulation import play
from berth.random import stream

__all__ = ["Forecast", "forecasts", "main"]

POLICIES = (FALLBACK, "fcfs", "escb-v", "tetris")
LOADS = (0.7, 0.9, 1.05)
SERVERS, CORES, EVERY = 10, 8, 20.0


@dataclass(frozen=True)
class Forecast:
    """What was played and told for a job that waited, and after how many seconds it started."""

    played: Range
    told: Range
    seconds: float


class _Foreteller(Dispatcher):
    """A dispatcher that foretells one job after a decision, now and then."""

    def __init__(self, policy: str, seed: int) -> None:
        super().__init__(policy, seed=seed)
        self.asked: dict[str, tuple[float, Range, Range]] = {}
        self._rng, self._next = stream(seed, "forecasts", "asked"), -math.inf

    def handle(self, event: Event) -> Handled:
        handled = super().handle(event)
        if isinstance(event, Decided) and event.time >= self._next:
            self._ask(event.time)
        return handled

    def _ask(self, now: float) -> None:
        state = self.state
        waiting = ordered(state, now)
        new = [r for _, r in waiting if r.job.id not in state.foresight.pending]
        if not new:
            return
        record = new[int(self._rng.integers(len(new)))]
        found, _ = played(state, record, now, waiting)
        if isinstance(found, Range) and math.isfinite(found.high):
            self._next = now + EVERY
            self.asked[record.job.id] = now, found, state.foresight.at(now).corrected(found)
            self.handle(Foretold(now, record.job.id, found.low, found.middle, found.high))


def forecasts(policy: str, load: float, seed: int, jobs: int = 600) -> list[Forecast]:
    """Every forecast of a run, in the order in which they were made."""
    rng = stream(seed, "forecasts", "jobs")
    servers = [Server(f"n{i}", {"cpu": 1000 * CORES}) for i in range(SERVERS)]
    given: list[Event] = []
    time = 0.0
    for i in range(jobs):
        tasks, work = int(rng.integers(1, 6)), float(rng.lognormal(4.0, 0.8))
        time += float(rng.exponential(2 * tasks * work / (SERVERS * CORES * load)))
        role = Role("worker", tasks, {"cpu": 2000})
        given.append(Submitted(time, Job(f"j{i}", f"t{i % 4}", (role,), work=work, priority=int(rng.integers(2)))))
    dispatcher = _Foreteller(policy, seed)
    happened = play(dispatcher, SimulatedCluster(servers, Truth(seed, 0.2, 0.2)), given).events
    began: dict[str, float] = {}
    for event in happened:
        for start in event.starts if isinstance(event, Decided) else ():
            began.setdefault(start.job, event.time)
    return [Forecast(found, told, began[job] - at) for job, (at, found, told) in dispatcher.asked.items()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print how many forecasts held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each kind (%(default)s)")
    parser.add_argument("--jobs", type=int, default=600, help="gangs of a run (%(default)s)")
    given = parser.parse_args(arguments)
    table = Table("policy", "load", "forecasts", "held, %", "as played, %", "wait, s", "width, s", "middle off by, s")
    console = Console()
    for policy in POLICIES:
        for load in LOADS:
            found = [one for seed in range(given.seeds) for one in forecasts(policy, load, seed, given.jobs)]
            table.add_row(
                policy,
                f"{load:g}",
                str(len(found)),
                f"{100 * np.mean([one.told.holds(one.seconds) for one in found]):.0f}",
                f"{100 * np.mean([one.played.holds(one.seconds) for one in found]):.0f}",
                f"{np.median([one.seconds for one in found]):.0f}",
                f"{np.median([one.told.high - one.told.low for one in found]):.0f}",
                f"{np.median([abs(one.told.middle - one.seconds) for one in found]):.0f}",
            )
            console.print(f"{policy}, load {load:g}: done", style="dim")
    console.print(table)
    console.print("Of each run the first 20 are told with a fixed doubt; 80 % are to hold. The last three are medians.")


if __name__ == "__main__":
    main()
