"""Alibaba cluster-trace-gpu-v2025: instances of recommendation services, five resources each.

Each instance is a job of one piece that requests cores, memory (GiB), GPUs, a share of a network card (percent) and
disk (GiB). Its kind is its role, CN (the CPU part of a service) or HN (the GPU part); its group is the service. Times
before or after the trace are not published and null. The limit of instances of a service per node
(`max_instance_per_node`) is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from berth.model import Resource
from berth.traces.formats import Format, Reading, columns, without_machines
from berth.traces.rows import Field, Layout, Report, read_rows
from berth.traces.trace import CORES, GPUS, MEMORY, Source, job_table

__all__ = ["FORMAT", "read"]

RESOURCES = (CORES, MEMORY, GPUS, Resource("rdma", "% of a network card"), Resource("disk", "GiB"))
LAYOUT = Layout(
    (
        Field("instance_sn", required=True),
        Field("role"),
        Field("app_name"),
        *(Field(f"{resource.name}_request", pl.Float64) for resource in RESOURCES),
        *(Field(f"{name}_time", pl.Float64) for name in ("creation", "scheduled", "deletion")),
    )
)


def read(path: Path, machines: Path | None, report: Report) -> Reading:
    """Read the instances; no table of machines is published."""
    without_machines("alibaba-gpu-2025", machines)
    return Reading(_jobs(path, report), RESOURCES, Source("alibaba-gpu-2025", (str(path),)), report)


def _jobs(path: Path, report: Report) -> Iterator[pl.DataFrame]:
    for frame in read_rows(path, LAYOUT, report):
        yield job_table(
            frame,
            RESOURCES,
            job=pl.col("instance_sn"),
            submit_s=pl.col("creation_time"),
            wait_s=pl.col("scheduled_time") - pl.col("creation_time"),
            run_s=pl.col("deletion_time") - pl.col("scheduled_time"),
            pieces=pl.lit(1),
            group=pl.col("app_name"),
            kind=pl.col("role"),
            status=pl.when(pl.col("deletion_time").is_null()).then(pl.lit("running")),
            **{resource.name: pl.col(f"{resource.name}_request") for resource in RESOURCES},
        )


FORMAT = Format("Alibaba cluster-trace-gpu-v2025", read, columns("instance_sn", "app_name"))
