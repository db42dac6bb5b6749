"""Explain why a job waits and what would let it start, or why it runs where it runs.

Changes that make room are tried out: with the change made, the job fits.

Axes: m roles of the job, R servers, K resources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.files.quantities import format_quantity
from berth.files.wording import counted, spoken, tasks_of
from berth.live.core import FALLBACK
from berth.live.core.drivers.deferral import Waits
from berth.live.core.forecast import Eta, eta
from berth.live.core.limits import blocked_by_limits, limits_of
from berth.live.core.order import fits_empty, may_be_tried, ordered, view_within_limits
from berth.live.core.reasons import labels_nowhere
from berth.live.core.records import JobRecord
from berth.live.core.remedies import Change, changes, new_servers
from berth.live.core.reservations import Reservation, reservations_above
from berth.live.core.runtimes import speeds
from berth.live.core.state import State
from berth.live.core.view import View, placed_in_order, view_of
from berth.live.core.windows import Windows

__all__ = ["Explanation", "Group", "explain", "limits_over"]

NEVER = Eta(None, None, None, "not before something changes")
NAMED = 3
"""How many servers of a group are named."""
ALTERNATIVES = 5


@dataclass(frozen=True)
class Group:
    """Servers with the same explanation."""

    servers: int
    names: tuple[str, ...]
    text: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        more = f" and {self.servers - len(self.names)} more" if self.servers > len(self.names) else ""
        return f"{', '.join(self.names)}{more}: {self.text}"


@dataclass(frozen=True)
class Explanation:
    """What holds a job back (`blocks`), the state of each server, what would let it start, and when it will start."""

    job: str
    phase: str
    blocks: tuple[str, ...]
    servers: tuple[Group, ...] = ()
    changes: tuple[Change, ...] = ()
    eta: Eta | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"job {self.job} is {self.phase}", *(f"  {block}" for block in self.blocks)]
        lines += [f"  {group}" for group in self.servers]
        lines += [f"  it would start if you {change}" for change in self.changes[:1]]
        lines += [f"  or if you {change}" for change in self.changes[1:]]
        return "\n".join([*lines, *([f"  starts: {self.eta}"] if self.eta is not None else [])])


def explain(state: State, job: str, time: float, *, by: str = "", seed: int = 0) -> Explanation:
    """Explain the state of a job that has not ended; `by` is the policy that decided where it runs, if known."""
    record = state.jobs.get(job)
    if record is None:
        raise InvalidInput("a job that has not ended", value=job, key="job")
    if record.phase != "waiting":
        return Explanation(job, record.phase, _why_there(state, record, by))
    levels = ordered(state, time)
    order = [waiting for _, waiting in levels]
    windows = Windows(state, time, above=_above(state, record, levels, time))
    held, over = _held_back(state, record, order, time)
    missing = sorted(name for name, milli in record.job.total.items() if milli and name not in state.resources)
    if missing:
        held += [f"no server has resource {name}" for name in missing]
        return Explanation(job, "waiting", tuple(held), changes=(new_servers(record.job),), eta=NEVER)
    possible, may = fits_empty(state, record), may_be_tried(state, record, time)
    nowhere = labels_nowhere(state, record)
    if nowhere:
        held += [f"no server has the label {label}" for label in nowhere]
    elif not possible:
        held.append("it would not fit even if nothing ran on the servers that may be used")
    view = view_of(state, time, (record,), windows.free(record))
    fits = bool(len(placed_in_order(view).job))
    queue_paused = any(block.endswith("is paused") for block in held)
    if possible and not may:
        held += windows.why_refused(record)
        if not fits:
            held.append("it fits on no server that has not refused it")
    elif not held and fits:
        held.append(_waits_for_faster(view) or _turn(windows, record, order, state))
    elif not fits and possible:
        held += windows.why(record)
        held.append(_room(view, record))
    found = changes(state, record, windows, over, queue_paused, fits) if may else ()
    if queue_paused:
        when = Eta(None, None, None, f"not while queue {record.job.queue} is paused")
    elif not possible or any(never for _, _, never in over):
        when = NEVER
    else:
        when = eta(state, record, time, seed=seed, order=levels)
    return Explanation(job, "waiting", tuple(held), _servers(windows, record, view), found, when)


def _above(
    state: State, record: JobRecord, levels: Sequence[tuple[int, JobRecord]], time: float
) -> Sequence[Reservation]:
    """The reservations of levels above a job's."""
    mine = next((level for level, waiting in levels if waiting.number == record.number), None)
    if mine is None or levels[0][0] == mine:
        return ()
    view = Windows(state, time).allowed(view_within_limits(state, time))
    kept = set(state.reserved.values())
    return reservations_above(
        view.only([i for i, waiting in enumerate(view.records) if waiting.job.id not in kept]), mine
    ).made


