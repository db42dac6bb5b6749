"""Sweeps: one comparison at each of many settings, on one machine or on several.

A sweep file names a scenario and the overrides to try: points one by one (`points`), every combination of listed values
(`grid`), or points drawn at random (`random`). Policies and seeds apply to every point. Cells are deterministic and are
saved as soon as they are done, so a sweep that was stopped or killed resumes where it was.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr

from berth.errors import InvalidInput, UnknownName, did_you_mean
from berth.files.wording import Mistake, Part, checked, first_of, said
from berth.files.yaml_tree import Key, Tree, read_file
from berth.lab.run.plans import Outcome, RunPlan, part_of, plan_comparison, run_plans
from berth.lab.run.processes import leave_if_imported_by_worker, run_cells
from berth.lab.run.results import Comparison, Row
from berth.lab.run.runner import Progress, Runner, worker_count
from berth.lab.run.store import ResultDirectory, now, opened, versions
from berth.random import stream
from berth.scenario.layering import find_file

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "Drawn",
    "Point",
    "Sweep",
    "SweepFile",
    "SweepPlan",
    "at_point",
    "load_sweep",
    "points_of",
    "sweep",
    "sweep_mistakes",
    "swept_frame",
]

KIND = "berth sweep"

Number = Annotated[float, said("a number")]
Span = Annotated[list[Number], Field(min_length=2, max_length=2), said("two numbers, [lowest, highest]")]
WholeSpan = Annotated[list[int], Field(min_length=2, max_length=2), said("two whole numbers, [lowest, highest]")]
Seed = Annotated[int, Field(ge=0)]
Values = Annotated[list[Any], Field(min_length=1)]


class Drawn(Part):
    """Distribution of a value: `uniform` or `log_uniform` between two numbers, whole (`integers`), or one of `choices`.

    >>> Drawn(integers=[3, 5]).value(0.99)
    5
    """

    uniform: Span | None = None
    log_uniform: Span | None = None
    integers: WholeSpan | None = None
    choices: Values | None = None

    def value(self, luck: float) -> Any:
        """Value for a uniform number in [0, 1)."""
        if self.integers is not None:
            return self.integers[0] + int(luck * (self.integers[1] - self.integers[0] + 1))
        if self.choices is not None:
            return self.choices[int(luck * len(self.choices))]
        low, high = self.uniform or self.log_uniform or (0.0, 0.0)
        if self.log_uniform is not None:
            return math.exp(math.log(low) + luck * (math.log(high) - math.log(low)))
        return low + luck * (high - low)


class RandomSearch(Part):
    """Number of random points; each key has its own stream, so more points only add to the earlier ones."""

    points: Annotated[int, Field(ge=1, le=1_000_000), said("a whole number from 1 to 1000000")]
    keys: Annotated[dict[str, Drawn], Field(min_length=1)]
    seed: Annotated[Seed, said("a whole number ≥ 0")] = 0


class SweepPlan(Part):
    """What all sweep files have."""

    title: Annotated[str, said("a text")] = Field("", description="one line about the sweep")
    grid: dict[str, Values] = Field(
        default_factory=dict, description="list of values by key; every combination is a point"
    )
    random: RandomSearch | None = Field(None, description="points drawn at random")
    points: list[dict[str, Any]] = Field(
        default_factory=list, description="points one by one, each with its values by key"
    )
    set: dict[str, Any] = Field(default_factory=dict, description="values by key, the same at every point")
    policies: Annotated[list[str], Field(min_length=1)] | None = Field(None, description="policies to compare")
    baseline: str | None = Field(None, description="policy with which the others are compared")
    _file: Path | None = PrivateAttr(None)
    _tree: Tree | None = PrivateAttr(None)

    @property
    def file(self) -> Path | None:
        """File it was read from."""
        return self._file

    def line(self, key: Key) -> int | None:
        """Line of a key, if it was read from a file."""
        return None if self._tree is None else self._tree.place(key)[1]

    def read_from(self, file: Path, tree: Tree) -> Self:
        """Remember where it was read from."""
        self._file, self._tree = file, tree
        return self


class SweepFile(SweepPlan):
    """Contents of a sweep file of comparisons."""

    scenario: (
        Annotated[str | dict[str, Any], said("the name or file of a scenario, or a scenario (a mapping)")] | None
    ) = Field(
        None,
        description="a name (`berth scenarios`), a file (a relative path starts at the sweep file), or a mapping; "
        "may be swept",
    )
    seeds: (
        Annotated[
            Annotated[int, Field(ge=1)] | Annotated[list[Seed], Field(min_length=1)],
            said("how many seeds, or a list of seeds ≥ 0"),
        ]
        | None
    ) = Field(None, description="a number N for seeds 0 … N−1, or a list of seeds")
    arrivals: Literal["hidden", "revealed", "both"] | None = Field(None, description="`arrivals_known` of a scenario")
    oracles: list[str] | None = Field(None, description="as in a scenario")


@dataclass(frozen=True)
class Point:
    """One point of a sweep and its overrides."""

    number: int
    changes: Mapping[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.changes.items()) or "as it is"


@dataclass(frozen=True, eq=False)
class Sweep:
    """Result of a sweep: for each point its rows, one per policy and information setting, and its failures."""

    points: tuple[Point, ...]
    rows: Mapping[int, tuple[Row, ...]]
    failed: Mapping[int, Mapping[str, str]]
    left_out: Mapping[int, Mapping[str, str]]
    keys: tuple[str, ...]
    reused: int
    seconds: float

    def frame(self) -> pl.DataFrame:
        """A row for each point, information setting and policy: the swept keys, then all numbers."""
        return swept_frame(
            self.points, self.keys, {number: [row.flat() for row in rows] for number, rows in self.rows.items()}
        )

    def as_dict(self) -> dict[str, Any]:
        """The sweep as a dictionary, for JSON."""
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


def swept_frame(
    points: Sequence[Point], keys: Sequence[str], rows: Mapping[int, Sequence[Mapping[str, Any]]]
) -> pl.DataFrame:
    """A line for each row of each point: the number of the point, the swept keys, then all numbers of the row."""
    import polars as pl

    lines = [(point, row) for point in points for row in rows.get(point.number, ())]
    columns: dict[str, list[Any]] = {"point": [point.number for point, _ in lines]}
    results = dict.fromkeys(name for _, row in lines for name in row)
    for key in keys:
        # a scenario's key may share its name with a result, as `overhead` does
        columns[f"swept_{key}" if key in results else key] = _alike([point.changes.get(key) for point, _ in lines])
    columns.update((name, [row.get(name) for _, row in lines]) for name in results)
    return pl.DataFrame(columns, strict=False)


def _alike(values: list[Any]) -> list[Any]:
    """Values of one column: unchanged if all are numbers, texts or booleans; else as texts."""
    kinds = {float if type(value) is int else type(value) for value in values if value is not None}
    if len(kinds) <= 1 and kinds <= {float, str, bool}:
        whole = all(type(value) is int for value in values)
        return values if whole or kinds != {float} else [None if v is None else float(v) for v in values]
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]


def load_sweep(path: str | os.PathLike[str]) -> SweepFile:
    """Read and check a sweep file.

    >>> load_sweep("nowhere.yaml")
    Traceback (most recent call last):
    berth.errors.InvalidInput: nowhere.yaml: ...
    """
    file = Path(path)
    tree = read_file(file, "sweep")
    return checked(tree, SweepFile, sweep_mistakes).read_from(file, tree)


def sweep_mistakes(plan: SweepPlan) -> Iterator[Mistake]:
    """What is wrong with the grid and the random points."""
    drawn = {} if plan.random is None else plan.random.keys
    if not plan.grid and not drawn and not plan.points:
        yield Mistake(("grid",), "at least one key under grid or random, or points", found="nothing to sweep")
    if isinstance(plan, SweepFile) and plan.scenario is None:
        listed = bool(plan.points) and all("scenario" in point for point in plan.points)
        if not listed and "scenario" not in {*plan.grid, *drawn, *plan.set}:
            yield Mistake(("scenario",), "this key, or a scenario for each point")
    for i, point in enumerate(plan.points):
        for key in point.keys() & {*plan.grid, *drawn}:
            yield Mistake(("points", i, key), "a key in one of them", found="a key under grid or random too")
    for key, values in plan.grid.items():
        for i, value in enumerate(values):
            if any(type(other) is type(value) and other == value for other in values[:i]):  # 1 is not true
                yield Mistake(("grid", key, i), "each value once", value)
    for key, kind in drawn.items():
        place = ("random", "keys", key)
        if key in plan.grid:
            yield Mistake(place, "a key in one of them", found="a key that is in the grid too")
        given = [name for name in Drawn.model_fields if getattr(kind, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            yield Mistake(place, "one of uniform, log_uniform, integers and choices", found=found)
        elif given[0] != "choices":
            span = getattr(kind, given[0])
            if span[0] > span[1]:
                yield Mistake((*place, given[0]), "[lowest, highest] in this order", span)
            elif given[0] == "log_uniform" and span[0] <= 0:
                yield Mistake((*place, given[0]), "numbers above 0", span)


def points_of(plan: SweepPlan) -> list[Point]:
    """All points: each combination of the grid at each random point, for each of the points listed one by one.

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
    # random points are the outer loop, so that more of them only add points
    combined = itertools.product(drawn, plan.points or [{}], grid)
    return [Point(number, {**a, **b, **c}) for number, (c, b, a) in enumerate(combined)]


