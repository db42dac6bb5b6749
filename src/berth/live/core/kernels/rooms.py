"""Room for a gang now, tier by tier: how many tasks of each role, and whether one server has room for all of it.

Axes: n jobs, m roles of a job, R servers, K resources, L tiers, s kinds of gangs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.compiled import inner
from berth.live.core.kernels.berthing import Gangs, holds, rest, room

__all__ = ["Looks", "Notes", "best_now", "fits", "look", "look_again", "within"]


class Notes(NamedTuple):
    """Room for notes on one gang: places for each role and tier (m, L), and the fullest server of each tier (L,)."""

    rooms: Any
    tight: Any
    least: Any


class Looks(NamedTuple):
    """Notes (s, m, L) and (s, L) on gangs of some shape and type: which (s,), and how many rows were placed then (s,).

    Gangs of the same shape and type find the same room until another row is placed: only that changes what is free.
    """

    key: Any
    size: Any
    rooms: Any
    tight: Any


@inner
def look(gangs: Gangs, allowed: Any, weight: Any, free: Any, job: int, tier: Any, notes: Notes) -> None:
    """Note for how many tasks of each role each tier has room, and which servers have room for the whole gang."""
    start = gangs.start[job]
    for q in range(notes.tight.shape[0]):
        notes.tight[q] = -1
        for role in range(notes.rooms.shape[0]):
            notes.rooms[role, q] = 0
    for r in range(free.shape[0]):
        if not allowed[r]:
            continue
        every = True
        for role in range(start, gangs.start[job + 1]):
            count = room(gangs.demand, free, role, r, gangs.each[role])
            notes.rooms[role - start, tier[r]] += count
            if count < gangs.minimum[role]:
                every = False
        if every and holds(gangs, free, job, r):
            after = rest(weight, free, r)
            if notes.tight[tier[r]] < 0 or after < notes.least[tier[r]]:
                notes.tight[tier[r]] = r
                notes.least[tier[r]] = after


@inner
def look_again(
    gangs: Gangs, allowed: Any, weight: Any, free: Any, job: int, tier: Any, notes: Notes, looks: Looks, key: int,
    size: int,
) -> None:  # fmt: skip
    """`look`, or what it noted on a gang with the same `key` when as many rows (`size`) were placed."""
    at = key % looks.key.shape[0]
    known = looks.key[at] == key and looks.size[at] == size
    if not known:
        look(gangs, allowed, weight, free, job, tier, notes)
        looks.key[at], looks.size[at] = key, size
    for q in range(notes.tight.shape[0]):
        if known:
            notes.tight[q] = looks.tight[at, q]
        else:
            looks.tight[at, q] = notes.tight[q]
        for role in range(notes.rooms.shape[0]):
            if known:
                notes.rooms[role, q] = looks.rooms[at, role, q]
            else:
                looks.rooms[at, role, q] = notes.rooms[role, q]


@inner
def fits(gangs: Gangs, job: int, notes: Notes, level: int, mixes: bool) -> Any:
    """Whether tiers up to this one, or without `mixes` this tier, have room for every role, each by itself."""
    start = gangs.start[job]
    for role in range(start, gangs.start[job + 1]):
        lacking = gangs.minimum[role]
        for q in range(0 if mixes else level, level + 1):
            lacking -= notes.rooms[role - start, q]
        if lacking > 0:
            return False
    return True


@inner
def within(tier: int, slowest: int, mixes: bool) -> Any:
    """Whether a gang whose slowest tier is given may use servers of a tier."""
    return tier <= slowest and (mixes or tier == slowest)


@inner
def best_now(
    gangs: Gangs, job: int, work: float, pace: Any, apart: float, mixes: bool, notes: Notes, place: Any
) -> Any:
    """How long a gang runs where it would start now; `place` (2,) becomes its server or -1, and its slowest tier."""
    best = np.inf
    for q in range(pace.shape[0]):
        if pace[q] <= 0.0 or work / pace[q] >= best:
            break
        if notes.tight[q] >= 0:
            place[0] = notes.tight[q]
            place[1] = q
            return work / pace[q]
        if work / (pace[q] * apart) < best and fits(gangs, job, notes, q, mixes):
            best = work / (pace[q] * apart)
            place[0] = -1
            place[1] = q
    return best
