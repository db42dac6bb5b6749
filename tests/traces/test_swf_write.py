"""Traces written in the Standard Workload Format: read back, they replay alike; what it cannot hold is told."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.cli import main
from berth.errors import InvalidInput
from berth.lab.replay import replay
from berth.traces.fitting.generate import generate
from berth.traces.fitting.workload import load_workload
from berth.traces.formats import load_trace
from berth.traces.formats.generic import write_trace
from berth.traces.formats.swf_write import write_swf
from berth.traces.trace import CORES, GPUS, MEMORY, OUTAGE_COLUMNS, Trace
from tests.harness.examples import examples

DATA = Path(__file__).parents[1] / "data" / "traces" / "swf"
EXAMPLE = Path(__file__).parents[2] / "examples" / "batch.swf"
POLICIES = ["fcfs", "easy"]


def starts(trace: Trace) -> list[float | None]:
    return replay(trace, POLICIES).jobs["start_s"].to_list()


@pytest.mark.parametrize("name", ["sdsc-sp2", "hpc2n", "philly", "lublin-256"])
@pytest.mark.parametrize("suffix", [".swf", ".swf.gz"])
def test_a_generated_workload_replays_alike(name: str, suffix: str, tmp_path: Path) -> None:
    trace = generate(load_workload(name), jobs=300, load=1.1, seed=4)
    whole = trace.replace(jobs=trace.jobs.with_columns(pl.col("submit_s", "run_s", "estimate_s").round().clip(1)))
    files, _ = write_swf(whole, tmp_path / f"jobs{suffix}")
    assert files[0].name == f"jobs{suffix}"
    again = load_trace(files[0])
    assert starts(again) == starts(whole)
    if suffix == ".swf.gz":
        assert gzip.decompress(files[0].read_bytes()).startswith(b"; Version: 2.2\n")


def test_a_log_comes_back_with_its_header(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "again.swf"
    assert main(["trace", "convert", str(EXAMPLE), "--out", str(out), "-q"]) == 0
    assert "CPU times, used memory" in capsys.readouterr().err
    lines = out.read_text(encoding="utf-8").splitlines()
    head = [line for line in lines if line.startswith(";")]
    for key in ("Version: 2.2", "Computer: made by hand", "MaxJobs: 8", "MaxRecords: 8", "MaxProcs: 8", "MaxNodes: 8"):
        assert f"; {key}" in head
    assert any(line.startswith("; UnixStartTime: ") for line in head)
    assert any(line.startswith("; Note: ") for line in head)
    assert any(line.startswith("; Conversion: berth ") for line in head)
    jobs = [line.split() for line in lines if not line.startswith(";")]
    assert {len(line) for line in jobs} == {18}
    assert jobs[2] == [
        "3",
        "60",
        "-1",
        "1200",
        "8",
        "-1",
        "-1",
        "8",
        "1800",
        "-1",
        "1",
        "1",
        "1",
        "-1",
        "1",
        "-1",
        "-1",
        "-1",
    ]
    assert load_trace(out).jobs.equals(load_trace(EXAMPLE).jobs)
    assert main(["trace", "convert", str(EXAMPLE), "--out", str(out), "-q"]) == 2  # no --force
    assert "a file that is there" in capsys.readouterr().err


def test_a_copyright_notice_is_kept_whole(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    notice = "; Copyright: ours\n;   for study alone\n; MaxJobs: 99\n;   and more\n; MaxProcs: 4\n"
    log.write_text(notice + "1 0 -1 5 1 -1 -1 1 9 -1 1 1 1 -1 1 -1 -1 -1\n", encoding="utf-8")
    write_swf(load_trace(log), tmp_path / "copy.swf")
    text = (tmp_path / "copy.swf").read_text(encoding="utf-8")
    assert "; Copyright: ours\n;   for study alone\n" in text
    assert "99" not in text
    assert "and more" not in text


def test_unequal_machines_go_beside_it(tmp_path: Path) -> None:
    jobs: dict[str, Any] = {
        "job": ["a", "b"],
        "submit_s": [3.0, 1.0],
        "run_s": [60.0, 30.0],
        "pieces": [2, 1],
        "cpu": [1.0, 4.0],
        "memory": [2.0, 4.0],
    }
    machines: dict[str, Any] = {
        "machine": ["old", "new"],
        "count": [3, 2],
        "speed": [1.0, 2.0],
        "cpu": [4.0, 8.0],
        "memory": [16.0, 64.0],
    }
    files, notes = write_swf(Trace.of(jobs, machines, (CORES, MEMORY)), tmp_path / "jobs.swf")
    assert [file.name for file in files] == ["jobs.swf", "jobs.machines.tsv"]
    assert notes == ["names of jobs: they are numbered from 1"]
    again = load_trace(files[0])
    assert again.jobs.select("submit_s", "run_s", "pieces", "cpu", "memory").rows() == [
        (1.0, 30.0, 4, 1.0, 1.0),
        (3.0, 60.0, 2, 1.0, 2.0),
    ]
    table = again.machines.select("machine", "count", "speed", "cpu", "memory")
    assert table.rows() == [("old", 3, 1.0, 4.0, 16.0), ("new", 2, 2.0, 8.0, 64.0)]
    write_swf(load_trace(EXAMPLE), files[0], overwrite=True)
    assert not files[1].exists()  # the table of another trace does not stay


def one(**changes: Any) -> Trace:
    jobs = {"job": ["j"], "submit_s": [0.0], "run_s": [5.0], "pieces": [2], "cpu": [1.0], **changes}
    return Trace.of(jobs, {"machine": ["m"], "count": [4], "cpu": [4.0]}, (CORES, MEMORY, GPUS))


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (one(gpu=[1.0]), "1 jobs that ask for gpu, expected jobs that ask for cpu and memory alone"),
        (one(cpu=[None], gpu=[0.5]), "gpu of job j: got 0.5, expected whole numbers of gpu"),
        (one(cpu=[1.5]), "cpu of job j: got 1.5"),
    ],
)
def test_what_swf_cannot_hold_is_refused(trace: Trace, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        write_swf(trace, tmp_path / "jobs.swf")
    assert not list(tmp_path.iterdir())


def test_what_is_left_out_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = one(cpu=[2.0], needs=["fast"], user=["ann"], run_s=[0.2], submit_s=[-7.5])
    away = pl.DataFrame([("m", 3.0, None)], schema=dict(OUTAGE_COLUMNS), orient="row")
    write_trace(odd.replace(outages=away), tmp_path / "odd.csv")
    assert main(["trace", "convert", str(tmp_path / "odd.csv"), "--out", str(tmp_path / "odd.swf"), "-q"]) == 0
    said = capsys.readouterr().err
    for words in (
        "processors of one piece share a machine, of 1 jobs",
        "the zero of times, moved by 7.5 s",
        "parts of seconds",
        "the machines that 1 jobs need",
        "names of users",
        "names of jobs",
        "outages of machines (1)",
    ):
        assert words in said, words
    assert load_trace(tmp_path / "odd.swf").jobs.select("submit_s", "run_s", "pieces").row(0) == (0.0, 1.0, 4)
    with pytest.raises(InvalidInput, match="directory"):
        write_swf(odd, tmp_path / "none" / "x.swf")
    assert main(["workload", "generate", "hpc2n", "--out", str(tmp_path / "x.txt"), "--jobs", "3"]) == 2
    assert ".csv, .csv.gz, .parquet, .swf, .swf.gz" in capsys.readouterr().err


rows = st.tuples(
    st.integers(0, 10**6), st.none() | st.integers(0, 10**5), st.integers(1, 10**6), st.none() | st.integers(1, 10**6)
)


@examples(40)
@given(st.lists(st.tuples(rows, st.integers(1, 64)), min_size=1, max_size=20))
def test_whole_numbers_come_back(jobs: list[tuple[tuple[int, int | None, int, int | None], int]]) -> None:
    import tempfile

    columns: dict[str, Any] = {
        "job": [str(i + 1) for i in range(len(jobs))],
        "submit_s": sorted(row[0] for row, _ in jobs),
        "wait_s": [row[1] for row, _ in jobs],
        "run_s": [row[2] for row, _ in jobs],
        "estimate_s": [row[3] for row, _ in jobs],
        "pieces": [size for _, size in jobs],
        "cpu": np.ones(len(jobs)),
        "user": [str(i % 3) for i in range(len(jobs))],
        "kind": ["1"] * len(jobs),
        "status": ["done"] * len(jobs),
    }
    trace = Trace.of(columns, {"machine": ["node"], "count": [16], "cpu": [4.0]}, (CORES, MEMORY))
    with tempfile.TemporaryDirectory() as place:
        files, notes = write_swf(trace, Path(place) / "jobs.swf")
        again = load_trace(files[0])
        assert len(files) == 1
        assert notes == []
        assert again.jobs.equals(trace.jobs)
        assert again.machines.select("count", "cpu").row(0) == (16, 4.0)
