"""Workload type: jobs and machines as tables, with units.

Times are seconds from the trace's own zero. A job has a number of equal `pieces` that start and end together; each
takes the amounts of the resource columns on one machine. A value that the publisher does not give is null, never −1 or
0.

Resource columns follow those named here and have the names in `Trace.resources`, which also holds their units.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import polars as pl

from berth.errors import InvalidInput
from berth.model import Resource

__all__ = [
    "CORES",
    "GPUS",
    "JOB_COLUMNS",
    "MACHINE_COLUMNS",
    "MEMORY",
    "OUTAGE_COLUMNS",
    "Source",
    "Trace",
    "job_table",
    "machine_table",
]

JOB_COLUMNS: Mapping[str, Any] = {
    "job": pl.String,
    "submit_s": pl.Float64,
    "wait_s": pl.Float64,
    "run_s": pl.Float64,
    "estimate_s": pl.Float64,
    "pieces": pl.Int64,
    "user": pl.String,
    "group": pl.String,
    "kind": pl.String,
    "script": pl.String,
    "needs": pl.String,
    "status": pl.String,
}
"""Columns of every jobs table, besides its resources (Float64, per piece).

* `job`: name; `submit_s`: submission time; `wait_s`: waiting time in the log; `run_s`: run time in the log;
* `estimate_s`: the user's estimate of the run time;
* `pieces`: number of equal parts;
* `user`, `group`: owner; `kind`: queue, application, class or another column that tells types of jobs apart;
* `script`: name of what the job runs: its script, application or job name;
* `needs`: labels of machines that the job may use, alternatives separated by `|`; null: any machine;
* `status`: `done`, `failed`, `cancelled`, `running` (at the end of the trace) or null.
"""

MACHINE_COLUMNS: Mapping[str, Any] = {
    "machine": pl.String,
    "count": pl.Int64,
    "label": pl.String,
    "group": pl.String,
    "speed": pl.Float64,
}
"""Columns of every machines table, besides its resources (Float64, for each machine of the row).

* `machine`: name; `count`: number of machines that the row stands for;
* `label`: what jobs name in `needs`, such as the GPU model; `group`: rack, cluster, failure domain or platform;
* `speed`: relative speed, 1 if unknown.
"""

OUTAGE_COLUMNS: Mapping[str, Any] = {"machine": pl.String, "down_s": pl.Float64, "up_s": pl.Float64}
"""Downtimes of machines: start and end (null: for good)."""

CORES, MEMORY, GPUS = Resource("cpu", "core"), Resource("memory", "GiB"), Resource("gpu", "device")
"""Resources of most traces; traces with other units define their own."""


@dataclass(frozen=True)
class Source:
    """Origin of a trace: its `format`, the `files` that were read, and notes of the publisher."""

    format: str
    files: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Trace:
    """A workload.

    >>> jobs = {"job": ["a", "b"], "submit_s": [0.0, 5.0], "run_s": [60.0, 10.0], "pieces": [4, 1], "cpu": [1.0, 2.0]}
    >>> trace = Trace.of(jobs, {"machine": ["m"], "count": [2], "cpu": [8.0]}, [CORES])
    >>> trace.jobs.select("job", "pieces", "cpu", "user").rows()
    [('a', 4, 1.0, None), ('b', 1, 2.0, None)]
    """

    jobs: pl.DataFrame
    machines: pl.DataFrame
    resources: tuple[Resource, ...]
    source: Source = Source("memory")
    outages: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dict(OUTAGE_COLUMNS)))

    def __post_init__(self) -> None:
        names = [resource.name for resource in self.resources]
        for title, table, columns in (("jobs", self.jobs, JOB_COLUMNS), ("machines", self.machines, MACHINE_COLUMNS)):
            wanted = {**columns, **dict.fromkeys(names, pl.Float64)}
            if dict(table.schema) != wanted:
                raise InvalidInput(f"columns {', '.join(wanted)} of their types", found=str(table.schema), key=title)

    @classmethod
    def of(
        cls,
        jobs: Mapping[str, Sequence[Any]] | pl.DataFrame,
        machines: Mapping[str, Sequence[Any]] | pl.DataFrame | None = None,
        resources: Sequence[Resource] = (CORES,),
        source: Source | None = None,
        outages: pl.DataFrame | None = None,
    ) -> Trace:
        """Build a trace from tables that may lack columns; sets their order and types."""
        return cls(
            filled(jobs, JOB_COLUMNS, resources),
            filled({} if machines is None else machines, MACHINE_COLUMNS, resources),
            tuple(resources),
            source or Source("memory"),
            *(() if outages is None else (outages,)),
        )

    def __len__(self) -> int:
        return len(self.jobs)

    def replace(self, **changes: Any) -> Self:
        """A copy with these fields changed, checked again."""
        return dataclasses.replace(self, **changes)


def filled(
    table: Mapping[str, Sequence[Any]] | pl.DataFrame, columns: Mapping[str, Any], resources: Sequence[Resource]
) -> pl.DataFrame:
    """Complete a table to every column of its kind, in order and of its type; missing columns are null."""
    frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame(table)
    if not frame.columns:
        frame = pl.DataFrame(schema=dict(columns))
    wanted = {**columns, **{resource.name: pl.Float64 for resource in resources}}
    unknown = [name for name in frame.columns if name not in wanted]
    if unknown:
        raise InvalidInput(f"one of {', '.join(wanted)}", value=unknown[0], key="column")
    missing = [pl.lit(None, dtype=kind).alias(name) for name, kind in wanted.items() if name not in frame.columns]
    return frame.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in wanted.items())


def job_table(frame: pl.DataFrame, resources: Sequence[Resource], **columns: pl.Expr) -> pl.DataFrame:
    """Convert rows of a file to jobs, with an expression for each known column; `line` is kept."""
    known = frame.select(value.alias(name) for name, value in columns.items())
    return filled(known, JOB_COLUMNS, resources).insert_column(0, frame["line"])


def machine_table(frame: pl.DataFrame, resources: Sequence[Resource], **columns: pl.Expr) -> pl.DataFrame:
    """Convert rows of a file to machines; by default each is one machine of speed 1."""
    known = {"count": pl.lit(1), "speed": pl.lit(1.0), **columns}
    return filled(frame.select(value.alias(name) for name, value in known.items()), MACHINE_COLUMNS, resources)
