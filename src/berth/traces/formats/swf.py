"""Standard Workload Format 2.2: batch logs of the Parallel Workloads Archive.

Eighteen columns of numbers, −1 if unknown; lines that begin with `;` describe the machine. The size of a job is its
request (field 8), or its allocation (field 5) if the request is unknown; each processor is a piece. With the option
`size` "allocated" it is the allocation, or the request if the allocation is unknown; with "larger" the larger of both.

A table of machines may lie beside the log, with `.machines.tsv` for `.swf` in its name: columns `cluster`, `nodes`,
`cpus_per_node`, `speed` and `mem_per_node_kib`. Without it, the header's MaxNodes and MaxProcs are used.

Logs of MetaCentrum differ: each line has 21 fields, of which 19 to 21 are the nodes used, the queue and the node
request (`1:ppn=12:cl_zewura`), and field 10 is the memory of the whole job in bytes. A log whose first line has 21
fields is read this way; `memory` ("kb-per-processor" or "bytes-per-job") overrides the meaning of field 10. A job that
requests n nodes with p processors each, and n·p in all, is n pieces of p cores; any other job (parts of different kinds
joined by `+`, or sums that disagree) has one piece per processor. `cl_zewura` becomes a need for machines of that
label. Names of single hosts and other properties are left out. A node request counts only if it agrees with the size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from berth.errors import InvalidInput, UnknownName
from berth.traces.formats import Format, Reading
from berth.traces.rows import Field, Layout, Report, beside, first_line, read_blocks, read_rows, read_whole, schema
from berth.traces.trace import CORES, MACHINE_COLUMNS, MEMORY, Source, filled, job_table, machine_table

__all__ = ["FIELDS", "FORMAT", "read", "read_fields"]

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
"""Columns in the order of the standard; times in seconds, memory in KB per processor."""

LAYOUT = Layout(
    tuple(Field(name, pl.Float64, required=name in ("job", "submit")) for name in FIELDS),
    separator=" ",
    header=False,
    comment=";",
    more=True,
)
MORE_FIELDS = ("used_nodes", "queue_name", "request")
LONGER = dataclasses.replace(LAYOUT, fields=(*LAYOUT.fields, *(Field(name) for name in MORE_FIELDS)))
MEMORY_UNITS = ("kb-per-processor", "bytes-per-job")
SIZES = ("requested", "allocated", "larger")
"""Which of the two fields is the size of a job; the first is the default."""
STATUS = {0.0: "failed", 1.0: "done", 5.0: "cancelled"}
RESOURCES = (CORES, MEMORY)


WHOLE = ("job", "allocated", "requested", "user", "group", "application", "queue", "partition", "preceding")
LARGEST = 2.0**53
"""Floats are not exact for all whole numbers from here on."""


def read_fields(path: Path, report: Report) -> Iterator[pl.DataFrame]:
    """Read all eighteen columns, null for −1."""
    for frame in read_rows(path, LAYOUT, report):
        yield _known(path, frame, report)


def _known(path: Path, frame: pl.DataFrame, report: Report) -> pl.DataFrame:
    """Replace −1 by null, and drop rows with fractional counts."""
    right = pl.all_horizontal(
        (pl.col(name).is_null() | ((pl.col(name) == pl.col(name).floor()) & (pl.col(name).abs() < LARGEST)))
        for name in WHOLE
    )
    bad = frame.filter(~right)
    for row in bad.iter_rows(named=True):
        name = next(n for n in WHOLE if row[n] is not None and (row[n] % 1 or abs(row[n]) >= LARGEST))
        error = InvalidInput("a whole number", value=row[name], key=name, file=path, line=row["line"])
        report.skip("no whole number", error)
    report.rows -= len(bad)
    good = frame.filter(right) if len(bad) else frame
    return good.with_columns(pl.when(pl.col(FIELDS) == -1).then(None).otherwise(pl.col(FIELDS)).name.keep())


def read(
    path: Path, machines: Path | None, report: Report, *, memory: str | None = None, size: str = SIZES[0]
) -> Reading:
    """Read a log; machines come from the table beside it or the header. The table alone is a trace without jobs."""
    if memory is not None and memory not in MEMORY_UNITS:
        raise UnknownName("unit of memory", memory, MEMORY_UNITS)
    if size not in SIZES:
        raise UnknownName("size", size, SIZES)
    if _is_machine_table(path):
        return Reading(iter(()), RESOURCES, Source("swf", (str(path),)), report, _machines(path, report))
    notes = header(path)
    longer = _fields_of_first_job(path) == len(FIELDS) + len(MORE_FIELDS)
    in_bytes = memory == "bytes-per-job" or (memory is None and longer)
    if longer:
        notes["fields"] = "21 in a line: nodes used, queue and request for nodes behind those of the standard"
    if in_bytes:
        why = "as asked for" if memory else "as lines have 21 fields"
        notes["memory"] = f"field 10 is the memory of the whole job in bytes ({why})"
    if size != SIZES[0]:
        notes["size"] = f"{size} processors, as asked for"
    found = machines or beside(path, path.name.removesuffix(".gz").removesuffix(".swf") + ".machines.tsv")
    table = _from_header(notes, report) if found is None else _machines(found, report.beside())
    files = (str(path), *(() if found is None else (str(found),)))
    rows = _longer_rows(path, report) if longer else read_fields(path, report)
    jobs = (_jobs(frame, report, in_bytes, size) for frame in rows)
    return Reading(jobs, RESOURCES, Source("swf", files, notes), report, table)


def _is_machine_table(path: Path) -> bool:
    return "cpus_per_node" in first_line(path).split("\t")


def _fields_of_first_job(path: Path) -> int:
    for _, block in read_blocks(path, 1 << 16):
        for line in block.split(b"\n"):
            if line.strip() and not line.startswith(b";"):
                return len(line.split())
    return 0


def _longer_rows(path: Path, report: Report) -> Iterator[pl.DataFrame]:
    """Read all 21 columns; `nodes`, `cores` (per node), `cluster` and `queue_name` come from the last ones."""
    request = pl.col("request")
    agree = pl.col("nodes") * pl.col("cores") == pl.col("requested")
    clusters = request.str.extract_all(r"(?:^|:)cl_\w+").list.unique()
    for frame in read_rows(path, LONGER, report):
        asked = r"^(\d+):ppn=(\d+)(?:[:#][^+]*)?$"
        known = _known(path, frame, report).with_columns(
            request.str.extract(asked, 1).cast(pl.Float64).alias("nodes"),
            request.str.extract(asked, 2).cast(pl.Float64).alias("cores"),
            pl.when(clusters.list.len() == 1).then(clusters.list.first().str.extract("cl_(.*)")).alias("cluster"),
        )
        unlike = known.filter(pl.col("nodes").is_not_null() & ~agree)
        report.repair("request for nodes that does not agree with the processors, taken one by one", len(unlike))
        yield known.with_columns(pl.when(agree).then(pl.col(name)).alias(name) for name in ("nodes", "cores"))


def header(path: Path) -> dict[str, str]:
    """Header lines, which begin with `;`: by key, repeated keys on several lines."""
    notes: dict[str, str] = {}
    _, block = next(read_blocks(path, 1 << 16))
    for line in block.decode("utf-8", "replace").removeprefix("\ufeff").splitlines():
        if not line.startswith(";"):
            if line.strip():
                break
            continue
        key, colon, value = line.lstrip("; \t").partition(":")
        if colon and key.strip() and " " not in key.strip():
            notes[key.strip()] = "\n".join(filter(None, (notes.get(key.strip()), value.strip())))
    return notes


def _size(frame: pl.DataFrame, report: Report, which: str) -> pl.Expr:
    """Processors of each job, by the field that counts; by the other one if this is unknown."""
    if which == "larger":
        return pl.max_horizontal("requested", "allocated")
    other, told = ("allocated", "got") if which == "requested" else ("requested", "asked for")
    unsaid = frame[which].is_null() | (frame[which] <= 0)
    report.repair(f"size taken from the processors that it {told}", int((unsaid & frame[other].is_not_null()).sum()))
    return pl.when(pl.col(which) > 0).then(pl.col(which)).otherwise(pl.col(other))


def _jobs(frame: pl.DataFrame, report: Report, in_bytes: bool, which: str) -> pl.DataFrame:
    size = _size(frame, report, which)
    name = {
        column: pl.col(column).cast(pl.Int64).cast(pl.String)
        for column in ("job", "user", "group", "application", "queue")
    }
    longer = "nodes" in frame.columns
    agree = pl.col("nodes") * pl.col("cores") == size if longer else pl.lit(False)
    pieces = pl.when(agree).then(pl.col("nodes")).otherwise(size) if longer else size
    cores = pl.when(size.is_not_null()).then(pl.when(agree).then(pl.col("cores")).otherwise(1.0) if longer else 1.0)
    asked = pl.col("memory_requested")
    asked_each = asked / 1024**3 / pieces if in_bytes else asked / 1024**2 * cores
    return job_table(
        frame,
        RESOURCES,
        job=name["job"],
        submit_s=pl.col("submit"),
        wait_s=pl.col("wait"),
        run_s=pl.col("run"),
        estimate_s=pl.col("time_requested"),
        pieces=pieces,
        user=name["user"],
        group=name["group"],
        kind=pl.coalesce("queue_name", name["queue"]) if longer else name["queue"],
        script=name["application"],
        needs=pl.col("cluster") if longer else pl.lit(None),
        status=pl.col("status").replace_strict(STATUS, default=None, return_dtype=pl.String),
        cpu=cores,
        memory=pl.coalesce(asked_each, pl.col("memory_used") / 1024**2 * cores),
    )


def _from_header(notes: dict[str, str], report: Report) -> pl.DataFrame | None:
    numbers: dict[str, int] = {}
    for key in ("MaxNodes", "MaxProcs"):
        if key in notes:
            text = notes[key].split()[0].replace(",", "") if notes[key].split() else ""
            try:
                number = float(text)
            except ValueError:
                number = -1.0
            if number >= 1 and number == int(min(number, LARGEST)):
                numbers[key] = int(number)
            elif text not in ("-1", ""):
                report.repair(f"header's {key} forgotten, which is no number above 0", 1)
    if not numbers:
        return None
    nodes = numbers.get("MaxNodes", numbers.get("MaxProcs", 1))
    cores = numbers.get("MaxProcs", nodes) / nodes
    row: dict[str, list[object]] = {"machine": ["node"], "count": [nodes], "speed": [1.0], "cpu": [cores]}
    return filled(row, MACHINE_COLUMNS, RESOURCES)


def _machines(path: Path, report: Report) -> pl.DataFrame:
    layout = Layout(
        schema("cluster! nodes:int! cpus_per_node:float! speed:float mem_per_node_kib:float"),
        separator="\t",
    )
    return machine_table(
        read_whole(path, layout, report),
        RESOURCES,
        machine=pl.col("cluster"),
        count=pl.col("nodes"),
        label=pl.col("cluster"),
        group=pl.col("cluster"),
        speed=pl.col("speed").fill_null(1.0),
        cpu=pl.col("cpus_per_node"),
        memory=pl.col("mem_per_node_kib") / 1024**2,
    )


def _recognise(name: str, line: str) -> bool:
    cells = line.split()
    numbers = len(cells) >= 18 and "," not in cells[0] and "|" not in line
    return name.endswith(".swf") or line.startswith(";") or numbers or "cpus_per_node" in cells


FORMAT = Format("Standard Workload Format 2.2", read, _recognise)
