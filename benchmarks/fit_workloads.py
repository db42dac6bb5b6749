"""Make the workload files that come with berth from the public traces.

    BERTH_TRACES=/path/to/traces python benchmarks/fit_workloads.py [NAME ...]

Files go to src/berth/workloads. What a source does not tell and was supposed stands in each file under `assumed`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import berth
from berth.traces.fit import fit
from berth.traces.formats import load_trace
from berth.traces.workload import FOLDER, Provenance, Workload

ARCHIVE = "Parallel Workloads Archive; it asks that it and the person named in the log's header be credited"
FITS: dict[str, Callable[[str, Path], Workload]] = {}


def made(name: str) -> Callable[[Callable[[str, Path], Workload]], Callable[[str, Path], Workload]]:
    """Registers what makes the workload of this name."""

    def register(function: Callable[[str, Path], Workload]) -> Callable[[str, Path], Workload]:
        FITS[name] = function
        return function

    return register


# ---------------------------------------------------------------------------- batch logs

LOGS = {
    "sdsc-sp2": (
        "SDSC-SP2-1998-4.2-cln",
        "SDSC SP2: 128 nodes, batch jobs of two years, 1998 to 2000",
        "San Diego Supercomputer Center, by the Parallel Workloads Archive (research and non-profit use)",
    ),
    "nasa-ipsc": ("NASA-iPSC-1993-3.1-cln", "NASA iPSC/860: 128 nodes, batch jobs of three months, 1993", ARCHIVE),
    "llnl-atlas": ("LLNL-Atlas-2006-2.1-cln", "LLNL Atlas: 1,152 nodes of 8 cores, six months, 2006 to 2007", ARCHIVE),
    "hpc2n": ("HPC2N-2002-head", "HPC2N: 120 nodes of 2 cores, the first 57 days, 2002", ARCHIVE),
    "metacentrum": (
        "wagap-2013",
        "MetaCentrum: 68 nodes of two kinds, January to March 2013",
        "distributed with the Alea simulator (LGPL)",
    ),
    "lublin-256": (
        "lublin_256-synthetic",
        "SYNTHETIC: 256 nodes, jobs of the model of Lublin and Feitelson",
        "distributed with deep-batch-scheduler (no licence stated)",
    ),
}


def log(name: str, folder: Path) -> Workload:
    """A batch log."""
    file, title, terms = LOGS[name]
    trace = load_trace(folder / "swf" / f"{file}.swf.gz")
    origin = Provenance(source=file, licence=terms, synthetic="synthetic" in file, berth=berth.__version__)
    return fit(trace, name, title=title, provenance=origin)


for log_name in LOGS:
    FITS[log_name] = log


def main(names: list[str]) -> None:
    folder = Path(os.environ["BERTH_TRACES"])
    for name in names or FITS:
        workload = FITS[name](name, folder)
        path = FOLDER / f"{name}.json"
        workload.save(path)
        print(f"{name}: {workload.provenance.rows:,} rows, {len(workload.classes)} classes, {path.stat().st_size:,} B")


if __name__ == "__main__":
    main(sys.argv[1:])
