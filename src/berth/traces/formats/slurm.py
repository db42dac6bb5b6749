"""Slurm accounting: the output of `sacct --parsable2`, with a header and `|` between columns.

A good call is `TZ=UTC sacct -a -X -P -S 2024-01-01 -o JobID,User,Account,Partition,State,Submit,Start,End,Elapsed,`
`Timelimit,NNodes,ReqCPUS,ReqMem,ReqTRES,AllocTRES`. Only `JobID` and `Submit` are required. The dates have no zone:
without `TZ=UTC` they jump by an hour when the clocks change, and so do waits across that moment.

A job has one piece per node; each takes an equal part of the cores, memory (GiB) and GPUs that the job requested
(`ReqTRES`), or else was allocated (`AllocTRES`), or else of `ReqCPUS` and `ReqMem`. A job that requested one type of
GPU needs machines with that label. Steps (`123.batch`) are not jobs: they are skipped and counted. The kind of a job is
its partition, its group the account, its script the `JobName`, if `-o` has that column. Dates become seconds from the
first midnight, in local time.

Machines come from the output of `sinfo -o "%N|%c|%m|%G"` (`NODELIST|CPUS|MEMORY|GRES`), given as `machines` or in a
file `sinfo.txt` beside.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import polars as pl

from berth.errors import InvalidInput
from berth.files.quantities import CLOCK, clock_seconds
from berth.traces.formats import Format, Reading
from berth.traces.formats.measured import first_midnight, with_seconds
from berth.traces.rows import Layout, Report, beside, converted, first_line, read_rows, read_whole, schema
from berth.traces.trace import CORES, GPUS, MACHINE_COLUMNS, MEMORY, Source, filled, job_table

__all__ = ["FORMAT", "expand_hosts", "parse_duration", "parse_tres", "read"]

RESOURCES = (CORES, MEMORY, GPUS)
MISSING = ("", "Unknown", "None", "UNLIMITED", "Partition_Limit", "INVALID", "N/A", "None assigned")
"""Words that sacct writes for a missing value."""

LAYOUT = Layout(
    schema(
        "JobID! User Account Partition JobName State Submit! Start End Elapsed Timelimit NNodes:float NCPUS:float "
        "ReqCPUS:float ReqMem ReqTRES AllocTRES"
    ),
    separator="|",
    missing=MISSING,
    quote=None,
)
NODES = Layout(
    schema("NODELIST! CPUS! MEMORY GRES"),
    separator="|",
    missing=("", "(null)"),
    quote=None,
)
STATUS = {
    "COMPLETED": "done",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    **dict.fromkeys(("RUNNING", "SUSPENDED", "COMPLETING", "RESIZING", "STOPPED"), "running"),
    **dict.fromkeys(
        ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED"), "failed"
    ),
}
GIB = {"K": 1 / 1024**2, "M": 1 / 1024, "": 1 / 1024, "G": 1.0, "T": 1024.0, "P": 1024.0**2}
"""GiB in a unit; without one, numbers are MiB."""
AMOUNT = r"(\d+(?:\.\d+)?)"


# ---------------------------------------------------------------------------- words of Slurm


def parse_duration(text: str) -> float | None:
    """Parse a duration in any of Slurm's forms into seconds; None if unlimited or unknown.

    >>> parse_duration("1-02:03:04"), parse_duration("05:30"), parse_duration("2-12"), parse_duration("UNLIMITED")
    (93784.0, 330.0, 216000.0, None)
    """
    if text in MISSING:
        return None
    seconds = clock_seconds(text)
    if seconds is None:
        raise InvalidInput("a duration like 1-02:03:04", value=text)
    return seconds


def parse_tres(text: str) -> dict[str, float]:
    """Parse a TRES string: amounts by name, memory in GiB.

    >>> parse_tres("billing=8,cpu=8,gres/gpu:a100=2,mem=1536M,node=2")
    {'billing': 8.0, 'cpu': 8.0, 'gres/gpu:a100': 2.0, 'mem': 1.5, 'node': 2.0}
    """
    amounts = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        found = re.fullmatch(AMOUNT + "([KMGTP]?)", value, re.ASCII)
        if not name or not found:
            raise InvalidInput("name=amount", value=item)
        unit = (
            GIB[found[2]] if name == "mem" else 1024.0 ** "KMGTP".find(found[2] or "K") * (1024.0 if found[2] else 1.0)
        )
        amounts[name] = float(found[1]) * unit
    return amounts


def expand_hosts(text: str) -> list[str]:
    """Expand a host list.

    >>> expand_hosts("n[1-3,07],login"), expand_hosts("r[1-2]n[08-09]")
    (['n1', 'n2', 'n3', 'n07', 'login'], ['r1n08', 'r1n09', 'r2n08', 'r2n09'])
    """
    if text in MISSING:
        return []
    hosts: list[str] = []
    for item in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+|.", text):
        if item == ",":
            continue
        pieces = re.split(r"\[([^\]]*)\]", item)
        if any("[" in piece or "]" in piece for piece in pieces):
            raise InvalidInput("host list like n[1-4,7]", value=text)
        choices = [_numbers(text, piece) if place % 2 else [piece] for place, piece in enumerate(pieces)]
        hosts += ["".join(parts) for parts in itertools.product(*choices)]
    return hosts


def _numbers(text: str, ranges: str) -> list[str]:
    names: list[str] = []
    for item in ranges.split(","):
        first, dash, last = item.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise InvalidInput("host list like n[1-4,7]", value=text)
        width = len(first)
        names += [f"{number:0{width}d}" for number in range(int(first), int(last or first) + 1)]
    return names


# ---------------------------------------------------------------------------- the same, for whole columns


def _duration(text: pl.Series) -> pl.Series:
    groups = pl.DataFrame({"text": text}, schema={"text": pl.String})
    groups = groups.select(pl.col("text").str.extract_groups(CLOCK).alias("all")).unnest("all")  # once, not by field
    days, first, second, third = (pl.col(f"{place}").cast(pl.Float64) for place in range(1, 5))
    split = pl.col("3").str.contains(".", literal=True) & (days.is_not_null() | third.is_not_null())
    with_days = 86400 * days + 3600 * first + 60 * second.fill_null(0.0) + third.fill_null(0.0)
    known = pl.coalesce(with_days, 3600 * first + 60 * second + third, 60 * first + second.fill_null(0.0))
    return groups.select(pl.when(~split.fill_null(False)).then(known)).to_series()


def _gib(number: pl.Expr, unit: pl.Expr) -> pl.Expr:
    return number.cast(pl.Float64) * unit.fill_null("").replace_strict(GIB, default=None, return_dtype=pl.Float64)


def _tres(text: pl.Expr) -> dict[str, pl.Expr]:
    """Cores, memory, GPUs and nodes in TRES strings, and the GPU type if there is just one."""
    typed = text.str.extract_all(r"gres/gpu:[^=,]+=\d+")
    each = typed.list.eval(pl.element().str.extract(r"=(\d+)$").cast(pl.Float64)).list.sum()
    types = typed.list.eval(pl.element().str.extract(r"gres/gpu:([^=]+)=")).list.unique()
    memory = r"(?:^|,)mem=" + AMOUNT + r"([KMGTP]?)(?:,|$)"
    return {
        "cpu": text.str.extract(r"(?:^|,)cpu=(\d+)").cast(pl.Float64),
        "memory": _gib(text.str.extract(memory, 1), text.str.extract(memory, 2)),
        "gpu": pl.coalesce(
            text.str.extract(r"(?:^|,)gres/gpu=(\d+)").cast(pl.Float64),
            pl.when(typed.list.len() > 0).then(each),
            pl.when(text.is_not_null()).then(0.0),
        ),
        "node": text.str.extract(r"(?:^|,)node=(\d+)").cast(pl.Float64),
        "type": pl.when(types.list.len() == 1).then(types.list.first()),
    }


# ---------------------------------------------------------------------------- reading


def read(path: Path, machines: Path | None, report: Report) -> Reading:
    """Read the jobs, and the machines from sinfo; a list of nodes alone is a trace without jobs."""
    if "NODELIST" in first_line(path).split("|"):
        return Reading(iter(()), RESOURCES, Source("slurm", (str(path),)), report, _machines(path, report))
    nodes = machines or beside(path, "sinfo.txt")
    zero = first_midnight(path, read_rows(path, LAYOUT, Report()), "Submit")
    files = (str(path), *(() if nodes is None else (str(nodes),)))
    notes = {
        "zero": f"{zero}, the midnight before the first submission, local time",
        "pieces": "the nodes of a job; each takes an equal part of what the job asked for",
    }
    known = None if nodes is None else _machines(nodes, report.beside())
    return Reading(_jobs(path, zero, report), RESOURCES, Source("slurm", files, notes), report, known)


def _jobs(path: Path, zero: datetime, report: Report) -> Iterator[pl.DataFrame]:
    for frame in read_rows(path, LAYOUT, report):
        whole = frame.filter(~pl.col("JobID").str.contains(".", literal=True))
        report.repair("job step, left out", len(frame) - len(whole))
        if not len(whole):
            continue
        dated = with_seconds(path, whole, ["Submit", "Start", "End"], zero, report)
        for name in ("Elapsed", "Timelimit"):
            dated = converted(path, dated, name, _duration(dated[name]), "duration like 1-02:03:04", report)
        yield _table(dated)


def _with_tres(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Amounts in columns `name.cpu` and so on; each distinct string is parsed once, since they are few."""
    distinct = frame.select(pl.col(name).drop_nulls().unique())
    amounts = distinct.with_columns(value.alias(f"{name}.{key}") for key, value in _tres(pl.col(name)).items())
    return frame.join(amounts, on=name, how="left")


