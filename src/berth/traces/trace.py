"""One type for every workload: jobs and machines as tables, with units.

Times are seconds from the trace's own zero. A job is so many equal `pieces` that start and end together, each of which
takes the amounts of the resource columns on one machine. What a publisher does not tell is null, never −1 or 0.

Resource columns come after those named here and bear the names of `Trace.resources`; their units are there too.
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
    "needs": pl.String,
    "status": pl.String,
}
"""What every jobs table has, beside its resources (Float64, for each piece).

* `job`: its name; `submit_s`: when it came; `wait_s`: how long it waited there; `run_s`: how long it ran there;
* `estimate_s`: how long its user said it would run;
* `pieces`: how many equal parts it has;
* `user`, `group`: whose it is; `kind`: its queue, application, class or whatever tells types of jobs apart;
* `needs`: labels of machines that it may use, any of those separated by `|`; null: any machine;
* `status`: `done`, `failed`, `cancelled`, `running` (at the end of the trace) or null.
"""

MACHINE_COLUMNS: Mapping[str, Any] = {
    "machine": pl.String,
    "count": pl.Int64,
    "label": pl.String,
    "group": pl.String,
    "speed": pl.Float64,
}
"""What every machines table has, beside its resources (Float64, for each machine of the row).

* `machine`: its name; `count`: how many machines the row stands for;
* `label`: what jobs name in `needs`, such as the model of its GPUs; `group`: rack, cluster, failure domain or platform;
* `speed`: how fast it is, 1 where nothing is known.
"""

OUTAGE_COLUMNS: Mapping[str, Any] = {"machine": pl.String, "down_s": pl.Float64, "up_s": pl.Float64}
"""Machines that were away: from when until when (null: for good)."""

CORES, MEMORY, GPUS = Resource("cpu", "core"), Resource("memory", "GiB"), Resource("gpu", "device")
"""The resources of most traces; those with other units say so."""


@dataclass(frozen=True)
class Source:
    """Where a trace comes from: its `format`, the `files` that were read, and what the publisher says of it."""

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
        """A trace from tables that may lack columns; they are put in order and given their types."""
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
    """The table with every column of its kind, in order and of its type; columns that it lacks are null."""
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
    """Rows of a file as jobs: an expression for each column that is known; `line` is taken over."""
    known = frame.select(value.alias(name) for name, value in columns.items())
    return filled(known, JOB_COLUMNS, resources).insert_column(0, frame["line"])


def machine_table(frame: pl.DataFrame, resources: Sequence[Resource], **columns: pl.Expr) -> pl.DataFrame:
    """Rows of a file as machines; each is one machine of speed 1 unless said otherwise."""
    known = {"count": pl.lit(1), "speed": pl.lit(1.0), **columns}
    return filled(frame.select(value.alias(name) for name, value in known.items()), MACHINE_COLUMNS, resources)
