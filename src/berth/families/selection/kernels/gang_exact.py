"""Exact solution of small gang questions: branch and bound, job by job and channel by channel.

A branch is a list of decisions: whether a job starts, and if it does, the number of tasks through each of its channels.
Prices bound the value of open decisions, as in `gang_prices`, but with the remaining room: each open job alone, in
closed form.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.selection.kernels.gang_answers import Answer, Gangs, put, room, show
from berth.kernels.compiled import compiled, inner
from berth.kernels.small import sort_places

__all__ = ["search_all"]

ROUNDING = 1e-12  # of sums of floats, relative


class Tree(NamedTuple):
    """Decisions in the order in which they are taken: each job's start, then its channels."""

    job: Any  # (J + n,) of each decision
    channel: Any  # (J + n,) −1: whether the job starts
    after: Any  # (J + n,) start of the next job's decisions
    tried: Any  # (J + n,) current value
    worth: Any  # (n,) of a task at the prices


@compiled
def _plant(gangs: Gangs, job_worth: Any, worth: Any) -> Any:
    """Order decisions: the jobs worth most first, and within a role the channels worth most."""
    n, jobs = gangs.gain.shape[0], job_worth.shape[0]
    rank, channels = np.empty(jobs, dtype=np.int64), np.empty(n, dtype=np.int64)
    scratch = np.empty(max(n, jobs), dtype=np.int64)
    sort_places(-job_worth, jobs, rank, scratch)
    sort_places(-worth, n, channels, scratch)
    job, channel = np.empty(jobs + n, dtype=np.int64), np.full(jobs + n, -1, dtype=np.int64)
    after = np.empty(jobs + n, dtype=np.int64)
    # roles and jobs are contiguous in the question: a channel's position is the number of better ones in its role
    place = np.empty(gangs.low.shape[0], dtype=np.int64)
    at = 0
    for j in rank:
        first, last = gangs.job_start[j], gangs.job_start[j + 1]
        size = 1 + gangs.role_start[last] - gangs.role_start[first]
        for i in range(first, last):
            place[i] = at + 1 + gangs.role_start[i] - gangs.role_start[first]
        for a in range(at, at + size):
            job[a] = j
            after[a] = at + size
        at += size
    for e in channels:
        channel[place[gangs.role[e]]] = e
        place[gangs.role[e]] += 1
    return Tree(job, channel, after, np.zeros(jobs + n, dtype=np.int64), worth)


@inner
def _most_of_job(gangs: Gangs, answer: Answer, tree: Tree, first: int) -> float:
    """Upper bound on the decisions from `first` to the last of a job that starts; −∞ if it cannot start."""
    total = 0.0
    role, placed = -1, 0
    for at in range(first, tree.after[first]):
        e = tree.channel[at]
        if gangs.role[e] != role:
            if role >= 0 and placed < gangs.low[role]:
                return -np.inf
            role = gangs.role[e]
            placed = answer.placed[role]
        w = tree.worth[e]
        wanted = (gangs.high[role] if w > 0.0 else gangs.low[role]) - placed
        if wanted > 0:
            tasks = min(room(gangs, answer, e), wanted)
            placed += tasks
            total += tasks * w
    return -np.inf if role >= 0 and placed < gangs.low[role] else total


@inner
def _most(gangs: Gangs, answer: Answer, tree: Tree, price: Any, pull: float, first: int) -> float:
    """Upper bound on any answer that has the decisions before `first`; −∞ if there is none."""
    last = tree.channel[first - 1] if first > 0 else -1
    if last >= 0 and answer.started[gangs.job[last]] == 1:
        i = gangs.role[last]
        more = first < tree.job.shape[0] and tree.channel[first] >= 0 and gangs.role[tree.channel[first]] == i
        if not more and answer.placed[i] < gangs.low[i]:
            return -np.inf
    bound = answer.sums[0] + 0.5 * pull * answer.sums[1]
    if pull > 0.0:
        bound += 0.5 / pull
    for g in range(price.shape[0]):
        for k in range(price.shape[1]):
            bound += price[g, k] * answer.left[g, k]
    at = first
    if at < tree.job.shape[0] and tree.channel[at] >= 0:
        bound += _most_of_job(gangs, answer, tree, at)
        at = tree.after[at]
    while at < tree.job.shape[0]:
        if at + 1 < tree.after[at]:
            bound += max(_most_of_job(gangs, answer, tree, at + 1), 0.0)
        at = tree.after[at]
    return float(bound)


@inner
def _value(gangs: Gangs, count: Any) -> float:
    """Value of these tasks (n,), summed afresh: the root amplifies the rounding that many changes leave in a sum."""
    gains, spreads = 0.0, 0.0
    for e in range(count.shape[0]):
        gains += count[e] * gangs.gain[e]
        spreads += count[e] * gangs.spread[e]
    return float(gains + np.sqrt(spreads))


@inner
def _first_choice(gangs: Gangs, answer: Answer, tree: Tree, at: int) -> int:
    """Decide: start the job, or use as many tasks as the channel can have. Return the next decision."""
    e = tree.channel[at]
    if e < 0:
        tree.tried[at] = 1
        answer.started[tree.job[at]] = 1
    else:
        i = gangs.role[e]
        tree.tried[at] = min(room(gangs, answer, e), gangs.high[i] - answer.placed[i])
        put(gangs, answer, e, tree.tried[at])
    return at + 1


@inner
def _next_choice(gangs: Gangs, answer: Answer, tree: Tree, at: int) -> int:
    """Change the last decision before `at` that can change: one task fewer, or no start. Return the next decision.

    Decisions at 0 cannot change; all from `at` on are. Returns −1 if none can.
    """
    at -= 1
    while at >= 0 and tree.tried[at] == 0:
        at -= 1
    if at < 0:
        return at
    tree.tried[at] -= 1
    e = tree.channel[at]
    if e < 0:
        answer.started[tree.job[at]] = 0
        return int(tree.after[at])
    put(gangs, answer, e, tree.tried[at] - answer.count[e])
    return at + 1


@compiled
def search_all(
    gangs: Gangs,
    answer: Answer,
    price: Any,
    pull: float,
    job_worth: Any,
    worth: Any,
    gap: float,
    steps: int,
    best: Any,
) -> tuple[float, float]:
    """Search every answer that could be better than `best` (n,) by more than `gap`; return the best value and a bound.

    `best` then holds the tasks of the best. `price` (G, K) and `pull` (0 without spreads) are arbitrary; `worth` (n,)
    and `job_worth` (J,) are those of tasks and jobs at these prices. The bound is infinite if `steps` decisions were
    not enough.
    """
    tree = _plant(gangs, job_worth, worth)
    n, size = best.shape[0], tree.job.shape[0]
    value = _value(gangs, best)
    bound = value
    show(gangs, answer, tree.tried[:n])  # nothing yet
    at: Any = np.int64(0)  # a plain 0 would compile everything below again
    while at >= 0:
        steps -= 1
        if steps < 0:
            bound = np.inf
            break
        most = _most(gangs, answer, tree, price, pull, at)
        if most * (1.0 - gap) <= value + ROUNDING * (1.0 + value):
            bound = max(bound, most)
            at = _next_choice(gangs, answer, tree, at)
        elif at < size:
            at = _first_choice(gangs, answer, tree, at)
        else:
            found = _value(gangs, answer.count)
            if found > value:
                value = found
                for e in range(n):
                    best[e] = answer.count[e]
            at = _next_choice(gangs, answer, tree, at)
    return value, max(bound, value)
