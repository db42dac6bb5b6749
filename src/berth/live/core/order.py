"""Which jobs may start now, and in which order: priority, age, fair share, limits, and whether they fit at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from berth.live.core.kernels import Gangs
from berth.live.core.kernels.waiting import Standings
from berth.live.core.limits import held_back, limits_of
from berth.live.core.queues import Queue
from berth.live.core.records import JobRecord
from berth.live.core.refusals import ANYWHERE
from berth.live.core.shapes import part
from berth.live.core.state import State
from berth.live.core.view import Chosen, Mask, View, placed, placed_in_order, view_of
from berth.model import Ints

__all__ = [
    "CHUNK",
    "first_in_order",
    "fits_empty",
    "look_whether_fit",
    "make_view",
    "may_be_tried",
    "ordered",
    "refused_kinds",
    "starting",
    "view_within_limits",
]

SHAPES = 100_000
"""The most job shapes for which it is cached whether they fit."""
CHUNK = 64
"""How many job shapes are compared with all servers at a time."""


def view_within_limits(state: State, time: float) -> View:
    """The input of a decision now: all waiting jobs that no limit and no refusal holds back."""
    view = make_view(state, time)
    kinds, firsts = refused_kinds(state, view, time)
    if firsts:
        tried = np.array([*(may_be_tried(state, first, time) for first in firsts), True])  # the last: all other kinds
        view = view if tried.all() else view.only(np.flatnonzero(tried[kinds]))
    blocked = held_back(state, view.rows, time)
    return view.only(np.flatnonzero(~blocked)) if blocked.any() else view


def refused_kinds(state: State, view: View, time: float) -> tuple[Ints, list[JobRecord]]:
    """For each job (n,) the number of its kind, or -1 if nothing refuses it now; and the first job of each kind."""
    kinds, owners = np.full(len(view.rows), -1), state.refusals.owners(time)
    if not owners or not len(kinds):
        return kinds, []
    table, types = state.table, len(state.table.names["type"].names)
    pair = table.named("user", view.rows) * types + table.named("type", view.rows)
    named = np.unique(pair)
    users, names = table.names["user"].names, table.names["type"].names
    active = [number for number in named.tolist() if (users[number // types], names[number % types]) in owners]
    some = np.flatnonzero(np.isin(pair, active))
    shapes = view.gangs.shape[some]
    key = pair[some] * (int(shapes.max(initial=0)) + 1) + shapes
    _, first, kinds[some] = np.unique(key, return_index=True, return_inverse=True)
    return kinds, [view.records[i] for i in some[first].tolist()]


def may_be_tried(state: State, record: JobRecord, time: float) -> bool:
    """Whether a job would fit on an empty cluster without the servers that refused its kind lately."""
    refused = state.refusals.of(record.job, time)
    if not refused or ANYWHERE in refused:
        return not refused
    whole = state.capacity.copy()
    whole[[state.servers[name].index for name in refused if name in state.servers]] = 0
    return bool(len(placed_in_order(view_of(state, time, (record,), whole)).job))


def make_view(state: State, time: float) -> View:
    """All waiting jobs, and what is free; it is valid until the state changes.

    Jobs that do not fit on an empty cluster are left out: they would only block others.
    """
    usable, free = state.usable.copy(), state.free()
    rows, level = state.table.standing(time, _standings(state, time))
    fit = _fit(state, rows)
    rows, level = rows[fit], level[fit]
    records = Chosen(state.table.by_row, rows)
    shapes = state.table.shapes
    gangs = shapes.gangs(state.table.shape(rows))
    reach = shapes.reach(state)
    names, resources = state.known("names", lambda: tuple(state.servers)), tuple(state.resources)
    shown = time, records, rows, level, names, resources
    return View(*shown, state.capacity, free, usable, gangs, reach & usable, state)


def _fit(state: State, rows: Ints) -> Mask:
    """Which of the waiting jobs in these rows fit on an empty cluster; computed once a shape."""
    shapes, numbers = state.table.shapes, state.table.shape(rows)
    fits = shapes.fits(numbers)
    if (fits < 0).any():
        unknown = np.unique(numbers[fits < 0])
        shapes.write_fits(unknown, _shapes_fit(state, unknown))
        fits = shapes.fits(numbers)
    return fits > 0


def _shapes_fit(state: State, numbers: Ints) -> Mask:
    """Which of these shapes fit on the usable servers if those are empty."""
    shapes = state.table.shapes
    if not state.servers:
        return np.zeros(len(numbers), dtype=bool)
    usable = state.usable
    reach = shapes.reach(state) & usable
    gangs, whole = shapes.gangs(numbers), np.where(usable[:, None], state.capacity, 0)
    fit = np.zeros(len(numbers), dtype=bool)
    single = np.diff(gangs.start) == 1
    alone = np.flatnonzero(single)
    for first in range(0, len(alone), CHUNK):
        some = alone[first : first + CHUNK]
        fit[some] = _single_fit(part(gangs, some), reach, whole)
    for i in np.flatnonzero(~single):
        one = part(gangs, np.array([i]))
        fit[i] = bool(len(placed(one._replace(shape=np.zeros(1, dtype=np.int64)), reach, whole, whole.copy()).job))
    return fit & shapes.possible(numbers)


def first_in_order(
    state: State, time: float, limit: int
) -> tuple[int, list[JobRecord], list[JobRecord], dict[str, int]]:
    """How many jobs wait, the first of them in order, all that have waited longer than the patience, and levels.

    Jobs of paused queues come last, have no level, and are not among the late ones.
    """
    table, standings = state.table, _standings(state, time)
    rows, level = table.first_standing(time, standings, limit)
    shown = [*table.records(rows)]
    levels = {record.job.id: one for record, one in zip(shown, level.tolist(), strict=False)}
    if len(shown) < limit:
        shown += table.records(table.paused(standings.starts)[: limit - len(shown)])
    startable = table.startable(standings.starts) if limits_of(state) else rows[:0]
    late = table.late_of(startable, time, state.queues.patience)
    return table.waiting, shown, [*table.records(late)], levels


def ordered(state: State, time: float) -> list[tuple[int, JobRecord]]:
    """Waiting jobs of queues that start jobs, in order, each with its level."""
    rows, level = state.table.standing(time, _standings(state, time))
    return list(zip(level.tolist(), state.table.records(rows), strict=True))


def _standings(state: State, time: float) -> Standings:
    """What the levels of waiting jobs are computed from, beside the jobs."""
    queues, table = state.queues, state.table
    shares = queues.shares
    total = sum(shares.get(team, 1.0) for team in state.teams) or 1.0
    used = {team: state.usage(team, time) for team in state.teams}
    whole = sum(used.values())
    over = {team: used[team] / whole - shares.get(team, 1.0) / total for team in used} if whole > 0 else {}
    return Standings(
        np.array([queue.priority for queue in _queues(state)], dtype=np.float64),
        np.array([queue.starts for queue in _queues(state)], dtype=np.int64),
        np.array([queues.fairness * over.get(team, 0.0) for team in table.names["team"].names], dtype=np.float64),
        float(queues.aging),
    )


def starting(state: State, record: JobRecord) -> bool:
    """Whether a job waits in a queue that starts jobs."""
    queue = state.queues.queues.get(record.job.queue)
    return record.phase == "waiting" and queue is not None and queue.starts


def _queues(state: State) -> list[Queue]:
    """The queues of waiting jobs, by their numbers."""
    return [state.queues.queues.get(name) or Queue(accepts=False) for name in state.table.names["queue"].names]


def look_whether_fit(state: State, records: Sequence[JobRecord]) -> None:
    """Compute `fits_empty` for all of these jobs of one role at once, by counting places."""
    new = {r.job.shape: r for r in records if len(r.job.roles) == 1 and r.job.shape not in state.fits}
    if len(new) < 2 or not state.servers:
        return
    view = view_of(state, 0.0, list(new.values()), state.capacity)
    for first in range(0, len(view.records), CHUNK):
        some = np.arange(first, min(first + CHUNK, len(view.records)))
        fits = _single_fit(part(view.gangs, some), view.reach, view.free)
        for i, fit in zip(some.tolist(), fits.tolist(), strict=True):
            state.fits[view.records[i].job.shape] = fit


def fits_empty(state: State, record: JobRecord) -> bool:
    """Whether a job fits on the usable servers if those are empty."""
    shape = record.job.shape
    known = state.fits.get(shape)
    if known is None:
        known = bool(len(placed_in_order(view_of(state, 0.0, (record,), state.capacity)).job))
        if len(state.fits) >= SHAPES:
            state.fits.clear()
        state.fits[shape] = known
    return known


def _single_fit(gangs: Gangs, reach: Mask, free: Ints) -> Mask:
    """Which of these jobs of one role fit, by counting places."""
    demand = gangs.demand[:, None, :]
    each = np.where(demand > 0, free // np.maximum(demand, 1), gangs.most[:, None, None]).min(axis=2)
    room = np.minimum(each, gangs.each[:, None]) * reach[gangs.reach]
    fit: Mask = room.sum(axis=1) >= gangs.minimum
    return fit
