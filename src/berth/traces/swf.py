"""Standard Workload Format 2.2: batch logs of the Parallel Workloads Archive.

Eighteen columns of numbers, −1 where nothing is known; lines that begin with `;` tell of the machine. The size of a job
is what it requested (field 8), or what it got (field 5) where that is unknown; each of its processors is a piece.

A table of machines may lie beside the log, called like it with `.machines.tsv` for `.swf`: columns `cluster`, `nodes`,
`cpus_per_node`, `speed` and `mem_per_node_kib`. Without, the header's MaxNodes and MaxProcs are taken.

Logs of MetaCentrum have three columns more (nodes used, queue, request in words). They are known by that; there the
memory requested is that of the whole job, in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from berth.errors import InvalidInput
from berth.traces.formats import Reading
from berth.traces.reading import Field, Layout, Report, read_blocks, read_rows
from berth.traces.trace import CORES, MACHINE_COLUMNS, MEMORY, Source, filled

__all__ = ["FIELDS", "read", "read_fields"]

FIELDS = (
    "job",
    "submit",
    "wait",
    "run",
    "allocated",
    "cpu_time",
    "memory_used",
    "requested",
    "time_requested",
    "memory_requested",
    "status",
    "user",
    "group",
    "application",
    "queue",
    "partition",
    "preceding",
    "think_time",
)
"""The columns in the order of the standard; times in seconds, memory in KB a processor."""

LAYOUT = Layout(
    tuple(Field(name, pl.Float64, required=name in ("job", "submit")) for name in FIELDS),
    separator=" ",
    header=False,
    comment=";",
    more=True,
)
STATUS = {0.0: "failed", 1.0: "done", 5.0: "cancelled"}
RESOURCES = (CORES, MEMORY)


def read_fields(path: Path, report: Report) -> Iterator[pl.DataFrame]:
    """All eighteen columns as they stand, null for −1."""
    for frame in read_rows(path, LAYOUT, report):
        yield frame.with_columns(pl.when(pl.col(FIELDS) == -1).then(None).otherwise(pl.col(FIELDS)).name.keep())


def read(path: Path, machines: Path | None, report: Report) -> Reading:
    """A log; its machines from the table beside it, or from its header."""
    notes = header(path)
    beside = path.with_name(path.name.removesuffix(".gz").removesuffix(".swf") + ".machines.tsv")
    table = _machines(machines or beside) if machines is not None or beside.exists() else _from_header(path, notes)
    files = (str(path), *((str(machines or beside),) if machines is not None or beside.exists() else ()))
    whole = _metacentrum(path)
    jobs = (_jobs(frame, report, whole) for frame in read_fields(path, report))
    return Reading(jobs, RESOURCES, Source("swf", files, notes), report, table)


def header(path: Path) -> dict[str, str]:
    """What the lines say that begin with `;`: by key, repeated keys on several lines."""
    notes: dict[str, str] = {}
    _, block = next(read_blocks(path, 1 << 16))
    for line in block.decode("utf-8", "replace").splitlines():
        if not line.startswith(";"):
            if line.strip():
                break
            continue
        key, colon, value = line.lstrip("; \t").partition(":")
        if colon and key.strip() and " " not in key.strip():
            notes[key.strip()] = "\n".join(filter(None, (notes.get(key.strip()), value.strip())))
    return notes


def _metacentrum(path: Path) -> bool:
    _, block = next(read_blocks(path, 1 << 16))
    rows = [line.split() for line in block.splitlines() if line.strip() and not line.startswith(b";")]
    return bool(rows) and len(rows[0]) == len(FIELDS) + 3


def _jobs(frame: pl.DataFrame, report: Report, whole_job_bytes: bool = False) -> pl.DataFrame:
    asked = frame["requested"].is_null() | (frame["requested"] <= 0)
    report.repair("size taken from the processors that it got", int((asked & frame["allocated"].is_not_null()).sum()))
    size = pl.when(pl.col("requested") > 0).then(pl.col("requested")).otherwise(pl.col("allocated"))
    memory = pl.coalesce("memory_requested", "memory_used") / 1024**2
    if whole_job_bytes:
        memory = pl.when(size > 0).then(pl.col("memory_requested") / 1024**3 / size)
    name = {column: pl.col(column).cast(pl.Int64).cast(pl.String) for column in ("job", "user", "group", "queue")}
    return frame.select(
        "line",
        name["job"].alias("job"),
        pl.col("submit").alias("submit_s"),
        pl.col("wait").alias("wait_s"),
        pl.col("run").alias("run_s"),
        pl.col("time_requested").alias("estimate_s"),
        size.cast(pl.Int64).alias("pieces"),
        name["user"].alias("user"),
        name["group"].alias("group"),
        name["queue"].alias("kind"),
        pl.lit(None, dtype=pl.String).alias("needs"),
        pl.col("status").replace_strict(STATUS, default=None, return_dtype=pl.String).alias("status"),
        pl.when(size.is_not_null()).then(1.0).alias("cpu"),
        memory.alias("memory"),
    )


def _from_header(path: Path, notes: dict[str, str]) -> pl.DataFrame | None:
    numbers: dict[str, int] = {}
    for key in ("MaxNodes", "MaxProcs"):
        if key in notes:
            text = notes[key].split()[0].replace(",", "") if notes[key].split() else ""
            if not text.isdigit() or int(text) < 1:
                if text in ("-1", ""):
                    continue
                raise InvalidInput("a number ≥ 1", value=notes[key], key=f"; {key}", file=path)
            numbers[key] = int(text)
    if not numbers:
        return None
    nodes = numbers.get("MaxNodes", numbers.get("MaxProcs", 1))
    cores = numbers.get("MaxProcs", nodes) / nodes
    row: dict[str, list[object]] = {"machine": ["node"], "count": [nodes], "speed": [1.0], "cpu": [cores]}
    return filled(row, MACHINE_COLUMNS, RESOURCES)


def _machines(path: Path) -> pl.DataFrame:
    layout = Layout(
        (
            Field("cluster", required=True),
            Field("nodes", pl.Int64, required=True),
            Field("cpus_per_node", pl.Float64, required=True),
            Field("speed", pl.Float64),
            Field("mem_per_node_kib", pl.Float64),
        ),
        separator="\t",
    )
    table = pl.concat(list(read_rows(path, layout, Report(strict=True))))
    row = table.select(
        pl.col("cluster").alias("machine"),
        pl.col("nodes").alias("count"),
        pl.col("cluster").alias("label"),
        pl.col("cluster").alias("group"),
        pl.col("speed").fill_null(1.0),
        pl.col("cpus_per_node").alias("cpu"),
        (pl.col("mem_per_node_kib") / 1024**2).alias("memory"),
    )
    return filled(row, MACHINE_COLUMNS, RESOURCES)
