"""Google cluster-data 2011 (clusterdata-2011-2): one cell of 12,500 machines in May 2011.

Tables are published without column names, each in a folder of parts `part-00000-of-00500.csv.gz`. Give any part of
`task_events` or `job_events`: all parts beside it are read (`parts=False`: that one alone), and the other of the two
tables and `machine_events` are looked for in the folders beside. `berth.traces.formats.google_events` converts events
to jobs. A job submitted before the trace has the time 0; the trace proper starts at 600.

The condensed table with a row per job (`job`, `submit_s`, `wait_s`, `run_s`, `end`, `sched_class`, `user`, `app`) is
read as well, with `machine_events` beside it; it has neither requests nor task counts.

CPU and memory are shares of the largest machine. A job's kind is its scheduling class, 0 (least) to 3 (most
latency-sensitive); its group is its logical name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from berth.errors import InvalidInput
from berth.traces.formats import Format, Reading, any_of, columns, google_events, table
from berth.traces.formats.google_events import RESOURCES, Events, Machines
from berth.traces.rows import Field, Layout, Report, as_published, beside, first_line, read_rows, schema
from berth.traces.rows import parts as all_parts
from berth.traces.trace import Source, job_table

__all__ = ["FORMAT", "read"]

EVENTS = Events(0, 1, {2: None, 3: "failed", 4: "done", 5: "cancelled", 6: None})
JOBS = Layout(
    (
        Field("time", pl.Int64, required=True),
        Field("missing info"),
        Field("job ID", required=True),
        Field("event type", pl.Int64, required=True),
        Field("user"),
        Field("scheduling class"),
        Field("job name"),
        Field("logical job name"),
    )
)
TASKS = Layout(
    (
        Field("time", pl.Int64, required=True),
        Field("missing info"),
        Field("job ID", required=True),
        Field("task index", pl.Int64, required=True),
        Field("machine ID"),
        Field("event type", pl.Int64, required=True),
        Field("user"),
        Field("scheduling class"),
        Field("priority"),
        Field("CPU request", pl.Float64),
        Field("memory request", pl.Float64),
        Field("disk space request", pl.Float64),
        Field("different machines restriction"),
    )
)
MACHINES = Layout(schema("time_us:int! machine_id! event_type:int! platform_id cpus:float memory:float"))
CONDENSED = Layout(schema("job! submit_s:float! wait_s:float run_s:float end sched_class user app"))
ENDS = {"FINISH": "done", "FAIL": "failed", "KILL": "cancelled"}


def read(path: Path, machines: Path | None, report: Report, *, parts: bool = True) -> Reading:
    """Read jobs, from either kind of table, or the machines alone."""
    cells = [cell.strip() for cell in first_line(path).split(",")]
    if len(cells) == len(MACHINES.fields):
        table, outages = _machines(_files(path, parts), report)
        return Reading(iter(()), RESOURCES, Source("google-2011", (str(path),)), report, table, outages)
    condensed = "submit_s" in cells
    known = machines or _beside(path, "machine_events", len(MACHINES.fields))
    source, jobs = _condensed(path, report) if condensed else _events(path, len(cells), parts, report)
    if known is None:
        return Reading(jobs, RESOURCES, source, report)
    table, outages = _machines(_files(known, parts), report.beside())
    source = Source(source.format, (*source.files, str(known)), source.notes)
    return Reading(jobs, RESOURCES, source, report, table, outages)


def _files(path: Path, parts: bool) -> list[Path]:
    return all_parts(path) if parts else [path]


def _beside(path: Path, name: str, columns: int) -> Path | None:
    """Table of this name, here or as parts in a folder beside; its number of columns must match."""
    folder = path.parent.parent / name
    inside = sorted(folder.glob("part-?????-of-?????.csv*")) if path.name.startswith("part-") else []
    found = inside[0] if inside else beside(path, f"{name}.csv", f"{name}-part-?????-of-?????.csv")
    return found if found is not None and len(first_line(found).split(",")) == columns else None


def _condensed(path: Path, report: Report) -> tuple[Source, Iterator[pl.DataFrame]]:
    return Source("google-2011", (str(path),), {"pieces": "not published in this table"}), (
        job_table(
            frame,
            RESOURCES,
            job=pl.col("job"),
            submit_s=pl.col("submit_s"),
            wait_s=pl.col("wait_s"),
            run_s=pl.col("run_s"),
            user=pl.col("user"),
            group=pl.col("app"),
            kind=pl.col("sched_class"),
            status=pl.when(pl.col("end").is_null())
            .then(pl.lit("running"))
            .otherwise(pl.col("end").replace_strict(ENDS, default=None, return_dtype=pl.String)),
        )
        for frame in read_rows(path, CONDENSED, report)
    )


def _events(path: Path, columns: int, parts: bool, report: Report) -> tuple[Source, Iterator[pl.DataFrame]]:
    tasks: Path | None
    jobs: Path | None
    if columns == len(TASKS.fields):
        tasks, jobs = path, _beside(path, "job_events", len(JOBS.fields))
    elif columns == len(JOBS.fields):
        tasks, jobs = _beside(path, "task_events", len(TASKS.fields)), path
    else:
        wanted = "task_events, job_events, machine_events or the table of jobs"
        raise InvalidInput(wanted, found=f"{columns} columns", file=path)
    files = [file for table in (tasks, jobs) if table is not None for file in _files(table, parts)]
    notes = {
        "pieces": "not known without task_events" if tasks is None else "tasks of a job that ask for the same",
        "times": "of the tasks of each job together" if jobs is None else "of the job",
    }
    source = Source("google-2011", tuple(str(file) for file in files), notes)
    return source, _made(path, tasks, jobs, parts, report)


def _made(path: Path, tasks: Path | None, jobs: Path | None, parts: bool, report: Report) -> Iterator[pl.DataFrame]:
    def rows(table: Path, layout: Layout, columns: dict[str, str]) -> Iterator[pl.DataFrame]:
        counted = report if table == path else report.beside()
        for file in _files(table, parts):
            for frame in read_rows(file, as_published(file, layout), counted):
                yield frame.select("line", *(pl.col(name).alias(new) for new, name in columns.items()))

    common = {"job": "job ID", "time": "time", "type": "event type", "user": "user", "kind": "scheduling class"}
    asked = {"index": "task index", "cpu": "CPU request", "memory": "memory request"}
    yield google_events.jobs(
        None if jobs is None else rows(jobs, JOBS, {**common, "group": "logical job name"}),
        None if tasks is None else rows(tasks, TASKS, {**common, **asked}),
        EVENTS,
        ["user", "kind"],
        ["group"],
        main="instances" if path == tasks else "collections",
    )


def _machines(files: list[Path], report: Report) -> tuple[pl.DataFrame, pl.DataFrame]:
    tables = [frame for file in files for frame in read_rows(file, as_published(file, MACHINES), report)]
    rows = pl.concat(tables).select(
        pl.col("machine_id").alias("machine"),
        pl.col("time_us").alias("time"),
        pl.col("event_type").alias("type"),
        pl.col("platform_id").alias("label"),
        pl.col("platform_id").alias("group"),
        pl.col("cpus").alias("cpu"),
        "memory",
    )
    return google_events.machines_and_outages(rows, Machines(0, 1))


FORMAT = Format(
    "Google cluster-data 2011",
    read,
    any_of(
        columns("submit_s", "wait_s", "sched_class"),
        columns("time_us", "machine_id", "event_type"),
        columns("job ID", "event type"),
        table("part-", 6, 8, 13),
    ),
)