def sweep(
    plan: SweepFile | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    on: str = "local",
    address: str | None = None,
    seeds: int | Sequence[int] | None = None,
    progress: Callable[[Progress], None] | None = None,
    report: Callable[[ResultDirectory, Sweep, Mapping[str, Any]], None] | None = None,
    each: Callable[[Point, RunPlan, Comparison], None] | None = None,
    kind: str = KIND,
) -> Sweep:
    """Run a sweep; `on` is "local" (processes of this machine) or "ray" (a cluster at `address`).

    `report` writes more files to `out`, from the sweep and its manifest; `each` gets the whole comparison of a point
    when it is complete; `kind` is that of the result directory.
    A point with an invalid scenario is an error before anything runs; a failing cell is listed and stops no other.
    """
    leave_if_imported_by_worker()
    began = time.perf_counter()
    if not isinstance(plan, SweepFile):
        plan = load_sweep(plan)
    elif mistakes := list(sweep_mistakes(plan)):
        raise first_of(mistakes, Tree({}))
    points = points_of(plan)
    runner = _runner(on, workers, address)
    plans = [_planned(plan, point, seeds) for point in points]
    if plan.policies is not None:
        plans[0].refusals(())  # a wrong setting of a policy is reported before anything runs
    with opened(out, kind) as directory:
        facts = {
            "sweep": plan.model_dump(),
            "points": [dict(point.changes) for point in points],
            "seeds": list(plans[0].seeds),
            "versions": versions(),
            "started": now(),
        }
        if directory is not None:
            directory.create(facts)
        rows: dict[int, tuple[Row, ...]] = {}
        failed: dict[int, dict[str, str]] = {}
        left_out: dict[int, dict[str, str]] = {}
        reused = 0

        def finished(place: int, outcome: Outcome) -> None:
            nonlocal reused
            comparison = part_of(plans[place], outcome)
            rows[place] = comparison.rows
            failed[place] = {str(cell): failure.error for cell, failure in comparison.failed.items()}
            left_out[place] = {f"{item.policy}, {item.information}": item.reason for item in comparison.unsupported}
            reused += comparison.reused
            if each is not None:
                each(points[place], plans[place], comparison)

        run_plans(plans, directory, runner, progress, finished)
        keys = tuple(dict.fromkeys(key for point in points for key in point.changes))
        found = Sweep(
            tuple(points),
            rows,
            dict(sorted(failed.items())),
            dict(sorted(left_out.items())),
            keys,
            reused,
            time.perf_counter() - began,
        )
        if directory is not None:
            directory.write_table("summary.parquet", found.frame())
            done = directory.described(facts, now(), reused, sum(map(len, failed.values())))
            if report is not None:
                report(directory, found, done)
            directory.write_json("manifest.json", done)
        return found


