"""Current state of the cluster: jobs, servers and holdings. Only events change it, and every replay gives the same.

A job is waiting, starting (the command was given), running, and at last finished, failed or cancelled. While it is
`ending`, its attempt still holds its places, because only the engine knows when they are free.

Axes: R servers, K resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from berth.errors import InfeasibleDecision, InvalidInput
from berth.files.quantities import Amounts
from berth.files.wording import spoken
from berth.live.core.decisions import interrupted, interruptible, interrupting, startable, waiting_again
from berth.live.core.events import (
    Cancel,
    Cancelled,
    ClockStepped,
    Decided,
    Event,
    Failed,
    Finished,
    Foretold,
    Overran,
    PolicyChanged,
    QueuesChanged,
    ServerChanged,
    ServerDrained,
    ServerJoined,
    ServerLost,
    ServerResumed,
    ShadowChanged,
    Started,
    Submitted,
    last_line,
)
from berth.live.core.holdings import Holdings, taken
from berth.live.core.jobs import Job, Server
from berth.live.core.learning import Calibration, Foresight, Range, learn
from berth.live.core.queues import Queues
from berth.live.core.records import HOLDING, DumpedState, Handled, JobRecord, Phase
from berth.live.core.refusals import ANYWHERE, Refusals
from berth.live.core.shapes import own_copy
from berth.live.core.speeds import Learned
from berth.live.core.table import JobTable

__all__ = ["State"]

STEADY = 60.0
"""Seconds that an attempt must run to count as taken by its servers."""


class State(Holdings):
    """Everything that the scheduler remembers.

    Servers with the same value of the label `learn_by` share what is learned.
    """

    def __init__(
        self,
        queues: Queues | None = None,
        policy: str = "",
        learn_by: str | None = None,
        units: Amounts | None = None,
    ) -> None:
        super().__init__(learn_by, units)
        self.queues = queues or Queues()
        self.policy = policy
        self.shadow: str | None = None
        """The shadow policy, if there is one."""
        self.jobs: dict[str, JobRecord] = {}
        """Jobs that have not ended."""
        self.phases: Counter[tuple[str, str]] = Counter()
        """How many of them are of each queue and phase."""
        self.table = JobTable()
        """The same jobs as columns, and their places."""
        self.reserved: dict[str, str] = {}
        """Reserved servers, each with the job it is reserved for."""
        self.learned = Learned(self.servers, learn_by)
        self.foresight = Foresight()
        """Scores of start forecasts."""
        self.calibration = Calibration()
        """Scores of run time predictions."""
        self.refusals = Refusals()
        """Which servers did not take which jobs lately."""
        self.submissions = 0
        self.time = 0.0
        self._usage: dict[str, tuple[float, float]] = {}
        self._moved: tuple[float, dict[str, JobRecord]] = 0.0, {}
        """The records after a step of the clock that is about to be handled."""

    def copied(self) -> State:
        """An independent copy."""
        made = self.copied_to_dump()
        made.held = {owner: dict(held) for owner, held in self.held.items()}
        made.table = self.table.copied()
        return made

    def copied_to_dump(self) -> State:
        """A copy of all that `dump` reads. The rest is shared, because copying it takes long."""
        made = own_copy(self)
        made.learned = own_copy(self.learned).over(made.servers)
        made.foresight, made.calibration = self.foresight.copied(), self.calibration.copied()
        made.refusals = self.refusals.copied()
        return made

    def dump(self) -> DumpedState:
        """Take a snapshot."""
        return DumpedState(
            self.queues,
            self.policy,
            tuple(self.jobs.values()),
            tuple(self.servers.values()),
            dict(self.reserved),
            self.learned.dump(),
            self.submissions,
            self.time,
            tuple(self.resources),
            dict(self._usage),
            self.shadow,
            self.foresight.dump(),
            tuple(self.calibration.dump()),
            self.refusals.copied().known,
        )

    @classmethod
    def load(cls, dumped: DumpedState, learn_by: str | None = None, units: Amounts | None = None) -> State:
        """Make a state from a snapshot."""
        state = cls(dumped.queues, dumped.policy, learn_by, units)
        state.shadow = dumped.shadow
        state.resources = {name: column for column, name in enumerate(dumped.resources)}
        for server in dumped.servers:
            state._server(server.server, True)
            state.put_record(server)
        for record in dumped.jobs:
            state._keep(record)
            if record.phase in HOLDING:
                state.hold(record, 1)
        state.reserved = dict(dumped.reserved)
        state.learned = Learned.load(dumped.learned, learn_by).over(state.servers)
        state.foresight = Foresight.load(dumped.foresight)
        state.calibration = Calibration.load(dumped.calibration)
        state.refusals = Refusals({kind: dict(servers) for kind, servers in dumped.refusals.items()})
        state.submissions, state.time = dumped.submissions, dumped.time
        state._usage = dict(dumped.usage)
        return state

    # ------------------------------------------------------------------ events

    def handle(self, event: Event) -> Handled:
        """Apply an event. An event that raises changes nothing."""
        self.learned.settle()
        handled = self._handle(event)
        self._moved = 0.0, {}
        self.time = max(self.time, event.time)
        if isinstance(event, ClockStepped):
            self.time += event.seconds
        return handled

    def _handle(self, event: Event) -> Handled:
        match event:
            case Submitted():
                return self._submitted(event)
            case Cancelled():
                return self._cancelled(event)
            case Decided():
                return self._decided(event)
            case Started():
                return self._started(event)
            case Finished() | Failed():
                return self._ended(event)
            case Overran():
                return self._overran(event)
            case ServerJoined() | ServerChanged():
                return self._server(event.server, isinstance(event, ServerJoined))
            case ServerLost():
                return self._lost(event)
            case ServerDrained() | ServerResumed():
                record = self.server(event.server)
                self.put_record(replace(record, drained=isinstance(event, ServerDrained)))
                self._refit()
                self.refusals.changed(event.server)
                return Handled()
            case QueuesChanged():
                self.queues = event.queues
                return Handled()
            case PolicyChanged():
                self.policy = event.policy
                return Handled()
            case ShadowChanged():
                self.shadow = event.policy
                return Handled()
            case ClockStepped():
                return self._stepped(event.seconds)
            case Foretold():
                if event.job in self.jobs and self.jobs[event.job].phase == "waiting":
                    self.foresight.forecast(event.job, event.time, Range(event.low, event.middle, event.high))
                return Handled()

    def prepare_step(self, seconds: float) -> None:
        """Compute, perhaps in a thread, what the next event changes, if that is a step of the clock."""
        self._moved = seconds, {name: record.moved(seconds) for name, record in list(self.jobs.items())}

    def _stepped(self, seconds: float) -> Handled:
        """Move all times from which durations are measured."""
        if self._moved[0] != seconds:
            self.prepare_step(seconds)
        self.jobs = self._moved[1]
        self.table.move(seconds, self.jobs)
        self._usage = {team: (value, then + seconds) for team, (value, then) in self._usage.items()}
        self.foresight.move(seconds)
        self.refusals.move(seconds)
        return Handled(changed=tuple(self.jobs.values()))

    def _submitted(self, event: Submitted) -> Handled:
        self.check_new(event.job)
        job = self.queues.limited(event.job)
        record = JobRecord(job, self.submissions, event.time, since=event.time)
        self.submissions += 1
        return Handled(changed=(self._keep(record),))

    def check_new(self, job: Job) -> None:
        """Refuse a job whose id is in use, or whose queue does not exist or is closed."""
        if job.id in self.jobs:
            raise InvalidInput("a job id that is not in use", value=job.id, key="job.id")
        self.check_queue(job)

    def check_queue(self, job: Job) -> None:
        """Refuse a job whose queue does not exist or is closed."""
        queue = self.queues.queues.get(job.queue)
        if queue is None or not queue.accepts:
            there = ", ".join(name for name, found in self.queues.queues.items() if found.accepts)
            raise InvalidInput(f"a queue that takes jobs: {there or 'there is none'}", value=job.queue, key="queue")
        if job.limit is not None and queue.max_time is not None and job.limit > queue.max_time:
            expected = f"at most {spoken(queue.max_time)} in queue {job.queue}"
            raise InvalidInput(expected, value=spoken(job.limit), key="limit")

    def _cancelled(self, event: Cancelled) -> Handled:
        record = self.jobs.get(event.job)
        if record is None or record.unwanted:
            return Handled()
        reason = f"cancelled by {event.by}" if event.by else "cancelled"
        if record.phase == "waiting":
            gone = self._gone(replace(record, phase="cancelled", ended=event.time, reason=reason))
            there = (Cancel(event.job, record.attempt),) if record.job.origin else ()
            return replace(gone, commands=there)
        changed = self._keep(
            replace(record, phase="ending", unwanted=True, interrupting=False, since=event.time, reason=reason)
        )
        return Handled((Cancel(event.job, record.attempt),), (changed,))

    def _decided(self, event: Decided) -> Handled:
        records = startable(event.starts, self.jobs, self.servers)
        ending = interruptible(event.interrupts, self.jobs, event.time)
        more = np.zeros_like(self.used)
        for record, start in zip(records, event.starts, strict=True):
            self.add(more, record.job, start.places, 1)
        for row, column in np.argwhere((more > 0) & (self.used + more > self.capacity)):
            names = list(self.servers), list(self.resources)
            raise InfeasibleDecision(f"more {names[1][column]} than server {names[0][row]} has")
        changed = []
        for record, start in zip(records, event.starts, strict=True):
            begun = replace(
                record,
                phase="starting",
                attempt=start.attempt,
                places=start.places,
                since=event.time,
                reason="",
                last_output="",
            )
            self.hold(begun, 1)
            self.foresight.starts(start.job, event.time)
            changed.append(self._keep(begun))
        changed += [self._keep(interrupting(record, event.time)) for record in ending]
        self.reserved = dict(event.reserved)
        return Handled((*event.interrupts, *event.starts), tuple(changed))

    def _started(self, event: Started) -> Handled:
        record = self._attempt(event.job, event.attempt)
        if record is None or record.phase == "running":
            return Handled()
        record = replace(record, started=event.time, started_moved=0.0, details=event.details)
        self.refusals.took(record.job, (place.server for place in record.places))
        if record.phase == "starting":
            record = replace(record, phase="running", since=event.time)
        return Handled(changed=(self._keep(record),))

    def _overran(self, event: Overran) -> Handled:
        record = self._attempt(event.job, event.attempt)
        if record is None or record.phase == "ending":
            return Handled()
        reason = f"it reached its time limit of {spoken(record.job.limit)}"
        changed = self._keep(replace(record, phase="ending", overran=True, since=event.time, reason=reason))
        return Handled((Cancel(event.job, record.attempt),), (changed,))

    def overdue(self, time: float) -> tuple[Overran, ...]:
        """Attempts that have reached their time limits."""
        return tuple(Overran(time, record.job.id, record.attempt) for record in self.table.over_limit(time))

    def _ended(self, event: Finished | Failed) -> Handled:
        record = self._attempt(event.job, event.attempt)
        if record is None:
            return Handled()
        self.hold(record, -1)
        self._charge(record, event.time)
        self._note_refusal(record, event)
        if isinstance(event, Finished):
            outcome = learn(self.learned, self.calibration, record, event, self.alike(record.places))
            phase: Phase = "finished"
            gone = self._gone(replace(record, phase=phase, ended=event.time, since=event.time, reason=""))
            return replace(gone, outcome=outcome)
        cut = learn(self.learned, self.calibration, record, event, self.alike(record.places))
        # an attempt that ends without being cancelled has lost a server, and is retried
        if record.unwanted or (event.fault == "cancelled" and record.phase != "ending"):
            reason = record.reason or event.reason or "cancelled"
            gone = self._gone(replace(record, phase="cancelled", ended=event.time, since=event.time, reason=reason))
            return replace(gone, outcome=cut)
        if event.fault == "interrupted":
            return Handled(changed=(self._keep(interrupted(record, event)),))
        own = record.overran or (event.fault == "job" and record.phase != "ending")
        record = replace(
            record,
            failures=record.failures + own,
            unlucky=record.unlucky + (not own),
            ran=0.0 if own else record.ran,
            done=0.0 if own else record.done,
            reason=f"attempt {record.attempt}: {record.reason or event.reason or event.fault}",
            since=event.time,
            last_output=last_line(event.last_output),
        )
        if record.failures > record.job.retries:
            return replace(self._gone(replace(record, phase="failed", ended=event.time)), outcome=cut)
        return Handled(changed=(self._keep(waiting_again(record)),), outcome=cut)

    def _note_refusal(self, record: JobRecord, event: Finished | Failed) -> None:
        """Remember who would not take an attempt that has ended, or that its servers took it."""
        servers = tuple(dict.fromkeys(place.server for place in record.places))
        began, lost = record.started, record.phase == "ending" and not record.interrupting
        ran = began is not None and (event.time - began >= STEADY or record.overran)
        if isinstance(event, Finished) or ran or (event.fault == "job" and began is not None):
            self.refusals.took(record.job, (ANYWHERE, *servers))
        elif not record.unwanted and not record.overran and (lost or event.fault in ("server", "engine")):
            if began is not None:
                self.refusals.note(record.job, (), began, event.time, record.reason or event.reason)
            elif not lost:
                named = servers if event.fault == "server" else ()
                named = named if event.refused_by is None else event.refused_by
                by = tuple(name for name in named if name in self.servers)
                self.refusals.note(record.job, by, record.since, event.time, event.reason)

    def _server(self, server: Server, there: bool) -> Handled:
        if self.put_server(server, there):
            self._refit()
            self.refusals.changed(server.name)
            self.table.fleet_changed(self.resources)
        return Handled()

    def _refit(self) -> None:
        """Clear all caches about servers, because servers changed."""
        self.servers_changed()
        self.learned.servers_changed()
        self.table.shapes.forget_fits()

    def _lost(self, event: ServerLost) -> Handled:
        record = self.server(event.server)
        self.put_record(replace(record, lost=True))
        self._refit()
        there = [self.jobs[job] for job in self.on.get(event.server, ())]
        ending = sorted((held for held in there if held.phase != "ending"), key=lambda held: held.number)
        reason = f"server {event.server} was lost"
        changed = [self._keep(replace(held, phase="ending", since=event.time, reason=reason)) for held in ending]
        return Handled(tuple(Cancel(held.job.id, held.attempt) for held in ending), tuple(changed))

    # ------------------------------------------------------------------ parts

    def _attempt(self, job: str, attempt: int) -> JobRecord | None:
        """The record of a job that holds places for this attempt; None if the event is a repeat."""
        record = self.jobs.get(job)
        return record if record is not None and record.attempt == attempt and record.phase in HOLDING else None

    def _keep(self, record: JobRecord) -> JobRecord:
        self._count(self.jobs.get(record.job.id), -1)
        self._count(record, 1)
        self.jobs[record.job.id] = record
        self.table.put(record)
        return record

    def hold(self, record: JobRecord, sign: int) -> None:
        """Count what a job holds (`sign` 1), or releases (-1)."""
        super().hold(record, sign)
        if sign > 0:
            self.table.hold(record, [self.servers[place.server].index for place in record.places])
        else:
            self.table.release(record.job.id)

    def _count(self, record: JobRecord | None, sign: int) -> None:
        """Count a record, or that it is gone (`sign` -1)."""
        if record is not None:
            key = record.job.queue, record.phase
            self.phases[key] += sign
            if not self.phases[key]:
                del self.phases[key]

    def _gone(self, record: JobRecord) -> Handled:
        self._count(self.jobs.pop(record.job.id), -1)
        self.table.drop(record.job.id)
        self.foresight.forget(record.job.id)
        self.reserved = {server: job for server, job in self.reserved.items() if job != record.job.id}
        return Handled(changed=(record,))

    def _charge(self, record: JobRecord, now: float) -> None:
        """Charge the team of a job for what the job held, times how long."""
        began = record.started if record.started is not None else record.since
        total = taken(record.job, record.places)
        whole = self.whole
        share = max((milli / max(int(whole[self.resources[name]]), 1) for name, milli in total.items()), default=0.0)
        value = self.usage(record.job.team, now) + share * max(now - began, 0.0)
        self._usage[record.job.team] = value, max(now, self._usage.get(record.job.team, (0.0, now))[1])

    def usage(self, team: str, now: float) -> float:
        """A team's usage, in shares of the cluster times seconds, decayed with the half-life."""
        value, then = self._usage.get(team, (0.0, now))
        return float(value * 0.5 ** (max(now - then, 0.0) / self.queues.half_life))

    @property
    def teams(self) -> Iterable[str]:
        """Teams with recorded usage."""
        return self._usage.keys()
