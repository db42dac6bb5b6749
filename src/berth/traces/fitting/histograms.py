"""Published distributions: histograms over all of a trace, and points read off figures. For fitting generators."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from berth.traces.rows import Field, Layout, Report, first_line, read_whole

__all__ = ["read_histograms", "read_marginals"]

_COUNTS = (Field("lower", pl.Float64), Field("upper", pl.Float64, required=True), Field("count", pl.Float64))


def read_histograms(path: str | Path, report: Report | None = None) -> pl.DataFrame:
    """Histograms: columns `quantity`, `given`, `lower`, `upper`, `count`.

    `count` values lie in (`lower`, `upper`]; whole quantities have the value `upper`. `given` is null but in those of
    shapes of DAGs, where it is the value of what stands behind the `|` in the name.
    """
    path = Path(path)
    shapes = "kind" in first_line(path).split(",")
    name = Field("kind" if shapes else "quantity", required=True)
    table = read_whole(path, Layout((name, Field("given", pl.Float64), *_COUNTS)), report or Report(strict=True))
    return table.drop("line").rename({"kind": "quantity"} if shapes else {})


def read_marginals(path: str | Path, report: Report | None = None) -> pl.DataFrame:
    """Points of distributions: columns `quantity`, `value`, `percent`, `kind`.

    By kind, `percent` is how many tasks lie at or below the value (`cdf`), or at or above it (`ccdf`), are what the
    name of the quantity says (`share_of_tasks`, without a value), or a `count`.
    """
    layout = Layout(
        (
            Field("quantity", required=True),
            Field("value", pl.Float64),
            Field("percent", pl.Float64, required=True),
            Field("kind", required=True),
        )
    )
    return read_whole(Path(path), layout, report or Report(strict=True)).drop("line")
