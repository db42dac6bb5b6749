"""What a decision may name (jobs that may start, running jobs that may be interrupted), and records after an attempt.

An interrupted job returns to waiting with what it has done; its next attempt continues from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from berth.errors import InfeasibleDecision
from berth.live.core.events import Failed, Interrupt, Start
from berth.live.core.records import JobRecord, ServerRecord

__all__ = ["interrupted", "interruptible", "interrupting", "may_be_interrupted", "startable", "waiting_again"]


def startable(
    starts: Iterable[Start], jobs: Mapping[str, JobRecord], servers: Mapping[str, ServerRecord]
) -> list[JobRecord]:
    """The records of jobs that a decision starts, once it is clear that each may start."""
    records = [_startable(start, jobs, servers) for start in starts]
    if len({record.job.id for record in records}) < len(records):
        raise InfeasibleDecision("a job is started twice")
    return records


def _startable(start: Start, jobs: Mapping[str, JobRecord], servers: Mapping[str, ServerRecord]) -> JobRecord:
    """The record of a job, once it is clear that it may start: a whole gang, on usable servers."""
    record = jobs.get(start.job)
    if record is None or record.phase != "waiting" or start.attempt != record.attempt + 1:
        raise InfeasibleDecision(f"job {start.job} is not waiting for attempt {start.attempt}")
    tasks, together = Counter[str](), Counter[tuple[str, str]]()
    for place in start.places:
        server = servers.get(place.server)
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


def may_be_interrupted(record: JobRecord | None, time: float) -> bool:
    """Whether an attempt runs that began before this time, so that decisions of one moment do not undo each other."""
    return record is not None and record.phase == "running" and record.started is not None and record.started < time


def interruptible(interrupts: Iterable[Interrupt], jobs: Mapping[str, JobRecord], time: float) -> list[JobRecord]:
    """The records of jobs that a decision interrupts, once it is clear that each may be interrupted."""
    records: dict[str, JobRecord] = {}
    for one in interrupts:
        record = jobs.get(one.job)
        if record is None or record.attempt != one.attempt or not may_be_interrupted(record, time):
            raise InfeasibleDecision(f"job {one.job} does not run attempt {one.attempt} since an earlier moment")
        if one.job in records:
            raise InfeasibleDecision("a job is interrupted twice")
        records[one.job] = record
    return list(records.values())


def interrupting(record: JobRecord, time: float) -> JobRecord:
    """The record of a job whose attempt is to end so that the next one continues its work."""
    return replace(record, phase="ending", interrupting=True, since=time, reason="interrupted by the policy")


def interrupted(record: JobRecord, event: Failed) -> JobRecord:
    """The record of a job whose attempt was interrupted: it waits, with what is left to do."""
    ran = 0.0 if record.started is None else event.time - record.started
    return replace(
        waiting_again(record),
        interruptions=record.interruptions + 1,
        ran=record.ran + (ran if event.seconds is None else event.seconds),
        done=record.done if event.done is None else event.done,
        reason=f"attempt {record.attempt}: {record.reason or event.reason or event.fault}",
        since=event.time,
    )


def waiting_again(record: JobRecord) -> JobRecord:
    """The record of a job whose attempt has ended, and that is to have another."""
    return replace(
        record, phase="waiting", places=(), started=None, started_moved=0.0, overran=False, interrupting=False
    )