def _planned(plan: SweepFile, point: Point, seeds: int | Sequence[int] | None) -> RunPlan:
    """Comparison at one point; swept values override the file's values for all points."""
    changes = {**plan.set, **point.changes}
    scenario = changes.pop("scenario", plan.scenario)

    def unless(key: str, value: Any) -> Any:
        return None if key in changes else value

    if plan.policies is not None:
        # as if the scenario named them: a policy that cannot serve a point is listed there and stops nothing
        changes = {"policies": list(plan.policies), **changes}
    try:
        return plan_comparison(
            _scenario(plan, scenario),
            None,
            seeds if seeds is not None else unless("seeds", plan.seeds),
            unless("baseline", plan.baseline),
            unless("arrivals_known", plan.arrivals),
            unless("oracles", plan.oracles),
            changes,
        )
    except InvalidInput as error:
        raise at_point(error, plan, point) from None
    except UnknownName as error:
        said: dict[str, list[Any]] = {
            "scenario": [scenario],
            "baseline": [plan.baseline],
            "oracles": plan.oracles or [],
        }
        key = next((key for key, names in said.items() if error.name in names), error.what)
        expected = f"a known {error.what}{did_you_mean(error.name, error.known)}"
        raise at_point(InvalidInput(expected, value=error.name, key=key), plan, point) from None


