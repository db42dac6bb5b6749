"""Every file of the public traces is read whole, with as many rows as its publisher gave.

The traces lie where BERTH_TRACES says, with a MANIFEST.csv of how many rows each file has. Without, the hand-made
samples take their place.
"""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from berth.errors import InvalidInput
from berth.traces.fitting.distributions import read_histograms, read_marginals
from berth.traces.formats import alibaba2017, alibaba2018, load_trace, open_trace, pai, recognised
from berth.traces.rows import Report
from tests.traces.conftest import SAMPLES

REAL = os.environ.get("BERTH_TRACES")


def _expected() -> list[tuple[Path, int]]:
    if REAL:
        with (Path(REAL) / "MANIFEST.csv").open(newline="") as file:
            return [(Path(REAL) / row["file"], int(row["data_rows"])) for row in csv.DictReader(file)]
    return [(path, _rows(path)) for path in sorted(SAMPLES.rglob("*")) if path.is_file() and path.stem != "dirty"]


def _rows(path: Path) -> int:
    """How many rows a sample has, told without the readers that are to be tested."""
    text = path.read_text()
    if text.startswith("["):
        return len(json.loads(text))
    lines = [line for line in text.splitlines() if not line.startswith(";")]
    named = not path.name.startswith("part-") and not text.startswith("{") and path.suffix != ".swf"
    return len(lines) - named


FILES = _expected()
ROOT = Path(REAL) if REAL else SAMPLES


@pytest.mark.parametrize(("path", "rows"), FILES, ids=[str(path.relative_to(ROOT)) for path, _ in FILES])
def test_every_row_is_read(path: Path, rows: int) -> None:
    name, report = path.name, Report(strict=True)
    if name.startswith("minibatch_cov"):
        assert pai.read_minibatch_cov(path)["job"].n_unique() == rows
    elif name.startswith("minibatch_job"):
        assert len(pai.read_minibatch(path)) == rows
    elif name.startswith("pai_published_marginals"):
        assert len(read_marginals(path)) == rows
    elif "histograms" in name:
        assert len(read_histograms(path)) == rows
    elif name.startswith("machine_usage"):
        usage = pl.concat(list(alibaba2018.read_usage(path, report)))
        assert len(usage) == report.rows == rows
    elif name.startswith("pai_instance_table"):
        assert sum(len(table) for table in pai.read_instances(path, report)) == rows
    elif name.startswith("batch_instance"):
        module = alibaba2017 if "2017" in str(path) else alibaba2018
        assert sum(len(table) for table in module.read_instances(path, report)) == rows
    elif name.startswith("pai_job_table"):
        with pytest.raises(InvalidInput, match="expected pai_task_table"):  # has no requests: goes with the tasks
            load_trace(path)
    else:
        options: dict[str, Any] = {"parts": False} if recognised(path).startswith("google") else {}
        reading = open_trace(path, strict=True, **options)
        trace = reading.trace()
        left_out = sum(count for reason, count in reading.report.repaired.items() if reason == "job step, left out")
        assert reading.report.rows == rows
        assert len(trace) or len(trace.machines)
        if len(trace) and not recognised(path).startswith("google-2019") and not name.startswith("part-"):
            assert len(trace) == rows - left_out  # a row is a job


def test_there_are_files_of_every_kind() -> None:
    assert len(FILES) >= 40
    assert sum(rows for _, rows in FILES) > 100
