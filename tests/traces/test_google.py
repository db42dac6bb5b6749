"""Google cluster-data 2011 and 2019, on hand-made samples."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from berth.errors import InvalidInput
from berth.traces.formats import load_trace, open_trace
from berth.traces.formats.google_events import Events, Requests, Times
from tests.traces.conftest import SAMPLES

Sample = Callable[[str], Path]
TIMES = ("job", "submit_s", "wait_s", "run_s", "status")
EVENTS = Events(0, 1, {2: None, 3: "failed", 4: "done", 5: "cancelled", 6: None})


@pytest.fixture(params=["plain", "gzip"])
def parts_2011(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder with the tables of 2011, as published or unpacked."""
    folder = tmp_path / "2011"
    shutil.copytree(SAMPLES / "google-2011", folder)
    if request.param == "gzip":
        for file in folder.rglob("*.csv"):
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    return folder


def part(folder: Path, table: str, number: int = 0) -> Path:
    return sorted((folder / table).iterdir())[number]


def test_2011_jobs_with_their_tasks(parts_2011: Path) -> None:
    reading = open_trace(part(parts_2011, "job_events"))
    trace = reading.trace()
    assert trace.source.format == "google-2011"
    assert reading.report.rows == 8  # of both parts of the main table
    assert trace.jobs.select(*TIMES).rows() == [
        ("10", 0.0, 0.0, None, "running"),  # its end is after the trace
        ("20.0", 600.0, 5.0, 60.0, "done"),
        ("20.1", 600.0, 5.0, 60.0, "done"),
        ("30", 700.0, None, None, "cancelled"),
    ]
    assert trace.jobs.select("pieces", "cpu", "memory", "user", "kind", "group").rows() == [
        (1, 0.0625, 0.03, "uA", "3", "logicA"),
        (2, 0.125, 0.05, "uB", "0", "logicB"),  # submitted three times, but there are two of them
        (1, 0.25, 0.05, "uB", "0", "logicB"),
        (1, 0.2, 0.2, "uB", "1", "logicB"),  # asked for more when it came again: the mean
    ]


def test_2011_tasks_as_the_main_table(parts_2011: Path) -> None:
    trace = load_trace(part(parts_2011, "task_events"))
    assert trace.jobs["job"].to_list() == ["10", "20.0", "20.1", "30"]
    assert trace.jobs["run_s"].to_list() == [None, 60.0, 60.0, None]
    shutil.rmtree(parts_2011 / "job_events")
    alone = load_trace(part(parts_2011, "task_events"))
    assert alone.jobs.select(*TIMES).rows()[1] == ("20.0", 600.0, 5.0, 60.0, "done")
    assert alone.jobs["group"].null_count() == 4


def test_2011_one_part_alone(parts_2011: Path) -> None:
    reading = open_trace(part(parts_2011, "job_events", 1), parts=False)
    assert reading.trace().jobs["job"].to_list() == ["20.0", "20.1", "30"]
    assert reading.report.rows == 3


def test_2011_jobs_alone(parts_2011: Path) -> None:
    shutil.rmtree(parts_2011 / "task_events")
    shutil.rmtree(parts_2011 / "machine_events")
    trace = load_trace(part(parts_2011, "job_events"))
    assert trace.jobs.select("job", "pieces", "cpu").rows() == [
        ("10", None, None),
        ("20", None, None),
        ("30", None, None),
    ]
    assert len(trace.machines) == 0


def test_2011_machines_come_and_go(parts_2011: Path) -> None:
    for table in ("job_events", "machine_events"):
        trace = load_trace(part(parts_2011, table))
        assert trace.machines.rows() == [
            ("5", 1, "platA", "platA", 1.0, 0.5, 0.2493),
            ("6", 1, "platB", "platB", 1.0, 1.0, 0.5),
            ("7", 1, "platA", "platA", 1.0, 0.25, 0.25),
        ]
        assert trace.outages.rows() == [("5", 650.0, 800.0), ("6", 900.0, None), ("7", 0.0, 1000.0)]


def test_2011_condensed(sample: Sample) -> None:
    trace = load_trace(sample("google-2011-condensed/jobs_days00-20.csv"))
    assert trace.jobs.select(*TIMES).rows() == [
        ("0", 0.0, 0.0, None, "running"),
        ("1", 600.5, 1.25, 173.5, "done"),
        ("2", 700.0, 2.0, 3.5, "cancelled"),
        ("3", 710.0, None, None, None),
    ]
    assert trace.outages.rows() == [("5", 650.0, None)]


def test_2011_a_table_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "part-00000-of-00001.csv"
    path.write_text("1,2,3\n")
    with pytest.raises(InvalidInput, match="got 3 columns, expected task_events"):
        load_trace(path, "google-2011")


JOBS_2019 = [
    ("200.0", 600.0, 2.5, 60.0, "done"),
    ("200.1", 600.0, 2.5, 60.0, "done"),
    ("500", 700.0, 1.0, None, "running"),
]


