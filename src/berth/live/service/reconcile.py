"""Reconcile the journal with the engine.

* An unknown or returned server joins; a server that differs is changed; a server that is absent is lost.
* An attempt that has ended at the engine has ended. An attempt that was to start and runs there has started.
* A running attempt that the engine no longer knows has failed by the engine's fault, so the job is retried. An attempt
  that was to start is started: the command may not have arrived, and it is idempotent.
* An attempt that is not in the journal is cancelled.
* A job that was submitted to the engine, and no longer waits there, was cancelled there.
"""

from __future__ import annotations

from collections.abc import Iterator

from berth.live.core.events import (
    Cancel,
    Cancelled,
    Command,
    Event,
    Failed,
    Finished,
    Interrupt,
    ServerChanged,
    ServerJoined,
    ServerLost,
    Start,
    Started,
)
from berth.live.core.records import HOLDING
from berth.live.core.state import State
from berth.live.engines import Snapshot

__all__ = ["differences", "is_news", "orphans", "outstanding"]


def differences(state: State, snapshot: Snapshot, now: float) -> Iterator[Event]:
    """The events that lead from the state to the engine's snapshot. The state may apply each before taking the next."""
    there = {server.name: server for server in snapshot.servers}
    for name, server in there.items():
        known = state.servers.get(name)
        if known is None or known.lost:
            yield ServerJoined(now, server)
        elif known.server != server:
            yield ServerChanged(now, server)
    for name in [name for name, known in state.servers.items() if name not in there and not known.lost]:
        yield ServerLost(now, name)
    attempts = {(attempt.job, attempt.attempt): attempt for attempt in snapshot.attempts}
    waiting = {job.id for job in snapshot.waiting}
    for record in list(state.jobs.values()):
        if record.phase == "waiting" and record.job.origin and record.job.id not in waiting:
            yield Cancelled(now, record.job.id, record.job.origin)
        if record.phase not in HOLDING:
            continue
        key = record.job.id, record.attempt
        attempt = attempts.get(key)
        if attempt is None:
            if record.phase != "starting":
                yield Failed(now, *key, "the engine no longer knows it", "engine")
        elif attempt.end is not None:
            yield attempt.end
        elif record.phase == "starting" and attempt.began:
            yield Started(now, *key, attempt.details)


def outstanding(state: State) -> list[Command]:
    """Outstanding commands, which may be issued again at any time."""
    return [
        Start(record.job.id, record.attempt, record.places)
        if record.phase == "starting"
        else (Interrupt if record.interrupting else Cancel)(record.job.id, record.attempt)
        for record in state.table.told
    ]


def orphans(state: State, snapshot: Snapshot) -> list[Command]:
    """Cancel commands for attempts that are not in the journal."""
    commands: list[Command] = []
    for attempt in snapshot.attempts:
        record = state.jobs.get(attempt.job)
        ours = record is not None and record.attempt == attempt.attempt and record.phase in HOLDING
        if attempt.end is None and not ours:
            commands.append(Cancel(attempt.job, attempt.attempt))
    return commands


def is_news(state: State, event: Event) -> bool:
    """Whether an engine's event changes anything: engines may repeat events."""
    match event:
        case Started() | Finished() | Failed():
            record = state.jobs.get(event.job)
            if record is None or record.attempt != event.attempt or record.phase not in HOLDING:
                return False
            return not isinstance(event, Started) or (record.phase != "running" and record.started is None)
        case ServerJoined() | ServerChanged():
            known = state.servers.get(event.server.name)
            return known is None or known.lost or known.server != event.server
        case ServerLost():
            known = state.servers.get(event.server)
            return known is not None and not known.lost
        case Cancelled():
            record = state.jobs.get(event.job)
            return record is not None and not record.unwanted
        case _:
            return False
