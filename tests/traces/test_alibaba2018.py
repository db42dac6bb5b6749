"""Alibaba cluster-trace-v2018, on a hand-made sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from berth.errors import InvalidInput
from berth.traces.fitting.distributions import read_histograms
from berth.traces.formats import load_trace, open_trace
from berth.traces.formats.alibaba2018 import read_instances, read_usage
from berth.traces.rows import Report

Sample = Callable[[str], Path]
COLUMNS = ("job", "submit_s", "run_s", "pieces", "status", "cpu", "memory")


def test_tasks_become_jobs(sample: Sample) -> None:
    trace = load_trace(sample("alibaba-2018/batch_task.csv"))
    assert trace.source.format == "alibaba-2018"
    assert trace.jobs.select(COLUMNS).rows() == [
        ("j_1/M1", 100.0, 60.0, 4, "done", 1.0, 0.3),
        ("j_1/R2_1", 160.0, 5.0, 1, "done", 0.5, 0.2),
        ("j_2/M1", 0.0, None, None, None, None, None),
        ("j_3/task_Ab12", 300.0, 1.0, 2, "failed", 2.0, 0.59),
        ("j_4/M3", 400.0, None, 7, "running", 1.0, 0.49),
    ]
    assert trace.jobs["kind"].to_list() == ["1", "1", "1", "12", "1"]
    assert trace.jobs["wait_s"].null_count() == 5


def test_the_last_word_on_a_machine_counts(sample: Sample) -> None:
    reading = open_trace(sample("alibaba-2018/batch_task.csv"))
    assert reading.trace().machines.rows() == [
        ("m_1", 1, None, "7", 1.0, 96.0, 100.0),
        ("m_2", 1, None, "8", 1.0, 96.0, 100.0),
    ]
    assert reading.report.repaired == {"machine that was not in use at the end, left out": 1}
    assert reading.report.rows == 5  # of the main table


def test_with_and_without_names_of_columns(sample: Sample, nameless: Sample) -> None:
    named, bare = (load_trace(make("alibaba-2018/batch_task.csv")) for make in (sample, nameless))
    assert named.jobs.equals(bare.jobs)
    assert named.machines.equals(bare.machines)


def test_run_times_measured_over_instances(sample: Sample, nameless: Sample) -> None:
    for make in (sample, nameless):
        trace = load_trace(make("alibaba-2018/batch_task.csv"), instances=True)
        assert trace.jobs["run_s"].to_list() == [40.0, 5.0, None, 1.0, None]  # (20 + 60) / 2; none ended: as it was
    (table,) = read_instances(sample("alibaba-2018/batch_instance.csv"), Report())
    assert table["machine"].to_list() == ["m_1", "m_2", "m_2", "m_1"]
    assert table["run_s"].to_list() == [20.0, 60.0, None, 1.0]


def test_instances_that_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "batch_task.csv"
    path.write_text("M1,1,j_1,1,Terminated,1,2,100.0,0.3\n")
    assert load_trace(path).jobs["pieces"].to_list() == [1]
    assert len(load_trace(path).machines) == 0
    with pytest.raises(InvalidInput, match="batch_instance"):
        load_trace(path, instances=True)


def test_machines_alone(sample: Sample, nameless: Sample) -> None:
    for make in (sample, nameless):
        trace = load_trace(make("alibaba-2018/machine_meta.csv"))
        assert (len(trace), len(trace.machines)) == (0, 2)


def test_usage(sample: Sample, nameless: Sample) -> None:
    for make in (sample, nameless):
        path = make("alibaba-2018/machine_usage.csv")
        table = pl.concat(list(read_usage(path)))
        assert table.select("machine", "time_s").rows() == [("m_1", 10.0), ("m_1", 20.0)]
        assert table["cpu"].to_list() == pytest.approx([0.41, 0.43])
        assert table["memory"].to_list() == [0.92, None]  # 101 % is no share
        with pytest.raises(InvalidInput, match="got a table of usage, expected batch_task"):
            load_trace(path)


def test_histograms(sample: Sample) -> None:
    table = read_histograms(sample("alibaba-2018/marginal_histograms.csv"))
    assert table.rows()[0] == ("tasks_per_job", None, 0.0, 1.0, 38.0)
    shapes = read_histograms(sample("alibaba-2018/dag_shape_histograms.csv"))
    assert shapes.rows()[1] == ("critical_path_length|tasks_per_job", 2.0, 1.0, 2.0, 57.0)
