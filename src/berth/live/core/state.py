"""What is so now: jobs, servers, who holds what. Changed by events only, the same way in every replay.

A job waits, is started (the command is out), runs, and ends; `ending` is an attempt that is to end and still holds its
places, because only the engine knows when they are free.

Axes: R servers, K resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from berth.errors import InfeasibleDecision, InvalidInput
from berth.files.quantities import Amounts
from berth.files.wording import spoken
from berth.live.core.calibration import Foresight, Range
from berth.live.core.events import (
    Cancel,
    Cancelled,
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
    Start,
    Started,
    Submitted,
)
from berth.live.core.jobs import UNTYPED, Job, Place, Server
from berth.live.core.queues import Queues
from berth.live.core.records import HOLDING, DumpedState, Handled, JobRecord, Outcome, Phase, ServerRecord
from berth.live.core.runtimes import Calibration, expected
from berth.live.core.speeds import Learned
from berth.live.core.waiting import Waiting, own_copy
from berth.model import Ints

__all__ = ["State"]

UNLUCKY = 20
"""So often a job is started again after faults that were not its own."""


class State:
    """Everything that a scheduler must remember.

    Servers with the same value of the label `learn_by` count as one in what is learned.
    """

    def __init__(self, queues: Queues | None = None, policy: str = "", learn_by: str | None = None) -> None:
        self.learn_by = learn_by
        self.queues = queues or Queues()
        self.policy = policy
        self.shadow: str | None = None
        """The candidate that is tried."""
        self.jobs: dict[str, JobRecord] = {}
        """Those that have not ended."""
        self.waiting = Waiting()
        """Those of them that wait, as columns."""
        self.must_end: dict[str, float] = {}
        """When running jobs reach their time limits; those of jobs from elsewhere are enforced by their engine."""
        self.servers: dict[str, ServerRecord] = {}
        self.reserved: dict[str, str] = {}
        """Servers that are kept for a job."""
        self.learned = Learned()
        self.foresight = Foresight()
        """How forecasts of starts have held."""
        self.calibration = Calibration()
        """How predictions of run times have held."""
        self.submissions = 0
        self.time = 0.0
        self.resources: dict[str, int] = {}
        """Every resource that a server has, and its column."""
        self.capacity: Ints = np.zeros((0, 0), dtype=np.int64)
        self.used: Ints = np.zeros((0, 0), dtype=np.int64)
        """What is not free: what our jobs hold, and what others have taken."""
        self.taken: Ints = np.zeros((0, 0), dtype=np.int64)
        """What others have taken, as engines tell; with what our jobs hold it may be more than there is."""
        self.held: dict[str, dict[str, int]] = {}
        """What queues, teams and users hold now, as `queue:NAME`, `team:NAME` and `user:NAME`."""
        self._usage: dict[str, tuple[float, float]] = {}
        self.fits: dict[object, bool] = {}
        """Whether jobs of a shape would fit if nothing ran, as far as anybody asked since servers changed."""
        self.masks: dict[object, NDArray[np.bool_]] = {}
        """Servers that may be used (`None`), and those that have some labels, as far as anybody asked since then."""

    def copied(self) -> State:
        """A copy to be looked at, or changed, while this one changes."""
        made = own_copy(self)
        made.held = {owner: dict(held) for owner, held in self.held.items()}
        made.waiting, made.learned = self.waiting.copied(), own_copy(self.learned)
        made.foresight, made.calibration = self.foresight.copied(), self.calibration.copied()
        return made

    def dump(self) -> DumpedState:
        """A copy that stays as it is."""
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
        )

    @classmethod
    def load(cls, dumped: DumpedState, learn_by: str | None = None) -> State:
        """A state that goes on where `dump` was made."""
        state = cls(dumped.queues, dumped.policy, learn_by)
        state.shadow = dumped.shadow
        state.resources = {name: column for column, name in enumerate(dumped.resources)}
        for server in dumped.servers:
            state._server(server.server, True)
            state.servers[server.server.name] = server
        for record in dumped.jobs:
            state._keep(record)
            if record.phase in HOLDING:
                state._hold(record, 1)
        state.reserved = dict(dumped.reserved)
        state.learned = Learned.load(dumped.learned)
        state.foresight = Foresight.load(dumped.foresight)
        state.calibration = Calibration.load(dumped.calibration)
        state.submissions, state.time = dumped.submissions, dumped.time
        state._usage = dict(dumped.usage)
        return state

    # ------------------------------------------------------------------ events

    def handle(self, event: Event) -> Handled:
        """Take note of an event. One that is refused, with an error, changes nothing."""
        handled = self._handle(event)
        self.time = max(self.time, event.time)
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
                self.servers[event.server] = replace(record, drained=isinstance(event, ServerDrained))
                self._refit()
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
            case Foretold():
                if event.job in self.jobs and self.jobs[event.job].phase == "waiting":
                    self.foresight.foretell(event.job, event.time, Range(event.low, event.middle, event.high))
                return Handled()

    def _submitted(self, event: Submitted) -> Handled:
        self.check_new(event.job)
        job = self.queues.limited(event.job)
        record = JobRecord(job, self.submissions, event.time, since=event.time)
        self.submissions += 1
        return Handled(changed=(self._keep(record),))

    def check_new(self, job: Job) -> None:
        """Refuse a job whose id is in use, or for a queue that is not there, or takes none."""
        if job.id in self.jobs:
            raise InvalidInput("a job id that is not in use", value=job.id, key="job.id")
        self.check_queue(job)

    def check_queue(self, job: Job) -> None:
        """Refuse a job for a queue that is not there, or takes none."""
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
        changed = self._keep(replace(record, phase="ending", unwanted=True, since=event.time, reason=reason))
        return Handled((Cancel(event.job, record.attempt),), (changed,))

    def _decided(self, event: Decided) -> Handled:
        records = [self._startable(start) for start in event.starts]
        if len({start.job for start in event.starts}) < len(records):
            raise InfeasibleDecision("a job is started twice")
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
            self._hold(begun, 1)
            self.foresight.starts(start.job, event.time)
            changed.append(self._keep(begun))
        self.reserved = dict(event.reserved)
        return Handled(event.starts, tuple(changed))

    def _startable(self, start: Start) -> JobRecord:
        """The record of a job that may start so, as a whole gang on servers that may be used."""
        record = self.jobs.get(start.job)
        if record is None or record.phase != "waiting" or start.attempt != record.attempt + 1:
            raise InfeasibleDecision(f"job {start.job} is not waiting for attempt {start.attempt}")
        tasks, together = Counter[str](), Counter[tuple[str, str]]()
        for place in start.places:
            server = self.servers.get(place.server)
            if server is None or not server.usable:
                raise InfeasibleDecision(f"job {start.job}: server {place.server} may not be used")
            tasks[place.role] += place.count
            together[place.role, place.server] += place.count
        roles = {role.name: role for role in record.job.roles}
        whole = all(role.minimum <= tasks[role.name] <= role.count for role in record.job.roles)
        if not whole or any(place.role not in roles or place.count < 1 for place in start.places):
            raise InfeasibleDecision(f"job {start.job}: not a whole gang")
        if any(count > roles[role].each for (role, _), count in together.items()):
            raise InfeasibleDecision(f"job {start.job}: too many tasks on one server")
        return record

    def _started(self, event: Started) -> Handled:
        record = self._attempt(event.job, event.attempt)
        if record is None or record.phase == "running":
            return Handled()
        record = replace(record, started=event.time, details=event.details)
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
        return tuple(Overran(time, job, self.jobs[job].attempt) for job, ends in self.must_end.items() if ends <= time)

    def _ended(self, event: Finished | Failed) -> Handled:
        record = self._attempt(event.job, event.attempt)
        if record is None:
            return Handled()
        self._hold(record, -1)
        self._charge(record, event.time)
        if isinstance(event, Finished):
            outcome = self._learn(record, event)
            phase: Phase = "finished"
            gone = self._gone(replace(record, phase=phase, ended=event.time, since=event.time, reason=""))
            return replace(gone, outcome=outcome)
        cut = self._learn(record, event)
        # what is ending though nobody cancelled it ends because a server was lost, and is started again
        if record.unwanted or (event.fault == "cancelled" and record.phase != "ending"):
            reason = record.reason or event.reason or "cancelled"
            gone = self._gone(replace(record, phase="cancelled", ended=event.time, since=event.time, reason=reason))
            return replace(gone, outcome=cut)
        own = record.overran or (event.fault == "job" and record.phase != "ending")
        record = replace(
            record,
            failures=record.failures + own,
            unlucky=record.unlucky + (not own),
            reason=f"attempt {record.attempt}: {record.reason or event.reason or event.fault}",
            since=event.time,
            last_output=event.last_output,
        )
        if record.failures > record.job.retries or record.unlucky > UNLUCKY:
            return replace(self._gone(replace(record, phase="failed", ended=event.time)), outcome=cut)
        again = self._keep(replace(record, phase="waiting", places=(), started=None, overran=False))
        return Handled(changed=(again,), outcome=cut)

    def _learn(self, record: JobRecord, event: Finished | Failed) -> Outcome | None:
        """What the end of an attempt says about speed, if anything."""
        cut = isinstance(event, Failed)
        if record.job.type == UNTYPED:
            return None
        if isinstance(event, Failed) and (event.fault == "engine" or record.started is None):
            return None
        began = record.started if record.started is not None else record.since
        seconds = event.time - began if event.seconds is None else event.seconds
        if not seconds > 0 or (record.unwanted and not cut):
            return None
        used = [place.server for place in record.places]
        if all(self.learned.speed(record.job.type, server) is not None for server in used):
            self.calibration.add(expected(self, record.job, used, {}), seconds, cut)
        alike = {place.server: self._alike(place.server) for place in record.places}
        servers = dict.fromkeys(server for several in alike.values() for server in several)
        speed = (self.learned.add_cut if cut else self.learned.add)(record.job, servers, seconds)
        if speed is None:
            return None
        gains = event.gains if isinstance(event, Finished) else {}
        shared = alike if self.learn_by is not None else {}
        return Outcome(record.number, record.job, record.places, speed, gains, cut, shared)

    def group(self, server: str) -> str | None:
        """The label and value that servers have which are learned as one with this one; None where it is by itself."""
        known = self.servers.get(server)
        mine = None if known is None or self.learn_by is None else known.server.labels.get(self.learn_by)
        return None if mine is None else f"{self.learn_by}={mine}"

    def _alike(self, server: str) -> tuple[str, ...]:
        """Servers of which one learns with this one."""
        group = self.group(server)
        return (server,) if group is None else tuple(name for name in self.servers if self.group(name) == group)

    def _server(self, server: Server, there: bool) -> Handled:
        known = self.servers.get(server.name)
        if known is not None and not (known.lost and there) and _same_but_taken(known.server, server):
            self.servers[server.name] = replace(known, server=server)
            self._take(known.index, server)
            return Handled()
        if known is None:
            record = ServerRecord(server, len(self.servers))
        else:
            record = replace(known, server=server, lost=known.lost and not there)
        self.servers[server.name] = record
        self._refit()
        for name in server.capacity:
            self.resources.setdefault(name, len(self.resources))
        shape = len(self.servers), len(self.resources)
        for table in ("capacity", "used", "taken"):
            old = getattr(self, table)
            new = np.zeros(shape, dtype=np.int64)
            new[: old.shape[0], : old.shape[1]] = old
            setattr(self, table, new)
        self.capacity[record.index] = 0
        for name, milli in server.capacity.items():
            self.capacity[record.index, self.resources[name]] = milli
        self._take(record.index, server)
        self.waiting.shapes.fleet_changed(self.resources)
        return Handled()

    def _take(self, row: int, server: Server) -> None:
        """Others hold this much of a server now, whatever they held before."""
        self.used[row] -= self.taken[row]
        self.taken[row] = 0
        for name, milli in server.taken.items():
            self.taken[row, self.resources[name]] = milli
        self.used[row] += self.taken[row]

    def _refit(self) -> None:
        """Forget what fits: servers changed."""
        self.fits.clear()
        self.masks.clear()
        self.waiting.shapes.forget_fits()

    def _lost(self, event: ServerLost) -> Handled:
        record = self.server(event.server)
        self.servers[event.server] = replace(record, lost=True)
        self._refit()
        ending = [
            held
            for held in self.jobs.values()
            if held.phase in ("starting", "running") and any(place.server == event.server for place in held.places)
        ]
        reason = f"server {event.server} was lost"
        changed = [self._keep(replace(held, phase="ending", since=event.time, reason=reason)) for held in ending]
        return Handled(tuple(Cancel(held.job.id, held.attempt) for held in ending), tuple(changed))

    # ------------------------------------------------------------------ parts

    def server(self, name: str) -> ServerRecord:
        """The record of a server."""
        if name not in self.servers:
            raise InvalidInput("a server that is known", value=name, key="server")
        return self.servers[name]

    def _attempt(self, job: str, attempt: int) -> JobRecord | None:
        """The record of a job whose attempt this is and which holds places; None for what was told before."""
        record = self.jobs.get(job)
        return record if record is not None and record.attempt == attempt and record.phase in HOLDING else None

    def _keep(self, record: JobRecord) -> JobRecord:
        self.jobs[record.job.id] = record
        if record.phase == "waiting":
            self.waiting.put(record)
        else:
            self.waiting.drop(record.job.id)
        if record.phase == "running" and record.job.limit and not record.job.origin and record.started is not None:
            self.must_end[record.job.id] = record.started + record.job.limit
        else:
            self.must_end.pop(record.job.id, None)
        return record

    def _gone(self, record: JobRecord) -> Handled:
        del self.jobs[record.job.id]
        self.waiting.drop(record.job.id)
        self.must_end.pop(record.job.id, None)
        self.foresight.forget(record.job.id)
        self.reserved = {server: job for server, job in self.reserved.items() if job != record.job.id}
        return Handled(changed=(record,))

    def owners(self, job: Job) -> tuple[str, str, str]:
        """Under which names its holdings are counted."""
        return f"queue:{job.queue}", f"team:{job.team}", f"user:{job.user}"

    def _hold(self, record: JobRecord, sign: int) -> None:
        total = taken(record.job, record.places)
        self.add(self.used, record.job, record.places, sign)
        for owner in self.owners(record.job):
            held = self.held.setdefault(owner, {})
            for name, milli in total.items():
                held[name] = held.get(name, 0) + sign * milli
                if not held[name]:
                    del held[name]
            if not held:
                del self.held[owner]

    def add(self, table: Ints, job: Job, places: Iterable[Place], sign: int) -> None:
        """Add what tasks take in these places to a table (R, K)."""
        demand = {role.name: role.demand for role in job.roles}
        for place in places:
            row = self.servers[place.server].index
            for name, milli in demand[place.role].items():
                if milli:
                    table[row, self.resources[name]] += sign * milli * place.count

    def _charge(self, record: JobRecord, now: float) -> None:
        """Add what a job held, times how long, to the usage of its team."""
        began = record.started if record.started is not None else record.since
        total = taken(record.job, record.places)
        whole = self.capacity.sum(axis=0)
        share = max((milli / max(int(whole[self.resources[name]]), 1) for name, milli in total.items()), default=0.0)
        value = self.usage(record.job.team, now) + share * max(now - began, 0.0)
        self._usage[record.job.team] = value, max(now, self._usage.get(record.job.team, (0.0, now))[1])

    def usage(self, team: str, now: float) -> float:
        """Shares of the cluster times seconds that a team used, half forgotten every half life."""
        value, then = self._usage.get(team, (0.0, now))
        return float(value * 0.5 ** (max(now - then, 0.0) / self.queues.half_life))

    @property
    def teams(self) -> Iterable[str]:
        """Those that used something."""
        return self._usage.keys()


def _same_but_taken(one: Server, other: Server) -> bool:
    """Whether servers differ in nothing but what others have taken, so that what would fit if nothing ran stays."""
    return replace(one, taken={}) == replace(other, taken={})


def taken(job: Job, places: Iterable[Place]) -> dict[str, int]:
    """What a job holds in all of these places."""
    demand: dict[str, Amounts] = {role.name: role.demand for role in job.roles}
    total: dict[str, int] = {}
    for place in places:
        for name, milli in demand[place.role].items():
            if milli:
                total[name] = total.get(name, 0) + milli * place.count
    return total
