"""Sweeps: one comparison at each of many settings, on one machine or on several.

A sweep file names a scenario, and what is changed in it: every combination of listed values (`grid`), or points drawn
at random (`random`). Policies and seeds are those of every point. A cell is the same whoever computes it, and is kept
as soon as it is done: so a sweep may be stopped, or be killed, and goes on where it was.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from berth.errors import InvalidInput
from berth.lab.manifest import manifest, now, versions
from berth.lab.plans import Outcome, Plan, Progress, Stopped, concluded, plan_comparison, run_plans, worker_count
from berth.lab.pool import leave_if_imported_by_worker, run_cells
from berth.lab.results import Comparison, Row
from berth.lab.store import ResultDirectory
from berth.random import stream
from berth.scenario.reading import key_text, read_file

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Drawn", "Point", "Sweep", "SweepFile", "SweepInterrupted", "load_sweep", "points_of", "sweep"]

KIND = "berth sweep"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Drawn(_Part):
    """How a value is drawn: `uniform` or `log_uniform` between two numbers, whole (`integers`), or one of `choices`."""

    uniform: tuple[float, float] | None = None
    log_uniform: tuple[float, float] | None = None
    integers: tuple[int, int] | None = None
    choices: list[Any] | None = None

    def value(self, luck: float) -> Any:
        """The value for a number in [0, 1)."""
        if self.integers is not None:
            return self.integers[0] + int(luck * (self.integers[1] - self.integers[0] + 1))
        if self.choices is not None:
            return self.choices[int(luck * len(self.choices))]
        low, high = self.uniform or self.log_uniform or (0.0, 0.0)
        if self.log_uniform is not None:
            return math.exp(math.log(low) + luck * (math.log(high) - math.log(low)))
        return low + luck * (high - low)


class RandomSearch(_Part):
    """So many points, each key drawn by itself: more points only add to them."""

    points: Annotated[int, Field(ge=1, le=1_000_000)]
    keys: Annotated[dict[str, Drawn], Field(min_length=1)]
    seed: Annotated[int, Field(ge=0)] = 0


class SweepFile(_Part):
    """What a sweep file says."""

    scenario: str | dict[str, Any] = Field(description="name or file of a scenario, or a scenario itself")
    title: str = ""
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict, description="values by key: every combination is a point"
    )
    random: RandomSearch | None = None
    set: dict[str, Any] = Field(default_factory=dict, description="changed at every point")
    policies: list[str] | None = None
    seeds: int | list[int] | None = None
    baseline: str | None = None
    arrivals: Literal["hidden", "revealed", "both"] | None = None
    oracles: list[str] | None = None
    folder: str = Field(default="", exclude=True)


@dataclass(frozen=True)
class Point:
    """A place in a sweep: what is changed there."""

    number: int
    changes: Mapping[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.changes.items()) or "as it is"


@dataclass(frozen=True, eq=False)
class Sweep:
    """What came of a sweep: for each point its rows, one a policy and information setting, and what failed there."""

    points: tuple[Point, ...]
    rows: Mapping[int, tuple[Row, ...]]
    failed: Mapping[int, Mapping[str, str]]
    left_out: Mapping[int, Mapping[str, str]]
    keys: tuple[str, ...]
    reused: int
    seconds: float

    def frame(self) -> pl.DataFrame:
        """A row for each point, information setting and policy: the keys that are swept, then all numbers."""
        import polars as pl

        table = [
            {"point": point.number, **{key: _plain(point.changes.get(key)) for key in self.keys}, **row.flat()}
            for point in self.points
            for row in self.rows.get(point.number, ())
        ]
        return pl.DataFrame(table, infer_schema_length=None)

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON takes it."""
        return {
            "points": [
                {
                    "point": point.number,
                    "changes": dict(point.changes),
                    "summary": [row.as_dict() for row in self.rows.get(point.number, ())],
                    "failed": dict(self.failed.get(point.number, {})),
                    "unsupported": dict(self.left_out.get(point.number, {})),
                }
                for point in self.points
            ],
            "cells_reused": self.reused,
            "seconds": round(self.seconds, 3),
        }


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep."""

    def __init__(self, done: int, total: int, out: str | None) -> None:
        kept = f"{done} of {total} cells are kept in {out}; the same command continues" if out else "nothing was kept"
        super().__init__(f"stopped; {kept}")


def load_sweep(path: str | os.PathLike[str]) -> SweepFile:
    """Read and check a sweep file.

    >>> load_sweep("nowhere.yaml")
    Traceback (most recent call last):
    berth.errors.InvalidInput: nowhere.yaml: ...
    """
    file = Path(path)
    tree = read_file(file)
    try:
        found = SweepFile.model_validate({**tree.value, "folder": str(file.parent)})
    except ValidationError as error:
        first = error.errors()[0]
        place = tuple(first["loc"])
        line = tree.place(place)[1]
        given = first.get("input")
        shown = ... if isinstance(given, dict | list) or first["type"] == "missing" else given
        raise InvalidInput(first["msg"].lower(), value=shown, key=key_text(place), file=file, line=line) from None
    for key, drawn in (found.random.keys if found.random else {}).items():
        if problem := _drawn_badly(drawn):
            raise InvalidInput(problem, key=f"random.keys.{key}", file=file)
    return found


def _drawn_badly(drawn: Drawn) -> str | None:
    given = [name for name in ("uniform", "log_uniform", "integers", "choices") if getattr(drawn, name) is not None]
    if len(given) != 1:
        return "one of uniform, log_uniform, integers and choices"
    span = getattr(drawn, given[0])
    if given[0] == "choices":
        return None if span else "at least one choice"
    if not (math.isfinite(span[0]) and math.isfinite(span[1]) and span[0] <= span[1]):
        return "[lowest, highest]"
    return "numbers above 0" if given[0] == "log_uniform" and span[0] <= 0 else None


def points_of(plan: SweepFile) -> list[Point]:
    """Every point: each combination of the grid, at each of the points drawn at random.

    >>> plan = SweepFile(scenario="small", grid={"ports.count": [3, 5], "horizon": [10]})
    >>> [str(point) for point in points_of(plan)]
    ['ports.count=3, horizon=10', 'ports.count=5, horizon=10']
    """
    grid = [dict(zip(plan.grid, values, strict=True)) for values in itertools.product(*plan.grid.values())]
    drawn: list[dict[str, Any]] = [{}]
    if plan.random is not None:
        lucks = {key: stream(plan.random.seed, "sweep", key).random(plan.random.points) for key in plan.random.keys}
        drawn = [
            {key: kind.value(float(lucks[key][i])) for key, kind in plan.random.keys.items()}
            for i in range(plan.random.points)
        ]
    return [Point(number, {**a, **b}) for number, (a, b) in enumerate(itertools.product(grid, drawn))]


def sweep(
    plan: SweepFile | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    on: str = "local",
    address: str | None = None,
    seeds: int | Sequence[int] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Sweep:
    """Run a sweep; `on` is "local" (processes of this machine) or "ray" (a cluster at `address`).

    A point that is no scenario is an error before anything runs; a cell that fails is listed and stops no other.
    """
    leave_if_imported_by_worker()
    began = time.perf_counter()
    plan = plan if isinstance(plan, SweepFile) else load_sweep(plan)
    points = points_of(plan)
    runner = _runner(on, workers, address)
    plans = [_planned(plan, point, seeds) for point in points]
    directory = None if out is None else ResultDirectory(out, KIND)
    facts = {
        "sweep": plan.model_dump(),
        "points": [dict(point.changes) for point in points],
        "seeds": list(plans[0].seeds),
        "versions": versions(),
        "started": now(),
    }
    if directory is not None:
        directory.create({**manifest(facts), "kind": KIND})
    rows: dict[int, tuple[Row, ...]] = {}
    failed: dict[int, dict[str, str]] = {}
    left_out: dict[int, dict[str, str]] = {}
    reused = 0

    def finished(place: int, outcome: Outcome) -> None:
        nonlocal reused
        own = {**plans[place].facts(), "versions": {}, "started": "", "command": ""}
        comparison: Comparison = concluded(plans[place], outcome, own, 0.0, None)
        rows[place] = comparison.rows
        failed[place] = {str(cell): failure.error for cell, failure in comparison.failed.items()}
        left_out[place] = {f"{item.policy}, {item.information}": item.reason for item in comparison.unsupported}
        reused += comparison.reused

    try:
        run_plans(plans, directory, runner, progress, finished)
    except Stopped as stop:
        raise SweepInterrupted(stop.done, stop.total, None if out is None else os.fspath(out)) from stop
    keys = tuple(dict.fromkeys(key for point in points for key in point.changes))
    found = Sweep(tuple(points), rows, failed, left_out, keys, reused, time.perf_counter() - began)
    if directory is not None:
        directory.write("summary.parquet", found.frame().write_parquet)
        done = manifest(facts, now(), reused, sum(map(len, failed.values())))
        directory.write_json("manifest.json", {**done, "kind": KIND})
    return found


def _planned(plan: SweepFile, point: Point, seeds: int | Sequence[int] | None) -> Plan:
    scenario: Any = plan.scenario
    if isinstance(scenario, str) and plan.folder and (Path(plan.folder) / scenario).is_file():
        scenario = Path(plan.folder) / scenario  # beside the sweep file
    try:
        return plan_comparison(
            scenario,
            plan.policies,
            seeds if seeds is not None else plan.seeds,
            plan.baseline,
            plan.arrivals,
            plan.oracles,
            {**plan.set, **point.changes},
        )
    except InvalidInput as error:
        raise error.at(key=f"point {point.number} ({point})") from None


def _runner(on: str, workers: int | None, address: str | None) -> Any:
    if on == "local":
        if address is not None:
            raise InvalidInput("no address, or --on ray", value=address, key="address")
        return partial(run_cells, workers=worker_count(workers))
    if on == "ray":
        from berth.lab.ray_cells import run_on_ray

        return partial(run_on_ray, address=address, workers=workers)
    raise InvalidInput("local or ray", value=on, key="on")
