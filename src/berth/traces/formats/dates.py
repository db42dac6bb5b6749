"""Dates as seconds from the first midnight of a trace. Dates have no time zone: they are those of the place."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, time, timedelta
from pathlib import Path

import polars as pl

from berth.errors import InvalidInput
from berth.traces.rows import Report, converted

__all__ = ["as_date", "first_midnight", "with_seconds"]

EXPECTED = "date like 2017-10-09 07:01:55"


def as_date(text: pl.Expr) -> pl.Expr:
    """Text like `2017-10-09 07:01:55` or `2017-10-09T07:01:55` as dates, null where it is neither."""
    return text.str.replace("T", " ", literal=True).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)


def first_midnight(path: Path, tables: Iterable[pl.DataFrame], name: str) -> datetime:
    """The midnight before the earliest date in this column of all tables; rows need not be sorted."""
    least = [table.select(as_date(pl.col(name)).min()).item() for table in tables]
    known = [date for date in least if date is not None]
    if not known:
        raise InvalidInput(f"a {EXPECTED}", found="none", key=name, file=path)
    return datetime.combine(min(known).date(), time())


def with_seconds(path: Path, frame: pl.DataFrame, names: list[str], zero: datetime, report: Report) -> pl.DataFrame:
    """These columns as seconds from `zero`."""
    for name in names:
        since = (as_date(pl.col(name)) - pl.lit(zero, dtype=pl.Datetime("us"))).dt.total_microseconds()
        frame = converted(path, frame, name, since / timedelta(seconds=1).total_seconds() / 1e6, EXPECTED, report)
    return frame
