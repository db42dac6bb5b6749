"""berth's own format, for any cluster: CSV or Parquet.

`NAME.csv` (or `.csv.gz`, `.parquet`) has a row per job, with the columns of `JOB_COLUMNS`, of which `submit_s` and
`run_s` are required, and a column per resource with its unit in brackets: `cpu[core]`, `memory[GiB]`, `gpu[device]`,
or any other. Without a column `pieces` every job is one piece. `NAME.machines.csv` beside it has the machines
(`MACHINE_COLUMNS`, of which `machine` is required, and resources), `NAME.outages.csv` their outages.

Text files are read in blocks and Parquet in chunks of rows, so memory does not grow with the file.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import polars as pl

from berth.errors import InvalidInput
from berth.model import Resource
from berth.traces.formats import Format, Reading
from berth.traces.rows import PARQUET, Field, Layout, Report, first_line, read_rows
from berth.traces.trace import CORES, GPUS, JOB_COLUMNS, MACHINE_COLUMNS, MEMORY, OUTAGE_COLUMNS, Source, Trace, filled

__all__ = ["FORMAT", "ROWS", "SUFFIXES", "beside", "column_name", "read", "write_trace"]

ROWS = 1 << 18
"""Rows of a Parquet file read or written at a time."""

SUFFIXES = (".csv", ".csv.gz", ".parquet")
JOBS_NEED, MACHINES_NEED, OUTAGES_NEED = ("submit_s", "run_s"), ("machine",), ("machine", "down_s")
BRACKETS = re.compile(r"([^\[\]\s_](?:[^\[\]]*[^\[\]\s])?)\s*\[([^\[\]]*)\]")


def column_name(resource: Resource) -> str:
    """Column name of a resource.

    >>> column_name(MEMORY)
    'memory[GiB]'
    """
    return f"{resource.name}[{resource.unit}]"


def beside(path: Path, what: str) -> Path:
    """Path of the table `what` (machines or outages) of a trace.

    >>> beside(Path("logs/own.csv.gz"), "machines").as_posix()
    'logs/own.machines.csv.gz'
    """
    stem, suffix = _split(path)
    return path.with_name(f"{stem}.{what}{suffix}")


def _split(path: Path) -> tuple[str, str]:
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if path.name.lower().endswith(suffix) and len(path.name) > len(suffix):
            return path.name[: -len(suffix)], path.name[-len(suffix) :]
    return path.name, ""


# ---------------------------------------------------------------------------- reading


def read(path: Path, machines: Path | None, report: Report) -> Reading:
    """Read a trace; its machines come from the named file, or from the one beside it."""
    columns, in_jobs = _columns(path, JOB_COLUMNS, JOBS_NEED)
    machines = machines or _found(path, "machines")
    outages = _found(path, "outages")
    resources, table = in_jobs, None
    if machines is not None:
        names, in_machines = _columns(machines, MACHINE_COLUMNS, MACHINES_NEED)
        resources = _together(machines, in_jobs, in_machines)
        table = filled(_whole(machines, names, MACHINE_COLUMNS, MACHINES_NEED), MACHINE_COLUMNS, resources)
        table = table.with_columns(pl.col("count").fill_null(1), pl.col("speed").fill_null(1.0))
        _check_machines(machines, table, resources)
    source = Source("generic", tuple(str(file) for file in (path, machines, outages) if file is not None))
    reading = Reading(_jobs(path, columns, resources, report), resources, source, report, table)
    if outages is not None:
        names, _ = _columns(outages, OUTAGE_COLUMNS, OUTAGES_NEED)
        reading.outages = filled(_whole(outages, names, OUTAGE_COLUMNS, OUTAGES_NEED), OUTAGE_COLUMNS, ())
    return reading


def _found(path: Path, what: str) -> Path | None:
    stem, suffix = _split(path)
    for end in dict.fromkeys((suffix, *SUFFIXES)):
        file = path.with_name(f"{stem}.{what}{end}")
        if end and file.exists():
            return file
    return None


def _columns(
    path: Path, known: Mapping[str, Any], needed: Iterable[str]
) -> tuple[dict[str, str], tuple[Resource, ...]]:
    """Columns of a file, each with its name in the table, and the resources among them."""
    head = first_line(path)
    parquet = head == PARQUET.decode()
    written = list(_schema(path)) if parquet else [cell.strip() for cell in next(csv.reader([head]))]
    if len(written) == 1 and (separator := next((one for one in ";\t|" if one in head), None)):
        raise InvalidInput("commas between columns", value=separator, key="separator", file=path, line=1)
    names: dict[str, str] = {}
    resources: list[Resource] = []
    for column in written:
        if column in known:
            names[column] = column
        elif (match := BRACKETS.fullmatch(column)) and known is not OUTAGE_COLUMNS:
            resource = Resource(match[1].strip(), match[2].strip())
            if resource.name in known or resource.name in names.values() or resource.name == "line":
                raise InvalidInput("each name once", value=column, key="column", file=path, line=1)
            names[column] = resource.name
            resources.append(resource)
        else:
            raise _unknown(path, column, known)
    for column in needed:
        if column not in names:
            raise InvalidInput(f"a column {column}", found=f"columns {', '.join(written)}", file=path, line=1)
    return names, tuple(resources)


def _unknown(path: Path, column: str, known: Mapping[str, Any]) -> InvalidInput:
    usual = [] if known is OUTAGE_COLUMNS else [column_name(item) for item in (CORES, MEMORY, GPUS)]
    near = difflib.get_close_matches(column, [*known, *usual], n=1, cutoff=0.4)
    near = near or [name for name in usual if name.partition("[")[0] == column.lower()]
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    also = "" if not usual else ", or a resource with its unit in brackets"
    return InvalidInput(f"one of {', '.join(known)}{also}{hint}", value=column, key="column", file=path, line=1)


def _together(path: Path, ours: tuple[Resource, ...], theirs: tuple[Resource, ...]) -> tuple[Resource, ...]:
    units = {resource.name: resource for resource in ours}
    for resource in theirs:
        if units.setdefault(resource.name, resource) != resource:
            raise InvalidInput(
                f"{column_name(units[resource.name])}, as for the jobs", value=column_name(resource), file=path, line=1
            )
    return tuple(units.values())


def _jobs(path: Path, names: dict[str, str], resources: tuple[Resource, ...], report: Report) -> Iterator[pl.DataFrame]:
    wanted = {**JOB_COLUMNS, **{resource.name: pl.Float64 for resource in resources}}
    for table in _tables(path, names, wanted, report):
        lacking = [
            pl.lit(1 if name == "pieces" else None, dtype=kind).alias(name)
            for name, kind in wanted.items()
            if name not in table.columns
        ]
        yield table.with_columns(lacking).select("line", *wanted)


def _whole(path: Path, names: dict[str, str], known: Mapping[str, Any], needed: Iterable[str]) -> pl.DataFrame:
    """Read a small table in which every row must be right."""
    kinds = {name: known.get(name, pl.Float64) for name in names.values()}
    table = pl.concat(list(_tables(path, names, kinds, Report(strict=True))))
    for name in needed:
        for line in table.filter(pl.col(name).is_null())["line"].head(1):
            raise InvalidInput("a value", found="none", key=name, file=path, line=line)
    return table.drop("line")


def _tables(path: Path, names: dict[str, str], kinds: Mapping[str, Any], report: Report) -> Iterator[pl.DataFrame]:
    """Tables of checked rows: names and types of a trace, text stripped, no empty rows."""
    texts = [name for name in names.values() if kinds[name] == pl.String]
    counts = [name for name in names.values() if kinds[name] == pl.Int64]
    read = _from_parquet if first_line(path) == PARQUET.decode() else _from_text
    for raw in read(path, names, kinds, report):
        table = _numbers(path, raw, kinds, report).with_columns(
            *(pl.col(name).cast(pl.Int64) for name in counts),
            *(pl.col(name).str.strip_chars().replace("", None) for name in texts),
        )
        table = table.filter(~pl.all_horizontal(pl.exclude("line").is_null()))
        report.rows -= len(raw) - len(table)
        yield table


def _from_text(path: Path, names: dict[str, str], kinds: Mapping[str, Any], report: Report) -> Iterator[pl.DataFrame]:
    # whole numbers may have a decimal point, as in programs without missing integers
    types = {column: pl.String if kinds[name] == pl.String else pl.Float64 for column, name in names.items()}
    for table in read_rows(path, Layout(tuple(Field(column, kind) for column, kind in types.items())), report):
        yield table.rename(names)


def _from_parquet(
    path: Path, names: dict[str, str], kinds: Mapping[str, Any], report: Report
) -> Iterator[pl.DataFrame]:
    types: dict[str, Any] = {}
    for column, kind in _schema(path).items():
        text = kinds[names[column]] == pl.String
        if kind != pl.Null and not kind.is_numeric() and not (text and kind in (pl.String, pl.Categorical, pl.Enum)):
            expected = "a column of text" if text else "a column of numbers"
            raise InvalidInput(expected, found=str(kind), key=column, file=path)
        types[column] = pl.String if text else kinds[names[column]] if kind.is_integer() else pl.Float64
    scan = pl.scan_parquet(path)
    try:
        total = int(scan.select(pl.len()).collect().item())
        for start in range(0, total, ROWS):
            table = scan.slice(start, ROWS).collect()
            report.rows += len(table)
            yield table.select(
                pl.int_range(start + 1, start + 1 + len(table), dtype=pl.Int64).alias("line"),
                *(pl.col(column).cast(kind).alias(names[column]) for column, kind in types.items()),
            )
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _broken(path, error) from error
    if not total:
        raise InvalidInput("at least one row", found="none", file=path)


def _schema(path: Path) -> Mapping[str, Any]:
    try:
        return pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> InvalidInput:
    return InvalidInput("a Parquet file that can be read", found=str(error).split("\n")[0], file=path)


def _numbers(path: Path, table: pl.DataFrame, kinds: Mapping[str, Any], report: Report) -> pl.DataFrame:
    """Drop and report rows with infinite numbers, or fractions in whole-number columns."""
    for name, kind in kinds.items():
        if name not in table.columns or kind == pl.String or table[name].dtype.is_integer():
            continue
        number = pl.col(name)
        right, expected = number.is_finite(), "finite number"
        if kind == pl.Int64:
            right, expected = (number == number.floor()) & (number.abs() < 2.0**63), "whole number"
        right = right.fill_null(True)
        for line, value in table.filter(~right).select("line", name).rows():
            report.skip(f"no {expected}", InvalidInput(f"a {expected}", value=value, key=name, file=path, line=line))
        table = table.filter(right)
    return table


def _check_machines(path: Path, table: pl.DataFrame, resources: tuple[Resource, ...]) -> None:
    for name, least in (("count", 1.0), ("speed", 0.0), *((resource.name, 0.0) for resource in resources)):
        wrong = (pl.col(name) < least) | ((pl.col(name) == 0) & (name == "speed"))
        for machine, value in table.filter(wrong).select("machine", name).head(1).rows():
            expected = "a number above 0" if name == "speed" else f"a number ≥ {least:g}"
            raise InvalidInput(expected, value=value, key=f"{name} of {machine}", file=path)


# ---------------------------------------------------------------------------- writing


def write_trace(trace: Reading | Trace, path: str | Path, *, overwrite: bool = False) -> list[Path]:
    """Write jobs, machines and outages in this format, by the suffix of `path`; return the files.

    Jobs are written as they are read, so memory does not grow with the trace; Parquet needs twice the disk space while
    it is written. Files get their names only when all of them are complete.
    """
    path = Path(path).expanduser()
    if not _split(path)[1]:
        raise InvalidInput(f"a name that ends in one of {', '.join(SUFFIXES)}", value=path.name)
    if not path.parent.is_dir():
        raise InvalidInput("a directory to write to", found="none there", file=path.parent)
    targets = {"jobs": path, "machines": beside(path, "machines"), "outages": beside(path, "outages")}
    for file in targets.values():
        if file.is_dir() or (file.exists() and not overwrite):
            found = "a directory" if file.is_dir() else "a file that is there"
            raise InvalidInput("a new name, or --force", found=found, file=file)
    tables: dict[str, Iterable[pl.DataFrame]] = {"jobs": _chunks(trace)}
    if trace.machines is not None and len(trace.machines):
        tables["machines"] = [trace.machines.rename(_written(trace.resources))]
    if len(trace.outages):
        tables["outages"] = [trace.outages]
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as place:
            for what, chunks in tables.items():
                _write(chunks, Path(place) / what, targets[what])
            for what in reversed(tables):  # jobs last: once they exist, the rest does too
                os.replace(Path(place) / what, targets[what])
    except OSError as error:
        raise InvalidInput("a directory to write to", found=error.strerror or str(error), file=path.parent) from error
    for what in targets.keys() - tables.keys():
        targets[what].unlink(missing_ok=True)  # left by an earlier trace
    return [targets[what] for what in tables]


def _written(resources: Iterable[Resource]) -> dict[str, str]:
    return {resource.name: column_name(resource) for resource in resources}


def _chunks(trace: Reading | Trace) -> Iterator[pl.DataFrame]:
    """Tables of jobs to write; at least one, possibly empty."""
    for resource in trace.resources:
        match = BRACKETS.fullmatch(column_name(resource))
        if match is None or (match[1].strip(), match[2].strip()) != (resource.name, resource.unit):
            raise InvalidInput("resources and units without brackets and blanks around", value=column_name(resource))
    yield filled({}, JOB_COLUMNS, trace.resources).rename(_written(trace.resources))
    for chunk in [trace.jobs] if isinstance(trace, Trace) else trace.jobs:
        table = filled(chunk.drop("line", strict=False), JOB_COLUMNS, trace.resources)
        yield table.rename(_written(trace.resources))


def _write(chunks: Iterable[pl.DataFrame], temporary: Path, target: Path) -> None:
    if target.name.lower().endswith(".parquet"):
        _write_parquet(chunks, temporary)
        return
    with gzip.open(temporary, "wb") if target.name.lower().endswith(".gz") else temporary.open("wb") as file:
        _write_text(chunks, file, target)  # type: ignore[arg-type]


def _write_text(chunks: Iterable[pl.DataFrame], file: IO[bytes], target: Path) -> None:
    for place, chunk in enumerate(chunks):
        for name, kind in chunk.schema.items():
            if kind == pl.String:
                for value in chunk[name].filter(chunk[name].str.contains(r"[\x00-\x1f]"))[:1]:
                    raise InvalidInput(
                        "text without line breaks; Parquet can hold them", value=value, key=name, file=target
                    )
        file.write(chunk.write_csv(include_header=place == 0).encode())


def _write_parquet(chunks: Iterable[pl.DataFrame], temporary: Path) -> None:
    """Write parts first, which polars then merges as a stream."""
    with tempfile.TemporaryDirectory(dir=temporary.parent) as place:
        parts = []
        for number, chunk in enumerate(chunks):
            parts.append(Path(place) / f"{number}.parquet")
            chunk.write_parquet(parts[-1])
        pl.scan_parquet(parts).sink_parquet(temporary, row_group_size=ROWS)


FORMAT = Format(
    "berth's own format, as CSV or Parquet",
    read,
    # one of the required columns is enough, with any separator: the reader then says what is wrong with the header
    lambda _, line: line == PARQUET.decode() or bool(re.search(r"\b(submit_s|run_s)\b", line)),
)