def _scenario(plan: SweepFile, scenario: Any) -> Any:
    """Load the scenario of a point; relative files start at the sweep file."""
    if plan.file is None:
        return scenario
    if isinstance(scenario, str):
        return find_file(scenario, plan.file.parent)
    base = scenario.get("extends")
    return {**scenario, "extends": str(find_file(base, plan.file.parent))} if isinstance(base, str) else {**scenario}


def at_point(error: InvalidInput, plan: SweepPlan, point: Point) -> InvalidInput:
    """Add the point, and the line of the wrong key, to an error."""
    wrong = error.key or ""
    places: dict[str, Key] = {name: (name,) for name in ("scenario", "trace", "policies", "baseline", "oracles")}
    places |= {key: ("set", key) for key in plan.set}
    places |= {key: ("random", "keys", key) for key in point.changes}
    for i, one in enumerate(plan.points):
        if one.items() <= point.changes.items():
            places |= {key: ("points", i, key) for key in one}
    places |= {key: ("grid", key, values.index(point.changes[key])) for key, values in plan.grid.items()}
    place = next((place for key, place in places.items() if _within(wrong, key) or _within(key, wrong)), ())
    return InvalidInput(
        error.expected,
        value=error.value,
        found=error.found,
        key=f"{wrong} (point {point.number}: {point})",
        file=error.file or plan.file,
        line=error.line if error.file else plan.line(place),
    )


def _within(key: str, outer: str) -> bool:
    return key == outer or key.startswith((f"{outer}.", f"{outer}["))


def _runner(on: str, workers: int | None, address: str | None) -> Runner:
    if on == "local":
        if address is not None:
            raise InvalidInput("no address, or --on ray", value=address, key="address")
        # always in separate processes: a cell that kills its process must not end the sweep
        return partial(run_cells, workers=worker_count(workers), apart=True)
    if on == "ray":
        from berth.lab.run.ray import check_cluster, run_on_ray

        check_cluster(address)
        return partial(run_on_ray, address=address, workers=workers)
    raise InvalidInput("local or ray", value=on, key="on")