def _table(frame: pl.DataFrame) -> pl.DataFrame:
    frame = _with_tres(_with_tres(frame, "ReqTRES"), "AllocTRES").sort("line")
    amount = {name: pl.coalesce(f"ReqTRES.{name}", f"AllocTRES.{name}") for name in ("cpu", "memory", "gpu", "node")}
    nodes = pl.coalesce(pl.col("NNodes"), amount["node"])
    nodes = pl.when(nodes > 0).then(nodes)
    cores = pl.coalesce(amount["cpu"], pl.col("ReqCPUS"), pl.col("NCPUS"))
    asked_memory = "^" + AMOUNT + "([KMGTP]?)([nc]?)$"  # n: per node; c: per core; empty: total
    memory = _gib(*(pl.col("ReqMem").str.extract(asked_memory, place) for place in (1, 2)))
    each = pl.col("ReqMem").str.extract(asked_memory, 3)
    memory = pl.when(each == "n").then(memory * nodes).when(each == "c").then(memory * cores).otherwise(memory)
    state = pl.col("State").str.extract(r"^(\w+)")
    status = state.replace_strict(STATUS, default=None, return_dtype=pl.String)
    ended = pl.col("Start").is_not_null() & (status.is_null() | (status != "running"))
    return job_table(
        frame,
        RESOURCES,
        job=pl.col("JobID"),
        submit_s=pl.col("Submit"),
        wait_s=pl.col("Start") - pl.col("Submit"),
        run_s=pl.when(ended).then(pl.coalesce(pl.col("Elapsed"), pl.col("End") - pl.col("Start"))),
        estimate_s=pl.col("Timelimit"),
        pieces=nodes,
        user=pl.col("User"),
        group=pl.col("Account"),
        kind=pl.col("Partition"),
        script=pl.col("JobName"),
        needs=pl.col("ReqTRES.type"),
        status=status,
        cpu=cores / nodes,
        memory=pl.coalesce(amount["memory"], memory) / nodes,
        gpu=amount["gpu"] / nodes,
    )


