"""Sweeps of replays: policies on traces under many settings, such as loads.

A cell is one policy on one sample (the log, a window or a replica) at one point. Finished cells are saved at once, and
a sweep that was stopped resumes where it was.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from rich.console import Console
from rich.text import Text

from berth.errors import InvalidInput
from berth.files.wording import checked, first_of, said
from berth.files.yaml_tree import Tree, read_file
from berth.lab.replay import chosen_policies, placement_policy
from berth.lab.replay.paired import MEASURES, Difference, differences, over_samples, with_intervals
from berth.lab.replay.sweep_cells import REPLAYED, ReplayCell, ReplayKeys, ReplayPoint, batch_of, forget, samples_at
from berth.lab.run.processes import leave_if_imported_by_worker, run_cells
from berth.lab.run.runner import CellRun, Failure, Progress, Work, worker_count
from berth.lab.run.store import now, opened, versions
from berth.lab.run.sweep import KIND, Point, SweepPlan, at_point, points_of, sweep_mistakes, swept_frame
from berth.lab.show.sweeps import Measure, SweepLine, SweepTable, value_text, write_sweep_report
from berth.lab.show.tables import LINES, as_table
from berth.lab.show.traces import spoken_time
from berth.lab.show.words import number, percent
from berth.registry import PolicySpec
from berth.statistics import Estimate
from berth.traces.fitting.workload import workload_names

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ReplaySweep", "ReplaySweepFile", "load_replay_sweep", "print_replay_sweep", "replay_sweep"]


class ReplaySweepFile(SweepPlan):
    """Contents of a sweep file of replays."""

    trace: Annotated[str, said("the file of a trace")] | None = Field(
        None, description="a trace (a relative path starts at the sweep file), or a fitted workload; may be swept"
    )


@dataclass(frozen=True, eq=False)
class ReplaySweep:
    """Result of a sweep of replays: for each point its rows, one per policy, and its failures."""

    title: str
    points: tuple[Point, ...]
    keys: tuple[str, ...]
    rows: Mapping[int, list[dict[str, Any]]]
    differences: Mapping[int, list[Difference]]
    failed: Mapping[str, str]
    left_out: Mapping[str, str]
    reused: int
    seconds: float

    def frame(self) -> pl.DataFrame:
        """A row for each point and policy: the swept keys, then all numbers."""
        return swept_frame(
            self.points, self.keys, {number: [_flat(row) for row in rows] for number, rows in self.rows.items()}
        )

    def as_dict(self) -> dict[str, Any]:
        """The sweep as a dictionary, for JSON."""
        return {
            "points": [
                {"point": point.number, "changes": dict(point.changes), "summary": self.rows.get(point.number, [])}
                for point in self.points
            ],
            "failed": dict(self.failed),
            "unsupported": dict(self.left_out),
            "cells_reused": self.reused,
            "seconds": round(self.seconds, 3),
        }

    def table(self) -> SweepTable:
        """Waits, slowdowns and utilisation, for curves and the report."""
        lines = [
            SweepLine(point.changes, row["policy"], {name: _estimate(row, name) for name in MEASURES})
            for point in self.points
            for row in self.rows.get(point.number, ())
        ]
        return SweepTable(self.title, self.keys, MEASURED, lines, self.failed, self.left_out)


MEASURED = {
    "mean_wait_seconds": Measure("mean wait, hours", lambda value: _in(value, 3600.0), 3600.0),
    "mean_bounded_slowdown": Measure("mean bounded slowdown"),
    "utilisation": Measure("utilisation, %", lambda value: _in(value, 0.01), 0.01),
}


def _in(value: Estimate | None, unit: float) -> str:
    if value is None:
        return ""
    half = "" if value.half is None else f" ± {value.half / unit:,.2f}"
    return f"{value.mean / unit:,.2f}{half}"


def _estimate(row: Mapping[str, Any], name: str) -> Estimate | None:
    if row.get(name) is None:
        return None
    found = row.get("interval", {}).get(name)
    return Estimate(**found) if found else Estimate(float(row[name]), None, None, 1)


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in row.items():
        found.update(_flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return found


# --- the sweep


def load_replay_sweep(path: str | os.PathLike[str]) -> ReplaySweepFile:
    """Read and check a sweep file of replays."""
    file = Path(path)
    tree = read_file(file, "sweep")
    return checked(tree, ReplaySweepFile, sweep_mistakes).read_from(file, tree)


def _pointed(plan: ReplaySweepFile, point: Point) -> ReplayPoint:
    """Settings of a point, checked."""
    given = {**({} if plan.trace is None else {"trace": plan.trace}), **plan.set, **point.changes}
    try:
        keys = checked(Tree(given), ReplayKeys)
    except InvalidInput as error:
        raise at_point(error, plan, point) from None
    folder = Path() if plan.file is None else plan.file.parent
    files = {} if keys.trace in workload_names() and keys.replicas else {"trace": str((folder / keys.trace).absolute())}
    files |= {} if keys.machines is None else {"machines": str((folder / keys.machines).absolute())}
    return ReplayPoint(json.dumps({**keys.model_dump(mode="json"), **files}, sort_keys=True))


def replay_sweep(
    plan: ReplaySweepFile | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> ReplaySweep:
    """Run a sweep of replays on processes of this machine.

    A wrong setting is an error before anything runs; a failing cell is listed and stops no other.
    """
    leave_if_imported_by_worker()
    forget()
    began = time.perf_counter()
    if not isinstance(plan, ReplaySweepFile):
        plan = load_replay_sweep(plan)
    elif mistakes := list(sweep_mistakes(plan)):
        raise first_of(mistakes, Tree({}))
    points = points_of(plan)
    settings = [_pointed(plan, point) for point in points]
    policies: list[list[str]] = []
    for point, one in zip(points, settings, strict=True):
        try:
            names = chosen_policies(plan.policies, plan.baseline, batch_of(one, 0))
            policies.append([str(placement_policy(name)) for name in names])
        except InvalidInput as error:
            raise at_point(error, plan, point) from None
    with opened(out, KIND) as directory:
        facts = {
            "sweep": plan.model_dump(),
            "points": [dict(point.changes) for point in points],
            "versions": versions(),
            "started": now(),
        }
        if directory is not None:
            directory.create(facts)
        numbers: dict[Work, dict[str, Any]] = {}
        failed: dict[str, str] = {}
        refused: dict[str, str] = {}

        def take(work: Work, outcome: dict[str, Any] | Failure) -> None:
            if isinstance(outcome, Failure):
                (refused if outcome.unsupported else failed)[f"point {work.place}, {work.cell}"] = outcome.error
            else:
                numbers[work] = outcome

        cells = CellRun(REPLAYED, settings, directory, progress, take)
        for place, (one, names) in enumerate(zip(settings, policies, strict=True)):
            for sample in range(len(samples_at(one))):
                for name in names:
                    cells.want(Work(place, ReplayCell(name, sample)))
        # always in separate processes: a cell that kills its process must not end the sweep
        cells.run(partial(run_cells, workers=worker_count(workers), apart=True))
        keys = tuple(dict.fromkeys(key for point in points for key in point.changes))
        rows: dict[int, list[dict[str, Any]]] = {}
        found: dict[int, list[Difference]] = {}
        for place, names in enumerate(policies):
            base = names[0] if plan.baseline is None else str(PolicySpec.parse(plan.baseline))
            count = len(samples_at(settings[place]))
            rows[place], found[place] = _concluded(numbers, place, count, names, base)
        result = ReplaySweep(
            plan.title,
            tuple(points),
            keys,
            rows,
            found,
            failed,
            refused,
            cells.reused,
            time.perf_counter() - began,
        )
        if directory is not None:
            directory.write_table("summary.parquet", result.frame())
            done = directory.described(facts, now(), result.reused, len(result.failed))
            write_sweep_report(directory, result.table(), done)
            directory.write_json("manifest.json", done)
    return result


def _concluded(
    numbers: Mapping[Work, dict[str, Any]], place: int, count: int, policies: Sequence[str], base: str
) -> tuple[list[dict[str, Any]], list[Difference]]:
    """Rows and differences of a point, of the policies that played all its `count` samples."""
    works = {name: [Work(place, ReplayCell(name, sample)) for sample in range(count)] for name in policies}
    each = {
        name: [numbers[work] for work in mine] for name, mine in works.items() if all(work in numbers for work in mine)
    }
    found = differences(each, base) if count > 1 and base in each else []
    rows = [with_intervals({"policy": name, **over_samples(rows)}, rows, found) for name, rows in each.items()]
    return rows, found


def print_replay_sweep(result: ReplaySweep, console: Console) -> None:
    """One line for each point and policy; long sweeps are cut."""
    lines, loads = [], "load" not in result.keys
    for point in result.points:
        marks = {one.policy for one in result.differences.get(point.number, ()) if _less_wait(one)}
        ranked = sorted(result.rows.get(point.number, ()), key=lambda row: row.get("never_started", 0) > 0)
        for place, row in enumerate(ranked):
            bound = "≥ " if row.get("never_started") else ""
            shown = (value_text(point.changes.get(key)) if place == 0 else "" for key in result.keys)
            if "mean_wait_seconds" not in row:
                lines.append([*shown, row["policy"], "no job started"])
                continue
            lines.append(
                [
                    *shown,
                    row["policy"],
                    bound + spoken_time(row["mean_wait_seconds"]) + (" *" if row["policy"] in marks else "  "),
                    bound + number(row["mean_bounded_slowdown"]),
                    percent(row["utilisation"]),
                    *(["" if row["offered_load"] is None else number(row["offered_load"], 3)] if loads else []),
                ]
            )
    heads = [*result.keys, "policy", "wait", "slowdown", "used", *(["load"] if loads else [])]
    console.print(as_table(heads, lines[:LINES], len(result.keys) + 1))
    if len(lines) > LINES:
        console.print(Text(f"… and {len(lines) - LINES:,} more lines; all are in the table file.", style="dim"))
    if any(result.differences.values()):
        base = next(found[0].baseline for found in result.differences.values() if found)
        told = f"* waits differ from those under {base} at 5 %, after Holm's correction for the differences of a point."
        console.print(Text(told, style="dim"))
    if any(row.get("never_started") for rows in result.rows.values() for row in rows):
        told = "≥: jobs never started, so these are lower bounds; they are listed last, and not tested."
        console.print(Text(told, style="yellow"))
    for who, why in result.left_out.items():
        console.print(Text(f"not here: {who}: {why}", style="dim"))


def _less_wait(one: Difference) -> bool:
    return one.measure == "mean_wait_seconds" and bool(one.significant)
