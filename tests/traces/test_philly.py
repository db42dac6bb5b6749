"""Microsoft Philly, on hand-made samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from berth.errors import InvalidInput
from berth.traces.formats import load_trace, open_trace
from berth.traces.rows import Report
from berth.traces.rows_json import read_json_array
from tests.traces.conftest import SAMPLES

Sample = Callable[[str], Path]
COLUMNS = ("job", "submit_s", "wait_s", "run_s", "pieces", "user", "group", "status", "gpu")


def test_the_extract(sample: Sample) -> None:
    trace = load_trace(sample("philly/philly.csv"))
    assert trace.source.format == "philly"
    assert trace.source.notes["zero"].startswith("2017-10-08 00:00:00")
    assert trace.jobs.select("job", "submit_s", "run_s", "pieces", "group", "gpu").rows() == [
        ("0", 86400 + 7 * 3600 + 115.0, 66.0, 1, "11cb48", 1.0),
        ("1", 86390.0, 2951.5, 8, "6214e9", 1.0),
        ("2", 2 * 86400.0, 10.0, 2, "6214e9", 1.0),
    ]


def test_the_log(sample: Sample) -> None:
    reading = open_trace(sample("philly-log/cluster_job_log"))
    trace = reading.trace()
    assert reading.report.rows == 3
    assert trace.source.notes["zero"].startswith("2017-10-06 00:00:00")
    assert trace.jobs.select(*COLUMNS).rows() == [
        ("application_1", 90699.0, 30.0, 74.0 + 3600.0, 3, "ce2f4c", "ee9e8c", "done", 1.0),
        ("application_2", 43200.0, None, None, None, "ce2f4c", "ee9e8c", "cancelled", None),
        ("application_3", 172800.0, 10.0, None, 1, None, "11cb48", "running", 1.0),
    ]
    assert trace.machines.select("machine", "label", "gpu").rows() == [("m47", "24GB", 8.0), ("m48", "12GB", 2.0)]


def test_machines_alone(sample: Sample) -> None:
    trace = load_trace(sample("philly-log/cluster_machine_list"))
    assert (len(trace), len(trace.machines)) == (0, 2)


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
def test_an_array_read_in_blocks_of_any_size(size: int) -> None:
    path = SAMPLES / "philly-log" / "cluster_job_log"
    found = [item for block in read_json_array(path, Report(), size) for item in block]
    assert [tree for _, tree in found] == json.loads(path.read_text())
    assert [line for line, _ in found] == [2, 21, 23]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[\n{"jobid": "a"', 2, "whole JSON array"),
        ('[\n{"jobid": "a"},\n{"jobid" "b"}\n]', 3, "whole JSON array"),
        ('[\n{"jobid": "a"}\n', 3, "the end of the file"),
        ('[{"jobid": "a"}]\n[]', 2, "one JSON array"),
        ('{"jobid": "a"}', 1, "one JSON array"),
    ],
)
def test_broken_arrays(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = tmp_path / "cluster_job_log"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=words) as told:
        list(read_json_array(path, Report()))
    assert told.value.line == line


def test_jobs_of_the_log_that_make_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "cluster_job_log"
    jobs = [
        {"jobid": "a", "submitted_time": "2017-10-06 12:00:00", "attempts": []},
        {"jobid": "b", "submitted_time": "2017-13-45 12:00:00", "attempts": []},
        {"jobid": "c", "attempts": []},
        {"jobid": "d", "submitted_time": "2017-10-06 12:00:00", "attempts": [7]},
        {"jobid": "e", "submitted_time": "2017-10-06 12:00:00", "attempts": [{"start_time": "noon"}]},
        "f",
    ]
    path.write_text("[\n" + ",\n".join(json.dumps(job) for job in jobs) + "\n]\n")
    reading = open_trace(path)
    assert reading.trace().jobs["job"].to_list() == ["a"]
    assert reading.report.rows == 1
    assert reading.report.skipped == {
        "no date like 2017-10-09 07:01:55": 3,
        "no list of attempts": 1,
        "no JSON object": 1,
    }
    path.write_text("[\n" + ",\n".join(json.dumps(job) for job in jobs[:-1]) + "\n]\n")
    with pytest.raises(InvalidInput, match=r"cluster_job_log:3: submitted_time: got '2017-13-45 12:00:00'"):
        open_trace(path, strict=True).trace()


def test_no_date_at_all(tmp_path: Path) -> None:
    path = tmp_path / "cluster_job_log"
    path.write_text('[{"jobid": "a"}]')
    with pytest.raises(InvalidInput, match="submitted_time: got none, expected a date"):
        load_trace(path)


def test_dates_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    rows = ("timestamp,duration,num_gpus,cluster", "2017-10-09 07:01:55,1,1,a", "2017-02-30 00:00:00,1,1,a")
    path.write_text("\n".join(rows))
    reading = open_trace(path)
    assert len(reading.trace()) == 1
    assert reading.report.rows == 1
    with pytest.raises(InvalidInput, match=r"philly.csv:3: timestamp: got '2017-02-30 00:00:00', expected a date like"):
        load_trace(path, strict=True)
