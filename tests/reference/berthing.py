"""A slow, plain twin of the kernel that berths gangs in order, and a brute search for places of a single gang."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

__all__ = ["Role", "fewest_servers", "in_order", "needed_whole", "place"]

Role = tuple[list[int], int, int, int]
"""What a task takes, how many there must be, how many there may be, and how many on one server."""
Row = tuple[int, int, int, int]


def _room(free: list[int], demand: list[int], most: int) -> int:
    return max(min([most] + [have // need for have, need in zip(free, demand, strict=True) if need]), 0)


def _rest(free: list[int], weight: list[float]) -> float:
    return sum(have * w for have, w in zip(free, weight, strict=True))


def place(
    free: list[list[int]],
    reach: list[int],
    weight: list[float],
    role: Role,
    wanted: int,
    before: list[tuple[int, int]],
    used: set[int],
) -> Any:
    """Servers and numbers of tasks on few servers, and how many found no place; `before` are there already.

    `used` are the servers with any task of the job.
    """
    demand, rows = role[0], list[tuple[int, int]]()

    def more(server: int) -> int:
        return role[3] - sum(count for r, count in before + rows if r == server)

    while wanted:
        count, _, _, best = (
            min(
                (-_room(free[r], demand, min(more(r), wanted)), r not in used, _rest(free[r], weight), r) for r in reach
            )
            if reach
            else (0, True, 0.0, 0)
        )
        count = -count
        if not count:
            return rows, wanted
        used.add(best)
        free[best] = [have - count * need for have, need in zip(free[best], demand, strict=True)]
        rows.append((best, count))
        wanted -= count
    return rows, 0


def _needed(free: list[list[int]], reach: list[int], weight: list[float], roles: list[Role], given: bool) -> Any:
    left, used = [list(row) for row in free], set[int]()
    found, waiting = [], list(range(len(roles)))
    while waiting:

        def ease(role: int) -> tuple[int, float]:
            demand = roles[role][0]
            hosts = sum(_room(left[r], demand, 1) > 0 for r in reach)
            return hosts, -sum(need * w for need, w in zip(demand, weight, strict=True))

        role = waiting[0] if given else min(waiting, key=ease)
        waiting.remove(role)
        rows, missing = place(left, reach, weight, roles[role], roles[role][1], [], used)
        if missing:
            return None
        found += [(role, server, count) for server, count in rows]
    free[:] = left
    return found


def _on_one(free: list[list[int]], reach: list[int], weight: list[float], roles: list[Role]) -> Any:
    """The same on the fullest server that has room for all; None where none has."""
    total = [sum(minimum * need[k] for need, minimum, _, _ in roles) for k in range(len(free[0]))]
    hosts = [r for r in reach if all(have >= need for have, need in zip(free[r], total, strict=True))]
    if not hosts or any(minimum > each for _, minimum, _, each in roles):
        return None
    best = min(hosts, key=lambda r: (_rest(free[r], weight), r))
    free[best] = [have - need for have, need in zip(free[best], total, strict=True)]
    return [(role, best, minimum) for role, (_, minimum, _, _) in enumerate(roles) if minimum]


def needed_whole(free: list[list[int]], reach: list[int], weight: list[float], roles: list[Role]) -> Any:
    """Places (role, server, tasks) for all that a gang needs, None where it does not fit."""
    found = _on_one(free, reach, weight, roles) if len(roles) > 1 else None
    if found is None:
        found = _needed(free, reach, weight, roles, True)
    if found is None and len(roles) > 1:
        found = _needed(free, reach, weight, roles, False)
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
        found = needed_whole(free, reach, weight, roles)
        if found is None:
            failed.add(shapes[number])
            continue
        for role, (_, minimum, most, _) in enumerate(roles):
            before = [(server, count) for mine, server, count in found if mine == role]
            used = {server for _, server, _ in found}
            more, _ = place(free, reach, weight, roles[role], most - minimum, before, used)
            found += [(role, server, count) for server, count in more]
        rows += [(number, role, server, count) for role, server, count in found]
    return rows


def fewest_servers(free: list[list[int]], reach: list[int], roles: list[Role]) -> int:
    """On how few servers what a gang needs fits, 0 where it does not fit: every place for every task is tried."""
    fewest = 0
    tasks = [demand for demand, minimum, _, _ in roles for _ in range(minimum)]
    role_of = [number for number, (_, minimum, _, _) in enumerate(roles) for _ in range(minimum)]
    for where in itertools.product(reach, repeat=len(tasks)):
        together = Counter(zip(role_of, where, strict=True))
        if any(count > roles[role][3] for (role, _), count in together.items()):
            continue
        left = [list(row) for row in free]
        for demand, r in zip(tasks, where, strict=True):
            left[r] = [have - need for have, need in zip(left[r], demand, strict=True)]
        if all(have >= 0 for row in left for have in row) and (not fewest or len(set(where)) < fewest):
            fewest = len(set(where))
    return fewest
