"""Whole logs on the live core: a dispatcher is asked at every moment, as the lab's engine asks a policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from berth.families.placement.trace_world import BatchJobs, batch_jobs
from berth.lab.replay import ReplaySetting
from berth.lab.replay.samples import Measurement, samples_of
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Event, ServerJoined, ServerLost, Start, Submitted
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.queues import Queues
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from berth.live.simulation import play
from berth.live.twin.traces import fine_units
from berth.model import Floats
from berth.traces.trace import Trace

__all__ = ["starts_and_ends"]

QUEUES = Queues(aging=0.0, fairness=0.0, patience=1e300)


@dataclass(frozen=True)
class LogTruth(Truth):
    """True run times by job, on servers as fast as they are said to be."""

    runs: Mapping[str, float] = field(default_factory=dict)

    def seconds(self, job: Job, start: Start, servers: Sequence[Server]) -> float:
        return self.runs[job.id] / min(server.speed for server in servers)


def starts_and_ends(trace: Trace, policy: str, **setting: Any) -> tuple[Floats, Floats]:
    """Start and end of each job (N,), nan if it never starts; settings are those of `ReplaySetting`."""
    asked = ReplaySetting(**setting)
    sample = samples_of(trace, asked, Measurement()).samples[0]
    batch = batch_jobs(sample.played, exact=asked.exact, stopped=asked.stopped)
    servers, units = _servers(batch)
    coming: list[Event] = [
        Submitted(float(batch.tasks.arrival[i]), _job(batch, i, units)) for i in range(len(batch.tasks))
    ]
    if asked.outages:
        known = {server.name: server for server in servers}
        for name, down, up in sample.trace.outages.iter_rows():
            coming.append(ServerLost(down, name))
            coming += [] if up is None else [ServerJoined(up, known[name])]
    truth = LogTruth(runs={f"j{i}": float(run) for i, run in enumerate(batch.runs)})
    dispatcher = Dispatcher(policy, bare=True, queues=QUEUES, units=units, budget=math.inf)
    ended = play(dispatcher, SimulatedCluster(servers, truth), coming).ended
    assert not dispatcher.refusals
    start, end = np.full(len(batch.runs), np.nan), np.full(len(batch.runs), np.nan)
    for i in range(len(batch.runs)):
        if (record := ended.get(f"j{i}")) is not None:
            start[i], end[i] = record.started, record.ended
    return start, end


def _servers(batch: BatchJobs) -> tuple[list[Server], dict[str, int]]:
    """The servers, with a label for each port whose jobs may use them, and the units of amounts."""
    problem = batch.problem
    cluster = problem.instance.cluster
    names = [resource.name for resource in cluster.resources]
    coarse = [
        Server(name, {one: math.ceil(1000 * amount) for one, amount in zip(names, row, strict=True)})
        for name, row in zip(cluster.servers, cluster.capacity.tolist(), strict=True)
    ]
    units = fine_units(coarse)
    return [
        Server(
            name,
            {one: int(Fraction(amount) * units[one]) for one, amount in zip(names, row, strict=True)},
            {f"p{port}": "yes" for port in np.flatnonzero(problem.reach[:, r])},
            float(problem.speed[r]),
        )
        for r, (name, row) in enumerate(zip(cluster.servers, cluster.capacity.tolist(), strict=True))
    ], units


def _job(batch: BatchJobs, i: int, units: Mapping[str, int]) -> Job:
    """A job of the log; amounts are rounded down, so that thirds fit."""
    tasks, port = batch.tasks, int(batch.tasks.port[i])
    names = [resource.name for resource in batch.problem.instance.cluster.resources]
    demand = {
        one: int(Fraction(amount) * units[one]) for one, amount in zip(names, tasks.demand[i].tolist(), strict=True)
    }
    needs = {} if batch.problem.reach[port].all() else {f"p{port}": "yes"}
    role = Role("main", int(tasks.pieces[i]), demand)
    return Job(
        f"j{i}", "t", (role,), user=f"u{tasks.owner[i]}", estimate=float(tasks.work[i]), needs=needs, retries=1000
    )
