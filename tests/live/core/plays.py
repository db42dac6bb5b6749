"""Random plays of a dispatcher with a simulated cluster: a list of moves, and what to do with each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from berth.files.quantities import amounts
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import (
    Cancelled,
    Event,
    PolicyChanged,
    QueuesChanged,
    ServerDrained,
    ServerResumed,
    Submitted,
)
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.queues import Queue, Queues
from berth.live.core.records import Handled
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth

SERVERS = tuple(
    Server(f"n{i}", amounts({"cpu": 8, "memory": "32Gi", "gpu": 2 * (i % 2)}), {"class": "ab"[i % 2]}, 1.0 + i / 4)
    for i in range(4)
)
QUEUES = Queues({"default": Queue(), "low": Queue(priority=-1)}, quotas={"user:u1": amounts({"cpu": 6})}, patience=40.0)

roles = st.builds(
    lambda names, counts, cpus, gpu, least: tuple(
        Role(name, count, amounts({"cpu": cpu, "gpu": gpu}), max(1, count - least))
        for name, count, cpu in zip(names, counts, cpus, strict=True)
    ),
    st.just(("a", "b")),
    st.tuples(st.integers(1, 3), st.integers(1, 2)),
    st.tuples(st.integers(1, 5), st.integers(1, 3)),
    st.integers(0, 1),
    st.integers(0, 1),
).flatmap(lambda both: st.sampled_from([both, both[:1]]))
jobs = st.builds(
    Job,
    id=st.just("unnamed"),
    type=st.sampled_from(["x", "y"]),
    roles=roles,
    user=st.sampled_from(["u0", "u1"]),
    team=st.sampled_from(["red", "blue"]),
    queue=st.sampled_from(["default", "low"]),
    priority=st.integers(-1, 2),
    needs=st.sampled_from([{}, {"class": "a"}, {"class": "a|b"}]),
    work=st.sampled_from([None, 3.0, 30.0]),
    retries=st.integers(0, 1),
)
names = st.sampled_from([server.name for server in SERVERS])
moves = st.one_of(
    st.tuples(st.just("submit"), jobs),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 5.0, 60.0])),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.sampled_from(["lose", "restore", "drain", "resume"]), names),
    st.tuples(st.just("queues"), st.just(QUEUES)),
    st.tuples(st.just("policy"), st.sampled_from(["in-order-best-fit", "best-fit"])),
)


def play(dispatcher: Dispatcher, chosen: list[tuple[str, Any]]) -> Iterator[tuple[Event, Handled]]:
    """Play these moves; every event and what came of it, decisions included."""
    world = SimulatedCluster(SERVERS, Truth(1, spread=0.3, noise=0.2, faults=0.2))
    time, count = 0.0, 0
    pending: list[Event] = [QueuesChanged(0.0, QUEUES), *world.joined(0.0)]
    for kind, what in [*chosen, ("wait", 1000.0)]:
        if kind == "submit":
            pending.append(Submitted(time, what.replace(id=f"j{count}")))
            count += 1
        elif kind == "wait":
            time += what
        elif kind == "cancel":
            pending.append(Cancelled(time, f"j{what}", "somebody"))
        elif kind == "lose":
            world.lose(what, time)
        elif kind == "restore":
            world.restore(what, time)
        elif kind == "drain":
            pending.append(ServerDrained(time, what))
        elif kind == "resume":
            pending.append(ServerResumed(time, what))
        elif kind == "policy":
            pending.append(PolicyChanged(time, what))
        for event in [*pending, *world.due(time)]:
            yield event, _done(dispatcher, world, event, time)
        pending = []
        decided = dispatcher.decide(time)
        if decided is not None:
            yield decided, _done(dispatcher, world, decided, time)


def _done(dispatcher: Dispatcher, world: SimulatedCluster, event: Event, time: float) -> Handled:
    known = {job: record.job for job, record in dispatcher.state.jobs.items()}
    handled = dispatcher.handle(event)
    for command in handled.commands:
        world.execute(command, known[command.job], time)
    return handled