def limits_over(state: State, record: JobRecord) -> list[tuple[str, int, bool]]:
    """Limits (`team:a/gpu`) that a job would break now, by how much, and whether it would break them on its own."""
    limits = limits_of(state)
    found = []
    for owner in state.owners(record.job):
        for name, most in limits.get(owner, {}).items():
            asked = record.job.total.get(name, 0)
            much = state.held.get(owner, {}).get(name, 0) + asked - most
            if asked and much > 0:
                found.append((f"{owner}/{name}", much, asked > most))
    return found


def _held_back(
    state: State, record: JobRecord, order: Sequence[JobRecord], time: float
) -> tuple[list[str], list[tuple[str, int, bool]]]:
    """What holds a job back, apart from servers."""
    held = []
    queue = state.queues.queues.get(record.job.queue)
    if queue is not None and not queue.starts:
        held.append(f"queue {record.job.queue} is paused")
    over = limits_over(state, record)
    limits = limits_of(state)
    for name, much, never in over:
        owner, _, resource = name.rpartition("/")
        have, most = state.held.get(owner, {}).get(resource, 0), limits[owner][resource]
        ask = record.job.total[resource]
        words = "more than it may ever hold" if never else f"{format_quantity(much)} over"
        held.append(
            f"{name}: holds {format_quantity(have)}, the job asks for {format_quantity(ask)}, "
            f"the limit is {format_quantity(most)}: {words}"
        )
    if not over and limits and not held:
        limit = blocked_by_limits(state, [r for r in order if fits_empty(state, r)], time).get(record.job.id)
        if limit:
            held.append(limit)
    return held, over


def _waits_for_faster(view: View) -> str | None:
    """Say that the job waits for faster servers, if the policy may defer jobs and waiting completes it earlier."""
    if view.state.policy == FALLBACK:
        return None
    seconds = Waits().seconds_to_wait(view, placed_in_order(view))
    if seconds is None:
        return None
    return f"it could start now, but waits for faster servers, expected in {seconds:.3g} s, where it ends sooner"


def _turn(windows: Windows, record: JobRecord, order: Sequence[JobRecord], state: State) -> str:
    before = order[: next(i for i, r in enumerate(order) if r.number == record.number)]
    view = view_of(state, windows.time, [*before, record], windows.free(record))
    starts = view.starts(placed_in_order(view))
    if any(start.job == record.job.id for start in starts):
        return "nothing holds it back: it may start with the next decision"
    if len(before) == 1:
        return "it is not its turn: the job before it fits now and leaves no room"
    fit = "1 fits" if len(starts) == 1 else f"{len(starts)} fit"
    return f"it is not its turn: of the {len(before)} jobs before it {fit} now, and no room is left"


def _room(view: View, record: JobRecord) -> str:
    """The number of tasks of each role that there is room for, each role alone."""
    words = []
    for role, rooms in zip(record.job.roles, _rooms(view), strict=True):
        here = min(int(rooms.sum()), role.count)
        words.append(f"{here} of {tasks_of(role.minimum, role.name)}")
    return f"there is room for {', '.join(words)}"


