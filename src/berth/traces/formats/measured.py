"""Parse dates, and average measured run times by job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from pathlib import Path

import polars as pl

from berth.errors import InvalidInput
from berth.traces.rows import Report, converted

__all__ = ["MeanRuns", "Totals", "as_date", "first_midnight", "mean_runs", "with_seconds"]

MERGE = 1 << 18
"""Rows of partial sums that are kept before they are merged."""


class Totals:
    """Running aggregates of each key over tables that come one by one.

    `first` reduces a table to partial rows, `merge` combines partial rows into one.

    >>> totals = Totals("job", [pl.len().alias("n")], [pl.col("n").sum()])
    >>> for jobs in (["a", "b"], ["b"]):
    ...     totals.add(pl.DataFrame({"job": jobs}))
    >>> totals.table().sort("job").rows()
    [('a', 1), ('b', 2)]
    """

    def __init__(self, key: str | list[str], first: list[pl.Expr], merge: list[pl.Expr]) -> None:
        self._key, self._first, self._merge = key, first, merge
        self._parts: list[pl.DataFrame] = []
        self._rows, self._bound = 0, MERGE

    def add(self, table: pl.DataFrame) -> None:
        part = table.group_by(self._key, maintain_order=True).agg(self._first)
        self._parts.append(part)
        self._rows += len(part)
        if self._rows > self._bound:
            whole = self.table()
            self._rows, self._bound = len(whole), max(MERGE, 2 * len(whole))

    def table(self) -> pl.DataFrame:
        """One row per key, in order of first appearance."""
        whole = pl.concat(self._parts)
        if len(self._parts) > 1:
            whole = whole.group_by(self._key, maintain_order=True).agg(self._merge)
            self._parts = [whole]
        return whole


@dataclass
class MeanRuns:
    """Mean run time of the pieces of each job: columns `job`, `mean_s`."""

    table: pl.DataFrame

    def put_into(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """Replace run times of the jobs by these means, where known."""
        both = jobs.join(self.table, on="job", how="left").sort("line")
        return both.with_columns(pl.coalesce("mean_s", "run_s").alias("run_s")).drop("mean_s")


def mean_runs(instances: Iterable[pl.DataFrame]) -> MeanRuns:
    """Compute mean run times from tables with `job` and `run_s`, a row per piece."""
    totals = Totals(
        "job",
        [pl.col("run_s").sum().alias("sum"), pl.col("run_s").count().alias("n")],
        [pl.col("sum").sum(), pl.col("n").sum()],
    )
    for table in instances:
        totals.add(table)
    known = totals.table().filter(pl.col("n") > 0)
    return MeanRuns(known.select("job", (pl.col("sum") / pl.col("n")).alias("mean_s")))


EXPECTED = "date like 2017-10-09 07:01:55"


def as_date(text: pl.Expr) -> pl.Expr:
    """Parse text like `2017-10-09 07:01:55` or `2017-10-09T07:01:55` as dates, null if it is neither."""
    return text.str.replace("T", " ", literal=True).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)


def first_midnight(path: Path, tables: Iterable[pl.DataFrame], name: str) -> datetime:
    """Midnight before the earliest date in this column of all tables; rows need not be sorted."""
    least = [table.select(as_date(pl.col(name)).min()).item() for table in tables]
    known = [date for date in least if date is not None]
    if not known:
        raise InvalidInput(f"a {EXPECTED}", found="none", key=name, file=path)
    return datetime.combine(min(known).date(), time())


def with_seconds(path: Path, frame: pl.DataFrame, names: list[str], zero: datetime, report: Report) -> pl.DataFrame:
    """Convert these columns to seconds from `zero`."""
    for name in names:
        since = (as_date(pl.col(name)) - pl.lit(zero, dtype=pl.Datetime("us"))).dt.total_microseconds()
        frame = converted(path, frame, name, since / timedelta(seconds=1).total_seconds() / 1e6, EXPECTED, report)
    return frame
