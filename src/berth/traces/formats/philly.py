"""Microsoft Philly 2017: deep-learning training.

The published `cluster_job_log` is one big JSON array, read in blocks: memory holds one block and its jobs. A job's GPUs
are those of its last attempt; each is a piece. Its run time is that of all attempts together, its wait ends with the
first attempt. `cluster_machine_list` beside it gives the machines.

The extract made for Pollux is an unsorted CSV: `timestamp`, `duration` s, `num_gpus`, `gpu_time`, `cluster`.

Dates become seconds from the first midnight, given by the note `zero`. The file is read twice, since the first date may
be anywhere in it. They are read as printed, without a zone: a job that ran while the clocks were set back, on
2017-11-05, may count an hour too little. A job's group is its virtual cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, time
from pathlib import Path
from typing import Any

import polars as pl

from berth.errors import InvalidInput
from berth.traces.formats import Format, Reading, any_of, columns, table
from berth.traces.formats.measured import EXPECTED, first_midnight, with_seconds
from berth.traces.rows import (
    Field,
    Layout,
    Report,
    as_published,
    beside,
    first_line,
    read_rows,
    read_whole,
    schema,
)
from berth.traces.rows_json import read_json_array
from berth.traces.trace import GPUS, JOB_COLUMNS, Source, job_table, machine_table

__all__ = ["FORMAT", "read"]

RESOURCES = (GPUS,)
STATUS = {"Pass": "done", "Failed": "failed", "Killed": "cancelled"}
EXTRACT = Layout(schema("timestamp! duration:float num_gpus:float cluster"))
MACHINES = Layout((Field("machineId", required=True), Field("number of GPUs", pl.Float64), Field("single GPU mem")))
COLUMNS = ("job", "submit_s", "wait_s", "run_s", "pieces", "user", "group", "status")


def read(path: Path, machines: Path | None, report: Report) -> Reading:
    """Read jobs of the log or the extract, or the machines alone."""
    line = first_line(path)
    if line.startswith("["):
        zero, made = _log_zero(path), _log
    elif "timestamp" in line:
        zero, made = first_midnight(path, read_rows(path, EXTRACT, Report()), "timestamp"), _extract
    else:
        return Reading(iter(()), RESOURCES, Source("philly", (str(path),)), report, _machines(path, report))
    table = machines or beside(path, "cluster_machine_list", "cluster_machine_list.csv")
    known = None if table is None else _machines(table, report.beside())
    files = (str(path), *(() if table is None else (str(table),)))
    source = Source("philly", files, {"zero": f"{zero}, the midnight before the first submission, local time"})
    return Reading(made(path, zero, report), RESOURCES, source, report, known)


def _extract(path: Path, zero: datetime, report: Report) -> Iterator[pl.DataFrame]:
    number = 0
    for frame in read_rows(path, EXTRACT, report):
        dated = with_seconds(path, frame, ["timestamp"], zero, report)
        yield job_table(
            dated,
            RESOURCES,
            job=(pl.int_range(pl.len()) + number).cast(pl.String),
            submit_s=pl.col("timestamp"),
            run_s=pl.col("duration"),
            pieces=pl.col("num_gpus"),
            group=pl.col("cluster"),
            gpu=pl.lit(1.0),
        )
        number += len(dated)


def _machines(path: Path, report: Report) -> pl.DataFrame:
    return machine_table(
        read_whole(path, as_published(path, MACHINES), report),
        RESOURCES,
        machine=pl.col("machineId").str.strip_chars(),
        label=pl.col("single GPU mem").str.strip_chars(),
        gpu=pl.col("number of GPUs"),
    )


# ---------------------------------------------------------------------------- the log


def _date(tree: dict[str, Any], key: str) -> datetime | None:
    value = tree.get(key)
    if value in (None, "", "None"):
        return None
    try:
        return datetime.strptime(value, "%Y-%m-%d %H:%M:%S")
    except (TypeError, ValueError):
        raise InvalidInput(EXPECTED, value=value, key=key) from None


def _log_zero(path: Path) -> datetime:
    earliest: datetime | None = None
    for objects in read_json_array(path, Report()):
        for _, tree in objects:
            try:
                date = _date(tree, "submitted_time")
            except InvalidInput:
                continue  # reported when the jobs are read
            if date is not None and (earliest is None or date < earliest):
                earliest = date
    if earliest is None:
        raise InvalidInput(f"a {EXPECTED}", found="none", key="submitted_time", file=path)
    return datetime.combine(earliest.date(), time())


def _log(path: Path, zero: datetime, report: Report) -> Iterator[pl.DataFrame]:
    schema = {"line": pl.Int64, **{name: JOB_COLUMNS[name] for name in COLUMNS}}
    for objects in read_json_array(path, report):
        rows = []
        for line, tree in objects:
            try:
                rows.append((line, *_job(tree, zero)))
            except InvalidInput as error:
                report.rows -= 1
                report.skip(f"no {error.expected.removeprefix('a ')}", error.at(file=path, line=line))
        if rows:
            frame = pl.DataFrame(rows, schema=schema, orient="row")
            gpu = pl.when(pl.col("pieces").is_not_null()).then(1.0)
            yield job_table(frame, RESOURCES, **{name: pl.col(name) for name in COLUMNS}, gpu=gpu)


def _job(tree: dict[str, Any], zero: datetime) -> tuple[object, ...]:
    """Columns of one job."""
    submitted = _date(tree, "submitted_time")
    if submitted is None:
        raise InvalidInput(EXPECTED, value=tree.get("submitted_time"), key="submitted_time")
    attempts = tree.get("attempts") or []
    if not isinstance(attempts, list) or not all(isinstance(attempt, dict) for attempt in attempts):
        raise InvalidInput("list of attempts", found=str(attempts)[:60], key="attempts")
    spans = [(_date(attempt, "start_time"), _date(attempt, "end_time")) for attempt in attempts]
    starts = [start for start, _ in spans if start is not None]
    runs = [(end - start).total_seconds() for start, end in spans if start is not None and end is not None]
    running = bool(spans) and spans[-1][1] is None
    gpus = [sum(len(part.get("gpus") or []) for part in attempt.get("detail") or []) for attempt in attempts]
    status = "running" if running else STATUS.get(str(tree.get("status")))
    return (
        str(tree.get("jobid")),
        (submitted - zero).total_seconds(),
        (min(starts) - submitted).total_seconds() if starts else None,
        sum(runs) if runs and not running else None,
        next((count for count in reversed(gpus) if count), None),
        tree.get("user"),
        tree.get("vc"),
        status,
    )


FORMAT = Format(
    "Microsoft Philly 2017",
    read,
    any_of(
        columns("timestamp", "duration", "num_gpus"),
        columns("machineId", "number of GPUs"),
        table("cluster_machine_list", 3),
        lambda _, line: line.startswith("["),
    ),
)
