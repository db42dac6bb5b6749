"""Play a log under a policy of the live scheduler: its dispatcher is asked at every moment of a simulated cluster.

Jobs wait in one queue and run as long as the log says, on servers as fast as the log says. They have no types, so no
speed is learned.

Axes: N jobs, R servers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from berth.errors import UnsupportedProblem
from berth.families.placement.trace_world import BatchJobs
from berth.files.quantities import Amounts
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Event, Start, Submitted
from berth.live.core.jobs import UNTYPED, Job, Role, Server
from berth.live.core.queues import Queues
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from berth.live.simulation import play
from berth.live.twin.traces import fine_units
from berth.model import Floats

__all__ = ["LiveRun", "play_live"]

ONE_QUEUE = Queues(aging=0.0, fairness=0.0, patience=1e300)
"""One level, and no server is reserved for a job that has waited for long."""


@dataclass(frozen=True, eq=False)
class LiveRun:
    """Start and end of each job (N,), nan if it never starts; and the number of refused decisions."""

    start: Floats
    end: Floats
    refused: int


@dataclass(frozen=True)
class LogTruth(Truth):
    """True run times by job, on servers as fast as they are said to be."""

    runs: Mapping[str, float] = field(default_factory=dict)

    def seconds(self, job: Job, start: Start, servers: Sequence[Server]) -> float:
        return self.runs[job.id] / min(server.speed for server in servers)


def play_live(batch: BatchJobs, policy: str, seed: int = 0) -> LiveRun:
    """Play jobs of a log under any policy that runs live, in one queue, where the policy puts them."""
    if batch.problem.devices is not None:
        raise UnsupportedProblem(f"{policy} cannot serve jobs that share devices")
    if not batch.runs.all():
        raise UnsupportedProblem(f"{policy} cannot serve jobs of zero run time")
    servers, units = _servers(batch)
    jobs = [_job(batch, i, units) for i in range(len(batch.tasks))]
    coming: list[Event] = [Submitted(time, job) for time, job in zip(batch.tasks.arrival.tolist(), jobs, strict=True)]
    runs = dict(zip((job.id for job in jobs), batch.runs.tolist(), strict=True))
    dispatcher = Dispatcher(policy, seed=seed, bare=True, queues=ONE_QUEUE, units=units, budget=math.inf)
    ended = play(dispatcher, SimulatedCluster(servers, LogTruth(runs=runs)), coming).ended
    found = [ended.get(job.id) for job in jobs]
    start, end = (
        np.array([np.nan if one is None else getattr(one, name) for one in found], dtype=np.float64)
        for name in ("started", "ended")
    )
    return LiveRun(start, end, sum(dispatcher.refusals.values()))


def _servers(batch: BatchJobs) -> tuple[list[Server], Amounts]:
    """The servers, with a label for each port whose jobs may use them, and the units of amounts."""
    problem, cluster = batch.problem, batch.problem.instance.cluster
    names = [resource.name for resource in cluster.resources]
    rows = list(zip(cluster.servers, cluster.capacity.tolist(), strict=True))
    units = fine_units(
        Server(name, {one: math.ceil(1000 * amount) for one, amount in zip(names, row, strict=True)})
        for name, row in rows
    )
    return [
        Server(
            name,
            _whole(names, row, units),
            {f"p{port}": "yes" for port in np.flatnonzero(problem.reach[:, r])},
            float(problem.speed[r]),
        )
        for r, (name, row) in enumerate(rows)
    ], units


def _job(batch: BatchJobs, i: int, units: Amounts) -> Job:
    tasks, port = batch.tasks, int(batch.tasks.port[i])
    names = [resource.name for resource in batch.problem.instance.cluster.resources]
    needs = {} if batch.problem.reach[port].all() else {f"p{port}": "yes"}
    role = Role("main", int(tasks.pieces[i]), _whole(names, tasks.demand[i].tolist(), units))
    return Job(f"j{i}", UNTYPED, (role,), user=f"u{tasks.owner[i]}", estimate=float(tasks.work[i]), needs=needs)


def _whole(names: Sequence[str], row: Sequence[float], units: Amounts) -> Amounts:
    """Amounts in whole units, rounded down so that three thirds fit, but none to nothing."""
    return {
        name: max(int(Fraction(amount) * units[name]), 1) if amount else 0
        for name, amount in zip(names, row, strict=True)
    }
