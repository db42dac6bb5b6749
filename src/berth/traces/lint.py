"""Trace linter: the contents of a trace, its impossible rows, and its usable part.

`lint` takes one pass over the tables of a reading. It keeps 16 bytes per job (submission time and a hash of the name).
`usable` applies the same rules to a trace in memory and returns the trace that simulators take.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from berth.errors import InvalidInput
from berth.model import Resource
from berth.traces.formats import Reading
from berth.traces.rules import DROPPED, Judge, usable_machines
from berth.traces.summary import Arrivals, Spread, clock_offset
from berth.traces.trace import JOB_COLUMNS, Source, Trace, filled

__all__ = ["Findings", "Problem", "lint", "usable"]


@dataclass(frozen=True)
class Problem:
    """A reason, the number of rows it caught, the action, and the first of them."""

    reason: str
    action: str
    remedy: str
    count: int
    examples: tuple[InvalidInput, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The problem as a dictionary, for JSON."""
        return {**vars(self), "examples": [str(example) for example in self.examples]}


@dataclass(frozen=True, eq=False)
class Findings:
    """Findings of the linter.

    `rows` could be read, `usable` of them can be used; `skipped` could not be read, `problems` are the others that a
    rule caught. `missing` counts missing values by column. `arrivals` covers all rows with a time; `spreads` (`run_s`,
    `wait_s`, `pieces`, and the total of a job for each resource) and `work` (amount times seconds, by resource) cover
    usable rows.
    """

    source: Source
    resources: tuple[Resource, ...]
    rows: int
    usable: int
    skipped: tuple[Problem, ...]
    problems: tuple[Problem, ...]
    missing: Mapping[str, int]
    arrivals: Arrivals
    spreads: Mapping[str, Spread]
    work: Mapping[str, float]
    capacity: Mapping[str, float] = field(default_factory=dict)
    machines: int = 0

    @property
    def clean(self) -> bool:
        """Whether every row could be read and used."""
        return not self.skipped and self.usable == self.rows

    @property
    def busy(self) -> dict[str, float]:
        """Mean amount of each resource in use, if the work is spread over the time of arrivals."""
        span = self.arrivals.span_s
        return {name: work / span for name, work in self.work.items()} if span > 0 else {}

    @property
    def load(self) -> dict[str, float]:
        """Offered load: `busy` over the machines' capacity, for resources known of both."""
        return {
            name: busy / self.capacity[name] for name, busy in self.busy.items() if self.capacity.get(name, 0.0) > 0
        }

    @property
    def dominant(self) -> str | None:
        """Resource with the highest load."""
        load = self.load
        return max(load, key=load.__getitem__) if load else None

    def as_dict(self) -> dict[str, Any]:
        """The findings as a dictionary for JSON; numbers too large for it are null."""
        arrivals = self.arrivals
        found = {
            "format": self.source.format,
            "files": list(self.source.files),
            "rows": self.rows,
            "usable": self.usable,
            "clean": self.clean,
            "skipped": [problem.as_dict() for problem in self.skipped],
            "problems": [problem.as_dict() for problem in self.problems],
            "missing": dict(self.missing),
            "first_submit_s": arrivals.first_s,
            "last_submit_s": arrivals.last_s,
            "span_s": arrivals.span_s,
            "jobs_per_hour": arrivals.jobs_per_hour,
            "interarrival_cv2": arrivals.cv2,
            "arrivals_by_hour": [int(count) for count in arrivals.by_hour()],
            "machines": self.machines,
            "units": {resource.name: resource.unit for resource in self.resources},
            "capacity": dict(self.capacity),
            "busy": self.busy,
            "load": self.load,
            "dominant": self.dominant,
            "spreads": {name: spread.as_dict() for name, spread in self.spreads.items()},
        }
        return {key: _finite(value) for key, value in found.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Tally:
    """Totals of usable jobs: spreads, and work by resource."""

    def __init__(self, resources: list[str]) -> None:
        self.spreads = {name: Spread() for name in ("run_s", "wait_s", "pieces", *resources)}
        self.work = dict.fromkeys(resources, 0.0)

    def add(self, jobs: pl.DataFrame) -> None:
        whole = jobs.with_columns(pl.col(name) * pl.col("pieces") for name in self.work)
        for name, spread in self.spreads.items():
            spread.add(whole[name])
        for name in self.work:
            self.work[name] += float((whole[name] * whole["run_s"]).sum())


def lint(reading: Reading) -> Findings:
    """Check every row of a trace once; a strict reading is refused if any row cannot be used.

    >>> from berth.traces.rows import Report
    >>> jobs = pl.DataFrame({"submit_s": [0.0, 3600.0], "run_s": [60.0, 0.0], "pieces": [1, 1], "cpu": [2.0, 1.0]})
    >>> found = lint(Reading(iter([jobs]), (Resource("cpu", "core"),), Source("memory"), Report()))
    >>> found.rows, found.usable, [(problem.reason, problem.count) for problem in found.problems]
    (2, 1, [('run time not above 0', 1), ('no estimate', 1)])
    """
    names = [resource.name for resource in reading.resources]
    judge = Judge(reading.resources, reading.machines, file=next(iter(reading.source.files), ""))
    arrivals = Arrivals(clock_offset(reading.source))
    missing = dict.fromkeys((*JOB_COLUMNS, *names), 0)
    rows, tally = 0, _Tally(names)
    for chunk in reading.jobs:
        lines = chunk.select("line") if "line" in chunk.columns else pl.DataFrame()
        jobs = filled(chunk.drop("line", strict=False), JOB_COLUMNS, reading.resources)
        for name in missing:
            missing[name] += jobs[name].null_count()
        sized = judge.sized
        kept = judge(jobs.hstack(lines.get_columns()))
        if reading.report.strict:
            _refuse(judge)
        rows += len(jobs)
        arrivals.add(jobs["submit_s"])
        if judge.sized is not sized:  # the judge started again
            tally = _Tally(names)
        tally.add(kept)
    unknown = judge.unknown()
    known = tuple(resource for resource in reading.resources if judge.given[resource.name])
    machines = reading.machines if reading.machines is not None else filled({}, {"count": pl.Int64}, reading.resources)
    return Findings(
        source=reading.source,
        resources=known,
        rows=rows,
        usable=judge.kept,
        skipped=_skipped(reading),
        problems=_problems(judge, unknown),
        missing=missing,
        arrivals=arrivals,
        spreads={name: spread for name, spread in tally.spreads.items() if judge.given.get(name, True)},
        work={resource.name: tally.work[resource.name] for resource in known},
        capacity={name: _total(machines, name) for name in names if machines[name].null_count() < len(machines)},
        machines=int(machines["count"].fill_null(1).sum()),
    )


def _total(machines: pl.DataFrame, name: str) -> float:
    return float((machines[name].fill_null(0.0) * machines["count"].fill_null(1)).sum())


def _refuse(judge: Judge) -> None:
    examples = [
        judge.examples[rule.reason][0] for rule in judge.rules if rule.action == DROPPED and rule.reason in judge.counts
    ]
    if examples:
        raise min(examples, key=lambda example: example.line or 0)


def _skipped(reading: Reading) -> tuple[Problem, ...]:
    report = reading.report
    return tuple(
        Problem(reason, DROPPED, "left out", count, tuple(report.examples.get(reason, ())))
        for reason, count in report.skipped.items()
    )


def _problems(judge: Judge, unknown: list[str]) -> tuple[Problem, ...]:
    left_out = {f"no amount of {name}" for name in unknown}
    return tuple(
        Problem(rule.reason, rule.action, rule.remedy, judge.counts[rule.reason], tuple(judge.examples[rule.reason]))
        for rule in judge.rules
        if judge.counts[rule.reason] and rule.reason not in left_out
    )


def usable(trace: Trace, *, zero_run_times: bool = False) -> tuple[Trace, dict[str, int]]:
    """Return the trace that simulators take, and the number of rows that each rule caught.

    The rules of `berth.traces.rules` drop impossible jobs and repair others. Jobs are sorted by submission; each has a
    run time, an estimate, a number of pieces and amounts. A resource unknown for all these jobs, or for all machines,
    is left out. With `zero_run_times` jobs of zero run time are kept.

    >>> trace, counts = usable(Trace.of({"submit_s": [9.0, 5.0, 0.0], "run_s": [60.0, 1.0, None], "cpu": [2.0] * 3}))
    >>> trace.jobs.select("submit_s", "run_s", "estimate_s", "pieces", "cpu").rows()
    [(5.0, 1.0, 1.0, 1, 2.0), (9.0, 60.0, 60.0, 1, 2.0)]
    >>> counts
    {'no run time': 1, 'no estimate': 2, 'no number of pieces': 2, 'out of order': 1}
    """
    file = next(iter(trace.source.files), "")
    judge = Judge(trace.resources, trace.machines, file, zero_run_times=zero_run_times)
    kept = judge(trace.jobs).sort("submit_s", maintain_order=True)
    unknown = judge.unknown()
    machines = usable_machines(trace.machines, trace.resources) if len(trace.machines) else trace.machines
    counts = {problem.reason: problem.count for problem in _problems(judge, unknown)}
    cleaned = trace.replace(
        jobs=kept.drop(unknown),
        machines=machines.drop(unknown, strict=False),
        resources=tuple(resource for resource in trace.resources if resource.name not in unknown),
    )
    return cleaned, counts
