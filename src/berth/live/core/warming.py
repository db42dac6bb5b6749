"""Made-up jobs for made-up decisions, so that what a policy compiles at first is compiled before real ones come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from berth.live.core.events import Finished, ServerJoined, Started, Submitted
from berth.live.core.jobs import Job, Role, Server

if TYPE_CHECKING:
    from berth.live.core.dispatcher import Dispatcher

__all__ = ["play"]

JOBS = 8
"""Of each kind; more than fit, so that some must wait."""
ROUNDS = 4


def play(dispatcher: Dispatcher, servers: Sequence[Server]) -> str | None:
    """Let a dispatcher that serves for nothing else decide a few times, with servers like these.

    Gives the reason why the first decision was refused, where all of them were.
    """
    if dispatcher.driver is not None:
        dispatcher.driver.warm()
    some = servers[:2] or (Server("a", {"cpu": 4000}), Server("b", {"cpu": 4000}))
    for server in some:
        dispatcher.handle(ServerJoined(0.0, server))
    half = {name: milli // 2 for name, milli in some[0].capacity.items()}
    label = dict(list(some[0].labels.items())[:1])
    gang, pair = (Role("one", 2, half),), (Role("lead", 1, half), Role("rest", 2, half, minimum=1))
    for number in range(JOBS):
        for kind, roles in enumerate(((Role("one", 1, half),), gang, pair)):
            job = Job(f"{kind}-{number}", f"type-{kind}", roles, priority=number % 2, work=10.0)
            job = job.replace(needs=label if number % 4 == 3 else {}, estimate=20.0 if number % 2 else None)
            dispatcher.handle(Submitted(float(number), job))
    made: list[str | None] = []
    for turn in range(ROUNDS):
        now = 100.0 * (turn + 1)
        decided = dispatcher.decide(now)
        if decided is None:
            continue
        made.append(decided.refused)
        dispatcher.handle(decided)
        for i, start in enumerate(decided.starts):
            dispatcher.handle(Started(now, start.job, start.attempt))
            if i:  # the first of them still runs when the next decision is made
                dispatcher.handle(Finished(now + 10.0 + turn, start.job, start.attempt, 10.0 + turn))
    return made[0] if made and None not in made else None
