"""Whole placement run under a network: ranks, launch cost and price are renewed whenever a batch arrives.

Between batches they are constant, as `families.placement.kernels.run` requires. The turn of a task is here its rank
among those that were pending at the last renewal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from berth.families.placement.kernels.berth_index import Shelves
from berth.families.placement.kernels.greedy import Batch, Servers
from berth.families.placement.kernels.network import Net, Scratch, meet, rank_tasks
from berth.families.placement.kernels.run import (
    _fits_empty,
    _join,
    _place,
    _place_all,
    _refill,
    _score,
    advance,
    set_price,
)
from berth.families.placement.kernels.run_state import (
    DEADLINE,
    ENDS,
    LAUNCHED,
    LAUNCHES,
    QUEUE,
    SERVER,
    TURN,
    WAITING,
    Run,
    push_waiting,
)
from berth.kernels.compiled import inner, lean
from berth.kernels.small import sort_by


class Ranked(NamedTuple):
    """Scratch for ranks, (N,) each, and for the times until which servers are on, (R,)."""

    rank: Any
    order: Any
    spare: Any
    on_until: Any


@inner
def _stand(run: Run, i: int, now: float) -> None:
    """Queue task i for every kind of server that it fits and pays on now; it may pay on others later."""
    for kind in range(run.kind.shape[0]):
        if _score(run, i, kind, now) > 0.0 and _fits_empty(run, i, kind):
            push_waiting(run, kind, i)
    run.queue[run.counts[QUEUE]] = i
    run.counts[QUEUE] += 1


@inner
def _renew(
    batch: Batch,
    servers: Servers,
    run: Run,
    first: int,
    last: int,
    now: float,
    net: Net,
    scratch: Scratch,
    met: Any,
    ranked: Ranked,
    only_order: bool,
) -> int:
    """Evaluate the network for waiting and new tasks; `asked` gets them by their new turns."""
    size = 0
    for a in range(run.counts[QUEUE]):
        i = run.queue[a]
        if run.held[i, SERVER] == WAITING and run.task[i, DEADLINE] > now:
            ranked.spare[size] = i
            size += 1
    # in the order of their numbers, as a policy sees them
    for a in range(size):
        i = ranked.spare[a]
        at = a
        while at > 0 and run.asked[at - 1] > i:
            run.asked[at] = run.asked[at - 1]
            at -= 1
        run.asked[at] = i
    for i in range(first, last):
        run.asked[size] = i
        size += 1
    meet(batch, servers.weight, first, last, scratch.means)
    for r in range(ranked.on_until.shape[0]):
        ranked.on_until[r] = run.free[r, run.free.shape[1] - 1]
    rank_tasks(batch, run.asked, size, servers, run.free, ranked.on_until, now, net, scratch, ranked.rank)
    beta, toll = (1.0, 0.0) if only_order else (scratch.heads[0], scratch.heads[1])
    if met.shape[0] > 0:
        for g in range(scratch.cluster.shape[0]):
            met[0, g] = min(met[0, g], scratch.cluster[g])
            met[1, g] = max(met[1, g], scratch.cluster[g])
    for a in range(size):
        ranked.order[a] = a
        ranked.rank[a] = -ranked.rank[a]  # largest first
    sort_by(ranked.rank, ranked.order, ranked.spare, size)
    for a in range(size):
        ranked.spare[a] = run.asked[ranked.order[a]]
    for a in range(size):
        i = ranked.spare[a]
        run.asked[a] = i
        run.task[i, TURN] = a
        run.of_turn[a] = i
    set_price(run, beta, toll)
    # all tasks are queued again
    run.counts[QUEUE] = 0
    for kind in range(run.root.shape[0]):
        for need in range(run.root.shape[1]):
            run.root[kind, need] = -1
    return size


@lean
def play_learned(
    batch: Batch,
    servers: Servers,
    shelves: Shelves,
    run: Run,
    net: Net,
    scratch: Scratch,
    met: Any,
    ranked: Ranked,
    only_order: bool,
    idle: float,
) -> None:
    """Run all tasks to their end; the tables must have been prepared with the tasks in order of arrival.

    With `only_order` launches count in full and resources have no price. `met` (2, G), unless empty, gets the smallest
    and largest cluster features that the network meets.
    """
    tasks, next_task = run.task.shape[0], 0
    while next_task < tasks or run.counts[ENDS] > 0:
        first = next_task
        now, ended, freed, next_task = advance(shelves, run, first, idle)
        if next_task == first:
            if ended == 1:
                _refill(shelves, run, freed, now)
            else:
                _place_all(shelves, run, _join(run, now, 0, -1), now)
        else:
            size = _renew(batch, servers, run, first, next_task, now, net, scratch, met, ranked, only_order)
            for a in range(size):
                if not _place(shelves, run, run.asked[a], now):
                    _stand(run, run.asked[a], now)
        # a launched server may now pay for a task that was tried before
        if run.counts[LAUNCHES] == 1:
            _refill(shelves, run, run.counts[LAUNCHED], now)
        elif run.counts[LAUNCHES] > 1:
            _place_all(shelves, run, _join(run, now, 0, -1), now)
