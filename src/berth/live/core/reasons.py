"""Waiting jobs in queue order, each with the first reason why it does not start.

`explain` explains one job in full; this module gives a short reason for each of many jobs, for lists. `out_of_reach`
says which new jobs no server could run, before they wait in vain.

Axes: m roles of all jobs, R servers, K resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from berth.files.quantities import Amounts
from berth.files.wording import tasks_of
from berth.live.core.limits import blocked_by_limits, limits_of
from berth.live.core.order import CHUNK, first_in_order, fits_empty, look_whether_fit, may_be_tried
from berth.live.core.records import JobRecord
from berth.live.core.state import State
from berth.live.core.view import View, placed_in_order, view_of
from berth.live.core.windows import Windows
from berth.model import Ints

__all__ = ["QueuePage", "WaitReason", "labels_nowhere", "out_of_reach", "queue_page", "waiting_in_order"]


@dataclass(frozen=True)
class WaitReason:
    """A waiting job and a short reason why it waits."""

    record: JobRecord
    why: str


@dataclass(frozen=True)
class QueuePage:
    """The number of waiting jobs, and the first of them, with all that their reasons are computed from.

    It shares nothing with the state that changes, so `reasons` may be called in another thread.
    """

    time: float
    waiting: int
    shown: Sequence[JobRecord]
    why: Mapping[str, str]
    """Reasons that are known already."""
    room: _Room | None

    def reasons(self) -> list[WaitReason]:
        """The first waiting jobs, each with the reason why it waits."""
        why = {**self.why, **({} if self.room is None else self.room.reasons())}
        return [WaitReason(record, why[record.job.id]) for record in self.shown]


def waiting_in_order(state: State, time: float, limit: int = 200) -> tuple[int, list[WaitReason]]:
    """The number of waiting jobs, and the first of them; jobs of paused queues come last."""
    page = queue_page(state, time, limit)
    return page.waiting, page.reasons()


def queue_page(state: State, time: float, limit: int) -> QueuePage:
    """The first waiting jobs, quickly: what takes a while is left to `QueuePage.reasons`."""
    count, shown, late = first_in_order(state, time, limit)
    closed = {name for name, queue in state.queues.queues.items() if not queue.starts}
    why = {r.job.id: f"queue {r.job.queue} is paused" for r in shown if r.job.queue in closed}
    look_whether_fit(state, shown)
    why.update({r.job.id: _why_never(state, r) for r in shown if not fits_empty(state, r)})
    why.update(_limited(state, [record for record in shown if record.job.queue not in closed], late, time))
    kept: dict[str, list[str]] = {}
    for server, name in state.reserved.items():
        kept.setdefault(name, []).append(server)
    why.update({name: f"servers are reserved for it: {_named(servers)}" for name, servers in kept.items()})
    rest = [record for record in shown if record.job.id not in why]
    return QueuePage(time, count, shown, why, _Room.of(state, rest, time) if rest else None)


def out_of_reach(state: State, records: Sequence[JobRecord]) -> list[str]:
    """One line for each reason why some of these jobs could not start even on an empty cluster, as it is now.

    Jobs that only wait for running jobs to end are not listed.
    """
    shapes: dict[object, list[JobRecord]] = {}
    for record in records:
        shapes.setdefault(record.job.shape, []).append(record)
    firsts = [alike[0] for alike in shapes.values()]
    look_whether_fit(state, firsts)
    said: dict[str, list[str]] = {}
    for first in firsts:
        if not fits_empty(state, first):
            said.setdefault(_why_never(state, first), []).extend(r.job.id for r in shapes[first.job.shape])
    limits = limits_of(state)
    for record in records if limits else ():
        if over := _over_limit(state, record, limits):
            said.setdefault(f"it asks for more than {over} ever allows", []).append(record.job.id)
    return [f"{_named(names)}: {why}" for why, names in said.items()]


def _over_limit(state: State, record: JobRecord, limits: Mapping[str, Amounts]) -> str:
    """A limit that a job would break on its own."""
    total = record.job.total
    over = (
        f"the {'limit' if owner.startswith('queue:') else 'quota'} {owner}/{name}"
        for owner in state.owners(record.job)
        for name, most in limits.get(owner, {}).items()
        if total.get(name, 0) > most
    )
    return next(over, "")


def _why_never(state: State, record: JobRecord) -> str:
    if not any(server.usable for server in state.servers.values()):
        return "no usable server"
    if missing := sorted(name for name, much in record.job.total.items() if much and name not in state.resources):
        return f"no server has {', '.join(missing)}"
    if labels := labels_nowhere(state, record):
        return f"no server has the label {', '.join(labels)}"
    return "it would not fit even if nothing ran"


def labels_nowhere(state: State, record: JobRecord) -> list[str]:
    """Labels that a job needs and that no usable server has."""
    servers = [server.server for server in state.servers.values() if server.usable]
    needs = record.job.needs.items()
    return [f"{label}={wanted}" for label, wanted in needs if not any(one.has({label: wanted}) for one in servers)]


def _named(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _limited(state: State, shown: Sequence[JobRecord], late: Sequence[JobRecord], time: float) -> dict[str, str]:
    if not limits_of(state):
        return {}
    look_whether_fit(state, late)
    fitting = ([record for record in records if fits_empty(state, record)] for records in (shown, late))
    return blocked_by_limits(state, next(fitting), time, next(fitting))


@dataclass(frozen=True)
class _Room:
    """Views of jobs that only lack room or wait for their turn."""

    now: View
    """Where each job may start now."""
    later: View
    """Where each may start in time."""
    next: View
    """Those of the first view that may start with the next decision if there is room."""
    others_gone: View | None
    """What were free without foreign jobs, if there are any."""
    kept: Sequence[str]
    """Jobs for which servers are reserved."""
    refused: Mapping[str, Sequence[str]]
    """Who refused which jobs, in words."""

    @classmethod
    def of(cls, state: State, records: Sequence[JobRecord], time: float) -> _Room:
        windows, everything = Windows(state, time), view_of(state, time, records)
        tried = everything.only([i for i, r in enumerate(everything.records) if may_be_tried(state, r, time)])
        gone = None
        if state.taken.any():
            gone = replace(everything, free=np.maximum(state.capacity - state.used + state.taken, 0))
            gone = windows.allowed(gone)
        kept = sorted(set(state.reserved.values()))
        refused = {record.job.id: why for record in everything.records if (why := windows.why_refused(record))}
        return cls(windows.allowed(everything), everything, windows.allowed(tried), gone, kept, refused)

    def reasons(self) -> dict[str, str]:
        view = self.now
        next_ = {start.job for start in self.next.starts(placed_in_order(self.next))}
        rooms = _rooms(view).tolist()
        later = rooms if self.later is view else _rooms(self.later).tolist()
        without = rooms if self.others_gone is None else _rooms(self.others_gone).tolist()
        said = {}
        for i, record in enumerate(view.records):
            name, roles = record.job.id, record.job.roles
            mine = slice(int(view.gangs.start[i]), int(view.gangs.start[i + 1]))
            short = next(((role, n) for role, n in zip(roles, rooms[mine], strict=True) if n < role.minimum), None)
            if name in next_:
                said[name] = "it may start with the next decision"
            elif name in self.refused:
                said[name] = "; ".join(self.refused[name])
            elif short is not None and all(n >= r.minimum for r, n in zip(roles, later[mine], strict=True)):
                reserved = f"room is reserved for job {self.kept[0]}" if self.kept else ""
                said[name] = reserved or "servers with room close too soon"
            elif short is None:
                said[name] = "free room goes to jobs ahead of it, or is fragmented"
            else:
                role = short[0].name if len(roles) > 1 else "task"
                alone = all(n >= each.minimum for each, n in zip(roles, without[mine], strict=True))
                others = ", others have taken the rest" if alone else ""
                said[name] = f"room for {short[1]} of {tasks_of(short[0].minimum, role)}{others}"
        return said


def _rooms(view: View) -> Ints:
    """Tasks of each role (m,) that all servers together have room for, each role alone."""
    gangs = view.gangs
    if not len(gangs.most):
        return np.zeros(0, dtype=np.int64)
    open_ = np.flatnonzero((view.free >= gangs.demand.min(axis=0)).all(axis=1))  # few on a full cluster
    free, reach = view.free[open_], view.reach[:, open_]
    job_of_role = np.repeat(np.arange(len(view.records)), np.diff(gangs.start))
    key = np.column_stack([gangs.reach[job_of_role], gangs.most, gangs.each, gangs.demand])
    _, first, same = np.unique(key, axis=0, return_index=True, return_inverse=True)
    found = np.zeros(len(first), dtype=np.int64)
    for begin in range(0, len(first), CHUNK):
        some = first[begin : begin + CHUNK]
        demand, most = gangs.demand[some, None, :], gangs.most[some]
        each = np.where(demand > 0, free // np.maximum(demand, 1), most[:, None, None])
        each = each.min(axis=2, initial=np.iinfo(np.int64).max)
        room = np.minimum(each, gangs.each[some, None]) * reach[gangs.reach[job_of_role[some]]]
        found[begin : begin + CHUNK] = np.minimum(room.sum(axis=1), most)
    return found[same.reshape(-1)]
