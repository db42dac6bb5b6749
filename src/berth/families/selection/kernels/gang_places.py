"""Start gangs: place tasks where they are worth most at the prices, and leave out jobs that do not fit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.selection.kernels.gang_answers import Answer, Gangs, drop, keep, put, room, worth_of
from berth.kernels.compiled import inlined, inner
from berth.kernels.small import draw

__all__ = ["Manner", "Scratch", "fill", "rank", "recreate"]


class Manner(NamedTuple):
    """Options for starting jobs."""

    noise: float  # random part of the tolls, which moves tasks between pools of nearly equal worth
    extras: bool  # whether a job gets all profitable tasks at once, or its minimum first
    aimed: bool  # whether tasks first follow the relaxed problem
    search: int  # steps of one job's search for places; beyond it the job counts as not fitting


class Scratch(NamedTuple):
    """Scratch arrays of placing, and the random state."""

    state: Any  # (1,) of random numbers
    order: Any  # (n,) channels of a role, best first
    offers: Any  # (n,) channels that could take more, best first
    key: Any  # (n,) what a task is worth
    roles: Any  # (L,) of a job, fewest tasks first
    path: Any  # (n,) channels of a job in the order in which they are tried
    tried: Any  # (n,) number of tasks tried there now; −1: none yet


@inner
def _search(gangs: Gangs, answer: Answer, j: int, most_steps: int, scratch: Scratch) -> bool:
    """Try every way to place the minimum of every role, role by role and channel by channel, until one fits."""
    first_role, last_role = gangs.job_start[j], gangs.job_start[j + 1]
    roles, path, tried = scratch.roles, scratch.path, scratch.tried
    # roles with few tasks first: they have few options, and the rest of the tree is then a plain fill
    for i in range(first_role, last_role):
        b = i - first_role
        while b > 0 and gangs.low[roles[b - 1]] > gangs.low[i]:
            roles[b] = roles[b - 1]
            b -= 1
        roles[b] = i
    size = 0
    for b in range(last_role - first_role):
        for a in range(gangs.role_start[roles[b]], gangs.role_start[roles[b] + 1]):
            path[size] = scratch.order[a]
            tried[size] = -1
            size += 1
    at, steps = 0, 0
    while at >= 0:
        if at == size:
            return True
        steps += 1
        if steps > most_steps:
            break
        e = path[at]
        i = gangs.role[e]
        if tried[at] < 0:
            need, seen = gangs.low[i] - answer.placed[i], 0
            a = at
            while a < size and gangs.role[path[a]] == i and seen < need:
                seen += room(gangs, answer, path[a])
                a += 1
            if seen < need:
                at -= 1
                continue
            tried[at] = min(room(gangs, answer, e), need)
            put(gangs, answer, e, tried[at])
            at += 1
        else:
            if tried[at] == 0:
                tried[at] = -1
                at -= 1
            else:
                tried[at] -= 1
                put(gangs, answer, e, tried[at] - answer.count[e])
                # one fewer here must still leave enough on the channels after it
                need, seen = gangs.low[i] - answer.placed[i], 0
                a = at + 1
                while a < size and gangs.role[path[a]] == i and seen < need:
                    seen += room(gangs, answer, path[a])
                    a += 1
                if seen >= need:
                    at += 1
    for a in range(size):
        if answer.count[path[a]] > 0:
            put(gangs, answer, path[a], -answer.count[path[a]])
    return False


@inner
def rank(gangs: Gangs, i: int, noise: float, scratch: Scratch) -> None:
    """Sort the channels of a role by the worth of a task there."""
    order, key = scratch.order, scratch.key
    first = gangs.role_start[i]
    for e in range(first, gangs.role_start[i + 1]):
        key[e] = gangs.income[e] - gangs.toll[e] * (1.0 + noise * (2.0 * draw(scratch.state) - 1.0))
        a = e
        while a > first and key[order[a - 1]] < key[e]:
            order[a] = order[a - 1]
            a -= 1
        order[a] = e


@inner
def _place(gangs: Gangs, answer: Answer, j: int, manner: Manner, extras: bool, scratch: Scratch) -> bool:
    """Start a job where it is worth most, if it fits: the minimum of every role, with `extras` all profitable tasks."""
    order, key = scratch.order, scratch.key
    first, last = gangs.job_start[j], gangs.job_start[j + 1]
    for i in range(first, last):
        seen = 0
        for e in range(gangs.role_start[i], gangs.role_start[i + 1]):
            seen += room(gangs, answer, e)
            if seen >= gangs.low[i]:
                break
        if seen < gangs.low[i]:
            return False
    for i in range(first, last):
        rank(gangs, i, manner.noise, scratch)
    fits = True
    for i in range(first, last):
        if manner.aimed:
            for a in range(gangs.role_start[i], gangs.role_start[i + 1]):
                e = order[a]
                if gangs.aim[e] > 0.0:
                    tasks = min(
                        int(gangs.aim[e] + draw(scratch.state)),
                        room(gangs, answer, e),
                        gangs.high[i] - answer.placed[i],
                    )
                    if tasks > 0:
                        put(gangs, answer, e, tasks)
        for a in range(gangs.role_start[i], gangs.role_start[i + 1]):
            need = gangs.low[i] - answer.placed[i]
            if need <= 0:
                break
            e = order[a]
            tasks = min(room(gangs, answer, e), need)
            if tasks > 0:
                put(gangs, answer, e, tasks)
        if answer.placed[i] < gangs.low[i]:
            fits = False
            break
    if not fits:
        drop(gangs, answer, j)
        if last - first == 1 or not _search(gangs, answer, j, manner.search, scratch):
            return False
    answer.started[j] = 1
    if not extras:
        return True
    for i in range(first, last):
        for a in range(gangs.role_start[i], gangs.role_start[i + 1]):
            e = order[a]
            if key[e] <= 0.0 or answer.placed[i] >= gangs.high[i]:
                break
            tasks = min(room(gangs, answer, e), gangs.high[i] - answer.placed[i])
            if tasks > 0:
                put(gangs, answer, e, tasks)
    return True


@inlined
def _pays(gangs: Gangs, answer: Answer, e: int) -> bool:
    """Whether one more task on a channel improves the answer."""
    if gangs.gain[e] >= 0.0:
        return True
    sums = max(answer.sums[1], 0.0)
    return bool(gangs.gain[e] + np.sqrt(sums + gangs.spread[e]) - np.sqrt(sums) > 0.0)


@inner
def _offer(gangs: Gangs, answer: Answer, e: int, size: int, noise: float, scratch: Scratch) -> int:
    """Insert a channel into the offers, best worth first, if another task there pays; return the new size."""
    offers, key = scratch.offers, scratch.key
    i = gangs.role[e]
    if answer.placed[i] >= gangs.high[i] or room(gangs, answer, e) <= 0 or not _pays(gangs, answer, e):
        return size
    key[e] = gangs.income[e] - gangs.toll[e] * (1.0 + noise * (2.0 * draw(scratch.state) - 1.0))
    b = size
    while b > 0 and key[offers[b - 1]] < key[e]:
        offers[b] = offers[b - 1]
        b -= 1
    offers[b] = e
    return size + 1


@inner
def _top_up(gangs: Gangs, answer: Answer, jobs: Any, size: int, pools: Any, noise: float, scratch: Scratch) -> None:
    """Add tasks to started jobs, best worth first: to any job in these pools (G,), and to these jobs anywhere."""
    count: Any = np.int64(0)  # a plain 0 would compile `_offer` again
    for g in range(pools.shape[0]):
        if pools[g] == 1:
            for a in range(gangs.pool_start[g], gangs.pool_start[g + 1]):
                e = gangs.pool_channel[a]
                if answer.started[gangs.job[e]] == 1:
                    count = _offer(gangs, answer, e, count, noise, scratch)
    for a in range(size):
        j = jobs[a]
        if answer.started[j] == 1:
            for e in range(gangs.role_start[gangs.job_start[j]], gangs.role_start[gangs.job_start[j + 1]]):
                if pools[gangs.pool[e]] == 0:
                    count = _offer(gangs, answer, e, count, noise, scratch)
    for a in range(count):
        e = scratch.offers[a]
        i = gangs.role[e]
        tasks = min(room(gangs, answer, e), gangs.high[i] - answer.placed[i])
        while tasks > 0 and _pays(gangs, answer, e):
            # if the gain alone does not pay, the root's share falls with every task
            some = tasks if gangs.gain[e] >= 0.0 else 1
            put(gangs, answer, e, some)
            tasks -= some


@inner
def recreate(
    gangs: Gangs,
    answer: Answer,
    jobs: Any,
    size: int,
    score: Any,
    pools: Any,
    manner: Manner,
    scratch: Scratch,
) -> None:
    """Start jobs, best score first: those with a positive one, then more tasks for all, then the other jobs.

    `jobs` holds `size` of them; `score` (J,) and `pools` (G,), 1 where other jobs may get more tasks, cover all.
    """
    for a in range(1, size):
        j = jobs[a]
        b = a - 1
        while b >= 0 and score[jobs[b]] < score[j]:
            jobs[b + 1] = jobs[b]
            b -= 1
        jobs[b + 1] = j
    topped = False
    for a in range(size):
        j = jobs[a]
        if score[j] <= 0.0 and not topped:
            _top_up(gangs, answer, jobs, size, pools, manner.noise, scratch)
            topped = True
        before = worth_of(answer)
        if not _place(gangs, answer, j, manner, manner.extras or topped, scratch):
            continue
        if manner.extras and worth_of(answer) <= before:
            drop(gangs, answer, j)
    if not topped:
        _top_up(gangs, answer, jobs, size, pools, manner.noise, scratch)


@inner
def fill(gangs: Gangs, answer: Answer, score: Any, jobs: Any, pools: Any, manner: Manner, scratch: Scratch) -> float:
    """Build an answer from scratch: all jobs, best score (J,) first. Return its value. `jobs`, `pools`: scratch."""
    for j in range(jobs.shape[0]):
        drop(gangs, answer, j)
        jobs[j] = j
    for g in range(pools.shape[0]):
        pools[g] = 1
    recreate(gangs, answer, jobs, jobs.shape[0], score, pools, manner, scratch)
    keep(answer)
    return float(worth_of(answer))
