"""A slow, plain twin of the kernel that berths gangs in order, and a brute search for places of a single gang."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

__all__ = ["fits_somehow", "in_order"]

Role = tuple[list[int], int, int, int]
"""What a task takes, how many there must be, how many there may be, and how many on one server."""
Row = tuple[int, int, int, int]


def _room(free: list[int], demand: list[int], most: int) -> int:
    return max(min([most] + [have // need for have, need in zip(free, demand, strict=True) if need]), 0)


def _place(
    free: list[list[int]], reach: list[int], weight: list[float], role: Role, wanted: int, before: list[tuple[int, int]]
) -> Any:
    """Servers and numbers of tasks where they leave least, and how many found no place; `before` are there already."""
    demand, rows = role[0], list[tuple[int, int]]()

    def more(server: int, most: int) -> int:
        return min(role[3] - sum(count for r, count in before + rows if r == server), most)

    while wanted:
        hosts = [r for r in reach if _room(free[r], demand, 1) and more(r, 1)]
        if not hosts:
            return rows, wanted
        rests = [sum((have - need) * w for have, need, w in zip(free[r], demand, weight, strict=True)) for r in hosts]
        best = hosts[rests.index(min(rests))]
        count = _room(free[best], demand, more(best, wanted))
        free[best] = [have - count * need for have, need in zip(free[best], demand, strict=True)]
        rows.append((best, count))
        wanted -= count
    return rows, 0


def _needed(free: list[list[int]], reach: list[int], weight: list[float], roles: list[Role], given: bool) -> Any:
    left = [list(row) for row in free]
    found, waiting = [], list(range(len(roles)))
    while waiting:

        def ease(role: int) -> tuple[int, float]:
            demand = roles[role][0]
            hosts = sum(_room(left[r], demand, 1) > 0 for r in reach)
            return hosts, -sum(need * w for need, w in zip(demand, weight, strict=True))

        role = waiting[0] if given else min(waiting, key=ease)
        waiting.remove(role)
        rows, missing = _place(left, reach, weight, roles[role], roles[role][1], [])
        if missing:
            return None
        found += [(role, server, count) for server, count in rows]
    free[:] = left
    return found


def in_order(
    free: list[list[int]], weight: list[float], jobs: list[tuple[list[int], list[Role]]], shapes: list[int]
) -> list[Row]:
    """Rows (job, role of the job, server, tasks); `free` becomes what is left. A job is its servers and its roles."""
    rows: list[Row] = []
    failed: set[int] = set()
    for number, (reach, roles) in enumerate(jobs):
        if shapes[number] in failed:
            continue
        found = _needed(free, reach, weight, roles, True)
        if found is None and len(roles) > 1:
            found = _needed(free, reach, weight, roles, False)
        if found is None:
            failed.add(shapes[number])
            continue
        for role, (_, minimum, most, _) in enumerate(roles):
            before = [(server, count) for mine, server, count in found if mine == role]
            more, _ = _place(free, reach, weight, roles[role], most - minimum, before)
            found += [(role, server, count) for server, count in more]
        rows += [(number, role, server, count) for role, server, count in found]
    return rows


def fits_somehow(free: list[list[int]], reach: list[int], roles: list[Role]) -> bool:
    """Whether what a gang needs fits at all: every place for every task is tried."""
    tasks = [demand for demand, minimum, _, _ in roles for _ in range(minimum)]
    role_of = [number for number, (_, minimum, _, _) in enumerate(roles) for _ in range(minimum)]
    for where in itertools.product(reach, repeat=len(tasks)):
        together = Counter(zip(role_of, where, strict=True))
        if any(count > roles[role][3] for (role, _), count in together.items()):
            continue
        left = [list(row) for row in free]
        for demand, r in zip(tasks, where, strict=True):
            left[r] = [have - need for have, need in zip(left[r], demand, strict=True)]
        if all(have >= 0 for row in left for have in row):
            return True
    return False
