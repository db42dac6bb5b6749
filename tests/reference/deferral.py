"""A slow, plain twin of the kernels that start gangs where they complete first, or let them wait."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.reference.berthing import Role, needed_whole, place

__all__ = ["Gang", "Release", "complete_in_order", "ends_later"]

Release = tuple[float, int, list[int]]


@dataclass(frozen=True)
class Gang:
    """A gang: the servers it may use, its roles, its work; the tier of each server, paces of tiers, and when spread."""

    reach: list[int]
    roles: list[Role]
    work: float
    tier: list[int]
    pace: list[float]
    apart: float
    shape: int = 0
    mixes: bool = True
    given: list[tuple[int, int, int]] = field(default_factory=list)
    """Role, server and tasks where a policy would start it."""


def _room(free: list[int], demand: list[int], each: int) -> int:
    return max(min([each, *(have // need for have, need in zip(free, demand, strict=True) if need)]), 0)


def _holds(free: list[int], roles: list[Role]) -> bool:
    if any(minimum > each for _, minimum, _, each in roles):
        return False
    total = [sum(minimum * need[k] for need, minimum, _, _ in roles) for k in range(len(free))]
    return all(have >= need for have, need in zip(free, total, strict=True) if need)


def _within(gang: Gang, level: int) -> list[int]:
    """Servers that it may use where this is its slowest tier."""
    return [r for r in gang.reach if (gang.tier[r] <= level if gang.mixes else gang.tier[r] == level)]


def _fits(gang: Gang, free: list[list[int]], level: int) -> bool:
    servers = _within(gang, level)
    return all(sum(_room(free[r], need, each) for r in servers) >= least for need, least, _, each in gang.roles)


def _now(gang: Gang, free: list[list[int]], weight: list[float]) -> tuple[float, int, int]:
    """How long it runs where it would start now, its server or -1, and its slowest tier."""
    choices = []
    for q, pace in enumerate(gang.pace):
        alone = [r for r in gang.reach if gang.tier[r] == q and _holds(free[r], gang.roles)]
        if alone:
            tight = min(alone, key=lambda r: (sum(h * w for h, w in zip(free[r], weight, strict=True)), r))
            choices.append((gang.work / pace, 0, q, tight))
        if _fits(gang, free, q):
            choices.append((gang.work / (pace * gang.apart), 1, q, -1))
    if not choices:
        return math.inf, -1, -1
    run, _, q, server = min(choices, key=lambda one: (one[0], one[2], one[1]))
    return run, server, q


def _later(
    gang: Gang, free: list[list[int]], releases: list[Release], best: float, faster: float
) -> tuple[float, int, int, int]:
    """When it ends if it waits, which release it waits for, its server or -1, and its slowest tier."""
    left, chosen = [list(row) for row in free], (best, -1, -1, -1)
    for time in sorted({one[0] for one in releases}):
        together = [one for one in releases if one[0] == time and one[1] in gang.reach]
        together = [one for one in together if gang.pace[gang.tier[one[1]]] > faster]
        last = max(i for i, one in enumerate(releases) if one[0] == time)
        for _, r, amount in together:
            left[r] = [have + more for have, more in zip(left[r], amount, strict=True)]
        for _, r, _ in together:
            end = time + gang.work / gang.pace[gang.tier[r]]
            if end < chosen[0] and _holds(left[r], gang.roles):
                chosen = end, last, r, gang.tier[r]
            for level in range(gang.tier[r], len(gang.pace)):
                end = time + gang.work / (gang.pace[level] * gang.apart)
                if gang.pace[level] > faster and end < chosen[0] and _fits(gang, left, level):
                    chosen = end, last, -1, level
    return chosen


def _note(releases: list[Release], time: float, server: int, demand: list[int], count: int) -> None:
    place_ = next((i for i, one in enumerate(releases) if one[0] > time), len(releases))
    releases.insert(place_, (time, server, [count * need for need in demand]))


def _keep(gang: Gang, free: list[list[int]], releases: list[Release], chosen: tuple[float, int, int, int]) -> None:
    end, last, server, level = chosen
    left = [list(row) for row in free]
    for _, r, amount in releases[: last + 1]:
        if r in gang.reach:
            left[r] = [have + more for have, more in zip(left[r], amount, strict=True)]
    time = releases[last][0]
    for demand, wanted, _, each in gang.roles:
        for r in range(len(free)):
            if r not in _within(gang, level) or (server >= 0 and r != server):
                continue
            count = min(_room(left[r], demand, each), wanted)
            if count:
                wanted -= count
                left[r] = [have - count * need for have, need in zip(left[r], demand, strict=True)]
                _note(releases, time, r, demand, -count)
                _note(releases, end, r, demand, count)


def complete_in_order(
    gangs: list[Gang],
    free: list[list[int]],
    weight: list[float],
    releases: list[Release],
    margin: float,
    counted: int,
) -> list[tuple[int, int, int, int]]:
    """Rows (job, role of the job, server, tasks); `free` becomes what is left."""
    rows: list[tuple[int, int, int, int]] = []
    failed: set[int] = set()
    for number, gang in enumerate(gangs):
        if gang.shape in failed and counted <= 0:
            continue
        now, server, level = _now(gang, free, weight)
        if math.isinf(now):
            failed.add(gang.shape)
            if counted <= 0:
                continue
            counted -= 1
        chosen = _later(gang, free, releases, now, 0.0 if math.isinf(now) else margin * gang.work / now)
        if chosen[0] < now:
            _keep(gang, free, releases, chosen)
            continue
        if math.isinf(now):
            continue
        reach = [server] if server >= 0 else _within(gang, level)
        found = needed_whole(free, reach, weight, gang.roles)
        if found is None:
            continue
        for role, one in enumerate(gang.roles):
            before = [(r, count) for mine, r, count in found if mine == role]
            more, _ = place(free, reach, weight, one, one[2] - one[1], before, {r for _, r, _ in found})
            found += [(role, r, count) for r, count in more]
        for role, r, count in found:
            rows.append((number, role, r, count))
            _note(releases, now, r, gang.roles[role][0], count)
    return rows


def ends_later(gangs: list[Gang], free: list[list[int]], releases: list[Release], margin: float) -> list[float]:
    """When gangs end if they wait; infinity for those that do better to start where they are given."""
    ends = []
    for gang in gangs:
        servers = {r for _, r, _ in gang.given}
        now = gang.work / (gang.pace[max(gang.tier[r] for r in servers)] * (gang.apart if len(servers) > 1 else 1.0))
        chosen = now, -1, -1, -1
        if _now(gang, free, [0.0] * len(free[0]))[0] * margin >= now:
            chosen = _later(gang, free, releases, now, margin * gang.work / now)
        if chosen[0] < now:
            ends.append(chosen[0])
            _keep(gang, free, releases, chosen)
            continue
        ends.append(math.inf)
        for role, r, count in gang.given:
            free[r] = [have - count * need for have, need in zip(free[r], gang.roles[role][0], strict=True)]
    return ends
