"""Time limits that a site sets in Slurm: the longest time limit of a partition, and reservations of nodes.

A reservation closes only whole nodes: if it holds some cores of its nodes, Slurm itself keeps jobs off these cores. A
job of berth never runs inside a reservation, since it does not name one (`--reservation`), unless the reservation
attracts the jobs of its users (flag MAGNETIC).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from berth.errors import InvalidInput
from berth.files.quantities import parse_duration
from berth.live.core.jobs import Server
from berth.live.engines import EngineError
from berth.live.engines.slurm.parsing import Node, number, read_field
from berth.traces.formats.slurm import expand_hosts

__all__ = [
    "GRACE",
    "Partition",
    "Reservation",
    "read_json_partitions",
    "read_json_reservations",
    "read_partitions",
    "read_reservations",
    "reserve",
]

GRACE = 60.0
"""Seconds between the time limit of a job, at which berth ends it, and the limit that Slurm gets."""
MARGIN = GRACE + 90.0
"""Seconds between the time limit of a job and a reservation: Slurm rounds limits up to minutes, and may start late."""
FLOATING = 300.0
"""Seconds to which the start of a floating reservation (flag TIME_FLOAT) is rounded down."""

RESERVED = frozenset({"RESERVED", "MAINT", "MAINTENANCE"})
"""States of nodes in a reservation that berth may not be allowed to see."""


@dataclass(frozen=True)
class Partition:
    """A partition: whether it is the default, and the longest time limit in seconds of its jobs."""

    name: str
    default: bool = False
    max_time: float | None = None


@dataclass(frozen=True)
class Reservation:
    """Nodes that Slurm reserves from `start` to `end`; `cores` is how many of their cores."""

    name: str
    start: float
    end: float
    nodes: frozenset[str]
    cores: int
    users: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()


def read_partitions(text: str) -> dict[str, Partition]:
    """Read the partitions of `scontrol -o show partitions`."""
    lines = [line for line in text.splitlines() if line.startswith("PartitionName=")]
    found = [
        Partition(
            read_field(line, "PartitionName"), read_field(line, "Default", "NO") == "YES", _seconds(line, "MaxTime")
        )
        for line in lines
    ]
    return {partition.name: partition for partition in found}


def _seconds(line: str, name: str) -> float | None:
    text = read_field(line, name, "UNLIMITED")
    if text in ("", "NONE", "UNLIMITED", "INFINITE"):
        return None
    try:
        return parse_duration(text, name)
    except InvalidInput as error:
        raise EngineError(f"scontrol show partitions: {error}") from None


def read_json_partitions(found: Mapping[str, Any]) -> dict[str, Partition]:
    """Read the partitions of slurmrestd."""
    partitions = []
    for one in found.get("partitions", []):
        minutes = number(one.get("max_time_limit"))
        longest = 60.0 * minutes if minutes is not None and 0 < minutes < 2**32 - 1 else None
        partitions.append(Partition(str(one.get("name")), "default" in (one.get("flags") or []), longest))
    return {partition.name: partition for partition in partitions}


def read_reservations(text: str) -> list[Reservation]:
    """Read the reservations of `scontrol -o show reservation`."""
    return [_reservation(line) for line in text.splitlines() if line.startswith("ReservationName=")]


def _reservation(line: str) -> Reservation:
    try:
        start, end = (datetime.fromisoformat(read_field(line, name)).timestamp() for name in ("StartTime", "EndTime"))
        return Reservation(
            read_field(line, "ReservationName"),
            start,
            end,
            frozenset(expand_hosts(read_field(line, "Nodes"))),
            int(read_field(line, "CoreCnt", "0") or 0),
            frozenset(read_field(line, "Users", "").split(",")),
            frozenset(read_field(line, "Flags", "").split(",")),
        )
    except ValueError:
        raise EngineError(f"scontrol show reservation: expected times and numbers, got {line[:120]!r}") from None


def read_json_reservations(found: Mapping[str, Any]) -> list[Reservation]:
    """Read the reservations of slurmrestd."""
    reservations = found.get("reservations")
    if not isinstance(reservations, list) or not all(isinstance(one, dict) for one in reservations):
        raise EngineError(f"slurmrestd GET /reservations: expected a list, got {str(reservations)[:120]}")
    return [
        Reservation(
            str(one.get("name")),
            number(one.get("start_time")) or 0.0,
            number(one.get("end_time")) or 0.0,
            frozenset(expand_hosts(str(one.get("node_list") or ""))),
            int(number(one.get("core_count")) or 0),
            frozenset(str(one.get("users") or "").split(",")),
            frozenset(str(flag).upper() for flag in one.get("flags") or ()),
        )
        for one in reservations
    ]


def reserve(
    servers: Mapping[str, Server],
    nodes: Mapping[str, Node],
    reservations: Sequence[Reservation],
    user: str,
    now: float,
) -> dict[str, Server]:
    """The servers, closed while a reservation holds the node, and open until the next one begins.

    Jobs start as `user`.
    """
    barring = [
        one
        for one in sorted(reservations, key=lambda one: one.start)
        if one.cores >= sum(nodes[name].cpus // nodes[name].threads for name in one.nodes if name in nodes)
        and not ("MAGNETIC" in one.flags and user in one.users)
    ]
    known = {name for one in reservations for name in one.nodes}
    return {
        name: _reserved(found, [one for one in barring if name in one.nodes and one.end > now], now)
        if name in known or not nodes[name].states & RESERVED
        else replace(found, closed=found.closed or "reserved in Slurm")
        for name, found in servers.items()
    }


def _reserved(server: Server, reservations: Sequence[Reservation], now: float) -> Server:
    """A server with its reservations, which are in order of their starts."""
    for one in reservations:
        if one.start > now:
            moment = one.start - one.start % FLOATING if "TIME_FLOAT" in one.flags else one.start
            reason = f"Slurm reservation {one.name} begins at {_clock(moment)}"
            return replace(server, until=moment - MARGIN, until_reason=reason)
        closed = f"in Slurm reservation {one.name} until {_clock(one.end)}"
        server = replace(server, closed=server.closed or closed)
    return server


def _clock(moment: float) -> str:
    return datetime.fromtimestamp(moment).isoformat(" ", "minutes")
