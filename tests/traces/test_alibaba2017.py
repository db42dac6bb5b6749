"""Alibaba cluster-trace-v2017, on a hand-made sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from berth.errors import InvalidInput
from berth.traces.formats import load_trace

Sample = Callable[[str], Path]
COLUMNS = ("job", "submit_s", "run_s", "pieces", "group", "status", "cpu", "memory")


def test_tasks_become_jobs(sample: Sample, nameless: Sample) -> None:
    for make in (sample, nameless):
        trace = load_trace(make("alibaba-2017/batch_task.csv"))
        assert trace.source.format == "alibaba-2017"
        assert trace.jobs.select(COLUMNS).rows() == [
            ("3/4", 100.0, 65.0, 15, "3", "done", 0.5, 0.0079),
            ("3/5", 101.0, 29.0, 1, "3", "failed", 1.0, 0.0043),
            ("4/7", 102.0, None, 393, "4", None, None, None),
        ]
        assert trace.machines.select("machine", "cpu", "memory").rows() == [("55", 64.0, 0.69), ("56", 64.0, 1.0)]


def test_run_times_measured_over_instances(sample: Sample, nameless: Sample) -> None:
    for make in (sample, nameless):
        trace = load_trace(make("alibaba-2017/batch_task.csv"), instances=True)
        assert trace.jobs["run_s"].to_list() == [20.0, 29.0, None]


def test_the_variant_with_mean_durations(sample: Sample) -> None:
    trace = load_trace(sample("alibaba-2017/batch_task_mean_instance_duration.csv"))
    assert trace.jobs.select(COLUMNS).rows() == [
        ("1/1", 539.0, 116.5, 283, "1", None, 1.0, 0.0054),
        ("9/23", 7448.0, 73.25, 67, "9", None, 0.5, 0.0078),
    ]


def test_machines_alone(sample: Sample, nameless: Sample) -> None:
    for make in (sample, nameless):
        trace = load_trace(make("alibaba-2017/server_event.csv"), "alibaba-2017")
        assert (len(trace), len(trace.machines)) == (0, 2)


def test_another_table(sample: Sample) -> None:
    with pytest.raises(InvalidInput, match="got 12 columns, expected batch_task or server_event"):
        load_trace(sample("alibaba-2017/batch_instance.csv"), "alibaba-2017")
