"""Rehearsals: the runs of every scheduler under every seed, and their files.

```
DIR/cells/KEY.parquet   one finished run each, one row a job
DIR/summary.parquet, jobs.parquet, plots/turnaround.png
```
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from berth.errors import BerthError
from berth.lab.run.cells import code_hash, source_hash
from berth.lab.run.processes import run_cells
from berth.lab.run.runner import CellKind, CellRun, Failure, Progress, Work
from berth.lab.run.store import ResultDirectory, now, versions
from berth.lab.show.canvas import COLOURS, finish, new_figure, to_png
from berth.live.core import LIVE
from berth.live.twin.rehearse import Rehearsal, Row
from berth.live.twin.runs import Run, Runner, run

__all__ = ["flat", "played", "write_rehearsal"]


class RehearsalCell(NamedTuple):
    """A scheduler under a seed."""

    runner: Runner
    seed: int

    def __str__(self) -> str:
        return f"{self.runner}, seed {self.seed}"


class RehearsedCells(CellKind[Rehearsal, RehearsalCell, Run]):
    """Cells of a rehearsal with these settings."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self._jobs: dict[int, str] = {}

    def key(self, context: Rehearsal, cell: RehearsalCell) -> str:
        """A hash of the code, the settings, the queues and the jobs; the file of a trace may have other jobs now."""
        if cell.seed not in self._jobs:
            self._jobs[cell.seed] = hashlib.sha256(repr([*context.stream.gangs(cell.seed)]).encode()).hexdigest()
        runner, served = cell.runner, None if context.served is None else repr(context.served.queues)
        source = "" if runner.plain or runner.policy in LIVE else source_hash(runner.policy)
        parts = [self._settings, str(runner), cell.seed, self._jobs[cell.seed], code_hash("live"), source, served]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]

    def compute(self, context: Rehearsal, cell: RehearsalCell) -> Run:
        """Play the jobs of the seed with the scheduler."""
        return run(context.stream, *cell, context.latency, context.plain_latency, context.patience, context.served)

    def save(self, directory: ResultDirectory, key: str, cell: RehearsalCell, result: Run) -> None:
        """Write a row for each job."""
        directory.write_table(f"cells/{key}.parquet", result.frame())

    def load(self, directory: ResultDirectory, key: str) -> Run:
        """Read the run."""
        return Run.of(pl.read_parquet(directory.path / "cells" / f"{key}.parquet"))


def played(
    plan: Rehearsal,
    settings: Any,
    directory: ResultDirectory | None = None,
    workers: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> list[Run]:
    """All runs of a rehearsal, by scheduler and seed; those that the directory has are read."""
    found: dict[RehearsalCell, Run] = {}

    def take(work: Work, result: Run | Failure) -> None:
        if isinstance(result, Failure):
            raise BerthError(f"{work.cell}: {result.error}")
        found[work.cell] = result

    cells = CellRun(RehearsedCells(settings), [plan], directory, progress, take)
    for seed in plan.seeds:
        for one in plan.all:
            cells.want(Work(0, RehearsalCell(one, seed)))
    cells.run(partial(run_cells, workers=workers))
    return [found[RehearsalCell(one, seed)] for one in plan.all for seed in plan.seeds]


def flat(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows for a table file: an estimate becomes three columns."""
    return [
        {key: value if not isinstance(value, dict) else value["mean"] for key, value in row.as_dict().items()}
        | {
            f"{key}_{end}": value[end]
            for key, value in row.as_dict().items()
            if isinstance(value, dict)
            for end in ("low", "high")
        }
        for row in rows
    ]


def write_rehearsal(
    directory: ResultDirectory, plan: Rehearsal, runs: Sequence[Run], rows: Sequence[Row], facts: Mapping[str, Any]
) -> None:
    """Write the jobs of all runs, the rows, a picture and the manifest."""
    about = {"settings": json.dumps(facts, sort_keys=True), "berth": versions()["berth"]}
    told = {name: pl.lit(text) for name, text in about.items()}
    directory.write_table("jobs.parquet", pl.concat(made.frame() for made in runs).with_columns(**told))
    directory.write_table("summary.parquet", pl.DataFrame(flat(rows), infer_schema_length=None).with_columns(**told))
    directory.write("plots/turnaround.png", lambda path: path.write_bytes(_picture(plan, runs)))
    directory.write_json("manifest.json", directory.described({**facts, "versions": versions()}, finished=now()))


def _picture(plan: Rehearsal, runs: Sequence[Run]) -> bytes:
    """Turnaround relative to the plain scheduler as jobs come: a learner gets better."""
    figure, axes = new_figure(7.0)
    axis = axes[0][0]
    by = {str(one): np.mean([made.turnaround for made in runs if made.runner == str(one)], axis=0) for one in plan.all}
    width = max(len(by[str(plan.plain)]) // 12, 1)
    smooth = {name: np.convolve(values, np.ones(width) / width, "valid") for name, values in by.items()}
    for number, (name, values) in enumerate(smooth.items()):
        axis.plot(
            np.arange(width, width + len(values)),
            values / smooth[str(plan.plain)],
            color=COLOURS[number % 8],
            label=name,
        )
    axis.set(
        xlabel="jobs seen",
        ylabel=f"turnaround / {plan.plain}",
        title=f"Mean of {width} jobs and {len(plan.seeds)} seeds",
    )
    finish(figure, axis)
    return to_png(figure)
