"""Start gangs where they complete first, or let them wait while they complete earlier by waiting.

Servers that are about equally fast for a type of job are a tier of it; tier 0 is the fastest. A gang runs at the pace
of the slowest tier that it uses, and where it is spread over several servers, at a part of that.

Axes: n jobs, m roles, R servers, K resources, T types, L tiers, s releases.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.compiled import compiled, inner
from berth.live.core.kernels.berthing import (
    Fit,
    Gangs,
    Placed,
    berth_gang,
    fill_up,
    holds,
    most_free,
    room,
    too_large,
)
from berth.live.core.kernels.rooms import Looks, Notes, best_now, fits, look, look_again, within

__all__ = ["Paces", "Releases", "complete_in_order", "ends_later"]

MISFITS = 256
"""The most jobs that found no room that later jobs are compared with."""
SLOTS = 32
"""The most kinds of gangs whose notes are kept."""


class Paces(NamedTuple):
    """For each type of job the tier of each server (T, R), the speed of each tier (T, L), 0 where there is none.

    `apart` (T,) is the part of that speed that gangs on several servers have. Without `mixes` a gang takes servers of
    one tier.
    """

    tier: Any
    pace: Any
    apart: Any
    mixes: bool = True


class Releases(NamedTuple):
    """What running jobs give back, the first at the front: when, on which server (s,), and how much (s, K).

    `size[0]` counts them: a gang that is to wait for one takes it there, and gives it back when it is to end.
    """

    time: Any
    server: Any
    amount: Any
    size: Any


@inner
def soonest(
    gangs: Gangs,
    allowed: Any,
    job: int,
    work: float,
    tier: Any,
    pace: Any,
    apart: float,
    mixes: bool,
    best: float,
    faster: float,
    left: Any,
    releases: Releases,
    notes: Notes,
    claim: Any,
) -> Any:
    """When a gang ends if it waits for tiers whose pace is above `faster`, where that is before `best`; else `best`.

    `notes` are of now, and `left` (R, K) is what is free now; both become those of the last release that was looked
    at. `claim` (3,) becomes the number of the last release that it waits for, its server or -1 where it is spread, and
    the slowest tier.
    """
    claim[0] = -1
    start = gangs.start[job]
    quick = 0  # tiers to wait for
    while quick < pace.shape[0] and pace[quick] > faster:
        quick += 1
    first = 0
    while first < releases.size[0]:
        time = releases.time[first]
        if time + work / pace[0] >= best:
            break
        after = first
        while after < releases.size[0] and releases.time[after] == time:
            r = releases.server[after]
            q = tier[r]
            if q < quick and allowed[r]:
                for role in range(start, gangs.start[job + 1]):
                    notes.rooms[role - start, q] -= room(gangs.demand, left, role, r, gangs.each[role])
                for k in range(left.shape[1]):
                    left[r, k] += releases.amount[after, k]
                for role in range(start, gangs.start[job + 1]):
                    notes.rooms[role - start, q] += room(gangs.demand, left, role, r, gangs.each[role])
            after += 1
        for i in range(first, after):
            r = releases.server[i]
            q = tier[r]
            if q >= quick or not allowed[r]:
                continue
            end = time + work / pace[q]
            if end < best and holds(gangs, left, job, r):
                best = end
                claim[0] = after - 1
                claim[1] = r
                claim[2] = q
            if time + work / (pace[q] * apart) >= best or (mixes and not fits(gangs, job, notes, quick - 1, mixes)):
                continue
            for level in range(q, quick):
                end = time + work / (pace[level] * apart)
                if end >= best:
                    break
                if fits(gangs, job, notes, level, mixes):
                    best = end
                    claim[0] = after - 1
                    claim[1] = -1
                    claim[2] = level
        first = after
    return best


@inner
def release(releases: Releases, time: float, server: int, gangs: Gangs, role: int, count: int) -> None:
    """Note that tasks give back what they hold, or with a negative count take it, at a time; in order."""
    size = releases.size[0]
    if size == releases.time.shape[0]:
        return
    i, after = 0, size
    while i < after:
        middle = (i + after) // 2
        if releases.time[middle] > time:
            after = middle
        else:
            i = middle + 1
    for at in range(size, i, -1):
        releases.time[at] = releases.time[at - 1]
    for at in range(size, i, -1):
        releases.server[at] = releases.server[at - 1]
    for at in range(size, i, -1):
        for k in range(releases.amount.shape[1]):
            releases.amount[at, k] = releases.amount[at - 1, k]
    releases.time[i] = time
    releases.server[i] = server
    for k in range(releases.amount.shape[1]):
        releases.amount[i, k] = count * gangs.demand[role, k]
    releases.size[0] = size + 1


@inner
def keep(
    gangs: Gangs, allowed: Any, job: int, tier: Any, mixes: bool, end: float, left: Any, releases: Releases, claim: Any
) -> None:
    """Take what a gang waits for at its release, and give it back at its end. `left` is what is free then."""
    time, first, last = releases.time[claim[0]], 0, left.shape[0]
    if claim[1] >= 0:
        first, last = claim[1], claim[1] + 1
    for role in range(gangs.start[job], gangs.start[job + 1]):
        wanted = gangs.minimum[role]
        for r in range(first, last):
            if wanted == 0:
                break
            if not allowed[r] or not within(tier[r], claim[2], mixes):
                continue
            count = min(room(gangs.demand, left, role, r, gangs.each[role]), wanted)
            if count > 0:
                wanted -= count
                for k in range(left.shape[1]):
                    left[r, k] -= count * gangs.demand[role, k]
                release(releases, time, r, gangs, role, -count)
                release(releases, end, r, gangs, role, count)


@inner
def free_at(allowed: Any, free: Any, releases: Releases, last: int, left: Any) -> None:
    """What is free once this release has come."""
    for r in range(free.shape[0]):
        for k in range(free.shape[1]):
            left[r, k] = free[r, k]
    for i in range(last + 1):
        if allowed[releases.server[i]]:
            for k in range(left.shape[1]):
                left[releases.server[i], k] += releases.amount[i, k]


class Misfits(NamedTuple):
    """Jobs of one role that found no room: their roles (f,), and the servers they may use (f,); `size[0]` counts them.

    What is free only becomes less, so a role that asks for as much finds no room either.
    """

    role: Any
    reach: Any
    kind: Any
    size: Any


@inner
def hopeless(gangs: Gangs, kind: Any, job: int, mixes: bool, misfits: Misfits) -> Any:
    """Whether a role of a job asks for at least as much as a job that found no room on the same servers."""
    for role in range(gangs.start[job], gangs.start[job + 1]):
        for i in range(misfits.size[0]):
            if misfits.reach[i] != gangs.reach[job] or not (mixes or misfits.kind[i] == kind[job]):
                continue
            less = misfits.role[i]
            larger = gangs.minimum[role] >= gangs.minimum[less]
            for k in range(gangs.demand.shape[1]):
                larger = larger and gangs.demand[role, k] >= gangs.demand[less, k]
            if larger:
                return True
    return False


@inner
def misfit(gangs: Gangs, kind: Any, job: int, misfits: Misfits) -> None:
    """Note a job that found no room, if it has one role that one server may hold as a whole."""
    role, size = gangs.start[job], misfits.size[0]
    whole = gangs.start[job + 1] == role + 1 and gangs.each[role] >= gangs.minimum[role]
    if whole and size < misfits.role.shape[0]:
        misfits.role[size] = role
        misfits.reach[size] = gangs.reach[job]
        misfits.kind[size] = kind[job]
        misfits.size[0] = size + 1


@compiled
def complete_in_order(
    gangs: Gangs,
    kind: Any,
    work: Any,
    fit: Fit,
    reach: Any,
    free: Any,
    paces: Paces,
    releases: Releases,
    placed: Placed,
    margin: float,
    counted: int,
) -> None:
    """Place jobs one after another where they complete first, or nowhere while they complete earlier by waiting.

    `kind` (n,) is the type of each job, `work` (n,) its seconds at speed 1. To be waited for, servers must be faster
    by the factor `margin`. Gangs that wait take their release from those after them; of gangs that do not fit now, the
    first `counted` do so too. `free` (R, K) becomes what is left.
    """
    jobs = gangs.reach.shape[0]
    roles = 1
    for job in range(jobs):
        roles = max(roles, gangs.start[job + 1] - gangs.start[job])
    tiers, mixes = paces.pace.shape[1], paces.mixes
    notes = Notes(
        np.zeros((roles, tiers), dtype=np.int64), np.zeros(tiers, dtype=np.int64), np.zeros(tiers, dtype=np.float64)
    )
    slots = min(jobs, SLOTS)
    looks = Looks(
        np.full(slots, -1),
        np.zeros(slots, dtype=np.int64),
        np.zeros((slots, roles, tiers), dtype=np.int64),
        np.zeros((slots, tiers), dtype=np.int64),
    )
    done = np.zeros(gangs.minimum.shape[0], dtype=np.bool_)
    left = np.zeros_like(free)
    mask = np.zeros(free.shape[0], dtype=np.bool_)
    where = np.zeros(2, dtype=np.int64)
    claim = np.zeros(3, dtype=np.int64)
    peak = np.zeros(free.shape[1], dtype=np.int64)
    most_free(free, peak)
    columns = np.zeros((3, MISFITS), dtype=np.int64)
    misfits = Misfits(columns[0], columns[1], columns[2], np.zeros(1, dtype=np.int64))
    for job in range(jobs):
        if counted <= 0 and (placed.failed[gangs.shape[job]] or too_large(gangs, job, peak)):
            continue
        if counted <= 0 and hopeless(gangs, kind, job, mixes, misfits):
            placed.failed[gangs.shape[job]] = True
            continue
        allowed = reach[gangs.reach[job]]
        tier, pace, apart = paces.tier[kind[job]], paces.pace[kind[job]], paces.apart[kind[job]]
        key = gangs.shape[job] * paces.tier.shape[0] + kind[job]
        look_again(gangs, allowed, fit.weight, free, job, tier, notes, looks, key, placed.size[0])
        now = best_now(gangs, job, work[job], pace, apart, mixes, notes, where)
        if now == np.inf:
            placed.failed[gangs.shape[job]] = True
            misfit(gangs, kind, job, misfits)
            if counted <= 0:
                continue
            counted -= 1
        faster = 0.0 if now == np.inf else margin * work[job] / now
        left[:] = free
        end = soonest(
            gangs, allowed, job, work[job], tier, pace, apart, mixes, now, faster, left, releases, notes, claim
        )
        if end < now:
            free_at(allowed, free, releases, claim[0], left)
            keep(gangs, allowed, job, tier, mixes, end, left, releases, claim)
            continue
        if now == np.inf:
            continue
        begin = placed.size[0]
        for r in range(free.shape[0]):
            mask[r] = allowed[r] and within(tier[r], where[1], mixes) and (where[0] < 0 or r == where[0])
        if not berth_gang(gangs, fit, mask, free, placed, job, done):
            continue
        if where[0] >= 0:
            for r in range(free.shape[0]):
                mask[r] = r == where[0]
        fill_up(gangs, fit, mask, free, placed, job)
        most_free(free, peak)
        for row in range(begin, placed.size[0]):
            release(releases, now, placed.server[row], gangs, placed.role[row], placed.count[row])


@compiled
def ends_later(
    gangs: Gangs,
    kind: Any,
    work: Any,
    reach: Any,
    free: Any,
    paces: Paces,
    releases: Releases,
    given: Placed,
    first: Any,
    margin: float,
) -> Any:
    """When jobs that a policy would start end if they wait (n,); infinity for those that do better to start.

    Rows `first[job]` to `first[job + 1]` of `given` are where a job would start. A job whose faster servers have room
    now starts where the policy has put it: the policy has its reasons. `free` (R, K) becomes what is left.
    """
    jobs = gangs.reach.shape[0]
    ends = np.full(jobs, np.inf)
    roles = 1
    for job in range(jobs):
        roles = max(roles, gangs.start[job + 1] - gangs.start[job])
    tiers, mixes = paces.pace.shape[1], paces.mixes
    notes = Notes(
        np.zeros((roles, tiers), dtype=np.int64), np.zeros(tiers, dtype=np.int64), np.zeros(tiers, dtype=np.float64)
    )
    weight = np.zeros(free.shape[1])
    left = np.zeros_like(free)
    claim = np.zeros(3, dtype=np.int64)
    where = np.zeros(2, dtype=np.int64)
    for job in range(jobs):
        allowed = reach[gangs.reach[job]]
        tier, pace, apart = paces.tier[kind[job]], paces.pace[kind[job]], paces.apart[kind[job]]
        slowest = 0
        several = False
        for row in range(first[job], first[job + 1]):
            slowest = max(slowest, tier[given.server[row]])
            several = several or given.server[row] != given.server[first[job]]
        now = work[job] / (pace[slowest] * (apart if several else 1.0))
        faster = margin * work[job] / now
        look(gangs, allowed, weight, free, job, tier, notes)
        if best_now(gangs, job, work[job], pace, apart, mixes, notes, where) * margin >= now:
            left[:] = free
            end = soonest(
                gangs, allowed, job, work[job], tier, pace, apart, mixes, now, faster, left, releases, notes, claim
            )
            if end < now:
                ends[job] = end
                free_at(allowed, free, releases, claim[0], left)
                keep(gangs, allowed, job, tier, mixes, end, left, releases, claim)
                continue
        for row in range(first[job], first[job + 1]):
            for k in range(free.shape[1]):
                free[given.server[row], k] -= given.count[row] * gangs.demand[given.role[row], k]
    return ends
