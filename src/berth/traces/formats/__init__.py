"""Every format that can be read, and the way to read one: `open_trace` in chunks, `load_trace` at once.

A format is one module with a function from a path to a `Reading`, and its record `FORMAT`. Other packages offer formats
by entry points of the group `berth.traces`.
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
    "recognised",
    "table",
    "trace_format",
    "without_machines",
]

GROUP = "berth.traces"


@dataclass
class Reading:
    """A trace on its way in: machines are there, `jobs` come in tables of `JOB_COLUMNS` and resources.

    Tables of jobs also have `line` (Int64), where each row stands in its file. Only lines that cannot be read are left
    out: what is impossible in the others is for `berth.traces.lint` to find.
    """

    jobs: Iterator[pl.DataFrame]
    resources: tuple[Resource, ...]
    source: Source
    report: Report
    machines: pl.DataFrame | None = None
    outages: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dict(OUTAGE_COLUMNS)))

    def trace(self) -> Trace:
        """All of it, in memory."""
        chunks = [filled(chunk.drop("line", strict=False), JOB_COLUMNS, self.resources) for chunk in self.jobs]
        empty = filled({}, JOB_COLUMNS, self.resources)
        machines = filled({}, MACHINE_COLUMNS, self.resources) if self.machines is None else self.machines
        return Trace.of(pl.concat([empty, *chunks]), machines, self.resources, self.source, self.outages)


def without_machines(format: str, machines: Path | None) -> None:
    """Refuse a table of machines where the format has none."""
    if machines is not None:
        raise InvalidInput(f"no table of machines, as {format} has none", value=str(machines), key="machines")


@dataclass(frozen=True)
class Format:
    """A format: a title, a function that reads it, and what the first line of its main table looks like."""

    title: str
    read: Callable[..., Reading]
    """(file, table of machines or None, report, options as keywords) → what is in it"""
    recognise: Callable[[str, str], bool]
    """(name of the file without .gz, its first line) → is it this?"""


def columns(*names: str) -> Callable[[str, str], bool]:
    """Recognises a table by columns that its header has."""
    wanted = set(names)
    return lambda _, line: wanted <= {cell.strip().strip('"') for cell in line.split(",")}


def table(start: str, *counts: int) -> Callable[[str, str], bool]:
    """Recognises a table without names of columns by its own name and how many columns it has."""
    return lambda name, line: name.startswith(start) and len(line.split(",")) in counts


def objects(*names: str) -> Callable[[str, str], bool]:
    """Recognises JSON lines by keys of the first."""
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

    Formats of installed packages cannot take a built-in name. They come after the built-in ones, but before the generic
    one: other formats have some of its columns.
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


def recognised(path: Path) -> str:
    """The name of the format of this file, from its name and its first line."""
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
    """Begin to read a trace; `machines` names its machine table where that does not lie beside it under its usual name.

    With `strict` the first line that cannot be read is an error; otherwise such lines are left out and counted in the
    report. `options` are those of the format.
    """
    path = Path(path).expanduser()
    chosen = format or recognised(path)
    read = trace_format(chosen).read
    known = [name for name, item in signature(read).parameters.items() if item.kind is item.KEYWORD_ONLY]
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
    """A trace, whole; see `open_trace`."""
    return open_trace(path, format, machines=machines, strict=strict, **options).trace()
