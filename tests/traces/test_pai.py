"""Alibaba cluster-trace-gpu-v2020, on a hand-made sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from berth.errors import InvalidInput, UnknownName
from berth.traces.fitting.distributions import read_marginals
from berth.traces.formats import load_trace
from berth.traces.formats.pai import read_minibatch, read_minibatch_cov

Sample = Callable[[str], Path]
COLUMNS = ("job", "submit_s", "wait_s", "run_s", "pieces", "user", "needs", "status", "cpu", "memory", "gpu")


def test_tasks_become_jobs(sample: Sample, nameless: Sample) -> None:
    for make in (sample, nameless):
        trace = load_trace(make("alibaba-gpu-2020/pai_task_table.csv"))
        assert trace.source.format == "alibaba-gpu-2020"
        assert trace.jobs.select(COLUMNS).rows() == [
            ("a1/ps", 1000.0, 10.0, 990.0, 1, "u1", None, "done", 6.0, 29.296875, 0.0),
            ("a1/worker", 1000.0, 20.0, 970.0, 4, "u1", "MISC", "done", 4.0, 29.296875, 0.5),
            ("b2/tensorflow", 1500.0, 100.0, None, 1, "u2", "V100", "running", 6.0, 30.0, 2.0),
            ("c3/evaluator", 1700.0, None, 1.0, 1, None, "T4", "failed", 1.0, 2.0, 1.0),
        ]
        assert trace.machines.rows()[0] == ("mA", 1, "MISC", None, 1.0, 96.0, 512.0, 8.0)


def test_run_times_measured_over_instances(sample: Sample, nameless: Sample) -> None:
    for make in (sample, nameless):
        trace = load_trace(make("alibaba-gpu-2020/pai_task_table.csv"), instances=True)
        assert trace.jobs["run_s"].to_list() == [990.0, 200.0, None, 1.0]


def test_the_main_table_alone(tmp_path: Path) -> None:
    path = tmp_path / "pai_task_table.csv"
    path.write_text("a1,ps,1.0,Terminated,1010.0,2000.0,600.0,29.3,,CPU\n")
    trace = load_trace(path)
    assert trace.jobs.select("submit_s", "wait_s", "user").rows() == [(1010.0, None, None)]
    assert len(trace.machines) == 0


def test_other_tables(sample: Sample, nameless: Sample) -> None:
    for make in (sample, nameless):
        trace = load_trace(make("alibaba-gpu-2020/pai_machine_spec.csv"))
        assert (len(trace), len(trace.machines)) == (0, 3)
        with pytest.raises(InvalidInput, match="got 6 columns, expected pai_task_table"):
            load_trace(make("alibaba-gpu-2020/pai_job_table.csv"))


def test_mini_batches(sample: Sample) -> None:
    table = read_minibatch(sample("alibaba-gpu-2020/minibatch_job_1.csv"))
    assert table.rows() == [(0, 0.25, 1, 476.0), (1, 0.25, 1, 509.0), (0, 0.25, 2, 480.0)]
    spread = read_minibatch_cov(sample("alibaba-gpu-2020/minibatch_cov.csv"))
    assert spread.rows() == [
        ("job_00", 0, 0.05),
        ("job_00", 1, 0.04),
        ("job_01", 0, 0.02),
        ("job_01", 1, 0.05),
        ("job_01", 2, 0.07),
    ]
    with pytest.raises(InvalidInput, match="a column job"):
        read_minibatch_cov(sample("alibaba-gpu-2020/minibatch_job_1.csv"))


def test_marginals(sample: Sample) -> None:
    table = read_marginals(sample("alibaba-gpu-2020/pai_published_marginals.csv"))
    assert table.rows() == [
        ("task_runtime_s_all", 20.0, 7.2, "cdf"),
        ("gpu_type_T4", None, 30.5, "share_of_tasks"),
    ]


def test_gaia(sample: Sample) -> None:
    hours = load_trace(sample("gaia/pai_100k_gaia.csv"))
    assert hours.jobs.select("job", "submit_s", "run_s", "pieces", "cpu").rows() == [
        ("0", 0.0, 91800.0, 1, 1.0),
        ("1", 1800.0, 900.0, 8, 1.0),
    ]
    assert "hours" in hours.source.notes["unit"]
    assert "guessed" in hours.source.notes["unit"]
    path = sample("gaia/pai_1k_gaia.csv")
    assert load_trace(path).jobs["run_s"].to_list() == [6302.0, 1000.0]
    assert load_trace(path, unit="hours").jobs["submit_s"].to_list() == [0.0, 68 * 3600.0]
    with pytest.raises(UnknownName, match="hours"):
        load_trace(path, unit="hour")
