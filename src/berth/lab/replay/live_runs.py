"""Play a log under a policy of the live scheduler: its dispatcher is asked at every moment of a simulated cluster.

Jobs run as long as the log says, over the true speeds of their types on their servers where a table tells them. They
wait in one queue, or in those of a service's configuration. Jobs without types teach the policy nothing.

Axes: N jobs, R servers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from berth.errors import UnsupportedProblem
from berth.families.placement.trace_world import BatchJobs
from berth.files.quantities import Amounts
from berth.lab.replay.types import TypedJobs
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Decided, Event, Start, Submitted
from berth.live.core.jobs import ID, UNTYPED, Job, Role, Server
from berth.live.core.queues import Queues
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from berth.live.simulation import play
from berth.live.twin.served import ServedQueues, in_log_units
from berth.live.twin.streams import CLASS, Speeds
from berth.live.twin.traces import fine_units
from berth.model import Floats, Resource

__all__ = ["LiveRun", "Service", "play_live"]

ONE_QUEUE = Queues(aging=0.0, fairness=0.0, patience=1e300)
"""One level, and no server is reserved for a job that has waited for long."""


class LiveRun(NamedTuple):
    """Start and end of each job (N,), nan if it never starts; refused decisions; and the wrappers of a service."""

    start: Floats
    end: Floats
    refused: int
    wrapped: str


@dataclass(frozen=True)
class LogTruth(Truth):
    """True run times by job, on servers as fast as they are said to be, times the speed of the type on the class."""

    runs: Mapping[str, float] = field(default_factory=dict)
    speeds: Speeds = field(default_factory=dict)

    def seconds(self, job: Job, start: Start, servers: Sequence[Server]) -> float:
        if not self.speeds:
            return self.runs[job.id] / min(server.speed for server in servers)
        spread = len({server.name for server in servers}) > 1
        return self.runs[job.id] / min(s.speed * self.speeds[job.type, s.labels[CLASS], spread] for s in servers)


class Service(NamedTuple):
    """What a service's configuration adds: its queues, in the units of the servers, and what it knows of each job.

    `by_class`: servers of a class share what is learned, whatever else differs.
    """

    queues: ServedQueues
    jobs: Sequence[Mapping[str, Any]]
    resources: Sequence[Resource]
    by_class: bool = False


def play_live(
    batch: BatchJobs, policy: str, seed: int = 0, *, typed: TypedJobs | None = None, service: Service | None = None
) -> LiveRun:
    """Play jobs of a log under any policy that runs live, where the policy puts them.

    Without a `service`, jobs wait in one queue and the policy decides as in the lab. With one, they wait in its queues,
    and the policy decides in its wrappers: gangs stay on few servers, and jobs are deferred to faster ones.
    """
    if batch.problem.devices is not None:
        raise UnsupportedProblem(f"{policy} cannot serve jobs that share devices (--whole-gpus gives each a whole one)")
    servers, units = _servers(batch, typed)
    extra: Sequence[Mapping[str, Any]] = [{}] * len(batch.tasks) if service is None else service.jobs
    jobs = [_job(batch, i, units, typed, extra[i]) for i in range(len(batch.tasks))]
    coming: list[Event] = [Submitted(time, job) for time, job in zip(batch.tasks.arrival.tolist(), jobs, strict=True)]
    runs = dict(zip((job.id for job in jobs), batch.runs.tolist(), strict=True))
    dispatcher = Dispatcher(
        policy,
        seed=seed,
        bare=service is None,
        queues=ONE_QUEUE if service is None else in_log_units(service.queues.queues, service.resources, units),
        learn_by=CLASS if service is not None and service.by_class else None,
        units=units,
        budget=math.inf,
    )
    truth = LogTruth(runs=runs, speeds={} if typed is None else typed.speeds)
    played = play(dispatcher, SimulatedCluster(servers, truth), coming)
    _check_decisions(policy, played.events)
    found = [played.ended.get(job.id) for job in jobs]
    start, end = (
        np.array([np.nan if one is None else getattr(one, name) for one in found], dtype=np.float64)
        for name in ("started", "ended")
    )
    wrapped = "" if service is None else dispatcher.wrapped
    return LiveRun(start, end, sum(dispatcher.refusals.values()), wrapped)


def _check_decisions(policy: str, events: Sequence[Event]) -> None:
    """Refuse a policy all of whose decisions were refused: the fallback would have played in its name."""
    decided = [event.refused for event in events if isinstance(event, Decided)]
    reasons = Counter(reason for reason in decided if reason is not None)
    if reasons and reasons.total() == len(decided):
        reason = reasons.most_common(1)[0][0]
        raise UnsupportedProblem(f"{policy} cannot decide about these jobs: {reason.removeprefix('refused: ')}")


def _servers(batch: BatchJobs, typed: TypedJobs | None) -> tuple[list[Server], Amounts]:
    """The servers, with their class and a label for each port whose jobs may use them, and the units of amounts."""
    problem, cluster = batch.problem, batch.problem.instance.cluster
    names = [resource.name for resource in cluster.resources]
    known = all(ID.fullmatch(name) for name in cluster.servers)  # a log may have names that the service refuses
    called = cluster.servers if known else [f"server-{r}" for r in range(len(cluster.servers))]
    rows = list(zip(called, cluster.capacity.tolist(), strict=True))
    units = fine_units(
        Server(name, {one: math.ceil(1000 * amount) for one, amount in zip(names, row, strict=True)})
        for name, row in rows
    )
    classes: list[dict[str, str]] = [{}] * len(rows) if typed is None else [{CLASS: name} for name in typed.classes]
    return [
        Server(
            name,
            _whole(names, row, units),
            {**classes[r], **{f"p{port}": "yes" for port in np.flatnonzero(problem.reach[:, r])}},
            float(problem.speed[r]),
        )
        for r, (name, row) in enumerate(rows)
    ], units


def _job(batch: BatchJobs, i: int, units: Amounts, typed: TypedJobs | None, extra: Mapping[str, Any]) -> Job:
    """Job `i` as its user submits it: of a type, it states its work where the log tells run times and no estimates."""
    tasks, port = batch.tasks, int(batch.tasks.port[i])
    names = [resource.name for resource in batch.problem.instance.cluster.resources]
    needs = {} if batch.problem.reach[port].all() else {f"p{port}": "yes"}
    role = Role("main", int(tasks.pieces[i]), _whole(names, tasks.demand[i].tolist(), units))
    estimate, work = float(tasks.work[i]), None
    if typed is not None:
        work = estimate if batch.problem.exact else None
        needs |= _classes_needed(typed, typed.types[i])
    given = {"user": f"u{tasks.owner[i]}", **extra}
    type_ = UNTYPED if typed is None else typed.types[i]
    return Job(f"j{i}", type_, (role,), estimate=estimate, needs=needs, work=work, **given)


def _classes_needed(typed: TypedJobs, type_: str) -> dict[str, str]:
    """The label that a job of a type needs, if it cannot run on some class."""
    there = typed.where(type_) if typed.speeds else ()
    return {CLASS: "|".join(there)} if there and len(there) < len(set(typed.classes)) else {}


def _whole(names: Sequence[str], row: Sequence[float], units: Amounts) -> Amounts:
    """Amounts as written, in whole units, rounded down so that three thirds fit, but none to nothing."""
    return {
        name: max(int(Fraction(repr(amount)) * units[name]), 1) if amount else 0
        for name, amount in zip(names, row, strict=True)
    }
