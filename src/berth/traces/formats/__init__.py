"""Every format that can be read, and the way to read one: `open_trace` in chunks, `load_trace` at once.

A new format is one module with a function from a path to a `Reading`, and one line in `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import polars as pl

from berth.errors import InvalidInput, UnknownName
from berth.model import Resource
from berth.traces.rows import Report, first_line
from berth.traces.trace import JOB_COLUMNS, MACHINE_COLUMNS, OUTAGE_COLUMNS, Source, Trace, filled

__all__ = ["FORMATS", "Format", "Reading", "load_trace", "open_trace", "recognised", "without_machines"]


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
    """A format: a title, the module that reads it, and what the first line of its main table looks like."""

    title: str
    module: str
    recognise: Callable[[str, str], bool]
    """(name of the file without .gz, its first line) → is it this?"""


def _columns(*names: str) -> Callable[[str, str], bool]:
    """Recognises a table by columns that its header has."""
    wanted = set(names)
    return lambda _, line: wanted <= {cell.strip().strip('"') for cell in line.split(",")}


def _table(start: str, *counts: int) -> Callable[[str, str], bool]:
    """Recognises a table without names of columns by its own name and how many columns it has."""
    return lambda name, line: name.startswith(start) and len(line.split(",")) in counts


def _objects(*names: str) -> Callable[[str, str], bool]:
    """Recognises JSON lines by keys of the first."""
    return lambda _, line: line.startswith("{") and all(f'"{name}"' in line for name in names)


def _any(*ways: Callable[[str, str], bool]) -> Callable[[str, str], bool]:
    return lambda name, line: any(way(name, line) for way in ways)


def _swf(name: str, line: str) -> bool:
    cells = line.split()
    numbers = len(cells) >= 18 and "," not in cells[0] and "|" not in line
    return name.endswith(".swf") or line.startswith(";") or numbers or "cpus_per_node" in cells


def _generic(name: str, line: str) -> bool:
    return line == "PAR1" or _columns("submit_s", "run_s")(name, line)


FORMATS: dict[str, Format] = {
    "alibaba-2017": Format(
        "Alibaba cluster-trace-v2017",
        "berth.traces.formats.alibaba2017",
        _any(
            _columns("task_create_time", "number_of_instances"),
            _columns("submit_time", "duration", "instances_num"),
            _table("batch_task", 8),
            _table("server_event", 7),
        ),
    ),
    "alibaba-2018": Format(
        "Alibaba cluster-trace-v2018",
        "berth.traces.formats.alibaba2018",
        _any(
            _columns("task_name", "instance_num", "plan_cpu"),
            _columns("machine_id", "failure_domain_1"),
            _columns("machine_id", "cpu_util_percent", "mem_util_percent"),
            _table("batch_task", 9),
            _table("machine_meta", 7),
            _table("machine_usage", 9),
        ),
    ),
    "alibaba-gpu-2020": Format(
        "Alibaba cluster-trace-gpu-v2020 (PAI)",
        "berth.traces.formats.pai",
        _any(
            _columns("task_name", "inst_num", "plan_gpu"),
            _columns("machine", "cap_cpu", "cap_gpu"),
            _table("pai_task_table", 10),
            _table("pai_machine_spec", 5),
            _table("pai_job_table", 6),
            _table("pai_instance_table", 9),
        ),
    ),
    "gaia": Format("PAI, reduced by GAIA", "berth.traces.formats.gaia", _columns("arrival_time", "length", "cpus")),
    "openb": Format(
        "Alibaba cluster-trace-gpu-v2023 (openb)",
        "berth.traces.formats.openb",
        _any(_columns("name", "cpu_milli", "gpu_milli"), _columns("sn", "cpu_milli", "model")),
    ),
    "alibaba-gpu-2025": Format(
        "Alibaba cluster-trace-gpu-v2025", "berth.traces.formats.alibaba2025", _columns("instance_sn", "app_name")
    ),
    "alibaba-spot-2026": Format(
        "Alibaba cluster-trace-v2026-spot-gpu, its nodes",
        "berth.traces.formats.alibaba2026",
        _columns("gpu_model", "gpu_capacity_num", "node_name"),
    ),
    "google-2011": Format(
        "Google cluster-data 2011",
        "berth.traces.formats.google2011",
        _any(
            _columns("submit_s", "wait_s", "sched_class"),
            _columns("time_us", "machine_id", "event_type"),
            _columns("job ID", "event type"),
            _table("part-", 6, 8, 13),
        ),
    ),
    "google-2019": Format(
        "Google cluster-data 2019",
        "berth.traces.formats.google2019",
        _any(
            _columns("time", "type", "collection_id"),
            _columns("time", "type", "machine_id"),
            _columns("collection_id", "cpus", "ram"),
            _columns("cpus", "ram", "machine_count"),
            _columns("req_cpus", "req_memory"),
            _objects("collection_id", "type"),
            _objects("machine_id", "type"),
        ),
    ),
    "itp": Format("Microsoft ITP 2021", "berth.traces.formats.itp", _columns("submission_time", "duration", "num_gpu")),
    "philly": Format(
        "Microsoft Philly 2017",
        "berth.traces.formats.philly",
        _any(
            _columns("timestamp", "duration", "num_gpus"),
            _columns("machineId", "number of GPUs"),
            _table("cluster_machine_list", 3),
            lambda _, line: line.startswith("["),
        ),
    ),
    "slurm": Format(
        "Slurm accounting, sacct --parsable2",
        "berth.traces.formats.slurm",
        lambda _, line: bool({"JobID", "JobIDRaw", "NODELIST"} & set(line.split("|"))),
    ),
    "swf": Format("Standard Workload Format 2.2", "berth.traces.formats.swf", _swf),
    # the last, for others have some of its columns
    "generic": Format("one's own cluster, as CSV or Parquet", "berth.traces.formats.generic", _generic),
}


def recognised(path: Path) -> str:
    """The name of the format of this file, from its name and its first line."""
    line = first_line(path)
    name = path.name.lower().removesuffix(".gz")
    for key, item in FORMATS.items():
        if item.recognise(name, line):
            return key
    known = ", ".join(FORMATS)
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
    if format is not None and format not in FORMATS:
        raise UnknownName("trace format", format, FORMATS)
    chosen = format or recognised(path)
    read = import_module(FORMATS[chosen].module).read
    known = [name for name, item in signature(read).parameters.items() if item.kind is item.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise UnknownName(f"option of {chosen}", name, known)
    reading: Reading = read(
        path, None if machines is None else Path(machines).expanduser(), Report(strict=strict), **options
    )
    return reading


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
