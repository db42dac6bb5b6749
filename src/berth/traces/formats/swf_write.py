"""Write a trace in the Standard Workload Format 2.2, for other simulators.

The format holds one kind of processor and memory, whole seconds, and one size of node in its header. What it cannot
hold and a replay would miss is refused: other resources, and parts of a processor. What is left out or changed
otherwise is told.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from berth.about import VERSION
from berth.errors import InvalidInput
from berth.traces.formats import Reading
from berth.traces.formats.swf import FIELDS
from berth.traces.rows import read_blocks
from berth.traces.trace import CORES, MEMORY, Trace

__all__ = ["SUFFIXES", "write_swf"]

SUFFIXES = (".swf", ".swf.gz")
STATUS = {"failed": 0, "done": 1, "cancelled": 5}
MADE = frozenset(
    [
        "Version",
        "MaxJobs",
        "MaxRecords",
        "Preemption",
        "UnixStartTime",
        "StartTime",
        "EndTime",
        "MaxNodes",
        "MaxProcs",
        "MaxRuntime",
        "AllowOveruse",
        "MaxQueues",
        "Queue",
    ]
)
"""Keys of a header that are written anew; all other lines of the header of a log are kept."""
KIB = 1024.0**2
"""KiB in a GiB."""


def write_swf(trace: Reading | Trace, path: str | Path, *, overwrite: bool = False) -> tuple[list[Path], list[str]]:
    """Write a trace; return the files, and what was left out or changed, in words.

    Machines of different kinds go to a table beside it, which berth reads; other programs see their sum in the header.
    """
    path = Path(path).expanduser()
    beside = path.with_name(path.name.removesuffix(".gz").removesuffix(".swf") + ".machines.tsv")
    for file in (path, beside):
        if file.is_dir() or (file.exists() and not overwrite):
            found = "a directory" if file.is_dir() else "a file that is there"
            raise InvalidInput("a new name, or --force", found=found, file=file)
    if not path.parent.is_dir():
        raise InvalidInput("a directory to write to", found="none there", file=path.parent)
    whole = trace if isinstance(trace, Trace) else trace.trace()
    notes: list[str] = []
    processors = _processors(whole, path, notes)
    jobs = whole.jobs.sort("submit_s", maintain_order=True)
    table = _fields(jobs, processors, notes)
    if whole.source.format == "swf":
        notes.append("CPU times, used memory, applications, partitions, dependencies and think times of the log")
    if len(whole.outages):
        notes.append(f"outages of machines ({len(whole.outages):,})")
    text = "".join(f"; {line}\n" for line in _header(whole, jobs, table, processors, notes)).encode()
    text += table.write_csv(separator=" ", include_header=False).encode()
    files = {path: gzip.compress(text, mtime=0) if path.name.lower().endswith(".gz") else text}
    machines = _machine_table(whole, processors)
    if machines is not None:
        files[beside] = machines
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as place:
            for number, (file, content) in reversed(list(enumerate(files.items()))):  # jobs last
                (Path(place) / str(number)).write_bytes(content)
                os.replace(Path(place) / str(number), file)
    except OSError as error:
        raise InvalidInput("a directory to write to", found=error.strerror or str(error), file=path.parent) from error
    if machines is None:
        beside.unlink(missing_ok=True)  # left by an earlier trace
    return list(files), notes


def _processors(trace: Trace, path: Path, notes: list[str]) -> str | None:
    """Name of the resource that counts as processors; None if jobs ask for none, and each piece is one."""
    asked = [resource.name for resource in trace.resources if (trace.jobs[resource.name].fill_null(0.0) > 0).any()]
    others = [name for name in asked if name != MEMORY.name]
    chosen = CORES.name if CORES.name in others else next(iter(others), None)
    for name in others:
        if name != chosen:
            count = int((trace.jobs[name].fill_null(0.0) > 0).sum())
            expected = f"jobs that ask for {chosen} and memory alone, which is all that SWF holds; write CSV or Parquet"
            raise InvalidInput(expected, found=f"{count:,} jobs that ask for {name}", file=path)
    if chosen is None:
        return None
    amount = trace.jobs[chosen].fill_null(1.0)
    broken = trace.jobs.filter((amount != amount.floor()) | (amount < 1))
    if len(broken):
        job, value = broken["job"][0], broken[chosen][0]
        expected = f"whole numbers of {chosen}, at least 1, as SWF counts processors; write CSV or Parquet"
        raise InvalidInput(expected, value=value, key=f"{chosen} of job {job}", file=path)
    if chosen != CORES.name:
        notes.append(f"the name of the resource {chosen}: its units are the processors of the log")
    many = int(((amount > 1) & (trace.jobs["pieces"].fill_null(1) > 1)).sum())
    if many:
        notes.append(f"that processors of one piece share a machine, of {many:,} jobs: SWF has their number alone")
    return chosen


def _fields(jobs: pl.DataFrame, processors: str | None, notes: list[str]) -> pl.DataFrame:
    """The eighteen columns, −1 if unknown."""
    each = pl.lit(1.0) if processors is None else pl.col(processors).fill_null(1.0)
    size = pl.col("pieces") * each
    memory = pl.col(MEMORY.name) * KIB / each if MEMORY.name in jobs.columns else pl.lit(None, dtype=pl.Float64)
    first = min(float(jobs["submit_s"].min() or 0.0), 0.0)  # type: ignore[arg-type]
    if first < 0:
        notes.append(f"the zero of times, moved by {-first:g} s: SWF has no negative ones")
    times = jobs.select("submit_s", "wait_s", "run_s", "estimate_s")
    if any(((column != column.round()) & column.is_not_null()).any() for column in times):
        notes.append("parts of seconds: times are rounded, run times to 1 s at least")
    if (jobs["needs"].is_not_null()).any():
        notes.append(f"the machines that {jobs['needs'].is_not_null().sum():,} jobs need")
    number, renamed = _numbers(jobs["job"], "job")
    unique = number.n_unique() == len(number) and (number > 0).all()
    if renamed or not unique:
        number = pl.int_range(1, len(jobs) + 1, eager=True)
        notes.append("names of jobs: they are numbered from 1")
    users, named = _numbers(jobs["user"], "user")
    if named:
        notes.append("names of users: they are numbered in the order of appearance")
    run = pl.when(pl.col("run_s") > 0).then(pl.max_horizontal(pl.col("run_s").round(), pl.lit(1.0)))
    known: dict[str, pl.Expr] = {
        "job": pl.lit(number),
        "submit": (pl.col("submit_s") - first).round(),
        "wait": pl.col("wait_s").round(),
        "run": run.otherwise(pl.col("run_s")),
        "allocated": pl.when(pl.col("run_s").is_not_null()).then(size),
        "requested": size,
        "time_requested": pl.col("estimate_s").round(),
        "memory_requested": memory.round(),
        "status": pl.col("status").replace_strict(STATUS, default=None, return_dtype=pl.Int64),
        "user": pl.lit(users),
        "group": pl.lit(_numbers(jobs["group"], "group")[0]),
        "queue": pl.lit(_numbers(jobs["kind"], "queue")[0]),
    }
    unknown = pl.lit(-1, dtype=pl.Int64)
    return jobs.select(known[name].alias(name) if name in known else unknown.alias(name) for name in FIELDS).select(
        pl.all().cast(pl.Int64).fill_null(-1)
    )


def _numbers(names: pl.Series, title: str) -> tuple[pl.Series, bool]:
    """Names as whole numbers, and whether they had to be numbered, from 1 in the order of appearance."""
    whole = names.cast(pl.Int64, strict=False)
    if whole.null_count() == names.null_count() and (whole.drop_nulls() >= 0).all():
        return whole.rename(title), False
    codes = names.drop_nulls().unique(maintain_order=True)
    number = names.replace_strict(codes, pl.int_range(1, len(codes) + 1, eager=True), return_dtype=pl.Int64)
    return number.rename(title), True


def _header(
    trace: Trace, jobs: pl.DataFrame, table: pl.DataFrame, processors: str | None, notes: list[str]
) -> Iterator[str]:
    source, machines = trace.source.notes, trace.machines
    yield "Version: 2.2"
    yield from _kept(trace)
    if "workload" in source:
        yield f"Computer: generated from the workload {source['workload']} with seed {source.get('seed', '0')}"
    yield f"Conversion: berth {VERSION}"
    yield f"MaxJobs: {len(table)}"
    yield f"MaxRecords: {len(table)}"
    yield "Preemption: No"
    began = source.get("UnixStartTime", "0").split()[0]
    yield f"UnixStartTime: {began}"
    ended = table.select((pl.col("submit") + pl.col("wait").clip(0) + pl.col("run").clip(0)).max()).item() or 0
    if began.lstrip("-").isdigit() and int(began) > 0:
        for key, moment in (("StartTime", int(began)), ("EndTime", int(began) + int(ended))):
            yield f"{key}: {datetime.fromtimestamp(moment, UTC):%a %b %d %H:%M:%S UTC %Y}"
    if len(machines):
        count = machines["count"].fill_null(1)
        cores = pl.Series([1.0] * len(machines)) if processors is None else machines[processors].fill_null(0.0)
        yield f"MaxNodes: {int(count.sum())}"
        yield f"MaxProcs: {int((count * cores).sum())}"
    else:
        yield f"MaxProcs: {int(table['requested'].max() or -1)}"  # type: ignore[arg-type]
        yield "Note: the source names no machines; MaxProcs is the largest request"
    yield f"MaxRuntime: {int(table['run'].max() or -1)}"  # type: ignore[arg-type]
    over = ((table["time_requested"] > 0) & (table["run"] > table["time_requested"])).any()
    yield f"AllowOveruse: {'Yes' if over else 'No'}"
    queues = pl.DataFrame({"number": table["queue"], "name": jobs["kind"]}).drop_nulls().unique().sort("number")
    yield f"MaxQueues: {len(queues)}"
    for number, name in queues.iter_rows():
        yield f"Queue: {number} {' '.join(name.split())}"
    if began == "0":
        yield "Note: times count from a zero whose date is not known"
    for note in notes:
        yield f"Note: left out or changed: {note}"


def _kept(trace: Trace) -> Iterator[str]:
    """Lines of the header of the log that was read, continuations included, without `; `."""
    file = Path(next(iter(trace.source.files), ""))
    if trace.source.format != "swf" or not file.is_file():
        return
    skipping = False
    _, block = next(read_blocks(file, 1 << 16))
    for line in block.decode("utf-8", "replace").removeprefix("\ufeff").splitlines():
        if not line.startswith(";"):
            return
        key, colon, _ = line[1:].partition(":")
        if colon and key.strip() and " " not in key.strip():  # else the line continues the one before
            skipping = key.strip() in MADE
        if not skipping and line[1:].strip():
            yield line[1:].removeprefix(" ").rstrip()


def _machine_table(trace: Trace, processors: str | None) -> bytes | None:
    """The table of machines beside the log; None if the header says it all."""
    machines = trace.machines
    memory = MEMORY.name in trace.jobs.columns and trace.jobs[MEMORY.name].is_not_null().any()
    shapes = machines.select("label", "speed", *([] if processors is None else [processors])).unique()
    if not len(machines) or (len(shapes) == 1 and machines["speed"].fill_null(1.0)[0] == 1.0 and not memory):
        return None
    cores = pl.lit(1.0) if processors is None else pl.col(processors).fill_null(0.0)
    there = pl.col(MEMORY.name) * KIB if MEMORY.name in machines.columns else pl.lit(None, dtype=pl.Float64)
    table = machines.select(
        pl.coalesce("label", "machine").alias("cluster"),
        pl.col("count").fill_null(1).alias("nodes"),
        cores.alias("cpus_per_node"),
        pl.col("speed").fill_null(1.0),
        there.alias("mem_per_node_kib"),
    )
    return table.write_csv(separator="\t").encode()
