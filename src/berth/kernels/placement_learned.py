"""A whole placement run under a network: ranks, launch cost and price are renewed whenever a batch arrives.

Between batches they hold, so that all that `kernels.placement_run` relies on is true between batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.berth_index import Shelves, fill_shelves
from berth.kernels.compiled import lean
from berth.kernels.placement import Batch, Servers, load
from berth.kernels.placement_net import Net, Scratch, meet, rank_tasks
from berth.kernels.placement_run import Run, _end, _join, _place, _pop_end, _refill, _sort, _wait


class Tape(NamedTuple):
    """What a network was shown and what came of it, for those who learn from it; all empty when nobody does.

    Renewal e has tasks `start[e]` to `start[e + 1]`, in the order in which they were placed.
    """

    features: Any  # (M, F)
    cluster: Any  # (E, G)
    start: Any  # (E + 1,)
    noise: Any  # (M,) added to ranks, Gumbel draws to sample orders as Plackett and Luce do
    head_noise: Any  # (E, 2) added to the logarithms of beta and price
    counts: Any  # (1,) renewals


@lean
def _record(run: Run, rank: Any, size: int, scratch: Scratch, tape: Tape) -> Any:
    """Add noise to the ranks and heads, and put down what was seen in the order that this gives."""
    turn = tape.counts[0]
    at = tape.start[turn]
    for a in range(size):
        rank[run.asked[a]] += tape.noise[at + a]
        run.aside[a] = run.asked[a]
    _sort(rank, run.aside, run.spare, size)
    for a in range(size):
        run.spare[run.aside[a]] = a
    for a in range(size):
        row = at + run.spare[run.asked[a]]
        for f in range(scratch.features.shape[1]):
            tape.features[row, f] = scratch.features[a, f]
    for g in range(scratch.cluster.shape[0]):
        tape.cluster[turn, g] = scratch.cluster[g]
    tape.start[turn + 1] = at + size
    tape.counts[0] = turn + 1
    beta = scratch.heads[0] * np.exp(tape.head_noise[turn, 0])
    return beta, scratch.heads[1] * np.exp(tape.head_noise[turn, 1])


@lean
def play_learned(
    batch: Batch,
    servers: Servers,
    shelves: Shelves,
    run: Run,
    net: Net,
    scratch: Scratch,
    rank: Any,
    tape: Tape,
    idle: float,
) -> None:
    """Run all tasks to their end; `rank` (N,) gets the latest rank of each."""
    taped = tape.start.shape[0] > 0
    tasks, next_task = batch.work.shape[0], 0
    for i in range(tasks):
        run.heavy[i] = load(servers.weight, batch.demand, i)
        run.need[i] = int(batch.demand[i, 0])
    fill_shelves(shelves)
    beta, toll = 1.0, 0.0
    while next_task < tasks or run.counts[0] > 0:
        now = np.inf
        if next_task < tasks:
            now = batch.arrival[next_task]
        if run.counts[0] > 0:
            now = min(now, run.event_time[0])
        ended, freed = 0, -1
        while run.counts[0] > 0 and run.event_time[0] == now:
            i = run.event_task[0]
            _pop_end(run, run.counts[0])
            run.counts[0] -= 1
            freed = run.server[i]
            _end(batch, servers, shelves, run, i, now, idle)
            ended += 1
        first = next_task
        while next_task < tasks and batch.arrival[next_task] == now:
            next_task += 1
        run.counts[2] += ended + next_task - first
        run.counts[3] = 0
        if next_task == first and ended == 1:
            _refill(batch, servers, shelves, run, rank, freed, now, toll)
            continue
        size = _join(batch, run, rank, now, 0, -1)
        if next_task > first:
            for i in range(first, next_task):
                run.asked[size] = i
                size += 1
            meet(batch, servers.weight, first, next_task, scratch.means)
            rank_tasks(batch, run.asked, size, servers, run.free, run.on_until, now, net, scratch, run.asked_rank)
            for a in range(size):
                rank[run.asked[a]] = run.asked_rank[a]
            beta, toll = scratch.heads[0], scratch.heads[1]
            if taped:
                beta, toll = _record(run, rank, size, scratch, tape)
            # everybody stands in line anew
            run.counts[1] = 0
            for kind in range(run.root.shape[0]):
                for need in range(run.root.shape[1]):
                    run.root[kind, need] = -1
        _sort(rank, run.asked, run.aside, size)
        for a in range(size):
            i = run.asked[a]
            placed = _place(batch, servers, shelves, run, i, now, beta, toll)
            if not placed and next_task > first:
                _wait(batch, servers, shelves, run, rank, i, now, toll, True)
        # a server that was launched may now pay for one that was asked before
        if run.counts[3] == 1:
            _refill(batch, servers, shelves, run, rank, run.counts[4], now, toll)
        elif run.counts[3] > 1:
            size = _join(batch, run, rank, now, 0, -1)
            _sort(rank, run.asked, run.aside, size)
            for a in range(size):
                _place(batch, servers, shelves, run, run.asked[a], now, beta, toll)
