"""Alibaba cluster-trace-v2017: batch tasks of a cluster of 1,300 machines in a day.

The main table is `batch_task`. Its instances become the pieces of a job and start together, as in v2018. A task is
submitted at its create time; its run time is from there to its end, waiting included, as no start is published. With
`instances` (True for `batch_instance` beside it, or a path) run times are means over a task's instances. The variant
shipped with CloudSimPy (`submit_time`, `duration`, …) has those means already.

`server_event` beside it gives the machines. All files are read with or without a header. CPUs are cores, memory is a
share of the largest machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from berth.errors import InvalidInput
from berth.model import Resource
from berth.traces.formats import Format, Reading, any_of, columns, table
from berth.traces.formats.measured import mean_runs
from berth.traces.rows import Layout, Report, as_published, beside, first_line, read_rows, read_whole, schema
from berth.traces.trace import CORES, Source, job_table, machine_table

__all__ = ["FORMAT", "read", "read_instances"]

RESOURCES = (CORES, Resource("memory", "largest machine"))
STATUS = {"Terminated": "done", "Failed": "failed", "Cancelled": "cancelled", "Running": "running"}

TASKS = Layout(
    schema(
        "task_create_time:float! task_end_time:float job_id! task_id! number_of_instances:float status "
        "number_of_cpus_requested_per_instance_in_the_task:float "
        "normalized_memory_requested_per_instance_in_the_task:float"
    )
)
INSTANCES = Layout(
    schema(
        "start_timestamp:float end_timestamp:float job_id! task_id! machine_id status sequence_number:float "
        "total_sequence_number:float maximum_real_cpu_number:float average_real_cpu_number:float "
        "maximum_normalized_memory_usage:float average_normalized_memory_usage:float"
    )
)
SERVERS = Layout(
    schema(
        "timestamp:float! machine_id! event_type event_detail number_of_cpus:float normalized_memory:float "
        "normalized_disk_space:float"
    )
)
MEASURED = Layout(
    schema("submit_time:float! duration:float cpu:float memory:float job_id! task_id! instances_num:float")
)
JOB = pl.col("job_id") + "/" + pl.col("task_id")


def read(path: Path, machines: Path | None, report: Report, *, instances: bool | Path | str = False) -> Reading:
    """Read tasks, in either form, or the table of machines alone."""
    cells = [cell.strip() for cell in first_line(path).split(",")]
    if len(cells) == len(SERVERS.fields):
        return Reading(iter(()), RESOURCES, Source("alibaba-2017", (str(path),)), report, _machines(path, report))
    table = machines or beside(path, "server_event.csv")
    own = {"pieces": "the instances of a task, taken to start together; really each starts by itself"}
    measured: Path | None = None
    if "instances_num" in cells:
        jobs = _measured(path, report)
        own["run"] = "mean of the task's instances"
    elif len(cells) == len(TASKS.fields):
        measured = beside(path, "batch_instance*.csv") if instances is True else Path(instances) if instances else None
        if instances is True and measured is None:
            raise InvalidInput("batch_instance.csv beside it", found="no such file", file=path)
        jobs = _jobs(path, measured, report)
        own["run"] = "from the task's creation to its end" if measured is None else "mean of the task's instances"
    else:
        raise InvalidInput("batch_task or server_event", found=f"{len(cells)} columns", file=path)
    files = tuple(str(item) for item in (path, table, measured) if item is not None)
    known = None if table is None else _machines(table, report.beside())
    return Reading(jobs, RESOURCES, Source("alibaba-2017", files, own), report, known)


def _jobs(path: Path, measured: Path | None, report: Report) -> Iterator[pl.DataFrame]:
    runs = None if measured is None else mean_runs(read_instances(measured, report.beside()))
    ended = pl.col("status").is_in(["Terminated", "Failed"])
    for frame in read_rows(path, as_published(path, TASKS), report):
        jobs = job_table(
            frame,
            RESOURCES,
            job=JOB,
            submit_s=pl.col("task_create_time"),
            run_s=pl.when(ended).then(pl.col("task_end_time") - pl.col("task_create_time")),
            pieces=pl.col("number_of_instances"),
            group=pl.col("job_id"),
            status=pl.col("status").replace_strict(STATUS, default=None, return_dtype=pl.String),
            cpu=pl.col("number_of_cpus_requested_per_instance_in_the_task") / 100,
            memory=pl.col("normalized_memory_requested_per_instance_in_the_task"),
        )
        yield jobs if runs is None else runs.put_into(jobs)


def _measured(path: Path, report: Report) -> Iterator[pl.DataFrame]:
    for frame in read_rows(path, MEASURED, report):
        yield job_table(
            frame,
            RESOURCES,
            job=JOB,
            submit_s=pl.col("submit_time"),
            run_s=pl.col("duration"),
            pieces=pl.col("instances_num"),
            group=pl.col("job_id"),
            cpu=pl.col("cpu"),
            memory=pl.col("memory"),
        )


def read_instances(path: Path, report: Report) -> Iterator[pl.DataFrame]:
    """Read every instance: `job` (as in the trace), `machine`, `start_s`, `run_s` and `status`."""
    for frame in read_rows(path, as_published(path, INSTANCES), report):
        run = pl.col("end_timestamp") - pl.col("start_timestamp")
        yield frame.select(
            JOB.alias("job"),
            pl.col("machine_id").alias("machine"),
            pl.col("start_timestamp").alias("start_s"),
            pl.when(pl.col("status").is_in(["Terminated", "Failed"]) & (run >= 0)).then(run).alias("run_s"),
            pl.col("status").replace_strict(STATUS, default=None, return_dtype=pl.String).alias("status"),
        )


def _machines(path: Path, report: Report) -> pl.DataFrame:
    """Machines as last added; errors are published without an end, so they are not outages here."""
    rows = read_whole(path, as_published(path, SERVERS), report).filter(pl.col("event_type") == "add")
    last = rows.sort("timestamp", maintain_order=True).unique("machine_id", keep="last", maintain_order=True)
    return machine_table(
        last,
        RESOURCES,
        machine=pl.col("machine_id"),
        cpu=pl.col("number_of_cpus"),
        memory=pl.col("normalized_memory"),
    )


FORMAT = Format(
    "Alibaba cluster-trace-v2017",
    read,
    any_of(
        columns("task_create_time", "number_of_instances"),
        columns("submit_time", "duration", "instances_num"),
        table("batch_task", 8),
        table("server_event", 7),
    ),
)
