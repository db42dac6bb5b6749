"""Small changes that would let a waiting job start now.

Changes that make room are tried out: with the change made, the job fits. Changes of settings (a quota, a queue, an
order) name what is in the way, and are only offered if there is room.

A change is a list of steps to take together. If a pause or a quota holds the job back too, every change includes
lifting it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from berth.files.quantities import format_quantity
from berth.files.wording import spoken, tasks_of
from berth.live.core.jobs import Job, Role
from berth.live.core.records import JobRecord
from berth.live.core.state import State
from berth.live.core.view import placed_in_order, view_of
from berth.live.core.windows import Windows
from berth.model import Ints

__all__ = ["Change", "changes"]

ROOMY = np.iinfo(np.int64).max // 2
TRIED = 64
"""The most servers, and jobs, that are tried."""


@dataclass(frozen=True)
class Change:
    """What to do, in words; `kind` is end, limit, tasks, demand, label, resume, capacity, priority or settings."""

    kind: str
    steps: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return " and ".join(self.steps)


def changes(
    state: State, record: JobRecord, windows: Windows, over: Sequence[tuple[str, int, bool]], paused: bool, fits: bool
) -> tuple[Change, ...]:
    """Every kind of change that suffices by itself, given what holds the job back."""
    first: tuple[str, ...] = (f"resume queue {record.job.queue}",) if paused else ()
    for name, much, _ in over:
        first += (f"raise {'limit' if name.startswith('queue:') else 'quota'} {name} by {format_quantity(much)}",)
    if fits:
        return (
            (Change("settings", first),) if first else (Change("priority", ("raise its priority above all others",)),)
        )
    trial = _Trial(state, record, windows)
    kinds: tuple[tuple[str, Callable[[], str | None]], ...] = (
        ("end", trial.ends),
        ("limit", trial.shorter),
        ("tasks", trial.fewer),
        ("demand", trial.smaller),
        ("label", trial.labelled),
        ("resume", trial.resumed),
        ("capacity", trial.more),
    )
    found = [(kind, words()) for kind, words in kinds]
    return tuple(Change(kind, (*first, text)) for kind, text in found if text is not None)


def new_servers(job: Job, missing: int | None = None) -> Change:
    """New servers for a job that no server can run: one for each missing task, or one for all roles."""
    if len(job.roles) == 1:
        count, demand = missing or job.roles[0].minimum, dict(job.roles[0].demand)
    else:
        count, demand = 1, {name: 0 for role in job.roles for name in role.demand}
        for role in job.roles:
            for name, milli in role.demand.items():
                demand[name] += milli * role.minimum
    has = " and ".join(f"{format_quantity(milli)} {name}" for name, milli in demand.items() if milli) or "anything"
    label = f" and the label {_labels(job.needs)}" if job.needs else ""
    servers = "a server" if count == 1 else f"{count} servers"
    return Change("capacity", (f"add {servers} with {has}{' each' if count > 1 else ''}{label}",))


def _labels(needs: Mapping[str, str]) -> str:
    """Labels to give to a server; the first of the alternatives."""
    return ", ".join(f"{label}={wanted.split('|')[0]}" for label, wanted in needs.items())


class _Trial:
    """A job and what is free for it, to try changes on."""

    def __init__(self, state: State, record: JobRecord, windows: Windows) -> None:
        self.state, self.record, self.time = state, record, windows.time
        self._windows, self._allowed = windows, windows.allows(record)
        self.free = windows.free(record)

    def fits(self, free: Ints | None = None, job: Job | None = None) -> bool:
        record = self.record if job is None else replace(self.record, job=job)
        view = view_of(self.state, self.time, (record,), self.free if free is None else free)
        return bool(len(placed_in_order(view).job))

    # ------------------------------------------------------------------ others end

    def _with(self, gone: Sequence[JobRecord]) -> Ints:
        over = np.maximum(self.state.used - self.state.capacity, 0)  # foreign jobs have taken what berth's jobs hold
        free = self.free - over
        for other in gone:
            usable = [place for place in other.places if self._allowed[self.state.servers[place.server].index]]
            self.state.add(free, other.job, usable, 1)
        left: Ints = np.clip(free, 0, self.state.capacity)
        return left

    def ends(self) -> str | None:
        """Wait for running jobs to end: as few as suffice, on the servers that need the fewest ends."""
        order = self._helpful()
        if not order or not self.fits(self._with(order)):
            return None
        few, many = 0, len(order)
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (few, middle) if self.fits(self._with(order[:middle])) else (middle, many)
        chosen = order[:many]
        for other in list(chosen[:TRIED]):
            rest = [r for r in chosen if r is not other]
            if self.fits(self._with(rest)):
                chosen = rest
        names = [other.job.id for other in chosen]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        return f"wait for the end of {shown}" if len(names) == 1 else f"wait for the end of {len(names)} jobs: {shown}"

    def _helpful(self) -> list[JobRecord]:
        """Running jobs, server by server, starting where the fewest must end to make room for one more task."""
        state, needs = self.state, self.record.job.needs
        here: dict[str, list[tuple[int, JobRecord, dict[str, int]]]] = {}
        for other in state.jobs.values():
            for place in other.places:
                role = next(r for r in other.job.roles if r.name == place.role)
                held = {name: milli * place.count for name, milli in role.demand.items()}
                here.setdefault(place.server, []).append((sum(held.values()), other, held))
        ranked: list[tuple[int, int, list[JobRecord]]] = []
        for name, jobs in here.items():
            server = state.servers[name]
            if not server.usable or not server.server.has(needs):
                continue
            need = self._ending(server.index, jobs)
            if need is not None:
                ranked.append((len(need), server.index, need))
        ranked.sort(key=lambda item: item[:2])
        return list({r.number: r for _, _, jobs in ranked for r in jobs}.values())

    def _ending(self, row: int, jobs: list[tuple[int, JobRecord, dict[str, int]]]) -> list[JobRecord] | None:
        """Jobs of a server in the best order to end them: first those that make room for a task."""
        free = dict(zip(self.state.resources, self.free[row].tolist(), strict=True))
        lacks = [role.demand for role in self.record.job.roles]
        first: list[JobRecord] = []
        later: list[JobRecord] = []
        room = False
        for _, other, held in sorted(jobs, key=lambda item: -item[0]):
            (later if room else first).append(other)
            for name, milli in held.items():
                free[name] = free.get(name, 0) + milli
            room = room or any(all(free.get(k, 0) >= v for k, v in demand.items()) for demand in lacks)
        return [*first, *later] if room else None

    # ------------------------------------------------------------------ the job is smaller

    def shorter(self) -> str | None:
        """Set a time limit that ends before the servers are needed for something else."""
        for deadline in self._windows.deadlines():
            seconds = math.floor(deadline - self.time)
            if seconds < 1:
                continue
            if self.fits(self._windows.free(replace(self.record, job=self.record.job.replace(limit=float(seconds))))):
                return f"submit it with a time limit of at most {spoken(seconds)}"
        return None

    def _role(self, place: int, **how: Any) -> Job:
        roles = list(self.record.job.roles)
        roles[place] = replace(roles[place], **how)
        return self.record.job.replace(roles=tuple(roles))

    def fewer(self) -> str | None:
        """Run with fewer tasks of one role."""
        for i, role in enumerate(self.record.job.roles):
            few, many = 0, role.minimum
            while many - few > 1:
                middle = (few + many) // 2
                fits = self.fits(job=self._role(i, count=middle, minimum=middle))
                few, many = (middle, many) if fits else (few, middle)
            if few:
                return f"run it with {tasks_of(few, role.name)} instead of {role.minimum}"
        return None

    def smaller(self) -> str | None:
        """Ask for less of one resource for the tasks of one role."""
        for i, role in enumerate(self.record.job.roles):
            for name, asked in role.demand.items():
                if asked and self.fits(job=self._less(i, role, name, 0)):
                    few, many = 0, asked
                    unit = 1000 if asked % 1000 == 0 else 1
                    while many - few > unit:
                        middle = few + max((many - few) // 2 // unit, 1) * unit
                        fits = self.fits(job=self._less(i, role, name, middle))
                        few, many = (middle, many) if fits else (few, middle)
                    if few:
                        less = f"{format_quantity(few)} {name} instead of {format_quantity(asked)}"
                        return f"ask for {less} for each {tasks_of(1, role.name).removeprefix('1 ')}"
        return None

    def _less(self, place: int, role: Role, name: str, milli: int) -> Job:
        return self._role(place, demand={**role.demand, name: milli})

    # ------------------------------------------------------------------ the cluster is larger

    def labelled(self) -> str | None:
        """Give servers the labels that it needs: as few servers as suffice, those with most room first."""
        needs = self.record.job.needs
        if not needs:
            return None
        view = view_of(self.state, self.time, (self.record,), self.free)
        demand = view.gangs.demand.max(axis=0)
        room = np.where(demand > 0, view.free // np.maximum(demand, 1), ROOMY).min(axis=1)
        others = np.flatnonzero(view.usable & ~view.reach[0] & (room > 0))
        order = others[np.argsort(-room[others], kind="stable")][:TRIED]
        reach = view.reach.copy()
        for count, row in enumerate(order.tolist(), 1):
            reach[0, row] = True
            if len(placed_in_order(replace(view, reach=reach)).job):
                names = [view.servers[r] for r in order[:count].tolist()]
                shown = ", ".join(names[:5]) + (f" and {count - 5} more" if count > 5 else "")
                return f"label {shown} with {_labels(needs)}"
        return None

    def resumed(self) -> str | None:
        """Resume a drained server."""
        drained = [name for name, record in self.state.servers.items() if record.drained and not record.lost]
        for name in drained[:TRIED]:
            usable = np.array([r.usable or r.server.name == name for r in self.state.servers.values()], dtype=bool)
            view = view_of(self.state, self.time, (self.record,), self.free)
            free = np.where(usable[:, None], self.free, 0)
            reach = np.array([[r.server.has(self.record.job.needs) for r in self.state.servers.values()]]) & usable
            if len(placed_in_order(replace(view, free=free, usable=usable, reach=reach)).job):
                return f"resume server {name}"
        return None

    def more(self) -> str | None:
        """Add resources to the server that lacks least, for a job of one role; add servers if none has the resource."""
        if len(self.record.job.roles) > 1:
            return None
        view = view_of(self.state, self.time, (self.record,), self.free)
        demand = view.gangs.demand[0]
        each = np.where(demand > 0, view.free // np.maximum(demand, 1), ROOMY).min(axis=1)
        room = np.where(view.reach[0], np.minimum(each, view.gangs.each[0]), 0)
        missing = int(view.gangs.minimum[0] - room.sum())
        servers = np.flatnonzero(view.reach[0] & self._allowed & (view.capacity[:, demand > 0] > 0).all(axis=1))
        if missing <= 0:
            return None
        if not len(servers):
            return str(new_servers(self.record.job, missing))
        short = np.maximum((room[servers, None] + missing) * demand - view.free[servers], 0)
        best = int(np.argmin((short * view.weight).sum(axis=1)))
        row, lacking = int(servers[best]), short[best]
        free = self.free.copy()
        free[row] += lacking
        if not self.fits(free):
            return None
        names = [f"{format_quantity(int(lacking[k]))} more {view.resources[k]}" for k in np.flatnonzero(lacking)]
        return f"add {' and '.join(names)} to {view.servers[row]}"
