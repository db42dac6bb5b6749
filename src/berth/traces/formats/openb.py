"""Alibaba cluster-trace-gpu-v2023 "openb": pods of a heterogeneous GPU cluster with fractional GPUs.

The main table is a list of pods; each is a job of one piece. `openb_node_list_all_node` beside it gives the machines.
GPUs are devices: whole ones, or a share of one if `gpu_milli` is below 1000. `gpu_spec` names the models that a pod may
use. CPU is in cores and memory in GiB. Pods that were never scheduled have no wait and no run time. One of the lists
(`multigpu20`) has no times: its `submit_s` is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from berth.traces.formats import Format, Reading, any_of, columns
from berth.traces.rows import Layout, Report, beside, first_line, read_rows, read_whole, schema
from berth.traces.trace import CORES, GPUS, MEMORY, Source, job_table, machine_table

__all__ = ["FORMAT", "read"]

RESOURCES = (CORES, MEMORY, GPUS)
PODS = Layout(
    schema(
        "name! cpu_milli:float memory_mib:float num_gpu:float gpu_milli:float gpu_spec qos pod_phase "
        "creation_time:float deletion_time:float scheduled_time:float"
    )
)
NODES = Layout(schema("sn! cpu_milli:float memory_mib:float gpu:float model"))
STATUS = {"Succeeded": "done", "Failed": "failed"}
"""Status by phase. `Running` pods were deleted while running, so their end is unknown; `Pending` pods never ran."""


def read(path: Path, machines: Path | None, report: Report) -> Reading:
    """Read pods, or the list of nodes alone."""
    if {"sn", "model"} <= set(first_line(path).split(",")):
        return Reading(iter(()), RESOURCES, Source("openb", (str(path),)), report, _nodes(path, report))
    nodes = machines or beside(path, "openb_node_list_all_node.csv", "openb_node_list*.csv")
    files = (str(path), *(() if nodes is None else (str(nodes),)))
    known = None if nodes is None else _nodes(nodes, report.beside())
    return Reading(_jobs(path, report), RESOURCES, Source("openb", files), report, known)


def _jobs(path: Path, report: Report) -> Iterator[pl.DataFrame]:
    for frame in read_rows(path, PODS, report):
        never = pl.col("scheduled_time").is_null() & pl.col("deletion_time").is_not_null()
        yield job_table(
            frame,
            RESOURCES,
            job=pl.col("name"),
            submit_s=pl.col("creation_time"),
            wait_s=pl.col("scheduled_time") - pl.col("creation_time"),
            run_s=pl.col("deletion_time") - pl.col("scheduled_time"),
            pieces=pl.lit(1),
            kind=pl.col("qos"),
            needs=pl.col("gpu_spec").str.strip_chars("| "),
            status=pl.when(never)
            .then(pl.lit("cancelled"))
            .otherwise(pl.col("pod_phase").replace_strict(STATUS, default=None, return_dtype=pl.String)),
            cpu=pl.col("cpu_milli") / 1000,
            memory=pl.col("memory_mib") / 1024,
            gpu=pl.when(pl.col("num_gpu") == 1).then(pl.col("gpu_milli") / 1000).otherwise(pl.col("num_gpu")),
        )


def _nodes(path: Path, report: Report) -> pl.DataFrame:
    return machine_table(
        read_whole(path, NODES, report),
        RESOURCES,
        machine=pl.col("sn"),
        label=pl.col("model"),
        cpu=pl.col("cpu_milli") / 1000,
        memory=pl.col("memory_mib") / 1024,
        gpu=pl.col("gpu"),
    )


FORMAT = Format(
    "Alibaba cluster-trace-gpu-v2023 (openb)",
    read,
    any_of(columns("name", "cpu_milli", "gpu_milli"), columns("sn", "cpu_milli", "model")),
)
