"""Run times measured piece by piece, brought together by job. Memory is bounded by the number of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

__all__ = ["MeanRuns", "Totals", "mean_runs"]

MERGE = 1 << 18
"""Rows of partial sums that are kept before they are summed up."""


class Totals:
    """Sums, least, greatest and so on of each key over tables that come one by one.

    `first` makes partial rows of a table, `merge` makes one row of several partial ones.

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
        """One row for each key, in the order of their first appearance."""
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
        """The jobs with these run times, where there are any."""
        both = jobs.join(self.table, on="job", how="left").sort("line")
        return both.with_columns(pl.coalesce("mean_s", "run_s").alias("run_s")).drop("mean_s")


def mean_runs(instances: Iterable[pl.DataFrame]) -> MeanRuns:
    """From tables with `job` and `run_s`, a row for each piece."""
    totals = Totals(
        "job",
        [pl.col("run_s").sum().alias("sum"), pl.col("run_s").count().alias("n")],
        [pl.col("sum").sum(), pl.col("n").sum()],
    )
    for table in instances:
        totals.add(table)
    known = totals.table().filter(pl.col("n") > 0)
    return MeanRuns(known.select("job", (pl.col("sum") / pl.col("n")).alias("mean_s")))
