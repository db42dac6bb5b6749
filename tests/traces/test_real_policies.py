"""Every file of the public traces goes through policies, as far as it tells of jobs or of machines.

The traces lie where BERTH_TRACES says; without, the hand-made samples take their place. What a file tells is taken from
it, and only what is missing is made here, with a seed:

* jobs with run times are played as they are, on their own machines, or on a pool where none are known;
* requests without times come one after the other and run as long as is drawn here;
* machines without jobs run jobs that ask for a part of one of them;
* measurements and histograms are no workload: of these, what they say is checked. Only a fit makes jobs of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from berth.errors import InvalidInput
from berth.lab.replay import Replay, ReplaySetting, replay
from berth.traces.fitting.distributions import read_histograms, read_marginals
from berth.traces.formats import alibaba2017, alibaba2018, load_trace, open_trace, pai
from berth.traces.lint import lint, usable
from berth.traces.rows import Report
from berth.traces.trace import Trace
from tests.reference.batch import strict_fcfs
from tests.traces.test_real_files import FILES, ROOT

SOME = 250
"""So many jobs of each file are played."""
MEASURED = (
    "batch_instance",
    "dag_shape_histograms",
    "machine_usage",
    "marginal_histograms",
    "minibatch",
    "pai_instance_table",
    "pai_job_table",
    "pai_published_marginals",
)
"""Files without a job that could run: a fit, or the table that they go with, makes use of them."""
NAMES = [str(path.relative_to(ROOT)) for path, _ in FILES]
TRACES = [path for path, _ in FILES if not path.name.startswith(MEASURED)]
OTHERS = [path for path, _ in FILES if path.name.startswith(MEASURED)]


def _named(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def _timed(trace: Trace) -> Trace:
    """Jobs that tell no times come a minute apart, or when they say, and run from a minute to three hours."""
    rng = np.random.default_rng(3)
    jobs = trace.jobs.head(SOME)
    run = np.exp(rng.uniform(np.log(60.0), np.log(10_800.0), len(jobs)))
    came = pl.Series(60.0 * np.arange(len(jobs)))
    known = jobs["submit_s"].null_count() < len(jobs)
    return trace.replace(
        jobs=jobs.with_columns(pl.Series("run_s", run), (jobs["submit_s"] if known else came).alias("submit_s"))
    )


def _invented(trace: Trace) -> Trace:
    """Jobs for a list of machines: each asks for a part of one of them, and every other for its label."""
    rng = np.random.default_rng(5)
    names = [kind.name for kind in trace.resources]
    rows = []
    for i in range(SOME):
        machine = trace.machines.row(int(rng.integers(len(trace.machines))), named=True)
        part = float(rng.choice([0.1, 0.25, 0.5, 1.0]))
        rows.append(
            {
                "submit_s": 30.0 * i,
                "run_s": float(rng.integers(60, 7200)),
                "pieces": int(rng.integers(1, 3)),
                "needs": machine["label"] if i % 2 else None,
                # devices are taken whole here
                **{name: np.floor(part * (machine[name] or 0.0)) if name == "gpu" else part * (machine[name] or 0.0)
                   for name in names},
            }
        )  # fmt: skip
    return Trace.of(pl.DataFrame(rows, infer_schema_length=None), trace.machines, trace.resources, trace.source)


def _workload(path: Path) -> Trace:
    """Some jobs of a file, such as can be played."""
    trace = load_trace(path)
    if not len(trace):
        return usable(_invented(trace))[0]
    playable = usable(trace)[0]
    if not len(playable):
        playable = usable(_timed(trace))[0]
    return playable.replace(jobs=playable.jobs.head(SOME))


def _held(found: Replay, trace: Trace) -> None:
    """Everything started, nothing too early, and never more than there is."""
    names = [kind.name for kind in trace.resources]
    amount = trace.jobs.select(names).to_numpy() * trace.jobs["pieces"].to_numpy()[:, None]
    there = trace.machines["count"].to_numpy() @ trace.machines.select(pl.col(names).fill_null(0.0)).to_numpy()
    for row in found.rows:
        assert (row["jobs"], row["never_started"]) == (len(trace), 0)
        assert row["mean_bounded_slowdown"] >= 1
        jobs = found.jobs.filter(pl.col("policy") == row["policy"])
        start, end = jobs["start_s"].to_numpy(), jobs["end_s"].to_numpy()
        assert (start >= trace.jobs["submit_s"].to_numpy()).all()
        assert (end > start).all()
        for moment in start:
            running = (start <= moment) & (moment < end)
            assert (amount[running].sum(axis=0) <= there * (1 + 1e-6) + 1e-6).all()


@pytest.mark.parametrize("path", TRACES, ids=_named(TRACES))
def test_every_trace_is_linted_and_played(path: Path) -> None:
    findings = lint(open_trace(path))
    assert findings.rows >= findings.usable
    assert findings.rows or findings.machines
    trace = _workload(path)
    assert len(trace) > 0
    if findings.usable:
        assert len(trace) == min(SOME, findings.usable)
    if len(trace.machines) and trace.resources:
        shared = replay(trace, ["fcfs"])
        second = "fgd" if "fragmentation" in shared.rows[0] else "tetris"
        _held(replay(trace, ["fcfs", second]), trace)
        return
    name = trace.resources[0].name if trace.resources else None
    size = trace.jobs["pieces"].cast(pl.Float64) * (trace.jobs[name] if name else 1.0)
    processors = 2.0 * float(size.max() or 1.0)  # type: ignore[arg-type]
    found = replay(trace, ["fcfs", "easy"], ReplaySetting(processors=processors))
    assert [row["never_started"] for row in found.rows] == [0, 0]
    if (size == size.floor()).all():  # sums are exact: then all of it is
        columns = trace.jobs["submit_s"], size, trace.jobs["run_s"], trace.jobs["estimate_s"]
        jobs = list(zip(*(column.to_list() for column in columns), strict=True))
        assert found.jobs["start_s"].to_list()[: len(jobs)] == strict_fcfs(jobs, processors)


@pytest.mark.parametrize("path", OTHERS, ids=_named(OTHERS))
def test_what_is_no_workload_says_something(path: Path) -> None:
    name, report = path.name, Report(strict=True)
    if name.startswith("minibatch_cov"):
        assert (pai.read_minibatch_cov(path).drop_nulls()["cov"] >= 0).all()
    elif name.startswith("minibatch_job"):
        times = pai.read_minibatch(path)
        assert (times["time"] > 0).all()
        assert times["time"].n_unique() > 1  # it fluctuates
    elif name.startswith("pai_published_marginals"):
        table = read_marginals(path)
        assert table.filter(pl.col("kind") != "count")["percent"].is_between(0, 100).all()
        assert table["quantity"].n_unique() > 1
    elif "histograms" in name:
        table = read_histograms(path)
        assert (table["upper"] >= table["lower"]).all()
        assert (table["count"] >= 0).all()
        assert table["count"].sum() > 0
    elif name.startswith("machine_usage"):
        usage = pl.concat(list(alibaba2018.read_usage(path, report)))
        assert usage["cpu"].drop_nulls().is_between(0, 1.01).all()
        assert usage["machine"].null_count() == 0
    elif name.startswith("pai_job_table"):
        with pytest.raises(InvalidInput, match="expected pai_task_table"):
            load_trace(path)
    else:
        module: Any = pai if name.startswith("pai") else alibaba2017 if "2017" in str(path) else alibaba2018
        instances = pl.concat(list(module.read_instances(path, report)))
        assert (instances["run_s"].drop_nulls() >= 0).all()


def test_every_file_is_used() -> None:
    assert sorted(_named(TRACES) + _named(OTHERS)) == sorted(NAMES)
