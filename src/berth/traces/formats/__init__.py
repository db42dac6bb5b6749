"""Trace formats, and functions to read them: `open_trace` in chunks, `load_trace` at once.

A format is a module with a function from a path to a `Reading`, and its record `FORMAT`. Other packages add formats by
entry points of the group `berth.traces`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

import polars as pl

from berth.errors import InvalidInput, UnknownName
from berth.model import Resource
from berth.registry import load, offered
from berth.traces.rows import Report, first_line
from berth.traces.trace import JOB_COLUMNS, MACHINE_COLUMNS, OUTAGE_COLUMNS, Source, Trace, filled

__all__ = [
    "Format",
    "Reading",
    "any_of",
    "columns",
    "format_names",
    "load_trace",
    "objects",
    "open_trace",
    "option_names",
    "recognised",
    "table",
    "trace_format",
    "without_machines",
]

GROUP = "berth.traces"


@dataclass
class Reading:
    """A trace being read: machines are loaded, `jobs` yields tables of `JOB_COLUMNS` and resources.

    Tables of jobs also have `line` (Int64), the row's line in its file. Only unreadable lines are left out;
    `berth.traces.lint` finds impossible rows.
    """

    jobs: Iterator[pl.DataFrame]
    resources: tuple[Resource, ...]
    source: Source
    report: Report
    machines: pl.DataFrame | None = None
    outages: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dict(OUTAGE_COLUMNS)))

    def trace(self) -> Trace:
        """Read the whole trace into memory."""
        chunks = [filled(chunk.drop("line", strict=False), JOB_COLUMNS, self.resources) for chunk in self.jobs]
        empty = filled({}, JOB_COLUMNS, self.resources)
        machines = filled({}, MACHINE_COLUMNS, self.resources) if self.machines is None else self.machines
        return Trace.of(pl.concat([empty, *chunks]), machines, self.resources, self.source, self.outages)


def without_machines(format: str, machines: Path | None) -> None:
    """Refuse a table of machines if the format has none."""
    if machines is not None:
        raise InvalidInput(f"no table of machines, as {format} has none", value=str(machines), key="machines")


@dataclass(frozen=True)
class Format:
    """A format: a title, a reader, and a function that recognises its main table."""

    title: str
    read: Callable[..., Reading]
    """Reader: (file, table of machines or None, report, options as keywords) → `Reading`."""
    recognise: Callable[[str, str], bool]
    """Recogniser: (file name without .gz, first line) → whether it is this format."""


def columns(*names: str) -> Callable[[str, str], bool]:
    """Recognise a table by column names in its header."""
    wanted = set(names)
    return lambda _, line: wanted <= {cell.strip().strip('"') for cell in line.split(",")}


def table(start: str, *counts: int) -> Callable[[str, str], bool]:
    """Recognise a table without a header by its file name and number of columns."""
    return lambda name, line: name.startswith(start) and len(line.split(",")) in counts


def objects(*names: str) -> Callable[[str, str], bool]:
    """Recognise JSON lines by keys of the first."""
    return lambda _, line: line.startswith("{") and all(f'"{name}"' in line for name in names)


def any_of(*ways: Callable[[str, str], bool]) -> Callable[[str, str], bool]:
    return lambda name, line: any(way(name, line) for way in ways)


BUILTIN = {
    "alibaba-2017": "berth.traces.formats.alibaba2017:FORMAT",
    "alibaba-2018": "berth.traces.formats.alibaba2018:FORMAT",
    "alibaba-gpu-2020": "berth.traces.formats.pai:FORMAT",
    "gaia": "berth.traces.formats.gaia:FORMAT",
    "openb": "berth.traces.formats.openb:FORMAT",
    "alibaba-gpu-2025": "berth.traces.formats.alibaba2025:FORMAT",
    "alibaba-spot-2026": "berth.traces.formats.alibaba2026:FORMAT",
    "google-2011": "berth.traces.formats.google2011:FORMAT",
    "google-2019": "berth.traces.formats.google2019:FORMAT",
    "itp": "berth.traces.formats.itp:FORMAT",
    "philly": "berth.traces.formats.philly:FORMAT",
    "slurm": "berth.traces.formats.slurm:FORMAT",
    "swf": "berth.traces.formats.swf:FORMAT",
    "generic": "berth.traces.formats.generic:FORMAT",
}


def format_names() -> dict[str, str]:
    """Every name and its `module:attribute`, in the order in which formats are tried.

    Formats of installed packages cannot override a built-in name. They come after the built-in ones, but before the
    generic format, because other formats share some of its columns.
    """
    builtin = dict(BUILTIN)
    last = {"generic": builtin.pop("generic")}
    return {**builtin, **{name: at for name, at in offered(GROUP).items() if name not in BUILTIN}, **last}


def trace_format(name: str) -> Format:
    """The format of this name."""
    names = format_names()
    if name not in names:
        raise UnknownName("trace format", name, names)
    return load(names[name], "trace format", name, Format)


def option_names(format: str) -> list[str]:
    """Names of the options that `open_trace` takes for a format."""
    read = trace_format(format).read
    return [name for name, item in signature(read).parameters.items() if item.kind is item.KEYWORD_ONLY]


def recognised(path: Path) -> str:
    """Recognise the format of a file by its name and first line."""
    line = first_line(path)
    name = path.name.lower().removesuffix(".gz")
    for key in format_names():
        if trace_format(key).recognise(name, line):
            return key
    known = ", ".join(format_names())
    raise InvalidInput(
        f"a trace in one of the formats {known}; name it with --format", found=f"a first line {line[:60]!r}", file=path
    )


def open_trace(
    path: str | Path,
    format: str | None = None,
    *,
    machines: str | Path | None = None,
    strict: bool = False,
    **options: Any,
) -> Reading:
    """Open a trace; `machines` names its machine table if that is not beside it under its usual name.

    With `strict` the first unreadable line is an error; otherwise such lines are skipped and counted in the report.
    `options` are those of the format.
    """
    path = Path(path).expanduser()
    chosen = format or recognised(path)
    read = trace_format(chosen).read
    known = option_names(chosen)
    for name in options:
        if name not in known:
            raise UnknownName(f"option of {chosen}", name, known)
    return read(path, None if machines is None else Path(machines).expanduser(), Report(strict=strict), **options)


def load_trace(
    path: str | Path,
    format: str | None = None,
    *,
    machines: str | Path | None = None,
    strict: bool = False,
    **options: Any,
) -> Trace:
    """Load a whole trace; see `open_trace`."""
    return open_trace(path, format, machines=machines, strict=strict, **options).trace()
