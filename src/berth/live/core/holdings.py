"""Servers and what is held on them: by berth's jobs, by owner, and by foreign jobs.

Axes: R servers, K resources.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth.errors import InvalidInput
from berth.files.quantities import Amounts
from berth.live.core.jobs import Job, Place, Server
from berth.live.core.kernels.waiting import free_of
from berth.live.core.records import JobRecord, ServerRecord
from berth.model import Floats, Ints

__all__ = ["Holdings", "Needs", "taken"]

Needs = tuple[tuple[str, str], ...]
Known = TypeVar("Known")
KNOWN = 1_000
"""The most answers about servers that are cached."""


TABLES, COLUMNS = ("capacity", "used", "taken"), ("usable", "until", "speed")
"""Arrays with a row a server: (R, K), and (R,)."""


class Holdings:
    """Tables of servers and resources. Servers with the same value of the label `learn_by` share what is learned."""

    def __init__(self, learn_by: str | None = None, units: Amounts | None = None) -> None:
        self.learn_by = learn_by
        self.units = units or {}
        """How many whole numbers are one unit of a resource, where that is not a thousand."""
        self.servers: dict[str, ServerRecord] = {}
        self.resources: dict[str, int] = {}
        """Every resource that a server has, and its column."""
        self.capacity: Ints = np.zeros((0, 0), dtype=np.int64)
        self._whole: Ints | None = None
        self.usable: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        """Where new jobs may start (R,)."""
        self.until: Floats = np.zeros(0)
        """When engines close each server (R,), infinity where they do not."""
        self.speed: Floats = np.zeros(0)
        """The stated speed of each server (R,)."""
        self.used: Ints = np.zeros((0, 0), dtype=np.int64)
        """What is not free: what berth's jobs hold, and what others have taken."""
        self.taken: Ints = np.zeros((0, 0), dtype=np.int64)
        """What others have taken, as engines report; with what berth's jobs hold it may exceed the capacity."""
        self.held: dict[str, dict[str, int]] = {}
        """What queues, teams and users hold now, as `queue:NAME`, `team:NAME` and `user:NAME`."""
        self.on: dict[str, frozenset[str]] = {}
        """The jobs that hold something of each server. Sets are replaced, never changed: copies share them."""
        self.fits: dict[object, bool] = {}
        """Cache: whether jobs of a shape fit on an empty cluster. Replaced when servers change: copies may share it."""
        self._known: dict[object, Any] = {}
        """Cache of `known`. Cleared when servers change."""

    def with_own_tables(self) -> Self:
        """A copy whose servers and tables of resources do not change; all else is shared."""
        made = copy.copy(self)
        made.servers, made.resources = dict(self.servers), dict(self.resources)
        for table in (*TABLES, *COLUMNS):
            setattr(made, table, getattr(self, table).copy())
        made._known = {}
        return made

    def server(self, name: str) -> ServerRecord:
        """The record of a server."""
        if name not in self.servers:
            raise InvalidInput("a server that is known", value=name, key="server")
        return self.servers[name]

    def group(self, server: str) -> str | None:
        """The label and value of the servers that share what is learned with this one; None if it shares with none."""
        known = self.servers.get(server)
        mine = None if known is None or self.learn_by is None else known.server.labels.get(self.learn_by)
        return None if mine is None else f"{self.learn_by}={mine}"

    def alike(self, places: Iterable[Place]) -> dict[str, tuple[str, ...]]:
        """For the server of each place, the servers that share what is learned with it; empty without `learn_by`."""
        if self.learn_by is None:
            return {}
        groups = {place.server: self.group(place.server) for place in places}
        return {
            server: (server,) if group is None else tuple(name for name in self.servers if self.group(name) == group)
            for server, group in groups.items()
        }

    def put_server(self, server: Server, there: bool) -> bool:
        """Add, change or (`there`) bring back a server; whether anything changed besides what others hold."""
        known = self.servers.get(server.name)
        if known is not None and not (known.lost and there) and _same_but_taken(known.server, server):
            self.servers[server.name] = replace(known, server=server)
            self._take(known.index, server)
            return False
        if known is None:
            record = ServerRecord(server, len(self.servers))
        else:
            record = replace(known, server=server, lost=known.lost and not there)
        for name in server.capacity:
            self.resources.setdefault(name, len(self.resources))
        shape = max(len(self.servers), record.index + 1), len(self.resources)
        for table in (*TABLES, *COLUMNS):
            old = getattr(self, table)
            new = np.zeros(shape[: old.ndim], dtype=old.dtype)
            new[tuple(slice(size) for size in old.shape)] = old
            setattr(self, table, new)
        self._whole = None
        self.put_record(record)
        self.capacity[record.index] = 0
        for name, milli in server.capacity.items():
            self.capacity[record.index, self.resources[name]] = milli
        self._take(record.index, server)
        return True

    def put_record(self, record: ServerRecord) -> None:
        """Replace the record of a server."""
        self.servers[record.server.name], row = record, record.index
        self.usable[row], self.speed[row] = record.usable, record.server.speed
        self.until[row] = np.inf if record.server.until is None else record.server.until

    def _take(self, row: int, server: Server) -> None:
        """Replace what others hold of a server."""
        self.used[row] -= self.taken[row]
        self.taken[row] = 0
        for name, milli in server.taken.items():
            self.taken[row, self.resources[name]] = milli
        self.used[row] += self.taken[row]

    @property
    def whole(self) -> Ints:
        """What all servers have together (K,), added up once after they change."""
        if self._whole is None:
            self._whole = self.capacity.sum(axis=0)
        return self._whole

    def known(self, key: object, make: Callable[[], Known]) -> Known:
        """What `make` gives, kept under a key until servers change."""
        found: Known | None = self._known.get(key)
        if found is None:
            found = make()
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[key] = found
        return found

    def servers_changed(self) -> None:
        """Clear what is only true until servers change."""
        self.fits = {}
        self._known.clear()

    def label(self, name: str) -> tuple[dict[str, int], Ints]:
        """The values of a label by number, and which of them each server has (R,), or -1."""
        return self.known(("label", name), lambda: self._label(name))

    def _label(self, name: str) -> tuple[dict[str, int], Ints]:
        values: dict[str, int] = {}
        labels = (record.server.labels.get(name) for record in self.servers.values())
        numbers = [-1 if value is None else values.setdefault(value, len(values)) for value in labels]
        return values, np.array(numbers, dtype=np.int64)

    def having(self, needs: Needs) -> NDArray[np.bool_]:
        """Servers (R,) that have these labels, as `Server.has` says; not to be changed."""
        return self.known(("having", needs), lambda: self._having(needs))

    def _having(self, needs: Needs) -> NDArray[np.bool_]:
        found = np.ones(len(self.servers), dtype=bool)
        for name, wanted in needs:
            values, numbers = self.label(name)
            found &= np.isin(numbers, [values[value] for value in wanted.split("|") if value in values])
        found.flags.writeable = False  # it is shared
        return found

    def reachable(self, needs: Needs) -> NDArray[np.bool_]:
        """Usable servers (R,) that have these labels; not to be changed."""
        return self.known(("reachable", needs), lambda: self._reachable(needs))

    def _reachable(self, needs: Needs) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.having(needs) & self.usable
        found.flags.writeable = False  # it is shared
        return found

    @property
    def closes(self) -> bool:
        """Whether an engine closes any server at a time."""
        return self.known("closes", lambda: bool(np.isfinite(self.until).any()))

    def free(self) -> Ints:
        """What is free of each usable server (R, K)."""
        free = np.empty(self.capacity.shape, dtype=np.int64)
        free_of(self.capacity, self.used, self.usable, free)
        return free

    def owners(self, job: Job) -> tuple[str, str, str]:
        """The names under which its holdings are counted."""
        return f"queue:{job.queue}", f"team:{job.team}", f"user:{job.user}"

    def hold(self, record: JobRecord, sign: int) -> None:
        """Count what a job holds (`sign` 1), or releases (-1)."""
        total = taken(record.job, record.places)
        self.add(self.used, record.job, record.places, sign)
        for place in record.places:
            if sign > 0:
                self.on[place.server] = self.on.get(place.server, frozenset()) | {record.job.id}
            elif left := self.on.pop(place.server, frozenset()) - {record.job.id}:
                self.on[place.server] = left
        for owner in self.owners(record.job):
            held = self.held.setdefault(owner, {})
            for name, milli in total.items():
                held[name] = held.get(name, 0) + sign * milli
                if not held[name]:
                    del held[name]
            if not held:
                del self.held[owner]

    def add(self, table: Ints, job: Job, places: Iterable[Place], sign: int) -> None:
        """Add what the tasks in these places take to a table (R, K)."""
        demand = {role.name: role.demand for role in job.roles}
        for place in places:
            row = self.servers[place.server].index
            for name, milli in demand[place.role].items():
                if milli:
                    table[row, self.resources[name]] += sign * milli * place.count


def _same_but_taken(one: Server, other: Server) -> bool:
    """Whether two servers differ only in what others have taken, so that cached fits stay valid."""
    return replace(one, taken={}) == replace(other, taken={})


def taken(job: Job, places: Iterable[Place]) -> dict[str, int]:
    """What a job holds in all of these places."""
    demand: dict[str, Amounts] = {role.name: role.demand for role in job.roles}
    total: dict[str, int] = {}
    for place in places:
        for name, milli in demand[place.role].items():
            if milli:
                total[name] = total.get(name, 0) + milli * place.count
    return total
