"""Alibaba cluster-trace-v2026-spot-gpu: the list of nodes, a trace of machines without jobs.

Columns `gpu_model`, `gpu_capacity_num`, `cpu_num` (cores), `node_name`. Memory is not published.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from berth.traces.formats import Format, Reading, columns, without_machines
from berth.traces.rows import Layout, Report, read_whole, schema
from berth.traces.trace import CORES, GPUS, Source, machine_table

__all__ = ["FORMAT", "read"]

RESOURCES = (CORES, GPUS)
LAYOUT = Layout(schema("gpu_model gpu_capacity_num:float cpu_num:float node_name!"))


def read(path: Path, machines: Path | None, report: Report) -> Reading:
    """Read the nodes."""
    without_machines("alibaba-spot-2026", machines)
    nodes = machine_table(
        read_whole(path, LAYOUT, report),
        RESOURCES,
        machine=pl.col("node_name"),
        label=pl.col("gpu_model"),
        cpu=pl.col("cpu_num"),
        gpu=pl.col("gpu_capacity_num"),
    )
    return Reading(iter(()), RESOURCES, Source("alibaba-spot-2026", (str(path),)), report, nodes)


FORMAT = Format(
    "Alibaba cluster-trace-v2026-spot-gpu, its nodes", read, columns("gpu_model", "gpu_capacity_num", "node_name")
)
