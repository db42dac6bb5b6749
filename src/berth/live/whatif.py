"""Replay the same submissions, cancellations and servers under another policy.

Run times come from measurements. A finished job keeps its luck: by how much it was faster or slower than its type on
its servers, wherever it runs. The actual policy is replayed in the same model, for a fair comparison. Attempts that
failed by their own fault are replayed as if they had not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.files.wording import spoken
from berth.live.core.dispatcher import FALLBACK, Dispatcher, Dumped
from berth.live.core.events import (
    Cancel,
    ClockStepped,
    Decided,
    Event,
    Failed,
    Finished,
    Foretold,
    Interrupt,
    Overran,
    PolicyChanged,
    ServerJoined,
    Start,
    Started,
)
from berth.live.core.holdings import taken
from berth.live.core.jobs import Job, Server
from berth.live.core.queues import Queues
from berth.live.core.records import HOLDING, JobRecord
from berth.live.core.runtimes import speeds
from berth.live.core.shadow import Batches
from berth.live.core.state import State
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from berth.live.simulation import Played, play
from berth.statistics import Estimate

__all__ = ["Figures", "Measured", "WhatIf", "what_if"]


@dataclass(frozen=True)
class Measured(Truth):
    """Measured run times."""

    known: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """The mean speed of a type on a server."""
    means: Mapping[str, float] = field(default_factory=dict)
    """The mean speed of a type."""
    luck: Mapping[str, float] = field(default_factory=dict)
    """How much faster each job was than the mean, on its servers."""
    work: Mapping[str, float] = field(default_factory=dict)

    def speed(self, type_: str, server: Server) -> float:
        known = self.known.get((type_, server.name))
        return known if known is not None else self.means.get(type_, server.speed)

    def seconds(self, job: Job, start: Start, servers: Sequence[Server]) -> float:
        slowest = min(self.speed(job.type, server) for server in servers)
        return self.work.get(job.id, job.expected_seconds) / (slowest * self.luck.get(job.id, 1.0))

    @classmethod
    def of(cls, events: Iterable[Event], queues: Queues | None = None, begin: Dumped | None = None) -> Measured:
        """Learn from a history, which begins with this snapshot if one is given."""
        state = State(queues) if begin is None else State.load(begin.state)
        outcomes, jobs = [], {name: record.job for name, record in state.jobs.items()}
        for event in events:
            handled = state.handle(event)
            jobs.update({record.job.id: record.job for record in handled.changed})
            if handled.outcome is not None:
                outcomes.append(handled.outcome)
        known = {
            (type_, server): state.learned.remembered(type_, server)
            for type_ in state.learned.types
            for server in state.servers
        }
        luck = {
            found.job.id: found.speed / min(known[found.job.type, place.server] for place in found.places)
            for found in outcomes
        }
        work = {name: state.learned.work(job) for name, job in jobs.items()}
        means = {type_: mean for type_, (mean, _) in speeds(state).items()}
        return cls(known=known, means=means, luck=luck, work=work)


@dataclass(frozen=True)
class Figures:
    """Results of a replay: seconds, task-seconds of runs, `utilisation` of the resource used most, sum of values."""

    policy: str
    wait: float
    turnaround: float
    run: float
    makespan: float
    utilisation: float
    value: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class WhatIf:
    """Another policy (`other`) against the one that decided (`actual`), over the jobs that finish with both.

    `wait`, `turnaround`, `run` (task-seconds of run time) and `value` are differences, job by job, of the other less
    the actual.
    """

    jobs: int
    left_out: int
    actual: Figures
    other: Figures
    wait: Estimate
    turnaround: Estimate
    run: Estimate
    value: Estimate
    since: float | None = None
    """From when on jobs count, if the history begins later than was asked for."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.jobs} jobs, {self.other.policy} instead of {self.actual.policy}"]
        for name, found, unit in (
            ("wait", self.wait, " s"),
            ("turnaround", self.turnaround, " s"),
            ("value", self.value, ""),
        ):
            sure = "" if found.low is None else f" ({found.low:+.3g} to {found.high:+.3g})"
            before, after = getattr(self.actual, name), getattr(self.other, name)
            words = f"{spoken(before)} would be {spoken(after)}" if unit else f"{before:.4g} would be {after:.4g}"
            lines.append(f"  {name}: {words}, by job {found.mean:+.3g}{unit}{sure}")
        hours = self.jobs / 3600.0
        sure = (
            "" if self.run.low is None else f" ({self.run.low * hours:+.3g} to {(self.run.high or 0.0) * hours:+.3g})"
        )
        before, after = self.actual.run / 3600.0, self.other.run / 3600.0
        lines.append(f"  run time: {before:.4g} task-hours would be {after:.4g}, {self.run.mean * hours:+.3g}{sure}")
        lines.append(f"  makespan: {spoken(self.actual.makespan)} would be {spoken(self.other.makespan)}")
        lines.append(f"  utilisation: {self.actual.utilisation:.0%} would be {self.other.utilisation:.0%}")
        if self.since is not None:
            when = datetime.fromtimestamp(self.since, UTC).isoformat(" ", "seconds")
            lines.append(f"  only jobs submitted from {when} on: the store keeps no older history")
        return "\n".join(lines)


