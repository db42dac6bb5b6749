"""Alibaba cluster-trace-gpu-v2020: machine-learning jobs of PAI, two months on some 6,500 GPUs.

The main table is `pai_task_table`: a task has `inst_num` equal instances, which become the pieces of one job. Starting
them together is a modelling choice. `pai_job_table` beside it gives user and submission time; without it, the start of
a task counts as its submission. `pai_machine_spec` beside it gives the machines. With `instances` (True for
`pai_instance_table` beside it, or a path) run times are means over a task's instances. All files are read with or
without a header.

CPUs are cores and GPUs devices (`plan_cpu` and `plan_gpu` 100 are one), memory is in GiB. `gpu_type` is the type that a
task was allocated; it counts as the task's need if the task planned any GPU.

`read_minibatch` and `read_minibatch_cov` read measured mini-batch times of distributed training jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from berth.errors import InvalidInput
from berth.traces.formats import Format, Reading, any_of, columns, table
from berth.traces.formats.measured import mean_runs
from berth.traces.rows import Field, Layout, Report, as_published, beside, first_line, read_rows, read_whole, schema
from berth.traces.trace import CORES, GPUS, MEMORY, Source, job_table, machine_table

__all__ = ["FORMAT", "read", "read_instances", "read_minibatch", "read_minibatch_cov"]

RESOURCES = (CORES, MEMORY, GPUS)
STATUS = {"Terminated": "done", "Failed": "failed", "Running": "running"}

JOBS = Layout(schema("job_name! inst_id user status start_time:float end_time:float"))
TASKS = Layout(
    schema(
        "job_name! task_name! inst_num:float status start_time:float end_time:float plan_cpu:float plan_mem:float "
        "plan_gpu:float gpu_type"
    )
)
INSTANCES = Layout(
    schema("job_name! task_name! inst_name worker_name inst_id status start_time:float end_time:float machine")
)
MACHINES = Layout(schema("machine! gpu_type cap_cpu:float cap_mem:float cap_gpu:float"))
MINIBATCH = Layout(schema("worker:int! gpu_pct:float iteration:int! batch_time_norm:float!"))


def read(path: Path, machines: Path | None, report: Report, *, instances: bool | Path | str = False) -> Reading:
    """Read tasks, or the table of machines alone."""
    columns = len(first_line(path).split(","))
    if columns == len(MACHINES.fields):
        return Reading(iter(()), RESOURCES, Source("alibaba-gpu-2020", (str(path),)), report, _machines(path, report))
    if columns != len(TASKS.fields):
        wanted = "pai_task_table, or pai_machine_spec for the machines alone"
        raise InvalidInput(wanted, found=f"{columns} columns", file=path)
    table = machines or beside(path, "pai_machine_spec.csv")
    owners = beside(path, "pai_job_table.csv")
    measured = beside(path, "pai_instance_table.csv") if instances is True else Path(instances) if instances else None
    if instances is True and measured is None:
        raise InvalidInput("pai_instance_table.csv beside it", found="no such file", file=path)
    files = tuple(str(item) for item in (path, owners, table, measured) if item is not None)
    notes = {
        "pieces": "the instances of a task, taken to start together",
        "submit": "when the task started" if owners is None else "when its job was submitted",
        "needs": "the type of GPU that a task was given",
        "run": "from the task's start to its end" if measured is None else "mean of the task's instances",
    }
    known = None if table is None else _machines(table, report.beside())
    source = Source("alibaba-gpu-2020", files, notes)
    return Reading(_jobs(path, owners, measured, report), RESOURCES, source, report, known)


def _jobs(path: Path, owners: Path | None, measured: Path | None, report: Report) -> Iterator[pl.DataFrame]:
    runs = None if measured is None else mean_runs(read_instances(measured, report.beside()))
    owner = pl.DataFrame(schema={"job_name": pl.String, "user": pl.String, "submitted": pl.Float64})
    if owners is not None:  # holds one row per job in memory
        rows = read_whole(owners, as_published(owners, JOBS), report.beside()).unique("job_name", keep="first")
        owner = rows.select("job_name", "user", pl.col("start_time").alias("submitted"))
    ended = pl.col("status").is_in(["Terminated", "Failed"])
    start = pl.col("start_time")
    for frame in read_rows(path, as_published(path, TASKS), report):
        jobs = job_table(
            frame.join(owner, on="job_name", how="left").sort("line"),
            RESOURCES,
            job=pl.col("job_name") + "/" + pl.col("task_name"),
            submit_s=pl.coalesce("submitted", "start_time"),
            wait_s=start - pl.col("submitted"),
            run_s=pl.when(ended).then(pl.col("end_time") - start),
            pieces=pl.col("inst_num"),
            user=pl.col("user"),
            group=pl.col("job_name"),
            kind=pl.col("task_name"),
            needs=pl.when(pl.col("plan_gpu") > 0).then(pl.col("gpu_type")),
            status=pl.col("status").replace_strict(STATUS, default=None, return_dtype=pl.String),
            cpu=pl.col("plan_cpu") / 100,
            memory=pl.col("plan_mem"),
            gpu=pl.col("plan_gpu").fill_null(0.0) / 100,
        )
        yield jobs if runs is None else runs.put_into(jobs)


def read_instances(path: Path, report: Report) -> Iterator[pl.DataFrame]:
    """Read every instance: `job` (as in the trace), `machine`, `start_s`, `run_s` and `status`."""
    for frame in read_rows(path, as_published(path, INSTANCES), report):
        run = pl.col("end_time") - pl.col("start_time")
        yield frame.select(
            (pl.col("job_name") + "/" + pl.col("task_name")).alias("job"),
            "machine",
            pl.col("start_time").alias("start_s"),
            pl.when(pl.col("status").is_in(["Terminated", "Failed"]) & (run >= 0)).then(run).alias("run_s"),
            pl.col("status").replace_strict(STATUS, default=None, return_dtype=pl.String).alias("status"),
        )


def _machines(path: Path, report: Report) -> pl.DataFrame:
    return machine_table(
        read_whole(path, as_published(path, MACHINES), report),
        RESOURCES,
        machine=pl.col("machine"),
        label=pl.col("gpu_type"),
        cpu=pl.col("cap_cpu"),
        memory=pl.col("cap_mem"),
        gpu=pl.col("cap_gpu"),
    )


def read_minibatch(path: str | Path, report: Report | None = None) -> pl.DataFrame:
    """Read the time of each worker of one training job for each mini-batch.

    Columns `worker`, `gpu_share` (per worker, 0 to 1), `iteration`, `time` (0 to 1000, scaled within the job).
    """
    rows = read_whole(Path(path), MINIBATCH, report or Report(strict=True))
    return rows.select(
        "worker",
        (pl.col("gpu_pct") / 100).alias("gpu_share"),
        "iteration",
        pl.col("batch_time_norm").alias("time"),
    )


def read_minibatch_cov(path: str | Path, report: Report | None = None) -> pl.DataFrame:
    """Read the variation between the workers of a job: columns `job`, `iteration`, `cov`, one row per value.

    `cov` is the coefficient of variation of the mini-batch time over the workers in that iteration.
    """
    names = [name.strip() for name in first_line(Path(path)).split(",")]
    if names[0] != "job":
        raise InvalidInput("a column job", found=f"columns {', '.join(names[:4])}, …", file=path, line=1)
    fields = (Field("job", required=True), *(Field(name, pl.Float64) for name in names[1:]))
    rows = read_whole(Path(path), Layout(fields), report or Report(strict=True)).drop("line")
    long = rows.unpivot(index="job", variable_name="iteration", value_name="cov").drop_nulls("cov")
    return long.with_columns(pl.col("iteration").cast(pl.Int64)).sort("job", "iteration")


FORMAT = Format(
    "Alibaba cluster-trace-gpu-v2020 (PAI)",
    read,
    any_of(
        columns("task_name", "inst_num", "plan_gpu"),
        columns("machine", "cap_cpu", "cap_gpu"),
        table("pai_task_table", 10),
        table("pai_machine_spec", 5),
        table("pai_job_table", 6),
        table("pai_instance_table", 9),
    ),
)
