"""Ruin and recreate: remove and restart jobs, and keep answers that are better or only slightly worse."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.families.selection.kernels.gang_answers import (
    Answer,
    Gangs,
    drop,
    keep,
    put,
    room,
    show,
    take_back,
    worth_of,
)
from berth.families.selection.kernels.gang_places import Manner, Scratch, fill, rank, recreate
from berth.kernels.compiled import compiled, inlined, inner
from berth.kernels.small import below, draw

__all__ = ["ruin_and_recreate"]

FORCE = 0.5  # share of the steps that start a waiting job by force
WAITING = 4  # waiting jobs that may start in a step


class Chosen(NamedTuple):
    """Jobs that may restart in a step."""

    jobs: Any  # (J,) the first of them
    size: Any  # (1,) their number
    is_in: Any  # (J,) 0 or 1


class Promise(NamedTuple):
    """Which jobs are promising."""

    worth: Any  # (J,) approximate worth of a job at the prices
    slack: float  # its error: waiting jobs below −slack are ignored


@inlined
def _choose(chosen: Chosen, j: int) -> None:
    if chosen.is_in[j] == 0:
        chosen.is_in[j] = 1
        chosen.jobs[chosen.size[0]] = j
        chosen.size[0] += 1


@inner
def _make_room(
    gangs: Gangs, answer: Answer, e: int, want: int, promise: Promise, chosen: Chosen, scratch: Scratch
) -> None:
    """Remove the tasks worth least in a channel's pool until `want` tasks fit.

    A task that its job can spare goes alone; otherwise its whole job goes and is chosen.
    """
    g = gangs.pool[e]
    while room(gangs, answer, e) < want:
        victim: Any = np.int64(-1)  # a plain −1 would compile `put` again
        least = np.inf
        for a in range(gangs.pool_start[g], gangs.pool_start[g + 1]):
            f = gangs.pool_channel[a]
            j = gangs.job[f]
            if answer.count[f] == 0 or j == gangs.job[e]:
                continue
            helps = False
            for k in range(gangs.takes.shape[1]):
                if gangs.takes[f, k] > 0.0 and answer.left[g, k] < want * gangs.takes[e, k]:
                    helps = True
            if not helps:
                continue
            if answer.placed[gangs.role[f]] > gangs.low[gangs.role[f]]:
                cost = gangs.income[f] - gangs.toll[f]
            else:
                cost = promise.worth[j]
            cost = cost * (0.5 + draw(scratch.state)) if cost > 0.0 else cost
            if cost < least:
                victim, least = f, cost
        if victim < 0:
            break
        if answer.placed[gangs.role[victim]] > gangs.low[gangs.role[victim]]:
            put(gangs, answer, victim, -min(answer.count[victim], 1))
        else:
            drop(gangs, answer, gangs.job[victim])
            _choose(chosen, gangs.job[victim])


@inner
def _force(
    gangs: Gangs, answer: Answer, j: int, noise: float, promise: Promise, chosen: Chosen, scratch: Scratch
) -> None:
    """Start a waiting job with the minimum of every role, at the expense of others."""
    roomy = draw(scratch.state) < 0.5
    for i in range(gangs.job_start[j], gangs.job_start[j + 1]):
        rank(gangs, i, noise, scratch)
        for turn in range(2):
            if turn == 0 and not roomy:
                continue
            for a in range(gangs.role_start[i], gangs.role_start[i + 1]):
                e = scratch.order[a]
                want = min(gangs.cap[e] - answer.count[e], gangs.low[i] - answer.placed[i])
                if want <= 0:
                    continue
                if turn == 1:
                    _make_room(gangs, answer, e, want, promise, chosen, scratch)
                tasks = min(want, room(gangs, answer, e))
                if tasks > 0:
                    put(gangs, answer, e, tasks)
        if answer.placed[i] < gangs.low[i]:
            drop(gangs, answer, j)
            return
    answer.started[j] = 1


@inner
def _empty_pools(gangs: Gangs, answer: Answer, promise: Promise, chosen: Chosen, state: Any) -> None:
    """Empty some pools that one job can use: some of the jobs there go, the others give up spare tasks."""
    jobs = gangs.job_start.shape[0] - 1
    share = 0.1 + 0.6 * draw(state)
    spare = draw(state)
    most = 1 + below(state, 5)
    j = below(state, jobs)
    for _ in range(jobs):
        if answer.started[j] == 1 or promise.worth[j] > -promise.slack:
            break
        j = j + 1 if j + 1 < jobs else 0
    begin, end = gangs.role_start[gangs.job_start[j]], gangs.role_start[gangs.job_start[j + 1]]
    if end == begin:
        return
    if answer.started[j] == 0 or draw(state) < 0.5:
        _choose(chosen, j)
        drop(gangs, answer, j)
    for _ in range(1 + below(state, 3)):
        g = gangs.pool[begin + below(state, end - begin)]
        for a in range(gangs.pool_start[g], gangs.pool_start[g + 1]):
            e = gangs.pool_channel[a]
            j = gangs.job[e]
            if answer.count[e] == 0 or chosen.is_in[j] == 1:
                continue
            if chosen.size[0] < most and draw(state) < share:
                _choose(chosen, j)
                drop(gangs, answer, j)
            else:
                over = min(answer.count[e], answer.placed[gangs.role[e]] - gangs.low[gangs.role[e]])
                if over > 0 and draw(state) < spare:
                    put(gangs, answer, e, -over)


@inner
def _waiting_job(answer: Answer, promise: Promise, state: Any) -> int:
    """Better of two random promising jobs that wait, or −1."""
    jobs = answer.started.shape[0]
    j = below(state, jobs)
    found, seen = -1, 0
    for _ in range(jobs):
        j = j + 1 if j + 1 < jobs else 0
        if answer.started[j] == 0 and promise.worth[j] > -promise.slack:
            if found < 0 or promise.worth[j] > promise.worth[found]:
                found = j
            seen += 1
            if seen == 2:
                break
    return found


@inner
def _choose_waiting(answer: Answer, promise: Promise, chosen: Chosen, state: Any) -> None:
    """Choose some promising waiting jobs to replace those that went."""
    jobs = answer.started.shape[0]
    j = below(state, jobs)
    most = chosen.size[0] + WAITING
    for _ in range(jobs):
        j = j + 1 if j + 1 < jobs else 0
        if answer.started[j] == 0 and promise.worth[j] > -promise.slack:
            _choose(chosen, j)
            if chosen.size[0] == most:
                break


@compiled
def ruin_and_recreate(
    gangs: Gangs,
    answer: Answer,
    worth: Any,
    bound: float,
    fills: int,
    filling: Manner,
    steps: int,
    enough: float,
    heat: float,
    search: int,
    scratch: Scratch,
    best: Any,
    best_value: float,
) -> float:
    """Build some answers from scratch; then repeatedly remove and restart jobs, starting from the best answer.

    Returns the best value; `best` (n,) holds its tasks. `worth` (J,) is the worth of jobs at prices that prove `bound`.
    Stops at a value of `enough`. A slightly worse answer is kept: at first by `heat` times the distance to the bound,
    at last not at all. `search` is that of `Manner`.
    """
    jobs, pools = gangs.job_start.shape[0] - 1, gangs.pool_start.shape[0] - 1
    state = scratch.state
    chosen = Chosen(np.empty(jobs, dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(jobs, dtype=np.int64))
    score = np.empty(jobs)
    hot = np.zeros(pools, dtype=np.int64)  # pools where something changed
    for _ in range(fills):
        value = fill(gangs, answer, worth, chosen.jobs, hot, filling, scratch)
        if value > best_value:
            best_value = value
            for e in range(best.shape[0]):
                best[e] = answer.count[e]
    for g in range(pools):
        hot[g] = 0
    show(gangs, answer, best)
    now = best_value
    promise = Promise(worth, bound - best_value)
    heat *= bound - best_value
    for step in range(steps):
        if best_value >= enough:
            break
        noise = 0.4 * draw(state)
        extras = draw(state) < 0.5
        manner = Manner(noise, extras, draw(state) < 0.5, search)
        waiting = _waiting_job(answer, promise, state) if draw(state) < FORCE else -1
        if waiting >= 0:
            _force(gangs, answer, waiting, noise, promise, chosen, scratch)
        else:
            _empty_pools(gangs, answer, promise, chosen, state)
        _choose_waiting(answer, promise, chosen, state)
        for a in range(answer.sizes[0]):
            hot[gangs.pool[answer.touched[a]]] = 1
        size = chosen.size[0]
        chosen.size[0] = 0
        for a in range(size):
            j = chosen.jobs[a]
            chosen.is_in[j] = 0
            score[j] = promise.worth[j] + promise.slack * (2.0 * draw(state) - 1.0)
        recreate(gangs, answer, chosen.jobs, size, score, hot, manner, scratch)
        for g in range(pools):
            hot[g] = 0
        value = float(worth_of(answer))
        if value >= now - heat * (1.0 - step / steps) * draw(state):
            now = value
            if value > best_value + 1e-12 * abs(best_value):
                best_value = value
                for e in range(best.shape[0]):
                    best[e] = answer.count[e]
        else:
            take_back(gangs, answer)
        keep(answer)
    return best_value
