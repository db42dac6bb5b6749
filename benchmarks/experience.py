"""A store in which a service finds earlier runs of every type on every node: it starts with the speeds known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Decided, Event, Finished, ServerJoined, ServerLost, Start, Started, Submitted
from berth.live.core.jobs import Job, Place, Role, Server
from berth.live.service.store import Batch, Store
from berth.live.twin.streams import CLASS
from berth.random import stream

__all__ = ["write_experience"]

RUNS, WORK = 25, 10.0
"""Earlier runs of each type on each node, and the work of each in seconds."""


def write_experience(
    where: Path, servers: Sequence[Server], speeds: Mapping[str, Mapping[str, float]], luck: float, seed: int
) -> None:
    """Write a journal of runs with these speeds by type and class; `luck` is the spread of their logarithms."""
    rng, time = stream(seed, "experience"), 1.0
    events: list[Event] = [ServerJoined(time, server) for server in servers]
    for number in range(RUNS):
        for type_, by_class in speeds.items():
            for server in servers:
                name, time = f"before-{type_}-{server.name}-{number}", time + 100.0
                seconds = WORK / by_class[server.labels[CLASS]] * float(np.exp(luck * rng.standard_normal()))
                job = Job(name, type_, (Role("task", 1, {"cpu": 1000}),), work=WORK)
                start = Start(name, 1, (Place(server.name, "task", 1),))
                events += [Submitted(time, job), Decided(time, "experience", (start,)), Started(time, name, 1)]
                events.append(Finished(time + seconds, name, 1, seconds))
    events += [ServerLost(time, server.name) for server in servers]  # until the engine tells of them
    batch, dispatcher = Batch(1, events), Dispatcher()
    for event in events:
        batch.records.update({record.job.id: record for record in dispatcher.note(event).changed})
    store = Store(str(where))
    try:
        store.write(batch)
    finally:
        store.close()