def test_2019_instances(sample: Sample) -> None:
    reading = open_trace(sample("google-2019/instance_events.csv"))
    trace = reading.trace()
    assert trace.source.format == "google-2019"
    assert trace.jobs.select(*TIMES).rows() == JOBS_2019
    assert trace.jobs.select("pieces", "cpu", "memory", "user", "kind", "group").rows() == [
        (2, 0.02, 0.01, "uB", "free", "lB"),
        (1, 0.04, 0.03, "uB", "free", "lB"),
        (1, 0.01, 0.02, None, "monitoring", None),
    ]
    assert reading.report.rows == 9
    assert reading.report.repaired == {"row of an alloc set, left out": 2}  # one in each table


def test_2019_collections(sample: Sample) -> None:
    trace = load_trace(sample("google-2019/collection_events.csv"))
    assert trace.jobs.select(*TIMES).rows() == [
        ("100", 0.0, 0.0, None, "running"),
        *JOBS_2019[:2],
        ("400", 620.0, None, None, "cancelled"),
    ]
    assert trace.jobs["kind"].to_list() == ["production", "free", "free", "batch"]
    assert trace.jobs["pieces"].to_list() == [None, 2, 1, None]


def test_2019_machines(sample: Sample) -> None:
    trace = load_trace(sample("google-2019/machine_events.csv"))
    assert trace.machines.rows() == [("71", 1, "pA", "swA", 1.0, 0.5, 0.25), ("72", 1, "pB", "swB", 1.0, 1.0, 0.5)]
    assert trace.outages.rows() == [("71", 650.0, 655.0)]


@pytest.mark.parametrize("table", ["instance_events", "collection_events", "machine_events"])
def test_2019_json_lines_in_parts_say_the_same(sample: Sample, table: str) -> None:
    written = load_trace(sample(f"google-2019/{table}.csv"))
    reading = open_trace(sample(f"google-2019-json/{table}-000000000001.json"))
    nested = reading.trace()
    assert nested.jobs.sort("job").equals(written.jobs.sort("job"))
    assert nested.machines.equals(written.machines)
    assert nested.outages.equals(written.outages)


def test_2019_extract_of_requests(sample: Sample) -> None:
    trace = load_trace(sample("google-2019-extracts/2019_a_user_requests.csv"))
    assert trace.jobs.select("job", "submit_s", "pieces", "user", "cpu", "memory").rows() == [
        ("374471491589.0", 0.017887, 2, "uA", 0.0081, 0.0035),
        ("374471491589.1", 0.017887, 1, "uA", 0.0162, 0.0035),
        ("374909856633", 0.017912, 1, "uB", 0.0141, 0.0039),
    ]
    assert trace.machines.select("machine", "count", "cpu", "memory").rows() == [
        ("shape 0", 1672, 1.0, 0.5),
        ("shape 1", 7, 0.25, 0.125),
    ]
    alone = load_trace(sample("google-2019-extracts/2019_a_host_resource.csv"))
    assert alone.machines.equals(trace.machines)


def test_2019_joined_sample(sample: Sample) -> None:
    reading = open_trace(sample("google-2019-extracts/joined_sample.csv"))
    assert reading.trace().jobs.select("submit_s", "pieces", "group", "kind", "cpu", "memory").rows() == [
        (1810630.0, 1, "2", "free", 0.0024, 0.0002),
        (1626740.0, 1, "5", "batch", 0.0615, 0.0054),
    ]
    assert reading.report.repaired == {"row of an alloc set, left out": 1}


def test_events_in_many_tables_are_those_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.traces.formats.measured.MERGE", 2)
    told = [("a", 5, 0, 0), ("b", 1, 0, 0), ("a", 7, 1, 0), ("a", 9, 2, 0), ("b", 4, 1, 0), ("a", 12, 1, 0)]
    told += [("a", 5, 0, 1), ("c", 3, 4, 0), ("a", 20, 4, 0), ("b", 6, 3, 0)]
    rows = [
        {"job": job, "line": line, "time": time, "type": kind, "index": index, "cpu": 0.5, "memory": None}
        for line, (job, time, kind, index) in enumerate(told)
    ]
    kinds = {"line": pl.Int64, "time": pl.Int64, "type": pl.Int64, "index": pl.Int64, "cpu": pl.Float64}
    table = pl.DataFrame(rows, schema_overrides={**kinds, "memory": pl.Float64})
    made = []
    for size in (len(rows), 1, 3):
        times, asked = Times(EVENTS, []), Requests(EVENTS)
        for piece in table.iter_slices(size):
            times.add(piece)
            asked.add(piece)
        made.append((times.table().sort("job"), asked.table().sort("job")))
    assert all(one.equals(made[0][0]) and two.equals(made[0][1]) for one, two in made)
    times_s, asked_s = made[0]
    assert times_s.select("job", "run_s", "status").rows() == [
        ("a", 13e-6, "done"),
        ("b", 2e-6, "failed"),
        ("c", None, "done"),
    ]
    assert asked_s.rows() == [("a", 0, 1, 2, 0.5, None), ("b", 0, 1, 1, 0.5, None), ("c", 0, 1, 1, 0.5, None)]
