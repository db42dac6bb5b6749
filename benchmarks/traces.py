"""How fast traces load, and in how much memory: `python -m benchmarks.traces` (`--quick` for files up to 30 MB).

Files of growing size are made, in formats that are read in different ways: a table of jobs with names (as of Google
2011), one without (Alibaba 2018), numbers with blanks between them (SWF), events that become jobs (Google 2019), and
Slurm's accounting. Each is read chunk by chunk, and nothing kept; beside it Python's csv module reads the same file and
makes nothing of it. Every reading has a process of its own, so that its peak memory is its own. Times are processor
time. With `--real FOLDER` the public files that lie there are read, whole, as well.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.traces.formats import load_trace, open_trace

__all__ = ["FORMATS", "make", "measure"]

PART = 20_000
"""Rows that are drawn; a file repeats them with new numbers."""


def _google2011(rng: np.random.Generator, first: int) -> Iterator[str]:
    for job, submit, run in zip(range(first, first + PART), *rng.integers(0, 10**6, (2, PART)).tolist(), strict=True):
        yield f"{job},{submit}.250,{run % 97}.125,{run}.500,FINISH,{run % 4},{submit % 800},{run % 3000}"


def _alibaba2018(rng: np.random.Generator, first: int) -> Iterator[str]:
    for job, start, run in zip(range(first, first + PART), *rng.integers(0, 10**6, (2, PART)).tolist(), strict=True):
        yield f"M1,{run % 50 + 1},j_{job},1,Terminated,{start},{start + run},100.0,0.39"


def _swf(rng: np.random.Generator, first: int) -> Iterator[str]:
    for job, submit, run in zip(range(first, first + PART), *rng.integers(0, 10**6, (2, PART)).tolist(), strict=True):
        size = run % 64 + 1
        yield f"{job} {submit} {run % 99} {run} {size} -1 -1 {size} {2 * run} -1 1 {run % 70} 1 -1 2 -1 -1 -1"


def _google2019(rng: np.random.Generator, first: int) -> Iterator[str]:
    for event, at, run in zip(range(first, first + PART), *rng.integers(0, 10**6, (2, PART)).tolist(), strict=True):
        # a bounded number of jobs, however many events: 1,000 of them
        yield f"{1000 * at},{(0, 3, 6)[event % 3]},{run % 1000},200,{event // 3 % 50},0.0{run % 10}5,0.01"


def _slurm(rng: np.random.Generator, first: int) -> Iterator[str]:
    for job, at, run in zip(range(first, first + PART), *rng.integers(0, 10**6, (2, PART)).tolist(), strict=True):
        clock = f"{at % 24:02d}:{at % 60:02d}:{run % 60:02d}"
        tres = f"billing=8,cpu={run % 64 + 1},mem={run % 90 + 1}G,node=1"
        yield f"{job}|u{run % 70}|gpu|COMPLETED|2024-01-{at % 28 + 1:02d}T{clock}|{clock}|1-00:00:00|1|{tres}"


FORMATS: dict[str, tuple[str, str, Callable[[np.random.Generator, int], Iterator[str]]]] = {
    "google-2011": ("jobs.csv", "job,submit_s,wait_s,run_s,end,sched_class,user,app", _google2011),
    "alibaba-2018": ("batch_task.csv", "", _alibaba2018),
    "swf": ("log.swf", "; MaxProcs: 64", _swf),
    "google-2019": (
        "instance_events.csv",
        "time,type,collection_id,priority,instance_index,resource_request.cpus,resource_request.memory",
        _google2019,
    ),
    "slurm": ("sacct.txt", "JobID|User|Partition|State|Submit|Elapsed|Timelimit|NNodes|ReqTRES", _slurm),
}


def make(folder: Path, format: str, megabytes: float) -> Path:
    """A file of that format and about that size."""
    name, header, rows = FORMATS[format]
    path, rng, first = folder / format / name, np.random.default_rng(7), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        file.write(f"{header}\n" if header else "")
        while file.tell() < megabytes * 1e6:
            file.write("".join(f"{row}\n" for row in rows(rng, first)))
            first += PART
    return path


def measure(way: str, path: Path) -> dict[str, float]:
    """Rows, processor seconds and peak memory (MB) of reading a file in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.traces", "--one", way, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _one(way: str, path: Path) -> dict[str, float]:
    start = time.process_time()
    if way == "berth":
        reading = open_trace(path)
        for _ in reading.jobs:
            pass
        rows = reading.report.rows
    elif way == "whole":
        trace = load_trace(path)
        rows = len(trace) or len(trace.machines)
    else:
        separator = "|" if path.suffix == ".txt" else " " if ".swf" in path.name else ","
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            rows = sum(1 for _ in csv.reader(file, delimiter=separator))
    seconds = time.process_time() - start
    return {"rows": rows, "seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _show(sizes: list[float], real: Path | None) -> None:
    titles = ("format", "MB", "rows", "s", "rows/s", "peak MB", "csv module s", "its peak MB", "times as fast")
    table = Table(*titles, title="Loading: processor time, and peak memory of the process")
    with tempfile.TemporaryDirectory() as folder:
        for format in FORMATS:
            for size in sizes:
                path = make(Path(folder), format, size)
                _line(table, format, path, "berth")
                path.unlink()
    if real is not None:
        for name in ("swf/SDSC-SP2-1998-4.2-cln.swf.gz", "google-2011/jobs_days00-20.csv.gz"):
            _line(table, Path(name).name, real / name, "whole")
    Console(width=140).print(table)


def _line(table: Table, title: str, path: Path, way: str) -> None:
    ours, plain = measure(way, path), measure("csv", path)
    size, ratio = path.stat().st_size / 1e6, plain["seconds"] / ours["seconds"]
    table.add_row(
        title,
        f"{size:.0f}",
        f"{ours['rows']:,}",
        f"{ours['seconds']:.2f}",
        f"{ours['rows'] / ours['seconds']:,.0f}",
        f"{ours['peak']:.0f}",
        f"{plain['seconds']:.2f}",
        f"{plain['peak']:.0f}",
        f"{ratio:.1f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="files up to 30 MB")
    parser.add_argument("--real", type=Path, help="a folder of public traces")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "FILE"), help="measure one reading, print JSON")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(_one(arguments.one[0], Path(arguments.one[1]))))
        return
    _show([3, 30] if arguments.quick else [3, 30, 300], arguments.real)


if __name__ == "__main__":
    main()
