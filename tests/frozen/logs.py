"""Logs to play: small ones that are drawn here, and the first jobs of public ones where `BERTH_TRACES` has them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from berth.model import Resource
from berth.traces.formats import load_trace
from berth.traces.lint import usable
from berth.traces.trace import CORES, GPUS, MEMORY, Trace

__all__ = ["LOGS", "PUBLIC_LOGS", "PublicLog", "public_file", "public_log"]

Columns = dict[str, Any]
Machines = Mapping[str, Sequence[Any]]
POOL: Machines = {"machine": ["pool"], "count": [1], "cpu": [64.0]}
NODES: Machines = {"machine": ["node"], "count": [16], "cpu": [4.5]}
MIXED: Machines = {
    "machine": ["a", "b"],
    "count": [8, 6],
    "label": ["old", "new"],
    "cpu": [8.0, 24.0],
    "memory": [32.0, 48.0],
}
FASTER: Machines = {**MIXED, "speed": [1.0, 1.75]}
GPU_NODES: Machines = {
    "machine": ["none", "two", "four"],
    "count": [4, 6, 5],
    "label": [None, "t4", "v100"],
    "cpu": [64.0, 32.0, 48.0],
    "memory": [256.0, 128.0, 192.0],
    "gpu": [0.0, 2.0, 4.0],
}


def _trace(columns: Columns, machines: Machines, resources: Sequence[Resource] = (CORES,)) -> Trace:
    return Trace.of(columns, machines, resources)


def _times(rng: np.random.Generator, count: int, pause: float) -> Columns:
    """Jobs in bursts, with run times from none to hours, and estimates that are mostly too long."""
    run = np.floor(np.minimum(rng.lognormal(5.0, 1.7, count), 40_000.0))
    return {
        "submit_s": np.floor(np.cumsum(rng.exponential(pause, count) * (rng.random(count) < 0.7))),
        "run_s": np.maximum(run, 1.0),
        "estimate_s": np.maximum(np.floor(run * rng.choice([0.8, 1.0, 1.5, 4.0], count)), 1.0),
        "user": [f"u{i}" for i in rng.integers(0, 7, count)],
    }


def _pool(rng: np.random.Generator, count: int) -> Trace:
    size = np.minimum(2.0 ** rng.integers(0, 7, count) + rng.integers(0, 2, count), 64.0)
    return _trace({**_times(rng, count, 160.0), "pieces": np.ones(count), "cpu": size}, POOL)


def _equal(rng: np.random.Generator, count: int) -> Trace:
    pieces = rng.choice([1, 1, 2, 3, 8, 20, 48], count)
    return _trace({**_times(rng, count, 110.0), "pieces": pieces, "cpu": np.full(count, 1.5)}, NODES)


def _singles(rng: np.random.Generator, count: int) -> Trace:
    """Jobs of one piece whose run times are known: what policies that commit to a later start can serve."""
    times = _times(rng, count, 5.0)
    columns = {**times, "estimate_s": times["run_s"], "cpu": rng.choice([1.0, 2.0, 6.0], count)}
    machines: Machines = {name: FASTER[name] for name in ("machine", "count", "cpu", "speed")}
    return _trace({**columns, "pieces": np.ones(count)}, machines)


def _gangs(rng: np.random.Generator, count: int, machines: Machines = MIXED) -> Trace:
    columns = {
        **_times(rng, count, 11.0),
        "pieces": rng.choice([1, 1, 1, 2, 4, 7], count),
        "cpu": rng.choice([1.0, 2.0, 4.0, 8.0], count),
        "memory": rng.choice([0.5, 4.0, 16.0], count),
        "needs": rng.choice(np.array([None, None, None, "old", "new", "old|new"], dtype=object), count).tolist(),
    }
    return _trace(columns, machines, (CORES, MEMORY))


def _fractions(rng: np.random.Generator, count: int) -> Trace:
    """Thirds, tenths and very small parts of a machine, at times that are no whole seconds."""
    columns = {
        **_times(rng, count, 60.0),
        "pieces": rng.choice([1, 1, 2, 3], count),
        "cpu": rng.choice([1 / 3, 0.1, 0.7, 1.0, 0.0006], count),
        "memory": rng.choice([1 / 7, 0.25, 0.3], count),
    }
    columns["submit_s"] = columns["submit_s"] + np.sort(rng.random(count))
    columns["run_s"] = columns["run_s"] + rng.random(count)
    machines: Machines = {"machine": ["m"], "count": [5], "cpu": [1.0], "memory": [1.0]}
    return _trace(columns, machines, (CORES, MEMORY))


def _pods(rng: np.random.Generator, count: int) -> Trace:
    gpu = rng.choice([0.0, 0.2, 0.25, 1 / 3, 0.5, 1.0, 2.0, 4.0], count)
    columns = {
        **_times(rng, count, 17.0),
        "pieces": np.where(rng.random(count) < 0.1, 2, 1),
        "cpu": rng.choice([2.0, 4.0, 8.0, 12.0], count),
        "memory": rng.choice([4.0, 16.0, 30.0], count),
        "gpu": gpu,
        "needs": ["v100" if one else None for one in (gpu > 0) & (rng.random(count) < 0.3)],
    }
    return _trace(columns, GPU_NODES, (CORES, MEMORY, GPUS))


def _failing(rng: np.random.Generator, count: int) -> Trace:
    """Machines of different speeds that go away, one of them for good."""
    trace = _gangs(rng, count, FASTER)
    down = np.floor(np.sort(rng.uniform(0.0, float(trace.jobs["submit_s"][-1]), 12)))
    outages = {
        "machine": [f"{'ab'[i % 2]}-{i % 5}" for i in range(12)],
        "down_s": down,
        "up_s": [*(down[:-1] + 1500.0), None],
    }
    schema = {"machine": pl.String, "down_s": pl.Float64, "up_s": pl.Float64}
    return trace.replace(outages=pl.DataFrame(outages, schema=schema, strict=False))


LOGS: Mapping[str, Callable[[], Trace]] = {
    "pool": lambda: _pool(np.random.default_rng(1), 900),
    "pool-short": lambda: _pool(np.random.default_rng(2), 150),
    "equal": lambda: _equal(np.random.default_rng(3), 700),
    "equal-short": lambda: _equal(np.random.default_rng(4), 150),
    "singles-short": lambda: _singles(np.random.default_rng(14), 200),
    "gangs": lambda: _gangs(np.random.default_rng(5), 700),
    "gangs-short": lambda: _gangs(np.random.default_rng(6), 160),
    "speeds": lambda: _gangs(np.random.default_rng(7), 600, FASTER),
    "speeds-short": lambda: _gangs(np.random.default_rng(8), 160, FASTER),
    "fractions": lambda: _fractions(np.random.default_rng(9), 600),
    "fractions-short": lambda: _fractions(np.random.default_rng(10), 160),
    "pods": lambda: _pods(np.random.default_rng(11), 700),
    "pods-short": lambda: _pods(np.random.default_rng(12), 160),
    "outages": lambda: _failing(np.random.default_rng(13), 200),
}
"""Drawn logs: those that are short have less than 500 jobs, and are played by asking policies at every event."""


class PublicLog(NamedTuple):
    """A file of the folder of traces, how many jobs of it are played, and the size of the pool (None: its machines)."""

    file: str
    jobs: int
    processors: float | None = None


PUBLIC_LOGS: Mapping[str, PublicLog] = {
    "lublin-256": PublicLog("swf/lublin_256-synthetic.swf.gz", 20_000, 256.0),
    "sdsc-sp2": PublicLog("swf/SDSC-SP2-1998-4.2-cln.swf.gz", 20_000, 128.0),
    "kth-sp2": PublicLog("swf/KTH-SP2-1996-2.1.swf.gz", 5_000, 100.0),
    "llnl-atlas": PublicLog("swf/LLNL-Atlas-2006-2.1-cln.swf.gz", 5_000, 9216.0),
    "nasa-ipsc": PublicLog("swf/NASA-iPSC-1993-3.1-cln.swf.gz", 8_000, 128.0),
    "hpc2n": PublicLog("swf/HPC2N-2002-head.swf.gz", 1_000),
    "wagap-2013": PublicLog("swf/wagap-2013.swf.gz", 2_000),
    "openb": PublicLog("alibaba-gpu-v2023/openb_pod_list_default.csv.gz", 3_000),
    "openb-gpuspec33": PublicLog("alibaba-gpu-v2023/openb_pod_list_gpuspec33.csv.gz", 1_000),
    "philly": PublicLog("microsoft-philly-2017/philly.csv.gz", 4_000, 2000.0),
    "itp": PublicLog("microsoft-itp-2021/cluster04.csv.gz", 4_000, 256.0),
}


def public_file(name: str) -> Path | None:
    """The file of a public log; None if it is not there."""
    path = Path(os.environ.get("BERTH_TRACES", "")) / PUBLIC_LOGS[name].file
    return path if "BERTH_TRACES" in os.environ and path.is_file() else None


def public_log(name: str) -> Trace:
    """The first jobs of a public log."""
    path = public_file(name)
    assert path is not None
    trace = usable(load_trace(path))[0]
    return trace.replace(jobs=trace.jobs.head(PUBLIC_LOGS[name].jobs))
