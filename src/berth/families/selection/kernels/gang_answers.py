"""Gangs with whole numbers of tasks: the question on plain arrays, and answers that change task by task.

Channels are sorted by role and roles by job: role i has channels `role_start[i]` to `role_start[i + 1]`, job j has
roles `job_start[j]` to `job_start[j + 1]`. Axes: n channels, L roles, J jobs, G pools, K resources.

* `gang_prices` puts a price on every unit of every pool: an upper bound, and where tasks belong;
* `gang_places` starts jobs by these prices;
* `gang_ruin` removes and restarts jobs until the answer is good;
* `gang_exact` searches all answers to a small question.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.compiled import inlined, inner

__all__ = ["Answer", "Gangs", "drop", "keep", "put", "room", "show", "take_back", "worth_of"]


class Gangs(NamedTuple):
    """A question in the kernels' form, and the prices' view of it."""

    gain: Any  # (n,)
    spread: Any  # (n,)
    takes: Any  # (n, K)
    pool: Any  # (n,)
    role: Any  # (n,)
    job: Any  # (n,)
    cap: Any  # (n,) number of tasks that the empty pool holds
    role_start: Any  # (L + 1,)
    job_start: Any  # (J + 1,)
    low: Any  # (L,)
    high: Any  # (L,)
    pool_start: Any  # (G + 1,)
    pool_channel: Any  # (n,) channels by pool
    free: Any  # (G, K)
    toll: Any  # (n,) price of a task
    income: Any  # (n,) gain plus its part of the root
    aim: Any  # (n,) tasks of a started job in the relaxed problem


class Answer(NamedTuple):
    """Tasks placed so far, and a log to undo the latest ones."""

    count: Any  # (n,)
    left: Any  # (G, K)
    placed: Any  # (L,) tasks of each role
    started: Any  # (J,) 0 or 1
    sums: Any  # (2,) of gains and of spreads
    old: Any  # (n,) tasks of channels before they were touched
    touched: Any  # (n,) touched channels
    is_touched: Any  # (n,) 0 or 1
    sizes: Any  # (1,) number of touched channels


@inlined
def worth_of(answer: Answer) -> Any:
    """Value of an answer."""
    return answer.sums[0] + np.sqrt(max(answer.sums[1], 0.0))


@inner
def put(gangs: Gangs, answer: Answer, e: int, tasks: int) -> None:
    """Add tasks to a channel, or remove them."""
    if answer.is_touched[e] == 0:
        answer.is_touched[e] = 1
        answer.old[e] = answer.count[e]
        answer.touched[answer.sizes[0]] = e
        answer.sizes[0] += 1
    answer.count[e] += tasks
    answer.placed[gangs.role[e]] += tasks
    for k in range(gangs.takes.shape[1]):
        answer.left[gangs.pool[e], k] -= tasks * gangs.takes[e, k]
    answer.sums[0] += tasks * gangs.gain[e]
    answer.sums[1] += tasks * gangs.spread[e]


@inner
def room(gangs: Gangs, answer: Answer, e: int) -> Any:
    """Number of further tasks that fit on a channel."""
    more = gangs.cap[e] - answer.count[e]
    for k in range(gangs.takes.shape[1]):
        take = gangs.takes[e, k]
        if take > 0.0:
            left = answer.left[gangs.pool[e], k]
            if left < take * more:
                more = int(left / take) if left > 0.0 else 0
    return more


@inner
def drop(gangs: Gangs, answer: Answer, j: int) -> None:
    """Remove a job."""
    for e in range(gangs.role_start[gangs.job_start[j]], gangs.role_start[gangs.job_start[j + 1]]):
        if answer.count[e] > 0:
            put(gangs, answer, e, -answer.count[e])
    answer.started[j] = 0


@inner
def take_back(gangs: Gangs, answer: Answer) -> None:
    """Undo everything since the last `keep`."""
    size = answer.sizes[0]
    for a in range(size):
        e = answer.touched[a]
        change = answer.old[e] - answer.count[e]
        if change != 0:
            put(gangs, answer, e, change)
    for a in range(size):
        j = gangs.job[answer.touched[a]]
        answer.started[j] = 0
    for a in range(size):
        e = answer.touched[a]
        j = gangs.job[e]
        if answer.started[j] == 0:
            for i in range(gangs.job_start[j], gangs.job_start[j + 1]):
                if answer.placed[i] > 0:
                    answer.started[j] = 1


@inner
def keep(answer: Answer) -> None:
    """Make the current answer the one that `take_back` returns to."""
    for a in range(answer.sizes[0]):
        answer.is_touched[answer.touched[a]] = 0
    answer.sizes[0] = 0


@inner
def show(gangs: Gangs, answer: Answer, count: Any) -> None:
    """Set the answer to these tasks (n,), without accumulated rounding."""
    for j in range(answer.started.shape[0]):
        drop(gangs, answer, j)
    answer.sums[0], answer.sums[1] = 0.0, 0.0
    for g in range(gangs.free.shape[0]):
        for k in range(gangs.free.shape[1]):
            answer.left[g, k] = gangs.free[g, k]
    for e in range(count.shape[0]):
        if count[e] > 0:
            put(gangs, answer, e, count[e])
            answer.started[gangs.job[e]] = 1
    keep(answer)
