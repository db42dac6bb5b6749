"""Microsoft ITP 2021: deep-learning training, one file a cluster: `job`, `submission_time`, `duration`, `num_gpu`.

Jobs are gangs: each GPU of a job is a piece. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from berth.traces.formats import Format, Reading, columns, without_machines
from berth.traces.rows import Layout, Report, read_rows, schema
from berth.traces.trace import GPUS, Source, job_table

__all__ = ["FORMAT", "read"]

LAYOUT = Layout(schema("job! submission_time:float! duration:float num_gpu:float"))


def read(path: Path, machines: Path | None, report: Report) -> Reading:
    """Read the jobs; no table of machines is published."""
    without_machines("itp", machines)
    return Reading(_jobs(path, report), (GPUS,), Source("itp", (str(path),)), report)


def _jobs(path: Path, report: Report) -> Iterator[pl.DataFrame]:
    for frame in read_rows(path, LAYOUT, report):
        yield job_table(
            frame,
            (GPUS,),
            job=pl.col("job"),
            submit_s=pl.col("submission_time"),
            run_s=pl.col("duration"),
            pieces=pl.col("num_gpu"),
            gpu=pl.lit(1.0),
        )


FORMAT = Format("Microsoft ITP 2021", read, columns("submission_time", "duration", "num_gpu"))
