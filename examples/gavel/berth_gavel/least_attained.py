"""Least attained service: after each time slice the jobs that have had the least run, and others are interrupted.

Axes: n candidates (running jobs that may be interrupted, then waiting jobs), R servers, K resources.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.live.policies import Allowed, Outcome, Placing, Running, View, may_be_interrupted, placed_in_order, view_of
from berth.model import Floats, Ints

__all__ = ["LeastAttained"]


class LeastAttained:
    """Runs the jobs with the least attained service: seconds so far times their share of the scarcest resource.

    Short jobs pass long ones although no length is known. `slice` is the length of a time slice in seconds. Between the
    ends of slices, jobs start where there is room, and none is interrupted.
    """

    family = "live"
    reference = "Gu et al., Tiresias, NSDI 2019 (without its discrete queues)"
    interrupts = True

    def __init__(self, rng: Any = None, *, slice: float = 360.0) -> None:
        self._slice, self._end, self.next_look = slice, -math.inf, math.inf

    def decide(self, view: View, /) -> Placing:
        """Interrupt jobs at the end of a slice; else start jobs in order of their service."""
        if view.time >= self._end:
            self._end = view.time + self._slice
            if len(interrupt := _overtaken(view)):
                self.next_look = self._end
                return Placing(*(interrupt[:0],) * 4, interrupt)
        order = np.argsort(_service(view, view.rows, view.state.table.ran(view.rows)), kind="stable")
        placing = view.whole(order, placed_in_order(view.only(order)))
        waits = len(np.unique(placing.job)) < len(view.rows)
        self.next_look = self._end if waits else math.inf
        return placing

    def observe(self, outcome: Outcome, /) -> None:
        """Nothing to learn."""


def _service(view: View, rows: Ints, seconds: Floats) -> Floats:
    """What these jobs have had (n,), where `seconds` is how long they ran."""
    table = view.state.table
    share = table.shapes.total(table.shape(rows)) / np.maximum(view.capacity.sum(axis=0), 1)
    service: Floats = seconds * share.max(axis=1, initial=0.0)
    return service


def _candidates(view: View) -> Running:
    """The running jobs that may be interrupted, on servers that may be used."""
    running, records = view.running, view.state.table.by_row
    stays = np.add.reduceat(~view.usable[running.server], running.start[:-1]) > 0 if len(running.rows) else []
    may = [may_be_interrupted(records[row], view.time) for row in running.rows.tolist()]
    return running.only(np.flatnonzero(np.array(may, dtype=bool) & ~np.asarray(stays, dtype=bool)))


def _overtaken(view: View) -> Ints:
    """Running jobs (rows of the table) that would not run if all started anew, in order of their service."""
    table, running = view.state.table, _candidates(view)
    if not len(running.rows) or not len(view.rows):
        return running.rows[:0]
    rows = np.concatenate([running.rows, view.rows])
    ran = np.concatenate([table.ran(running.rows) + view.time - running.began, table.ran(view.rows)])
    free = view.free.copy()
    np.add.at(free, running.server, running.amount)
    order = np.argsort(_service(view, rows, ran), kind="stable")
    anew = view_of(view.state, view.time, table.records(rows[order]), free).allowing(_own(running, order, view))
    runs = rows[order][np.unique(placed_in_order(anew).job)]
    return running.rows[~np.isin(running.rows, runs)]


def _own(running: Running, order: Ints, view: View) -> Allowed:
    """Running jobs may use the servers that they are on, waiting jobs all of them."""
    jobs = len(running.rows)
    servers = np.zeros((jobs + 1, len(view.servers)), dtype=bool)
    servers[running.job, running.server], servers[jobs] = True, True
    return Allowed(np.minimum(order, jobs), servers)
