"""Alibaba cluster-trace-v2018: batch tasks of a cluster of some 4,000 machines in eight days.

The main table is `batch_task`. A task has `instance_num` equal instances, which become the pieces of one job. In the
cluster an instance may start without its siblings; starting them together is a modelling choice. Dependencies between
tasks of a job (encoded in their names) are left out as well. Only start and end are published, so the start counts as
the submission, and the wait is null.

`machine_meta` beside it gives the machines. With `instances` (True for `batch_instance` beside it, or a path) run times
are means over the instances of each task. All files are read with or without a header.

CPUs are cores (`plan_cpu` 100 is one), memory is in percent of the largest machine.
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

__all__ = ["FORMAT", "read", "read_instances", "read_usage"]

RESOURCES = (CORES, Resource("memory", "% of the largest machine"))
STATUS = {"Terminated": "done", "Failed": "failed", "Cancelled": "cancelled", "Running": "running"}

TASKS = Layout(
    schema(
        "task_name! instance_num:float job_name! task_type status start_time:float end_time:float plan_cpu:float "
        "plan_mem:float"
    )
)
INSTANCES = Layout(
    schema(
        "instance_name task_name! job_name! task_type status start_time:float end_time:float machine_id seq_no:float "
        "total_seq_no:float cpu_avg:float cpu_max:float mem_avg:float mem_max:float"
    )
)
MACHINES = Layout(
    schema("machine_id! time_stamp:float! failure_domain_1 failure_domain_2 cpu_num:float mem_size:float status")
)
USAGE = Layout(
    schema(
        "machine_id! time_stamp:float! cpu_util_percent:float mem_util_percent:float mem_gps:float mkpi:float "
        "net_in:float net_out:float disk_io_percent:float"
    )
)


def read(path: Path, machines: Path | None, report: Report, *, instances: bool | Path | str = False) -> Reading:
    """Read tasks, or the table of machines alone."""
    columns = len(first_line(path).split(","))
    if columns == len(MACHINES.fields):
        return Reading(iter(()), RESOURCES, Source("alibaba-2018", (str(path),)), report, _machines(path, report))
    usage = "machine_usage" in path.name or "cpu_util_percent" in first_line(path)
    if usage or columns != len(TASKS.fields):
        shown = "a table of usage" if usage else f"{columns} columns"
        raise InvalidInput("batch_task, or machine_meta for the machines alone", found=shown, file=path)
    table = machines or beside(path, "machine_meta.csv")
    measured = beside(path, "batch_instance*.csv") if instances is True else Path(instances) if instances else None
    if instances is True and measured is None:
        raise InvalidInput("batch_instance.csv beside it", found="no such file", file=path)
    files = tuple(str(item) for item in (path, table, measured) if item is not None)
    notes = {
        "pieces": "the instances of a task, taken to start together; really each starts by itself",
        "submit": "when the task started: no earlier time is published",
        "run": "from the task's start to its end" if measured is None else "mean of the task's instances",
    }
    return Reading(
        _jobs(path, measured, report),
        RESOURCES,
        Source("alibaba-2018", files, notes),
        report,
        None if table is None else _machines(table, report.beside()),
    )


def _jobs(path: Path, measured: Path | None, report: Report) -> Iterator[pl.DataFrame]:
    runs = None if measured is None else mean_runs(read_instances(measured, report.beside()))
    ended = pl.col("status").is_in(["Terminated", "Failed"])
    for frame in read_rows(path, as_published(path, TASKS), report):
        jobs = job_table(
            frame,
            RESOURCES,
            job=pl.col("job_name") + "/" + pl.col("task_name"),
            submit_s=pl.col("start_time"),
            run_s=pl.when(ended).then(pl.col("end_time") - pl.col("start_time")),
            pieces=pl.col("instance_num"),
            group=pl.col("job_name"),
            kind=pl.col("task_type"),
            status=pl.col("status").replace_strict(STATUS, default=None, return_dtype=pl.String),
            cpu=pl.col("plan_cpu") / 100,
            memory=pl.col("plan_mem"),
        )
        yield jobs if runs is None else runs.put_into(jobs)


def read_instances(path: Path, report: Report) -> Iterator[pl.DataFrame]:
    """Read every instance: `job` (as in the trace), `machine`, `start_s`, `run_s` and `status`."""
    for frame in read_rows(path, as_published(path, INSTANCES), report):
        run = pl.col("end_time") - pl.col("start_time")
        yield frame.select(
            (pl.col("job_name") + "/" + pl.col("task_name")).alias("job"),
            pl.col("machine_id").alias("machine"),
            pl.col("start_time").alias("start_s"),
            pl.when(pl.col("status").is_in(["Terminated", "Failed"]) & (run >= 0)).then(run).alias("run_s"),
            pl.col("status").replace_strict(STATUS, default=None, return_dtype=pl.String).alias("status"),
        )


def _machines(path: Path, report: Report) -> pl.DataFrame:
    """Last record of each machine; machines whose last status is not USING are left out."""
    rows = read_whole(path, as_published(path, MACHINES), report)
    last = rows.sort("time_stamp", maintain_order=True).unique("machine_id", keep="last", maintain_order=True)
    using = last.filter(pl.col("status").is_null() | (pl.col("status") == "USING"))
    report.repair("machine that was not in use at the end, left out", len(last) - len(using))
    return machine_table(
        using.sort("machine_id"),
        RESOURCES,
        machine=pl.col("machine_id"),
        group=pl.col("failure_domain_1"),
        cpu=pl.col("cpu_num"),
        memory=pl.col("mem_size"),
    )


def read_usage(path: Path, report: Report | None = None) -> Iterator[pl.DataFrame]:
    """Read machine usage: `machine`, `time_s`, and `cpu` and `memory` as shares of its capacity, 0 to 1."""
    for frame in read_rows(path, as_published(path, USAGE), report or Report()):
        share = {name: pl.col(f"{name[:3]}_util_percent") for name in ("cpu", "memory")}
        yield frame.select(
            pl.col("machine_id").alias("machine"),
            pl.col("time_stamp").alias("time_s"),
            *(pl.when(value.is_between(0, 100)).then(value / 100).alias(name) for name, value in share.items()),
        )


FORMAT = Format(
    "Alibaba cluster-trace-v2018",
    read,
    any_of(
        columns("task_name", "instance_num", "plan_cpu"),
        columns("machine_id", "failure_domain_1"),
        columns("machine_id", "cpu_util_percent", "mem_util_percent"),
        table("batch_task", 9),
        table("machine_meta", 7),
        table("machine_usage", 9),
    ),
)
