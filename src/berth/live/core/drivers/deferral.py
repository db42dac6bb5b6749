"""Whether a job does better to wait for faster servers than to start where there is room now.

Selection starts whatever has a gain, wherever there is room: under load a job often finds only servers that are slow
for it, holds them for long, and so is in the way of those that are fast there. A job that may start now waits instead
while the time that it has waited, plus the time until faster servers are expected to be free, plus its run there, is
less than its run where it could start now. So it loses at most as much by waiting in vain as it could have gained.
Speeds are those that were learned; where they are not known of every server that it would get, it starts: somebody has
to find out. Where faster servers are free and the policy does not take them, it has its reasons.

Axes: R servers, K resources, n releases.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from berth.live.core.kernels import Releases, ends_later
from berth.live.core.records import JobRecord
from berth.live.core.state import State
from berth.live.core.view import Placing, View, holdings
from berth.model import Floats

__all__ = ["known_speeds", "seconds_to_wait", "without_those_who_wait"]

FASTER = 1.05
"""By how much other servers must be faster to be waited for."""
LONGER = 0.05
"""What has run longer than expected is expected to run for this part of that time more."""


def without_those_who_wait(view: View, placing: Placing) -> Placing:
    """The placing without jobs that do better to wait for faster servers."""
    if not len(placing.job):
        return placing
    free = np.where(view.usable[:, None], view.free, 0)
    kept = np.ones(len(placing.job), dtype=bool)
    speeds = known_speeds(view)
    releases: Releases | None = None
    for job in dict.fromkeys(placing.job.tolist()):
        rows = np.flatnonzero(placing.job == job)
        record = view.records[job]
        slowest = speeds(record)[placing.server[rows]].min()
        if slowest > 0:
            releases = releases or _releases(view)
            if _worth_waiting(view, job, slowest, speeds(record), free, releases) is not None:
                kept[rows] = False
                continue
        np.subtract.at(free, placing.server[rows], placing.count[rows, None] * view.gangs.demand[placing.role[rows]])
    return Placing(placing.job[kept], placing.role[kept], placing.server[kept], placing.count[kept])


def seconds_to_wait(view: View, placing: Placing) -> float | None:
    """How long the first job of a view does better to wait than to start so; None where it should start."""
    speed = known_speeds(view)(view.records[0])
    slowest = speed[placing.server[placing.job == 0]].min(initial=np.inf)
    if not 0 < slowest < np.inf:
        return None
    ends = _worth_waiting(view, 0, slowest, speed, np.where(view.usable[:, None], view.free, 0), _releases(view))
    return None if ends is None else max(ends - view.state.learned.work(view.records[0].job) / speed.max(), 0.0)


def _worth_waiting(
    view: View, job: int, slowest: float, speed: Floats, free: np.ndarray, releases: Releases
) -> float | None:
    """In how many seconds it would end on faster servers, where that is worth waiting for."""
    record, gangs = view.records[job], view.gangs
    roles = slice(int(gangs.start[job]), int(gangs.start[job + 1]))
    work = view.state.learned.work(record.job)
    there = np.where(view.reach[gangs.reach[job]], speed, 0.0)
    role = gangs.demand[roles], gangs.minimum[roles], gangs.each[roles]
    ends = float(ends_later(there, *role, free, releases, work, FASTER * slowest))
    waited = view.time - record.submitted
    return ends if waited + ends < work / slowest else None


def known_speeds(view: View) -> Callable[[JobRecord], Floats]:
    """How fast jobs of a type are known to run on each server (R,); 0 where nobody knows."""
    known: dict[str, Floats] = {}

    def speed(record: JobRecord) -> Floats:
        type_ = record.job.type
        if type_ not in known:
            found = (view.state.learned.speed(type_, server) for server in view.servers)
            known[type_] = np.array([0.0 if one is None else one.mean for one in found])
        return known[type_]

    return speed


def _releases(view: View) -> Releases:
    """What running jobs are expected to give back, and when."""
    state = view.state
    running = [record for record in state.jobs.values() if record.places]
    left = np.array([_seconds_left(state, record, view.time) for record in running], dtype=np.float64)
    whose, server, amount = holdings(state, running)
    order = np.argsort(left[whose], kind="stable")
    return Releases(left[whose][order], server[order], amount[order])


def _seconds_left(state: State, record: JobRecord, now: float) -> float:
    """How much longer a job is expected to run."""
    began = record.since if record.started is None else record.started
    slowest = np.inf
    for place in record.places:
        known = state.learned.speed(record.job.type, place.server)
        slowest = min(slowest, state.servers[place.server].server.speed if known is None else known.mean)
    return max(began + state.learned.work(record.job) / slowest - now, LONGER * (now - began))
