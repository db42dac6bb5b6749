"""Promises of a policy that runs in the scheduler: it is played on small clusters, and its decisions are watched.

Clusters have servers of unequal size and speed; jobs are gangs of one or two roles, some of which need a label. Servers
are lost and come back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields

import numpy as np

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.drivers.base import Driver
from berth.live.core.events import Decided, Event, ServerJoined, ServerLost, Submitted
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.queues import Queues
from berth.live.core.view import Placing, View
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from berth.live.simulation import Played, play
from berth.random import stream
from berth.testing.subject import Broken, Finding, global_seed, short, snapshot

__all__ = ["LIVE_CHECKS"]

CASES, JOBS = 4, 14
"""Clusters that are played, and jobs on each."""
LONG = 1e6
"""Seconds in which every job must have ended: a thousand times what all of them need one after the other."""


def _case(seed: int, number: int, *, losses: bool) -> tuple[list[Server], list[Event]]:
    """Servers and what happens; each job fits on the servers that are never lost."""
    rng = stream(seed, "check_policy", "live", str(number))
    servers = [
        Server(
            f"s{i}",
            {"cpu": 1000 * int(rng.choice([4, 8])), "gpu": 1000 * int(rng.choice([0, 2]))},
            {"zone": "ab"[i % 2]},
            float(rng.choice([0.5, 1.0, 2.0])),
        )
        for i in range(6)
    ]
    time, coming = 0.0, list[Event]()
    for i in range(JOBS):
        time += float(rng.exponential(20.0))
        roles = [Role("main", int(rng.integers(1, 4)), {"cpu": 500 * int(rng.integers(1, 5))})]
        if rng.random() < 0.3:
            roles.append(Role("side", 1, {"cpu": 500}))
        needs = {"zone": "a"} if rng.random() < 0.3 else {}
        work = float(rng.exponential(60.0)) + 1.0
        coming.append(Submitted(time, Job(f"j{i}", "ab"[i % 2], tuple(roles), needs=needs, work=work)))
    if losses:
        coming += [ServerLost(0.3 * time, "s5"), ServerJoined(0.6 * time, servers[5])]
    return servers, coming


class _Watched:
    """Asks a policy, and notes whether a view changes meanwhile, or the policy wants to be asked again in the past."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._ask, self.broken = driver, driver.propose, list[Broken]()

    def __call__(self, view: View, /) -> Placing:
        before = _arrays(view)
        placing = self._ask(view)
        after = _arrays(view)
        if changed := [name for name, was in before.items() if after[name] != was]:
            self.broken.append(
                Broken(f"the view at {view.time:g} s has changed ({', '.join(changed)})", "it as it was")
            )
        if self._driver.next_look <= view.time:
            seen = f"next_look {self._driver.next_look:g} at {view.time:g} s"
            self.broken.append(Broken(seen, "a later time, or infinity"))
        return placing


def _arrays(view: View) -> dict[str, object]:
    """What a policy is shown, to be compared."""
    parts = {field.name: getattr(view, field.name) for field in fields(view) if field.name != "state"}
    return {name: snapshot(part) for name, part in parts.items() if isinstance(part, np.ndarray | tuple)}


def _made(policy: str, seed: int) -> Dispatcher:
    return Dispatcher(policy, seed=seed, queues=Queues(patience=1e9), budget=math.inf)


def _played(made: Dispatcher, number: int, *, losses: bool = False) -> Played:
    servers, coming = _case(made.seed, number, losses=losses)
    cluster = SimulatedCluster(servers, Truth(seed=made.seed, spread=0.3, restart=1.0))
    return play(made, cluster, coming, until=LONG)


Check = Callable[[str, int], Iterator[Finding]]


def _each(check: Callable[[str, int, int], None]) -> Check:
    """The check on every case."""

    def whole(policy: str, seed: int) -> Iterator[Finding]:
        for number in range(CASES):
            try:
                check(policy, seed, number)
            except Broken as broken:
                yield Finding(f"cluster {number}", broken.seen, broken.expected)
            except Exception as error:
                yield Finding(f"cluster {number}", f"the run ended with {short(error)}", "a run to the end")

    whole.__doc__ = check.__doc__
    return whole


@_each
def decisions_accepted(policy: str, seed: int, number: int) -> None:
    """Every decision is feasible, with gangs, roles and labels, and while servers are lost and join."""
    for losses in (False, True):
        played = _played(_made(policy, seed), number, losses=losses)
        refused = [event.refused for event in played.events if isinstance(event, Decided) and event.refused]
        if refused:
            raise Broken(f"{len(refused)} refused decisions: {refused[0]}", "feasible decisions")


@_each
def jobs_end(policy: str, seed: int, number: int) -> None:
    """Every job ends when no other comes: none waits for ever, and none is interrupted for ever."""
    made = _made(policy, seed)
    played = _played(made, number)
    if len(played.ended) < JOBS:
        left = sorted(set(made.state.jobs) - set(played.ended))
        raise Broken(f"{len(left)} of {JOBS} jobs had not ended after {LONG:g} s ({left[0]})", "all jobs finished")


@_each
def same_seed_same_events(policy: str, seed: int, number: int) -> None:
    """Played twice with the same seed the same happens, independent of the global random states."""
    with global_seed(1):
        first = _played(_made(policy, seed), number)
    with global_seed(2):
        second = _played(_made(policy, seed), number)
    if first.events != second.events:
        raise Broken("two runs with the same seed differ", "the same events, from the generator it was given alone")


@_each
def view_untouched(policy: str, seed: int, number: int) -> None:
    """The policy does not change the view, and asks to be asked again in the future if at all."""
    made = _made(policy, seed)
    if made.driver is None:  # the fallback
        return
    watched = made.driver.propose = _Watched(made.driver)  # type: ignore[method-assign]
    _played(made, number)
    if watched.broken:
        raise watched.broken[0]


LIVE_CHECKS: dict[str, Check] = {
    "decisions-accepted": decisions_accepted,
    "jobs-end": jobs_end,
    "same-seed-same-events": same_seed_same_events,
    "view-untouched": view_untouched,
}
"""Every check of a policy of the family `live` by name; the docstring of each is the promise."""
