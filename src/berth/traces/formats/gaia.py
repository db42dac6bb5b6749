"""PAI jobs in GAIA's reduced form: columns `arrival_time`, `length`, `cpus`.

`cpus` is the number of equal servers that a job holds; each is a piece of one core. Times are in hours in the file of
100,000 jobs and in seconds in that of 1,000: `unit` ("hours" or "seconds") sets the unit; its default comes from the
file name (`100k` means hours).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from berth.errors import UnknownName
from berth.traces.formats import Format, Reading, columns, without_machines
from berth.traces.rows import Layout, Report, read_rows, schema
from berth.traces.trace import CORES, Source, job_table

__all__ = ["FORMAT", "read"]

UNITS = {"hours": 3600.0, "seconds": 1.0}
LAYOUT = Layout(schema("arrival_time:float! length:float! cpus:float!"))


def read(path: Path, machines: Path | None, report: Report, *, unit: str | None = None) -> Reading:
    """Read the jobs; there is no table of machines."""
    without_machines("gaia", machines)
    chosen = unit or ("hours" if "100k" in path.name else "seconds")
    if chosen not in UNITS:
        raise UnknownName("unit of time", chosen, UNITS)
    why = "as asked for" if unit else "guessed from the name of the file"
    notes = {"unit": f"times are in {chosen} in the file ({why})"}
    return Reading(_jobs(path, UNITS[chosen], report), (CORES,), Source("gaia", (str(path),), notes), report)


def _jobs(path: Path, seconds: float, report: Report) -> Iterator[pl.DataFrame]:
    number = 0
    for frame in read_rows(path, LAYOUT, report):
        yield job_table(
            frame,
            (CORES,),
            job=(pl.int_range(pl.len()) + number).cast(pl.String),
            submit_s=pl.col("arrival_time") * seconds,
            run_s=pl.col("length") * seconds,
            pieces=pl.col("cpus"),
            cpu=pl.lit(1.0),
        )
        number += len(frame)


FORMAT = Format("PAI, reduced by GAIA", read, columns("arrival_time", "length", "cpus"))
