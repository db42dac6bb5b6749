"""Places for gangs, by a rule.

A gang gets the minimum of each role, or nothing; then its roles are filled up. A role gets servers one after another,
each for as many tasks as it has room for. The rule picks among the servers with room for a task:

* `FEW`: the one with room for all tasks that are left, or for most of them; of servers that are equal in that, one that
  the gang already uses, then the one that has least free, as a sum over resources of shares of the largest server. A
  gang of several roles starts on one server where one has room for all that it needs;
* `FIRST`: the first;
* `BEST`, `WORST`: the one with the least, or the most, left beside a task, as a sum over resources of shares of the
  largest server;
* `ALIGNED`: the one whose free amounts, as shares of the largest server, have the largest scalar product with a task's
  (Tetris);
* `WHOLE`: `BEST`, because no resource comes in devices here.

Ties go to the first. Where roles do not fit in the order in which they are given, they are tried once more, the one
with fewest servers to choose from first. Amounts are whole numbers, so sums are exact.

Axes: n jobs, m roles of all jobs, R servers, K resources, C sets of servers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.compiled import compiled, inner

__all__ = [
    "ALIGNED",
    "BEST",
    "FEW",
    "FIRST",
    "WHOLE",
    "WORST",
    "Fit",
    "Gangs",
    "Placed",
    "berth_gang",
    "berth_in_order",
    "change",
    "cost_of",
    "earliest",
    "fill_up",
    "find",
    "gather",
    "holds",
    "most_free",
    "put",
    "rest",
    "room",
    "too_large",
]

FIRST, BEST, WORST, ALIGNED, WHOLE, FEW = range(6)
NEXT = 1e-6  # weight of what is left beside fragments, of which there are none


class Gangs(NamedTuple):
    """Jobs in order: where their roles begin (n+1,), the servers they may use (n,), and their shape (n,).

    Of each role what a task takes (m, K), how many tasks it has at least and at most, and at most on one server (m,).
    Jobs of one shape fit in the same places: where one found none, the others are not tried.
    """

    start: Any
    reach: Any
    shape: Any
    demand: Any
    minimum: Any
    most: Any
    each: Any


class Placed(NamedTuple):
    """Rows (job, role, server, tasks); `size[0]` counts them. `failed` has a place for each shape."""

    job: Any
    role: Any
    server: Any
    count: Any
    size: Any
    failed: Any


class Fit(NamedTuple):
    """The rule that finds servers; of resources the largest amount of a server (K,), and 1 / that (K,)."""

    rule: Any
    most: Any
    weight: Any


@inner
def room(demand: Any, free: Any, role: int, server: int, most: int) -> Any:
    """How many tasks of a role a server has room for, up to `most`."""
    count = most
    for k in range(free.shape[1]):
        need = demand[role, k]
        if need > 0:
            left = free[server, k] - need
            if left < 0:  # mostly so on a full cluster, and quicker than to divide
                return 0
            here = 1 if left < need else free[server, k] // need
            if here < count:
                count = here
    return max(count, 0)


@inner
def more(gangs: Gangs, placed: Placed, job: int, role: int, server: int, most: int) -> Any:
    """How many tasks of a role, up to `most`, may join those of them that are on a server already."""
    count = gangs.each[role]
    if count == gangs.most[role]:
        return most
    row = placed.size[0] - 1
    while row >= 0 and placed.job[row] == job:
        if placed.role[row] == role and placed.server[row] == server:
            count -= placed.count[row]
        row -= 1
    return min(count, most)


@inner
def uses(placed: Placed, job: int, server: int) -> Any:
    """Whether a job has tasks on a server already."""
    row = placed.size[0] - 1
    while row >= 0 and placed.job[row] == job:
        if placed.server[row] == server:
            return True
        row -= 1
    return False


@inner
def rest(weight: Any, free: Any, server: int) -> Any:
    """What is free of a server, as a sum of comparable shares."""
    total = 0.0
    for k in range(free.shape[1]):
        total += free[server, k] * weight[k]
    return total


@inner
def put(gangs: Gangs, free: Any, placed: Placed, job: int, role: int, server: int, count: int) -> None:
    """Give tasks of a role a place on a server."""
    for k in range(free.shape[1]):
        free[server, k] -= count * gangs.demand[role, k]
    row = placed.size[0]
    placed.job[row] = job
    placed.role[row] = role
    placed.server[row] = server
    placed.count[row] = count
    placed.size[0] = row + 1


@inner
def change(gangs: Gangs, free: Any, placed: Placed, first: int, sign: int) -> None:
    """Add to what is free what the rows from `first` on take, or with a sign of -1 subtract it."""
    for row in range(first, placed.size[0]):
        for k in range(free.shape[1]):
            free[placed.server[row], k] += sign * placed.count[row] * gangs.demand[placed.role[row], k]


@inner
def cost_of(gangs: Gangs, fit: Fit, free: Any, role: int, r: int) -> Any:
    """Cost of a task of a role on a server; lower is better."""
    if fit.rule == FIRST:
        return 0.0
    if fit.rule == FEW:
        return rest(fit.weight, free, r)
    total = 0.0
    for k in range(free.shape[1]):
        most = fit.most[k]
        if most > 0.0:
            need = gangs.demand[role, k]
            if fit.rule == ALIGNED:
                total -= float(need) * float(free[r, k]) / (most * most)
            else:
                total += (free[r, k] - need) / most
    if fit.rule == WORST:
        return -total
    return NEXT * total if fit.rule == WHOLE else total


@inner
def place(gangs: Gangs, fit: Fit, allowed: Any, free: Any, placed: Placed, job: int, role: int, wanted: int) -> Any:
    """Place `wanted` tasks of a role where the rule says; how many found no place."""
    left, few = wanted, fit.rule == FEW
    while left > 0:
        best = -1
        most = 0
        used = False
        least = 0.0
        for r in range(free.shape[0]):
            if not allowed[r]:
                continue
            count = room(gangs.demand, free, role, r, left)
            if count == 0 or (few and count < most):
                continue
            count = min(count, more(gangs, placed, job, role, r, left))
            if count <= 0 or (few and count < most):
                continue
            here = few and uses(placed, job, r)
            if few and count == most and used and not here:
                continue
            cost = cost_of(gangs, fit, free, role, r)
            if best < 0 or cost < least or (few and (count > most or (here and not used))):
                best = r
                most = count
                used = here
                least = cost
            if fit.rule == FIRST:
                break
        if best < 0 or placed.size[0] == placed.job.shape[0]:
            return left
        put(gangs, free, placed, job, role, best, most)
        left -= most
    return 0


@inner
def holds(gangs: Gangs, free: Any, job: int, server: int) -> Any:
    """Whether a server has room for all tasks that a job needs."""
    for role in range(gangs.start[job], gangs.start[job + 1]):
        if gangs.minimum[role] > gangs.each[role]:
            return False
    for k in range(free.shape[1]):
        need = 0
        for role in range(gangs.start[job], gangs.start[job + 1]):
            need += gangs.minimum[role] * gangs.demand[role, k]
        if need > 0 and need > free[server, k]:
            return False
    return True


@inner
def tightest(gangs: Gangs, allowed: Any, weight: Any, free: Any, job: int) -> Any:
    """The server that is left with least of those that have room for all that a job needs; -1 where none has."""
    best = -1
    least = 0.0
    for r in range(free.shape[0]):
        if allowed[r] and holds(gangs, free, job, r):
            after = rest(weight, free, r)
            if best < 0 or after < least:
                best = r
                least = after
    return best


@inner
def hardest(gangs: Gangs, allowed: Any, weight: Any, free: Any, placed: Any, job: int) -> Any:
    """The role of a job, of those not `placed` yet, with fewest servers to choose from; the larger of two such."""
    best = -1
    fewest = 0
    largest = 0.0
    for role in range(gangs.start[job], gangs.start[job + 1]):
        if placed[role]:
            continue
        servers = 0
        for r in range(free.shape[0]):
            if allowed[r] and room(gangs.demand, free, role, r, 1) > 0:
                servers += 1
        size = 0.0
        for k in range(free.shape[1]):
            size += gangs.demand[role, k] * weight[k]
        if best < 0 or servers < fewest or (servers == fewest and size > largest):
            best = role
            fewest = servers
            largest = size
    return best


@inner
def berth_gang(gangs: Gangs, fit: Fit, allowed: Any, free: Any, placed: Placed, job: int, done: Any) -> Any:
    """Place what a job needs, all or nothing; whether it fits. `done` (m,) is room for notes."""
    first, start, end = placed.size[0], gangs.start[job], gangs.start[job + 1]
    if fit.rule == FEW and end - start > 1:
        server = tightest(gangs, allowed, fit.weight, free, job)
        if server >= 0 and first + end - start <= placed.job.shape[0]:
            for role in range(start, end):
                if gangs.minimum[role] > 0:
                    put(gangs, free, placed, job, role, server, gangs.minimum[role])
            return True
    for again in range(1 if end - start == 1 else 2):
        for role in range(start, end):
            done[role] = False
        lacking = 0
        for turn in range(start, end):
            role = hardest(gangs, allowed, fit.weight, free, done, job) if again else turn
            done[role] = True
            lacking = place(gangs, fit, allowed, free, placed, job, role, gangs.minimum[role])
            if lacking > 0:
                break
        if lacking == 0:
            return True
        change(gangs, free, placed, first, 1)
        placed.size[0] = first
    return False


@inner
def fill_up(gangs: Gangs, fit: Fit, allowed: Any, free: Any, placed: Placed, job: int) -> None:
    """Place tasks that a job that has what it needs may have in addition."""
    for role in range(gangs.start[job], gangs.start[job + 1]):
        place(gangs, fit, allowed, free, placed, job, role, gangs.most[role] - gangs.minimum[role])


@inner
def find(gangs: Gangs, fit: Fit, allowed: Any, free: Any, placed: Placed, job: int, done: Any) -> Any:
    """Place a job with all that it needs, and more where there is room, or not at all; whether it fits."""
    if not berth_gang(gangs, fit, allowed, free, placed, job, done):
        return False
    fill_up(gangs, fit, allowed, free, placed, job)
    return True


@inner
def most_free(free: Any, peak: Any) -> None:
    """The most that a server has free of each resource (K,)."""
    for k in range(free.shape[1]):
        peak[k] = 0
        for r in range(free.shape[0]):
            peak[k] = max(peak[k], free[r, k])


@inner
def too_large(gangs: Gangs, job: int, peak: Any) -> Any:
    """Whether a task of a job is larger than the most that any server has free."""
    for role in range(gangs.start[job], gangs.start[job + 1]):
        if gangs.minimum[role] > 0:
            for k in range(peak.shape[0]):
                if gangs.demand[role, k] > peak[k]:
                    return True
    return False


@compiled
def berth_in_order(gangs: Gangs, fit: Fit, order: Any, reach: Any, free: Any, placed: Placed) -> None:
    """Place jobs one after another, in `order` (n,); one that does not fit leaves everything as it was.

    `reach` (C, R) are the sets of servers, `free` (R, K) becomes what is left.
    """
    done = np.zeros(gangs.minimum.shape[0], dtype=np.bool_)
    peak = np.zeros(free.shape[1], dtype=np.int64)
    most_free(free, peak)
    for job in order:
        if placed.failed[gangs.shape[job]] or too_large(gangs, job, peak):
            continue
        if find(gangs, fit, reach[gangs.reach[job]], free, placed, job, done):
            most_free(free, peak)
        else:
            placed.failed[gangs.shape[job]] = True


@inner
def free_after(free: Any, server: Any, amount: Any, after: int, left: Any) -> None:
    """What is free (R, K) once the first `after` of the releases have come; not below 0."""
    for r in range(free.shape[0]):
        for k in range(free.shape[1]):
            left[r, k] = free[r, k]
    for i in range(after):
        for k in range(free.shape[1]):
            left[server[i], k] += amount[i, k]
    for r in range(free.shape[0]):
        for k in range(free.shape[1]):
            left[r, k] = max(left[r, k], 0)


@compiled
def earliest(gangs: Gangs, fit: Fit, reach: Any, free: Any, server: Any, amount: Any, placed: Placed) -> Any:
    """After how many releases the first job has room, which gets its places in `placed`; -1 if after none.

    A release gives `amount` (p, K) of a `server` (p,) back. `free` (R, K) is below 0 where others hold more than is
    there.
    """
    allowed, left = reach[gangs.reach[0]], np.zeros_like(free)
    done = np.zeros(gangs.minimum.shape[0], dtype=np.bool_)
    few = -1
    many = server.shape[0] + 1
    fits = False
    while many - few > 1 or not fits:
        after = (few + many) // 2 if many - few > 1 else many
        if after > server.shape[0]:
            return -1
        free_after(free, server, amount, after, left)
        placed.size[0] = 0
        fits = berth_gang(gangs, fit, allowed, left, placed, 0, done)
        if fits:
            many = after
        else:
            few = after
    return many


@inner
def servers_of(placed: Placed, first: int, last: int) -> Any:
    """How many servers these rows have; a server's rows may stand anywhere."""
    count = 0
    for row in range(first, last):
        new = True
        for before in range(first, row):
            if placed.server[before] == placed.server[row]:
                new = False
                break
        if new:
            count += 1
    return count


@compiled
def gather(gangs: Gangs, fit: Fit, reach: Any, free: Any, given: Placed, first: Any, placed: Placed) -> None:
    """Place gangs again on fewer servers, one after another, each where `reach` says; those that cannot stay.

    Rows `first[job]` to `first[job + 1]` of `given` are where a job is now, `free` (R, K) is what all leave.
    """
    done = np.zeros(gangs.minimum.shape[0], dtype=np.bool_)
    for job in range(gangs.reach.shape[0]):
        begin = placed.size[0]
        for row in range(first[job], first[job + 1]):
            for k in range(free.shape[1]):
                free[given.server[row], k] += given.count[row] * gangs.demand[given.role[row], k]
        fits = berth_gang(gangs, fit, reach[gangs.reach[job]], free, placed, job, done)
        if fits and servers_of(placed, begin, placed.size[0]) < servers_of(given, first[job], first[job + 1]):
            continue
        change(gangs, free, placed, begin, 1)
        placed.size[0] = begin
        for row in range(first[job], first[job + 1]):
            put(gangs, free, placed, job, given.role[row], given.server[row], given.count[row])
