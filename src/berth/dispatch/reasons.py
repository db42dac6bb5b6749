"""Everybody who waits, in the order in which they are looked at, each with the first thing that is in its way.

`explain` says all there is to say of one job; this says a few words of many, for lists.

Axes: m roles of all jobs, R servers, K resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from berth.dispatch.state import JobRecord, State
from berth.dispatch.view import (
    CHUNK,
    View,
    blocked_by_limits,
    fits_empty,
    limits_of,
    look_whether_fit,
    ordered,
    placed_in_order,
    view_of,
)
from berth.model import Ints

__all__ = ["Waiting", "waiting_in_order"]


@dataclass(frozen=True)
class Waiting:
    """A job that waits, and why, in a few words."""

    record: JobRecord
    why: str


def waiting_in_order(state: State, time: float, limit: int = 200) -> tuple[int, list[Waiting]]:
    """How many wait, and the first of them; those in queues that are paused come last."""
    order = [record for _, record in ordered(state, time)]
    closed = {name for name, queue in state.queues.queues.items() if not queue.starts}
    paused = [r for r in state.jobs.values() if r.phase == "waiting" and r.job.queue in closed] if closed else []
    shown = [*order, *paused][:limit]
    why = {r.job.id: f"queue {r.job.queue} is paused" for r in shown if r.job.queue in closed}
    missing = {r.job.id: _missing(state, r) for r in shown}
    why.update({name: f"no server has {things}" for name, things in missing.items() if things})
    look_whether_fit(state, shown)
    why.update({r.job.id: "it would not fit even if nothing ran" for r in shown if not _fits(state, r, missing)})
    why.update(_limited(state, order, time))
    kept: dict[str, list[str]] = {}
    for server, name in state.reserved.items():
        kept.setdefault(name, []).append(server)
    why.update({name: f"servers are kept for it: {_named(servers)}" for name, servers in kept.items()})
    rest = [record for record in shown if record.job.id not in why]
    why.update(_room(state, rest, time))
    return len(order) + len(paused), [Waiting(record, why[record.job.id]) for record in shown]


def _missing(state: State, record: JobRecord) -> str:
    return ", ".join(sorted(name for name, much in record.job.total.items() if much and name not in state.resources))


def _fits(state: State, record: JobRecord, missing: Mapping[str, str]) -> bool:
    return bool(missing[record.job.id]) or fits_empty(state, record)


def _named(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _limited(state: State, order: Sequence[JobRecord], time: float) -> dict[str, str]:
    if not limits_of(state):
        return {}
    look_whether_fit(state, order)
    blocked = blocked_by_limits(state, [record for record in order if fits_empty(state, record)], time)
    return {name: f"limit of {limit} reached" for name, limit in blocked.items()}


def _room(state: State, records: Sequence[JobRecord], time: float) -> dict[str, str]:
    """What is said of jobs that only want for room, or for their turn."""
    if not records:
        return {}
    free = np.maximum(state.capacity - state.used, 0)
    for server in state.reserved:
        free[state.servers[server].index] = 0
    view = view_of(state, time, records, free)
    next_ = {start.job for start in view.starts(placed_in_order(view))}
    rooms = _rooms(view).tolist()
    said = {}
    for i, record in enumerate(view.records):
        here = rooms[int(view.gangs.start[i]) : int(view.gangs.start[i + 1])]
        short = next(((role, n) for role, n in zip(record.job.roles, here, strict=True) if n < role.minimum), None)
        if record.job.id in next_:
            said[record.job.id] = "it may start with the next decision"
        elif short is None:
            said[record.job.id] = "what is free is for jobs before it, or scattered"
        else:
            of = f" of {short[0].name}" if len(record.job.roles) > 1 else ""
            said[record.job.id] = f"room for {short[1]} of {short[0].minimum} tasks{of}"
    return said


def _rooms(view: View) -> Ints:
    """Tasks of each role that there is room for on all servers together, each role alone, (m,)."""
    gangs = view.gangs
    job_of_role = np.repeat(np.arange(len(view.records)), np.diff(gangs.start))
    key = np.column_stack([gangs.reach[job_of_role], gangs.most, gangs.each, gangs.demand])
    _, first, same = np.unique(key, axis=0, return_index=True, return_inverse=True)
    found = np.zeros(len(first), dtype=np.int64)
    for begin in range(0, len(first), CHUNK):
        some = first[begin : begin + CHUNK]
        demand, most = gangs.demand[some, None, :], gangs.most[some]
        each = np.where(demand > 0, view.free // np.maximum(demand, 1), most[:, None, None]).min(axis=2)
        room = np.minimum(each, gangs.each[some, None]) * view.reach[gangs.reach[job_of_role[some]]]
        found[begin : begin + CHUNK] = np.minimum(room.sum(axis=1), most)
    return found[same.reshape(-1)]
