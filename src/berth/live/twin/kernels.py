"""Kernel of the stand-ins for plain schedulers: jobs in the order of the queue; each starts if it fits.

Axes: n jobs, m roles of all jobs, R servers, K resources, C sets of servers.
"""

from __future__ import annotations

from typing import Any

from berth.kernels.compiled import compiled, inner
from berth.live.core.kernels.berthing import Gangs, Placed, change, put, rest, room

__all__ = ["FILL", "ORDER", "PACK", "SPREAD", "start_plainly"]

ORDER, PACK, SPREAD, FILL = 0, 1, 2, 3
"""Fill servers in their order, pack tasks onto few servers, spread them over the emptiest, or fill the emptiest."""


@inner
def _server(gangs: Gangs, allowed: Any, weight: Any, free: Any, role: int, left: int, rule: int) -> Any:
    """The `allowed` (R,) server for the next tasks of a role, -1 where there is none.

    Two rules keep tasks together: of the servers with room for all that are `left`, ORDER takes the first and PACK the
    fullest; where no server has, ORDER takes the first with room for a task and PACK the one with room for most.
    SPREAD takes the emptiest server for each task, FILL for as many tasks as have room there.
    """
    best = -1
    key = 0.0
    for r in range(free.shape[0]):
        if not allowed[r]:
            continue
        tasks = room(gangs.demand, free, role, r, min(left, gangs.each[role]))
        if tasks == 0:
            continue
        if rule >= SPREAD:
            value = rest(weight, free, r)
        elif tasks == left:
            value = 1e15 - (rest(weight, free, r) if rule == PACK else 0.0)
        else:
            value = float(tasks) if rule == PACK else 0.0
        if best < 0 or value > key:
            best = r
            key = value
    return best


@inner
def _allow(gangs: Gangs, reach: Any, group: Any, free: Any, job: int, role: int, allowed: Any) -> Any:
    """Mark the servers that a role may use, all of one group; whether it fits there.

    The group is that of the first server with room for the whole role, else the first group that has room for it.
    """
    wanted = gangs.minimum[role]
    chosen = -1
    for r in range(free.shape[0]):
        if reach[gangs.reach[job], r] and room(gangs.demand, free, role, r, min(wanted, gangs.each[role])) == wanted:
            chosen = group[r]
            break
    for first in range(free.shape[0]):
        if chosen >= 0:
            break
        total = 0
        for r in range(free.shape[0]):
            if group[r] == group[first] and reach[gangs.reach[job], r]:
                total += room(gangs.demand, free, role, r, min(wanted, gangs.each[role]))
        if total >= wanted:
            chosen = group[first]
    for r in range(free.shape[0]):
        allowed[r] = group[r] == chosen and reach[gangs.reach[job], r]
    return chosen >= 0


@compiled
def start_plainly(
    gangs: Gangs, reach: Any, group: Any, weight: Any, free: Any, rule: int, allowed: Any, placed: Placed
) -> None:
    """Start jobs one after another, each whole or not at all; `free` (R, K) becomes what is left.

    A role stays on servers of one `group` (R,); `allowed` (R,) is room for notes.
    """
    for job in range(gangs.reach.shape[0]):
        if placed.failed[gangs.shape[job]]:
            continue
        first = placed.size[0]
        fits = True
        for role in range(gangs.start[job], gangs.start[job + 1]):
            left = gangs.minimum[role]
            fits = fits and _allow(gangs, reach, group, free, job, role, allowed)
            while left > 0 and fits:
                server = _server(gangs, allowed, weight, free, role, left, rule)
                if server < 0 or placed.size[0] == placed.job.shape[0]:
                    fits = False
                    break
                most = 1 if rule == SPREAD else min(left, gangs.each[role])
                count = room(gangs.demand, free, role, server, most)
                put(gangs, free, placed, job, role, server, count)
                left -= count
        if not fits:
            change(gangs, free, placed, first, 1)
            placed.size[0] = first
            placed.failed[gangs.shape[job]] = True
