"""Google cluster-data 2019: Borg cells a to h in May 2019, as exported from BigQuery.

Give `instance_events` or `collection_events`, as CSV (`resource_request.cpus` is a column) or JSON lines (nested, with
whole numbers written as text). The other of the two and `machine_events` are looked for beside it, and all files of a
table in many files (`collection_events-000000000000.json.gz`) are read (`parts=False`: that one alone).
`berth.traces.formats.google_events` converts events to jobs; alloc sets, which are reservations, are left out. Events
before the trace have the time 0; the trace proper starts at 600 s.

Third-party extracts are read too: `user_requests` (an instance per row, with `host_resource` of the same cell beside it
for the machines) and the joined sample (`req_cpus`, `req_memory`; each row is a job of one piece).

CPU and memory are shares of the largest machine. A job's kind is its tier by priority: `free` (to 99), `batch` (to
115), `mid` (to 119), `production` (to 359) or `monitoring`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from berth.errors import InvalidInput
from berth.traces.formats import Format, Reading, any_of, columns, google_events, objects
from berth.traces.formats.google_events import RESOURCES, Events, Machines
from berth.traces.rows import Field, Layout, Report, beside, first_line, read_rows, read_whole, schema
from berth.traces.rows import parts as all_parts
from berth.traces.rows_json import read_json_rows
from berth.traces.trace import Source, job_table, machine_table

__all__ = ["FORMAT", "read"]

EVENTS = Events(0, 3, {4: None, 5: "failed", 6: "done", 7: "cancelled", 8: None})
COMMON = schema("time:int! type:int! collection_id! collection_type:int priority:int")
COLLECTIONS = Layout((*COMMON, Field("user"), Field("collection_logical_name")))
INSTANCES = Layout(
    (
        *COMMON,
        Field("instance_index", pl.Int64, required=True),
        Field("resource_request.cpus", pl.Float64),
        Field("resource_request.memory", pl.Float64),
    )
)
MACHINES = Layout(
    schema("time:int! machine_id! type:int! switch_id platform_id capacity.cpus:float capacity.memory:float")
)
USERS = Layout(schema("time:int! user collection_id! instance_index:int! cpus:float ram:float collection_type:int"))
HOSTS = Layout(schema("cpus:float! ram:float! machine_count:int!"))
JOINED = Layout(schema("time_s:float! collection_type:int priority:int req_cpus:float req_memory:float cell"))
TIERS = {99: "free", 115: "batch", 119: "mid", 359: "production"}


def read(path: Path, machines: Path | None, report: Report, *, parts: bool = True) -> Reading:
    """Read jobs from events or extracts, or machines alone."""
    kind = _kind(path)
    if kind == "machines":
        table, outages = _machines(_files(path, parts), report)
        return Reading(iter(()), RESOURCES, Source("google-2019", (str(path),)), report, table, outages)
    if kind == "hosts":
        return Reading(iter(()), RESOURCES, Source("google-2019", (str(path),)), report, _hosts(path, report))
    if kind in ("users", "joined"):
        return _extract(path, kind, machines, report)
    other = {"collections": "instances", "instances": "collections"}[kind]
    names = {"collections": "collection_events", "instances": "instance_events"}
    tables = {kind: path, other: _beside(path, names[other], other)}
    known = machines or _beside(path, "machine_events", "machines")
    files = [file for item in tables.values() if item is not None for file in _files(item, parts)]
    notes = {
        "pieces": "instances that ask for the same" if tables["instances"] else "not known without instance_events",
        "times": "of the job" if tables["collections"] else "of the instances of each job together",
    }
    source = Source("google-2019", tuple(str(file) for file in (*files, *((known,) if known else ()))), notes)
    jobs = _jobs(tables["collections"], tables["instances"], kind, parts, report)
    if known is None:
        return Reading(jobs, RESOURCES, source, report)
    return Reading(jobs, RESOURCES, source, report, *_machines(_files(known, parts), report.beside()))


def _kind(path: Path) -> str:
    line = first_line(path)
    names = line if line.startswith("{") else {cell.strip().strip('"') for cell in line.split(",")}
    for kind, wanted in (
        ("hosts", ("machine_count",)),
        ("users", ("collection_id", "cpus", "ram")),
        ("joined", ("req_cpus", "req_memory")),
        ("instances", ("collection_id", "instance_index", "type")),
        ("collections", ("collection_id", "type")),
        ("machines", ("machine_id", "type")),
    ):
        if all((f'"{name}"' if isinstance(names, str) else name) in names for name in wanted):
            return kind
    raise InvalidInput("collection_events, instance_events or machine_events", found=f"{line[:60]!r}", file=path)


def _files(path: Path, parts: bool) -> list[Path]:
    return all_parts(path) if parts else [path]


def _beside(path: Path, name: str, kind: str) -> Path | None:
    found = beside(path, f"{name}.csv", f"{name}.json", f"{name}[-_]*.csv", f"{name}[-_]*.json")
    return found if found is not None and _kind(found) == kind else None


def _rows(files: list[Path], layout: Layout, report: Report) -> Iterator[pl.DataFrame]:
    for file in files:
        as_json = first_line(file).startswith("{")
        yield from read_json_rows(file, layout.fields, report) if as_json else read_rows(file, layout, report)


def _without_alloc_sets(frame: pl.DataFrame, report: Report) -> pl.DataFrame:
    jobs = frame.filter(pl.col("collection_type").fill_null(0) == 0)
    report.repair("row of an alloc set, left out", len(frame) - len(jobs))
    return jobs


def _tier() -> pl.Expr:
    tier = pl.lit("monitoring")
    for highest, name in reversed(TIERS.items()):
        tier = pl.when(pl.col("priority") <= highest).then(pl.lit(name)).otherwise(tier)
    return pl.when(pl.col("priority").is_not_null()).then(tier)


def _jobs(
    collections: Path | None, instances: Path | None, main: str, parts: bool, report: Report
) -> Iterator[pl.DataFrame]:
    def rows(table: Path, kind: str, layout: Layout, columns: dict[str, pl.Expr]) -> Iterator[pl.DataFrame]:
        counted = report if kind == main else report.beside()
        for frame in _rows(_files(table, parts), layout, counted):
            events = _without_alloc_sets(frame, counted)
            common = {"job": pl.col("collection_id"), "kind": _tier(), **columns}
            yield events.select("line", "time", "type", *(value.alias(name) for name, value in common.items()))

    about = {"user": pl.col("user"), "group": pl.col("collection_logical_name")}
    asked = {
        "index": pl.col("instance_index"),
        "cpu": pl.col("resource_request.cpus"),
        "memory": pl.col("resource_request.memory"),
    }
    yield google_events.jobs(
        None if collections is None else rows(collections, "collections", COLLECTIONS, about),
        None if instances is None else rows(instances, "instances", INSTANCES, asked),
        EVENTS,
        ["kind"],
        ["user", "group"],
        main,
    )


def _machines(files: list[Path], report: Report) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows = pl.concat(list(_rows(files, MACHINES, report))).select(
        pl.col("machine_id").alias("machine"),
        "time",
        "type",
        pl.col("platform_id").alias("label"),
        pl.col("switch_id").alias("group"),
        pl.col("capacity.cpus").alias("cpu"),
        pl.col("capacity.memory").alias("memory"),
    )
    return google_events.machines_and_outages(rows, Machines(1, 2))


# ---------------------------------------------------------------------------- extracts


def _extract(path: Path, kind: str, machines: Path | None, report: Report) -> Reading:
    cell = path.name.partition("_user_requests")[0]
    hosts = machines or (beside(path, f"{cell}_host_resource.csv") if kind == "users" else None)
    files = (str(path), *(() if hosts is None else (str(hosts),)))
    notes = {"pieces": "one" if kind == "joined" else "instances in this file that ask for the same"}
    jobs = _joined(path, report) if kind == "joined" else _users(path, report)
    known = None if hosts is None else _hosts(hosts, report.beside())
    return Reading(jobs, RESOURCES, Source("google-2019", files, notes), report, known)


def _users(path: Path, report: Report) -> Iterator[pl.DataFrame]:
    """Read an extract; each row is the first event of an instance, which counts as the job's submission."""
    columns = {
        "job": pl.col("collection_id"),
        "index": pl.col("instance_index"),
        "type": pl.lit(EVENTS.submit, dtype=pl.Int64),
        "cpu": pl.col("cpus"),
        "memory": pl.col("ram"),
    }
    frames = (_without_alloc_sets(frame, report) for frame in read_rows(path, USERS, report))
    events = (frame.select("line", "time", "user", **columns) for frame in frames)
    yield google_events.jobs(None, events, EVENTS, ["user"], [], "instances")


def _joined(path: Path, report: Report) -> Iterator[pl.DataFrame]:
    for frame in read_rows(path, JOINED, report):
        yield job_table(
            _without_alloc_sets(frame, report),
            RESOURCES,
            job=pl.col("line").cast(pl.String),
            submit_s=pl.col("time_s"),
            pieces=pl.lit(1),
            group=pl.col("cell"),
            kind=_tier(),
            cpu=pl.col("req_cpus"),
            memory=pl.col("req_memory"),
        )


def _hosts(path: Path, report: Report) -> pl.DataFrame:
    return machine_table(
        read_whole(path, HOSTS, report).with_row_index("shape"),
        RESOURCES,
        machine=pl.lit("shape ") + pl.col("shape").cast(pl.String),
        count=pl.col("machine_count"),
        cpu=pl.col("cpus"),
        memory=pl.col("ram"),
    )


FORMAT = Format(
    "Google cluster-data 2019",
    read,
    any_of(
        columns("time", "type", "collection_id"),
        columns("time", "type", "machine_id"),
        columns("collection_id", "cpus", "ram"),
        columns("cpus", "ram", "machine_count"),
        columns("req_cpus", "req_memory"),
        objects("collection_id", "type"),
        objects("machine_id", "type"),
    ),
)
