"""Simulate a dispatcher on a simulated cluster from event to event: the events and the outcome of every job.

All that a program needs for it can be imported from here.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from berth.errors import BerthError
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Event, Finished, ServerChanged, ServerJoined, ServerLost, Start, Submitted
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.queues import Queues
from berth.live.core.records import ENDED, JobRecord
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth

__all__ = [
    "Dispatcher",
    "Job",
    "Played",
    "Queues",
    "Role",
    "Server",
    "SimulatedCluster",
    "Start",
    "Submitted",
    "Truth",
    "play",
]


@dataclass
class Played:
    """All events in the order in which they were handled, and the last record of every job that ended."""

    events: list[Event] = field(default_factory=list)
    ended: dict[str, JobRecord] = field(default_factory=dict)


def play(
    dispatcher: Dispatcher,
    cluster: SimulatedCluster,
    given: Iterable[Event],
    *,
    until: float = math.inf,
    lenient: bool = False,
) -> Played:
    """Simulate these events, and the cluster's reactions to the decisions, until nothing more happens.

    At each moment all events are handled, then there is one decision, and another after each that interrupts jobs or
    starts one of zero run time. With `lenient`, an event that raises is skipped; else its error ends the run.
    """
    played = Played()
    coming = deque(sorted(given, key=lambda event: event.time))
    for event in cluster.joined(coming[0].time if coming else 0.0):
        _handle(dispatcher, cluster, played, event, event.time, lenient)
    now = last = -math.inf
    again = False
    while True:
        next_event = coming[0].time if coming else math.inf
        if not again:
            look = dispatcher.next_look if dispatcher.next_look > last else math.inf
            now = max(now, min(next_event, cluster.next_end, dispatcher.state.table.next_limit, look))
        if now == math.inf:
            now = min(_patience_ends(dispatcher, last), _tried_again(dispatcher, last))
        if now > until or now == math.inf:
            return played
        last = now
        while coming and coming[0].time <= now:
            event = coming.popleft()
            if isinstance(event, ServerLost):
                cluster.lose(event.server, event.time)
            elif isinstance(event, ServerJoined | ServerChanged):
                cluster.join(event.server, event.time)
            else:
                _told(dispatcher, cluster, played, now, lenient)
                _handle(dispatcher, cluster, played, event, now, lenient)
        _told(dispatcher, cluster, played, now, lenient)
        for overran in dispatcher.state.overdue(now):
            _handle(dispatcher, cluster, played, overran, now, lenient)
        _told(dispatcher, cluster, played, now, lenient)
        decided, again = dispatcher.decide(now), False
        if decided is not None:
            _handle(dispatcher, cluster, played, decided, now, lenient)
            again = _told(dispatcher, cluster, played, now, lenient) or bool(decided.interrupts)


def _patience_ends(dispatcher: Dispatcher, last: float) -> float:
    """When the next job will have waited longer than `patience`: the next event if nothing else happens."""
    state = dispatcher.state
    patience = state.queues.patience
    late = [math.nextafter(r.submitted + patience, math.inf) for r in state.jobs.values() if r.phase == "waiting"]
    return min((at for at in late if at > last), default=math.inf)


def _tried_again(dispatcher: Dispatcher, last: float) -> float:
    """When a waiting job that was refused may next be tried again; infinity if none waits."""
    waits = any(record.phase == "waiting" for record in dispatcher.state.jobs.values())
    return dispatcher.state.refusals.next_end(last) if waits else math.inf


def _told(dispatcher: Dispatcher, cluster: SimulatedCluster, played: Played, now: float, lenient: bool) -> bool:
    """Handle what the cluster reports by now; whether a job finished."""
    finished = False
    while told := cluster.due(now):
        for event in told:
            finished |= isinstance(event, Finished)
            _handle(dispatcher, cluster, played, event, now, lenient)
    return finished


def _handle(
    dispatcher: Dispatcher, cluster: SimulatedCluster, played: Played, event: Event, now: float, lenient: bool
) -> None:
    try:
        handled = dispatcher.handle(event)
    except BerthError:
        if lenient:
            return
        raise
    played.events.append(event)
    for command in handled.commands:
        cluster.execute(command, dispatcher.state.jobs[command.job].job, now)
    for record in handled.changed:
        if record.phase in ENDED:
            played.ended[record.job.id] = record
