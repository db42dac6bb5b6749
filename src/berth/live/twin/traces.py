"""Streams from traces: arrivals, sizes, requests and run times of real jobs, with speeds that a user states."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from berth.errors import InvalidInput
from berth.files.quantities import MILLI, Amounts
from berth.live.core.jobs import Server
from berth.live.twin.served import UNITS
from berth.live.twin.streams import Gang, Speeds, server_effects
from berth.random import stream
from berth.traces.formats import load_trace

__all__ = ["OTHERS", "TraceStream", "fine_units", "in_units", "trace_gangs"]

OTHERS = "others"
"""Stands for all kinds of jobs of which no speeds are stated."""
SHORTEST = 1e-3
"""Seconds that a job of the trace runs at least."""
BITS = 40
"""An amount is told from another that differs by 2 ** -BITS of the largest machine."""


@dataclass(frozen=True)
class TraceStream:
    """The jobs of a trace, with speeds by type and class of server; a seed decides only the luck of runs."""

    jobs: tuple[Gang, ...]
    servers: tuple[Server, ...]
    table: Mapping[str, Mapping[str, float]]
    luck: float = 0.1
    effect: float = 0.0
    mixes: bool = True
    units: Amounts = field(default_factory=dict)

    @property
    def demand(self) -> Amounts:
        return {}

    @property
    def speeds(self) -> Speeds:
        types = {gang.type for gang in self.jobs}
        rows = {type_: self.table.get(type_, self.table.get(OTHERS, {})) for type_ in sorted(types)}
        return {(t, name, s): v for t, row in rows.items() for name, v in row.items() for s in (False, True)}

    def gangs(self, seed: int) -> list[Gang]:
        rng = stream(seed, "trace-stream")
        classes = sorted({name for gang in self.jobs for name in gang.seconds})
        luck = np.exp(self.luck * rng.standard_normal((len(self.jobs), len(classes))))
        return [
            replace(gang, seconds={n: s * float(row[classes.index(n)]) for n, s in gang.seconds.items()})
            for gang, row in zip(self.jobs, luck, strict=True)
        ]

    def effects(self, seed: int) -> Mapping[str, float]:
        return server_effects(self.servers, self.effect, seed)


def fine_units(servers: Iterable[Server]) -> dict[str, int]:
    """Whole numbers in one unit of each resource: a thousand times a power of two, so that servers are not rounded.

    >>> fine_units([Server("n1", {"cpu": 1000}), Server("n2", {"cpu": 500, "memory": 2**50})])
    {'cpu': 2147483648000, 'memory': 1000}
    """
    most: dict[str, int] = {}
    for server in servers:
        for name, milli in server.capacity.items():
            most[name] = max(most.get(name, 0), milli)
    return {name: MILLI << max(BITS + 1 - milli.bit_length(), 0) for name, milli in most.items()}


def in_units(server: Server, units: Amounts) -> Server:
    """A server with its capacity in these units."""
    return replace(server, capacity={name: milli * (units[name] // MILLI) for name, milli in server.capacity.items()})


def trace_gangs(
    path: Path, types: Mapping[str, Mapping[str, float]], first: int | None = None, units: Amounts | None = None
) -> Iterator[Gang]:
    """The jobs of a trace that ran, in the order of arrival; the type of a job is its kind.

    Requests are counted in `units` of what servers count (memory in bytes), rounded down so that three thirds fit, but
    none to nothing.
    """
    units = units or {}
    trace = load_trace(path)
    rows = trace.jobs.filter(trace.jobs["run_s"].is_not_null() & trace.jobs["submit_s"].is_not_null()).sort("submit_s")
    if not len(rows):
        raise InvalidInput("jobs with times of submission and run times", found="none", file=str(path))
    each = {one.name: units.get(one.name, MILLI) * UNITS.get(one.unit, 1) for one in trace.resources}
    start = rows["submit_s"][0]
    for i, row in enumerate(rows.head(first or len(rows)).iter_rows(named=True)):
        kind = _type(row["kind"] or OTHERS)
        speeds = types.get(kind, types.get(OTHERS))
        if speeds is None:
            expected = f"speeds of this kind of job under types, or of {OTHERS}"
            raise InvalidInput(expected, value=kind, key="trace.types", file=str(path))
        work = max(row["run_s"], SHORTEST)
        demand = {name: max(int(Fraction(repr(row[name])) * whole), 1) for name, whole in each.items() if row[name]}
        seconds = {name: work / speed for name, speed in speeds.items()}
        owner = {name: row[name] for name in ("user", "group", "kind")}
        yield Gang(f"g{i}", kind, row["pieces"] or 1, row["submit_s"] - start, work, seconds, demand=demand, **owner)


def _type(kind: str) -> str:
    """A kind of a log as the type of a job.

    >>> _type("batch queue"), _type("_gpu"), _type("a//.b/"), _type("(-)")
    ('batch-queue', 'gpu', 'a/b', 'others')
    """
    plain = re.sub(r"[^A-Za-z0-9._@/-]", "-", kind).strip("-/")
    return re.sub(r"(^|/)[^A-Za-z0-9]+", r"\1", plain)[:128].rstrip("/") or OTHERS
