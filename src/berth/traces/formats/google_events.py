"""Convert events of the Google traces to tables of jobs, machines and outages.

Events come in any order; only a few numbers per job are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from berth.model import Resource
from berth.traces.formats.measured import Totals
from berth.traces.trace import OUTAGE_COLUMNS, job_table, machine_table

__all__ = ["NEVER", "RESOURCES", "Events", "Machines", "Requests", "Times", "jobs", "machines_and_outages"]

RESOURCES = (Resource("cpu", "largest machine"), Resource("memory", "largest machine"))
NEVER = 2**63 - 1
"""Time of events after the trace; events before it have the time 0."""


@dataclass(frozen=True)
class Events:
    """Codes of event types: submission, start, and each end with its status."""

    submit: int
    schedule: int
    ends: dict[int, str | None]


class Times:
    """Submission, start and end of jobs: from events (`job`, `time` in µs, `type`, `line`) to a row per job.

    `about` names further columns; the first known value of each is kept.
    """

    def __init__(self, events: Events, about: list[str]) -> None:
        self._events, self._about = events, about
        kind, time = pl.col("type"), pl.col("time")
        first = [pl.col(name).drop_nulls().first() for name in about]
        self._totals = Totals(
            "job",
            [
                pl.col("line").min(),
                time.filter(kind == events.submit).min().alias("submit"),
                time.filter(kind == events.schedule).min().alias("start"),
                # the last start or end; at equal times the end is later, as its code is higher
                (time * 16 + kind).filter(kind.is_in([events.schedule, *events.ends])).max().alias("last"),
                *first,
            ],
            [pl.col("line").min(), pl.col("submit").min(), pl.col("start").min(), pl.col("last").max(), *first],
        )

    def add(self, table: pl.DataFrame) -> None:
        self._totals.add(table.filter(pl.col("time") < NEVER // 16))

    def table(self) -> pl.DataFrame:
        """Columns `job`, `line`, `submit_s`, `wait_s`, `run_s`, `status` and those of `about`.

        A job waits from its submission to its first start, and runs from there to its last end; a job that was started
        again after that, or never ended, has no run time.
        """
        last, second = pl.col("last") % 16, 1e6
        words = {**self._events.ends, self._events.schedule: "running"}
        end = pl.when(last != self._events.schedule).then(pl.col("last") // 16)
        return self._totals.table().select(
            "job",
            "line",
            (pl.col("submit") / second).alias("submit_s"),
            ((pl.col("start") - pl.col("submit")) / second).alias("wait_s"),
            ((end - pl.col("start")) / second).alias("run_s"),
            last.replace_strict(words, default=None, return_dtype=pl.String).alias("status"),
            *self._about,
        )


class Requests:
    """Requests of jobs: from events of instances (`job`, `index`, `type`, `cpu`, `memory`) to parts of jobs.

    Instances with the same request at submission are pieces of one part; a job with instances of several shapes has
    several parts, numbered from 0. An evicted instance is submitted again and must not count twice, but single
    instances are not stored. So a part has as many pieces as submissions, but at most the range of its indices. If
    requests change between submissions of an instance, the parts would have more pieces than the job has instances;
    such a job becomes one part with the mean request. If no submission is among the events of a job, all of its events
    are used.
    """

    def __init__(self, events: Events) -> None:
        self._submit = events.submit
        number = pl.col("index")
        self._totals = Totals(
            ["job", "submitted", "cpu", "memory"],
            [pl.len().cast(pl.Int64).alias("n"), number.min().alias("low"), number.max().alias("high")],
            [pl.col("n").sum(), pl.col("low").min(), pl.col("high").max()],
        )

    def add(self, table: pl.DataFrame) -> None:
        self._totals.add(table.with_columns((pl.col("type") == self._submit).alias("submitted")))

    def table(self) -> pl.DataFrame:
        """Columns `job`, `part`, `parts`, `pieces`, `cpu`, `memory`."""
        seen = self._totals.table()
        told = seen.group_by("job").agg(pl.col("submitted").any().alias("any"))
        seen = seen.join(told, on="job", how="left").filter(pl.col("submitted") == pl.col("any"))
        spread = pl.col("high") - pl.col("low") + 1
        seen = seen.with_columns(pl.min_horizontal(pl.col("n"), spread).alias("pieces"))
        known = {name: pl.col("n").filter(pl.col(name).is_not_null()).sum() for name in ("cpu", "memory")}
        whole = seen.group_by("job").agg(
            pl.len().cast(pl.Int64).alias("parts"),
            pl.col("pieces").sum().alias("all"),
            (pl.col("high").max() - pl.col("low").min() + 1).alias("instances"),
            *(((pl.col(name) * pl.col("n")).sum() / n).fill_nan(None).alias(name) for name, n in known.items()),
        )
        changed = (pl.col("parts") > 1) & (pl.col("all") > pl.col("instances"))
        columns = ("job", "part", "parts", "pieces", "cpu", "memory")
        one = {"part": pl.lit(0, dtype=pl.Int64), "parts": pl.lit(1, dtype=pl.Int64), "pieces": pl.col("instances")}
        merged = whole.filter(changed).with_columns(value.alias(name) for name, value in one.items())
        split = seen.join(whole.filter(~changed).select("job", "parts"), on="job").sort("job", "low", "cpu", "memory")
        split = split.with_columns(pl.int_range(pl.len()).over("job").cast(pl.Int64).alias("part"))
        return pl.concat([split.select(columns), merged.select(columns)])


def jobs(
    collections: Iterable[pl.DataFrame] | None,
    instances: Iterable[pl.DataFrame] | None,
    events: Events,
    about: list[str],
    about_collections: list[str],
    main: str,
) -> pl.DataFrame:
    """Table of jobs with `line`, from events of jobs, of their instances, or both; `main` says which has the lines.

    The jobs are those of the main table. Times come from the job's own events if known, otherwise from its instances
    together. `about` names columns of both, `about_collections` further ones of the events of jobs.
    """
    own, theirs, asked = Times(events, [*about, *about_collections]), Times(events, about), Requests(events)
    for table in collections or ():
        own.add(table)
    for table in instances or ():
        theirs.add(table)
        asked.add(table)
    if instances is None:
        return _named(own.table(), None)
    if collections is None:
        return _named(theirs.table(), asked.table())
    first, second = own.table(), theirs.table()
    rest = second.join(first.select("job"), on="job", how="anti")
    if main == "collections":
        return _named(first, asked.table())
    lines = second.select("job", "line")
    return _named(pl.concat([first.drop("line").join(lines, on="job"), rest], how="diagonal"), asked.table())


def _named(times: pl.DataFrame, asked: pl.DataFrame | None) -> pl.DataFrame:
    """One row per part; a job of several parts has `.0`, `.1`, … behind its name."""
    if asked is None:
        return job_table(times.sort("line"), RESOURCES, **_same(times, "line"))
    both = times.join(asked, on="job", how="left").sort("line", "part")
    name = pl.when(pl.col("parts") > 1).then(pl.col("job") + "." + pl.col("part").cast(pl.String))
    columns = {**_same(both, "line", "part", "parts"), "job": name.otherwise(pl.col("job"))}
    return job_table(both, RESOURCES, **columns)


def _same(table: pl.DataFrame, *others: str) -> dict[str, pl.Expr]:
    return {name: pl.col(name) for name in table.columns if name not in others}


@dataclass(frozen=True)
class Machines:
    """Codes of machine event types."""

    add: int
    remove: int


def machines_and_outages(rows: pl.DataFrame, kinds: Machines) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Convert events (`machine`, `time` in µs, `type`, `label`, `group`, `cpu`, `memory`) to machines and outages.

    A machine has its last known values. It is away from a removal to the next addition, and from 0 to its first
    addition.
    """
    rows = rows.filter(pl.col("time") < NEVER).sort("machine", "time", maintain_order=True)
    names = ("label", "group", "cpu", "memory")
    last = rows.group_by("machine", maintain_order=True).agg(pl.col(name).drop_nulls().last() for name in names)
    machines = machine_table(last, RESOURCES, machine=pl.col("machine"), **{name: pl.col(name) for name in names})
    moves = rows.filter(pl.col("type").is_in([kinds.add, kinds.remove]))
    time, following = pl.col("time") / 1e6, pl.col("type").shift(-1).over("machine")
    gone = moves.select(
        "machine",
        time.alias("down_s"),
        time.shift(-1).over("machine").alias("up_s"),
        ((pl.col("type") == kinds.remove) & (following.is_null() | (following == kinds.add))).alias("away"),
    ).filter("away")
    late = moves.group_by("machine", maintain_order=True).agg(time.first().alias("up_s"), pl.col("type").first())
    late = late.filter((pl.col("type") == kinds.add) & (pl.col("up_s") > 0)).with_columns(pl.lit(0.0).alias("down_s"))
    outages = pl.concat([table.select(OUTAGE_COLUMNS.keys()) for table in (late, gone)]).sort("machine", "down_s")
    return machines, outages