def what_if(
    events: Sequence[Event],
    policy: str,
    *,
    actual: str = FALLBACK,
    since: float = -math.inf,
    queues: Queues | None = None,
    seed: int = 0,
    begin: Dumped | None = None,
) -> WhatIf:
    """Replay a history under another policy from some time on.

    `actual` is the policy, and `queues` the settings, with which the history began; or `begin` is the snapshot with
    which it begins. Before `since` both replays follow the history, and only jobs that are submitted later are counted.
    """
    events, begin = _on_one_clock(events, begin)
    truth = Measured.of(events, queues, begin)
    given = [
        event for event in events if not isinstance(event, Decided | Started | Finished | Failed | Foretold | Overran)
    ]
    start = min((event.time for event in events), default=0.0) if begin is None else begin.state.time
    first = max(since, start)
    if begin is not None:
        actual = begin.state.policy
    play_on = partial(_played, truth=truth, queues=queues, seed=seed, begin=begin)
    kept = [event for event in given if not (isinstance(event, PolicyChanged) and event.time >= first)]
    ours = play_on(given, actual)
    if since == -math.inf and begin is None:
        theirs = play_on(kept, policy)
    else:
        theirs = play_on([*kept, PolicyChanged(first, policy)], actual)
    finished = [
        (record, theirs.ended[name])
        for name, record in ours.ended.items()
        if record.submitted >= first and _done(record) and name in theirs.ended and _done(theirs.ended[name])
    ]
    if not finished:
        raise InvalidInput("a history with jobs that finish with both policies", found="none", key="events")
    pairs = sorted(finished, key=lambda pair: pair[0].number)
    counted = sum(event.kind == "submitted" and event.time >= first for event in given)
    servers = {} if begin is None else {one.server.name: one.server for one in begin.state.servers if not one.lost}
    servers |= {event.server.name: event.server for event in given if isinstance(event, ServerJoined)}
    last = next((e.policy for e in reversed(given) if isinstance(e, PolicyChanged)), actual)
    return WhatIf(
        len(pairs),
        counted - len(pairs),
        _figures(last, [pair[0] for pair in pairs], servers.values(), first),
        _figures(policy, [pair[1] for pair in pairs], servers.values(), first),
        _paired(_wait(other) - _wait(record) for record, other in pairs),
        _paired(_turnaround(other) - _turnaround(record) for record, other in pairs),
        _paired(_run(other) - _run(record) for record, other in pairs),
        _paired(_worth(other) - _worth(record) for record, other in pairs),
        first if first > since > -math.inf else None,
    )


def _on_one_clock(events: Sequence[Event], begin: Dumped | None) -> tuple[Sequence[Event], Dumped | None]:
    """The history as the present system clock would have shown it, if it was set in between."""
    later = sum(event.seconds for event in events if isinstance(event, ClockStepped))
    if not any(isinstance(event, ClockStepped) for event in events):
        return events, begin
    if begin is not None:
        before = Dispatcher().load(begin)
        before.state.handle(ClockStepped(begin.state.time, later))
        begin = before.dump()
    moved: list[Event] = []
    for event in events:
        if isinstance(event, ClockStepped):
            later -= event.seconds
        else:
            moved.append(replace(event, time=event.time + later))
    return moved, begin


def _played(
    given: Sequence[Event], policy: str, *, truth: Truth, queues: Queues | None, seed: int, begin: Dumped | None
) -> Played:
    if begin is None:
        return play(Dispatcher(policy, seed=seed, queues=queues), SimulatedCluster([], truth), given, lenient=True)
    dispatcher = Dispatcher(seed=seed).load(begin)
    dispatcher.replay(())
    return play(dispatcher, _cluster_of(dispatcher.state, truth), given, lenient=True)


def _cluster_of(state: State, truth: Truth) -> SimulatedCluster:
    """A cluster on which the jobs of a state go on; attempts that were ending end at once."""
    cluster = SimulatedCluster([record.server for record in state.servers.values()], truth)
    cluster.lost = {name for name, record in state.servers.items() if record.lost}
    for record in state.jobs.values():
        if record.interruptions:
            cluster.keep(record.job.id, record.done)
        if record.phase in HOLDING:
            start, began = Start(record.job.id, record.attempt, record.places), record.started
            cluster.go_on(start, record.job, record.since if began is None else began, state.time)
            if record.phase == "ending":
                command = Interrupt if record.interrupting else Cancel
                cluster.execute(command(record.job.id, record.attempt), None, state.time)
    return cluster


def _done(record: JobRecord) -> bool:
    return record.phase == "finished"


def _wait(record: JobRecord) -> float:
    return (record.started if record.started is not None else record.since) - record.submitted


def _turnaround(record: JobRecord) -> float:
    return (record.ended if record.ended is not None else math.inf) - record.submitted


def _run(record: JobRecord) -> float:
    return (_turnaround(record) - _wait(record)) * sum(place.count for place in record.places)


def _worth(record: JobRecord) -> float:
    took = _turnaround(record)
    if record.job.deadline is not None and took > record.job.deadline:
        return 0.0
    return max(record.job.value - record.job.decay * took, 0.0)


def _paired(values: Iterable[float]) -> Estimate:
    """The mean of differences, with a confidence interval from batches of consecutive jobs."""
    batches = Batches(size=1)
    for value in values:
        batches.add(value)
    found = batches.estimate()
    assert found is not None
    return found


def _figures(policy: str, records: Sequence[JobRecord], servers: Iterable[Server], first: float) -> Figures:
    end = max(record.submitted + _turnaround(record) for record in records)
    capacity: dict[str, int] = {}
    for server in servers:
        for name, milli in server.capacity.items():
            capacity[name] = capacity.get(name, 0) + milli
    used = dict.fromkeys(capacity, 0.0)
    for record in records:
        for name, milli in taken(record.job, record.places).items():
            used[name] += milli * (_turnaround(record) - _wait(record))
    span = max(end - first, 1e-9)
    return Figures(
        policy,
        float(np.mean([_wait(record) for record in records])),
        float(np.mean([_turnaround(record) for record in records])),
        float(sum(_run(record) for record in records)),
        span,
        max((used[name] / (milli * span) for name, milli in capacity.items() if milli), default=0.0),
        float(sum(_worth(record) for record in records)),
    )
