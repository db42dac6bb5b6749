"""Servers and what is held on them: by berth's jobs, by owner, and by others.

Axes: R servers, K resources.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from berth.errors import InvalidInput
from berth.files.quantities import Amounts
from berth.live.core.jobs import Job, Place, Server
from berth.live.core.records import JobRecord, ServerRecord
from berth.model import Ints

__all__ = ["Holdings", "taken"]


class Holdings:
    """Tables of servers and resources. Servers with the same value of the label `learn_by` are learned as one."""

    def __init__(self, learn_by: str | None = None) -> None:
        self.learn_by = learn_by
        self.servers: dict[str, ServerRecord] = {}
        self.resources: dict[str, int] = {}
        """Every resource that a server has, and its column."""
        self.capacity: Ints = np.zeros((0, 0), dtype=np.int64)
        self.used: Ints = np.zeros((0, 0), dtype=np.int64)
        """What is not free: what our jobs hold, and what others have taken."""
        self.taken: Ints = np.zeros((0, 0), dtype=np.int64)
        """What others have taken, as engines tell; with what our jobs hold it may be more than there is."""
        self.held: dict[str, dict[str, int]] = {}
        """What queues, teams and users hold now, as `queue:NAME`, `team:NAME` and `user:NAME`."""
        self.fits: dict[object, bool] = {}
        """Whether jobs of a shape would fit if nothing ran, as far as anybody asked since servers changed."""
        self.masks: dict[object, NDArray[np.bool_]] = {}
        """Servers that may be used (`None`), and those that have some labels, as far as anybody asked since then."""

    def server(self, name: str) -> ServerRecord:
        """The record of a server."""
        if name not in self.servers:
            raise InvalidInput("a server that is known", value=name, key="server")
        return self.servers[name]

    def group(self, server: str) -> str | None:
        """The label and value that servers have which are learned as one with this one; None where it is by itself."""
        known = self.servers.get(server)
        mine = None if known is None or self.learn_by is None else known.server.labels.get(self.learn_by)
        return None if mine is None else f"{self.learn_by}={mine}"

    def alike(self, places: Iterable[Place]) -> dict[str, tuple[str, ...]]:
        """For the server of each place, the servers that are learned as one with it; none without `learn_by`."""
        if self.learn_by is None:
            return {}
        groups = {place.server: self.group(place.server) for place in places}
        return {
            server: (server,) if group is None else tuple(name for name in self.servers if self.group(name) == group)
            for server, group in groups.items()
        }

    def put_server(self, server: Server, there: bool) -> bool:
        """A server that is new, changed or back (`there`); whether anything but what others hold of it changed."""
        known = self.servers.get(server.name)
        if known is not None and not (known.lost and there) and _same_but_taken(known.server, server):
            self.servers[server.name] = replace(known, server=server)
            self._take(known.index, server)
            return False
        if known is None:
            record = ServerRecord(server, len(self.servers))
        else:
            record = replace(known, server=server, lost=known.lost and not there)
        self.servers[server.name] = record
        for name in server.capacity:
            self.resources.setdefault(name, len(self.resources))
        shape = len(self.servers), len(self.resources)
        for table in ("capacity", "used", "taken"):
            old = getattr(self, table)
            new = np.zeros(shape, dtype=np.int64)
            new[: old.shape[0], : old.shape[1]] = old
            setattr(self, table, new)
        self.capacity[record.index] = 0
        for name, milli in server.capacity.items():
            self.capacity[record.index, self.resources[name]] = milli
        self._take(record.index, server)
        return True

    def _take(self, row: int, server: Server) -> None:
        """Others hold this much of a server now, whatever they held before."""
        self.used[row] -= self.taken[row]
        self.taken[row] = 0
        for name, milli in server.taken.items():
            self.taken[row, self.resources[name]] = milli
        self.used[row] += self.taken[row]

    def owners(self, job: Job) -> tuple[str, str, str]:
        """Under which names its holdings are counted."""
        return f"queue:{job.queue}", f"team:{job.team}", f"user:{job.user}"

    def hold(self, record: JobRecord, sign: int) -> None:
        """Count what a job holds (`sign` 1), or no longer holds (-1)."""
        total = taken(record.job, record.places)
        self.add(self.used, record.job, record.places, sign)
        for owner in self.owners(record.job):
            held = self.held.setdefault(owner, {})
            for name, milli in total.items():
                held[name] = held.get(name, 0) + sign * milli
                if not held[name]:
                    del held[name]
            if not held:
                del self.held[owner]

    def add(self, table: Ints, job: Job, places: Iterable[Place], sign: int) -> None:
        """Add what tasks take in these places to a table (R, K)."""
        demand = {role.name: role.demand for role in job.roles}
        for place in places:
            row = self.servers[place.server].index
            for name, milli in demand[place.role].items():
                if milli:
                    table[row, self.resources[name]] += sign * milli * place.count


def _same_but_taken(one: Server, other: Server) -> bool:
    """Whether servers differ in nothing but what others have taken, so that what would fit if nothing ran stays."""
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
