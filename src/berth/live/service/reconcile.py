"""Reconcile the journal with the engine.

* A server that is not known, or came back, joins; one that is different changes; one that is not there is lost.
* An attempt that has ended there has ended. One that runs there and was to start has started.
* An attempt that was running and that the engine does not know any more has failed by the engine's fault, so it is
  tried again. One that was to start is started: the command may not have got there, and twice is once.
* Whatever runs there and is not on paper is cancelled.
* A job that was given to the engine itself, and that does not wait there any more, was cancelled there.
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
    """What must have happened for the engine to be as it is. The state may take note of each before the next comes."""
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
                yield Failed(now, *key, "the engine does not know it any more", "engine")
        elif attempt.end is not None:
            yield attempt.end
        elif record.phase == "starting" and attempt.began:
            yield Started(now, *key, attempt.details)


def outstanding(state: State) -> list[Command]:
    """Commands that are out: they may be given again at any time."""
    return [
        Start(record.job.id, record.attempt, record.places)
        if record.phase == "starting"
        else Cancel(record.job.id, record.attempt)
        for record in state.jobs.values()
        if record.phase in ("starting", "ending")
    ]


def orphans(state: State, snapshot: Snapshot) -> list[Command]:
    """What runs there and is not on paper is to end."""
    found: list[Command] = []
    for attempt in snapshot.attempts:
        record = state.jobs.get(attempt.job)
        ours = record is not None and record.attempt == attempt.attempt and record.phase in HOLDING
        if attempt.end is None and not ours:
            found.append(Cancel(attempt.job, attempt.attempt))
    return found


def is_news(state: State, event: Event) -> bool:
    """Whether what an engine tells changes anything: it may tell things twice."""
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