def _rooms(view: View) -> Any:
    """Tasks of each role that each server has room for, (m, R)."""
    demand, free = view.gangs.demand[:, None, :], view.free[None, :, :]
    each = np.where(demand > 0, free // np.maximum(demand, 1), np.iinfo(np.int64).max).min(axis=2)
    return np.where(view.reach[0][None, :], np.minimum(each, view.gangs.each[:, None]), 0)


def _servers(windows: Windows, record: JobRecord, view: View) -> tuple[Group, ...]:
    """The state of each server, in groups, the largest first."""
    state, names, resources = view.state, view.servers, view.resources
    allowed, refused = windows.allows(record), windows.refused(record)
    above = {row: one.record.job.id for one in windows.in_its_way(record) for row in one.servers.tolist()}
    rooms = _rooms(view)
    lacking = view.gangs.demand[:, None, :] > view.free[None, :, :]
    lacking = lacking * np.where(state.taken > 0, 2, 1)  # foreign jobs hold some of it
    groups: dict[tuple[Any, ...], list[int]] = {}
    table = np.concatenate([rooms, lacking.transpose(0, 2, 1).reshape(-1, len(names))]).T.tolist()
    for r, server in enumerate(state.servers.values()):
        kept = state.reserved.get(server.server.name) or above.get(r)
        if not server.usable:
            reason = f": {server.server.closed}" if server.standing == "closed" else ""
            key: tuple[Any, ...] = (f"{server.standing}{reason}",)
        elif (refusal := refused.get(server.server.name)) is not None:
            left = spoken(refusal.until - windows.time)
            key = (f"refused such jobs, and is left out for {left}: {refusal.reason or 'no reason'}",)
        elif not allowed[r] and kept is not None:
            key = (f"reserved for job {kept}",)
        elif not allowed[r]:
            key = (f"closes too soon: {server.server.until_reason or 'closed by the engine'}",)
        elif not server.server.has(record.job.needs):
            missing = [
                f"{label}={wanted}"
                for label, wanted in record.job.needs.items()
                if not server.server.has({label: wanted})
            ]
            key = (f"has no label {', '.join(missing)}",)
        else:
            key = tuple(table[r])
        groups.setdefault(key, []).append(r)
    found = []
    for key, rows in sorted(groups.items(), key=lambda item: -len(item[1])):
        text = key[0] if isinstance(key[0], str) else _said(record, view, rows, key, resources)
        found.append(Group(len(rows), tuple(names[r] for r in rows[:NAMED]), text))
    return tuple(found)


def _said(record: JobRecord, view: View, rows: Sequence[int], key: tuple[Any, ...], resources: Sequence[str]) -> str:
    """Say how many tasks the servers of a group have room for, or what they lack."""
    roles = record.job.roles
    words = []
    for m, role in enumerate(roles):
        name = "" if len(roles) == 1 else f" of {role.name}"
        if key[m]:
            words.append(f"room for {counted(key[m], 'task')}{name}")
            continue
        lacks = []
        for k, resource in enumerate(resources):
            if key[len(roles) + m * len(resources) + k]:
                best = int(view.free[list(rows), k].max())
                asked = format_quantity(role.demand[resource])
                most = "at most " if len(rows) > 1 else ""
                others = _others(view.state, rows, k)
                lacks.append(f"{resource} ({most}{format_quantity(best)} free, {asked} asked{others})")
        words.append(f"too little {', '.join(lacks)}{' for a task' + name if name else ''}")
    return "; ".join(words)


def _others(state: State, rows: Sequence[int], k: int) -> str:
    """How much of a resource of these servers foreign jobs have taken."""
    there = state.taken[list(rows), k]
    least, most = format_quantity(int(there.min())), format_quantity(int(there.max()))
    return f", {least if least == most else f'{least} to {most}'} taken by others" if there.any() else ""


def _why_there(state: State, record: JobRecord, by: str) -> tuple[str, ...]:
    """Where a job is, who put it there, and the learned speeds of its type there and elsewhere."""
    where = ", ".join(f"{tasks_of(place.count, place.role)} on {place.server}" for place in record.places)
    lines = [f"it has {where}", *([f"decided by {by}"] if by else [])]
    here = {place.server for place in record.places}
    if record.phase == "starting":
        rows = {name: state.servers[name].index for name in sorted(here)}
        columns = {name: state.resources[name] for name, milli in record.job.total.items() if milli}
        over = (state.used > state.capacity) & (state.taken > 0)
        lines += [
            f"{server}: too little {resource}{_others(state, [row], k)}"
            for server, row in rows.items()
            for resource, k in columns.items()
            if over[row, k]
        ]
    known = [(server, speed) for type_, server, speed in state.learned if type_ == record.job.type]
    mine = [f"{server} {speed.mean:.3g} in {counted(speed.runs, 'run')}" for server, speed in known if server in here]
    lines.append(f"learned speed of {record.job.type} there: {', '.join(mine)}" if mine else "no learned speed there")
    others = [
        (server, speed)
        for server, speed in known
        if server not in here and state.servers[server].usable and state.servers[server].server.has(record.job.needs)
    ]
    best = sorted(others, key=lambda pair: -pair[1].mean)[:ALTERNATIVES]
    if best:
        lines.append(
            "elsewhere: "
            + ", ".join(f"{name} {speed.mean:.3g} in {counted(speed.runs, 'run')}" for name, speed in best)
        )
    elif record.job.type in speeds(state):
        lines.append("no learned speed elsewhere")
    return (*lines, *([record.reason] if record.reason else []))