def _machines(path: Path, report: Report) -> pl.DataFrame:
    rows: list[dict[str, object]] = []
    for line, names, cores, memory, gres in read_whole(path, NODES, report).iter_rows():
        try:
            found = re.findall(r"gpu:(?:([^:,()]+):)?(\d+)", gres or "")
            row = {
                "count": 1,
                "speed": 1.0,
                "label": found[0][0] or None if len(found) == 1 else None,
                "cpu": _number(cores),
                "memory": None if memory is None else _number(memory) / 1024,
                "gpu": float(sum(int(number) for _, number in found)),
            }
            rows += [{"machine": host, **row} for host in expand_hosts(names)]
        except InvalidInput as error:
            report.skip(f"no {error.expected.removeprefix('a ')}", error.at(file=path, line=line))
    schema = {**MACHINE_COLUMNS, **{resource.name: pl.Float64 for resource in RESOURCES}}
    return filled(
        pl.DataFrame(rows, schema=schema).unique("machine", keep="first", maintain_order=True),
        MACHINE_COLUMNS,
        RESOURCES,
    )


def _number(text: str) -> float:
    """Parse a number of sinfo, which writes `64+` if nodes in a list differ: the least."""
    if not re.fullmatch(r"\d+\+?", text, re.ASCII):
        raise InvalidInput("a whole number", value=text)
    return float(text.removesuffix("+"))


FORMAT = Format(
    "Slurm accounting, sacct --parsable2",
    read,
    lambda _, line: bool({"JobID", "JobIDRaw", "NODELIST"} & set(line.split("|"))),
)
