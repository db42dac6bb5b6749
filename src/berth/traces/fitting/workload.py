"""Fitted workload: a small file of shares and quantiles, facts about a trace and none of its rows.

Each number of a job is a `Mix`: the most common values with their shares, and the rest by quantiles. Jobs come in
classes, and numbers are drawn independently within a class; so correlations come from differences between classes, or
from rows of a table (the amounts of all resources, with the machines that they need).

Axes: K resources.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from berth.errors import InvalidInput, UnknownName
from berth.model import Resource
from berth.traces.fitting.distributions import Amount, Mix, Part, Positive, Quantiles, Share
from berth.traces.fitting.estimates import Estimates

__all__ = [
    "FOLDER",
    "Arrivals",
    "Demand",
    "JobClass",
    "Machine",
    "Provenance",
    "Speeds",
    "UnitOf",
    "Users",
    "Workload",
    "load_workload",
    "workload_names",
]

FOLDER = Path(__file__).parents[2] / "data" / "workloads"
LARGEST_FILE = 4 * 2**20
DAY_S, WEEK_S = 86400.0, 604800.0


class UnitOf(Part):
    """A resource."""

    name: Annotated[str, Field(min_length=1)]
    unit: str = ""


class Machine(Part):
    """`count` identical machines; `capacity` in the order of the resources."""

    capacity: list[Amount]
    count: Annotated[int, Field(ge=1)]
    label: str | None = None
    speed: Positive = 1.0


class Arrivals(Part):
    """Arrivals at events, whose rate follows the hour of the day and the day of the week.

    Gaps between events come from one distribution in a time that runs as fast as the rate (a renewal process in
    operational time); each event brings `batch` jobs at the same moment. Hours and days count from the trace's zero.
    """

    events_per_hour: Positive
    hours: Annotated[list[Amount], Field(min_length=24, max_length=24)] = [1.0] * 24
    days: Annotated[list[Amount], Field(min_length=7, max_length=7)] = [1.0] * 7
    gap: Mix = Field(description="gap between events, relative to its mean")
    batch: Mix = Mix(values=[1.0], shares=[1.0])
    repeat: Share = Field(default=0.0, description="probability that a job repeats class and user of the one before")
    whole_seconds: bool = False

    @model_validator(mode="after")
    def _some_time(self) -> Self:
        if not any(self.hours) or not any(self.days):
            raise ValueError("some hour and some day with arrivals")
        return self


class Demand(Part):
    """Request of each piece by resource, and its machines; `share` of the jobs of its class."""

    amounts: list[Amount]
    share: Share
    needs: str | None = None


class JobClass(Part):
    """Jobs of one kind and similar size."""

    name: Annotated[str, Field(min_length=1)]
    kind: str | None = None
    share: Share
    pieces: Mix
    run_s: Mix = Field(description="of all jobs; those with an estimate draw a part of it instead")
    estimates: Estimates | None = Field(default=None, description="and the run times of the jobs that have one")
    demands: list[Demand] = Field(default_factory=list, description="the most common ones")
    rest: list[Quantiles] | None = Field(default=None, description="amounts of all other jobs, by resource")
    needs: str | None = Field(default=None, description="of all others")
    whole_seconds: bool = False

    @model_validator(mode="before")
    @classmethod
    def _current(cls, tree: Any) -> Any:
        if isinstance(tree, dict) and "estimate_ratio" in tree:
            raise ValueError("estimates instead of estimate_ratio, of an earlier version: fit the trace again")
        return tree

    @model_validator(mode="after")
    def _whole(self) -> Self:
        total = sum(demand.share for demand in self.demands)
        if total > 1 + 1e-3 or (self.rest is None and abs(total - 1) > 1e-3):
            raise ValueError(f"shares of demands that add up to 1, not to {total:g}")
        return self


class Users(Part):
    """Shares of jobs by user, the busiest first: `cumulative` share of the first `ranks` users."""

    ranks: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    cumulative: list[Share]

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if len(self.ranks) != len(self.cumulative) or self.ranks != sorted(set(self.ranks)):
            raise ValueError("ranks that rise, each with a cumulative share")
        return self


class Speeds(Part):
    """Measured spread of the speed of nominally equal machines: evenly spaced quantiles."""

    between: Annotated[list[Positive], Field(min_length=2)] = Field(
        description="ratio of a worker's mean speed to that of its job"
    )
    within: Annotated[list[Amount], Field(min_length=2)] = Field(
        description="coefficient of variation of one worker's speed over time"
    )


class File(Part):
    """A file that was read."""

    name: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Provenance(Part):
    """Origin of the numbers."""

    source: str
    licence: str = ""
    files: list[File] = Field(default_factory=list)
    rows: Annotated[int, Field(ge=0)] = 0
    span: str = ""
    synthetic: bool = Field(default=False, description="whether the trace itself is synthetic")
    assumed: list[str] = Field(default_factory=list, description="assumptions about what the source does not give")
    berth: str = ""


class Workload(Part):
    """A fitted workload; `berth.traces.fitting.generate.generate` draws jobs from it."""

    format: Literal["berth-workload"] = "berth-workload"
    version: Literal[1] = 1
    name: Annotated[str, Field(min_length=1)]
    title: str
    provenance: Provenance
    resources: Annotated[list[UnitOf], Field(min_length=1)]
    machines: Annotated[list[Machine], Field(min_length=1)]
    arrivals: Arrivals
    classes: Annotated[list[JobClass], Field(min_length=1)]
    users: Users | None = None
    speeds: Speeds | None = None

    @model_validator(mode="after")
    def _matching(self) -> Self:
        size = len(self.resources)
        if any(len(machine.capacity) != size for machine in self.machines):
            raise ValueError(f"machines with a capacity for each of {size} resources")
        for entry in self.classes:
            if any(len(demand.amounts) != size for demand in entry.demands) or (entry.rest and len(entry.rest) != size):
                raise ValueError(f"class {entry.name!r}: amounts of each of {size} resources")
        total = sum(entry.share for entry in self.classes)
        if abs(total - 1) > 1e-3:
            raise ValueError(f"shares of classes that add up to 1, not to {total:g}")
        return self

    def units(self) -> tuple[Resource, ...]:
        """Resources as `berth.model` types."""
        return tuple(Resource(entry.name, entry.unit) for entry in self.resources)

    def text(self) -> str:
        """Text of the file: JSON with one line per list of numbers."""
        told = self.model_dump(mode="json", exclude_defaults=True)
        return _lines({"format": self.format, "version": self.version, **told}, 0) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the file atomically."""
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(self.text(), encoding="utf-8")
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def _lines(tree: Any, depth: int) -> str:
    """JSON with lists of numbers and small mappings on one line."""
    flat = json.dumps(tree, ensure_ascii=False)
    if not isinstance(tree, (dict, list)) or not tree or len(flat) + 2 * depth <= 110:
        return flat
    if isinstance(tree, list) and not any(isinstance(item, (dict, list)) for item in tree):
        return flat
    inner = "  " * (depth + 1)
    if isinstance(tree, dict):
        parts = [f"{inner}{json.dumps(key)}: {_lines(value, depth + 1)}" for key, value in tree.items()]
        return "{\n" + ",\n".join(parts) + "\n" + "  " * depth + "}"
    return "[\n" + ",\n".join(inner + _lines(item, depth + 1) for item in tree) + "\n" + "  " * depth + "]"


# ---------------------------------------------------------------------------- files


def workload_names() -> dict[str, str]:
    """Every shipped workload and its title."""
    return {path.stem: load_workload(path).title for path in sorted(FOLDER.glob("*.json"))}


def load_workload(name_or_path: str | Path) -> Workload:
    """Load a workload by name or from a file.

    >>> load_workload("sdsc-sp2").provenance.rows > 50_000
    True
    >>> load_workload("sdsc-sp")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    berth.errors.UnknownName: unknown workload 'sdsc-sp'; did you mean 'sdsc-sp2'?
    """
    if isinstance(name_or_path, str):
        known = {path.stem: path for path in FOLDER.glob("*.json")}
        if name_or_path in known:
            return _read(known[name_or_path], 0.0)
        if Path(name_or_path).suffix != ".json" and len(Path(name_or_path).parts) == 1:
            raise UnknownName("workload", name_or_path, known)
    path = Path(name_or_path).expanduser()
    try:
        stat = path.stat()
        if path.is_dir():
            raise InvalidInput("a workload file", found="a directory", file=path)
        if stat.st_size > LARGEST_FILE:
            raise InvalidInput(f"a workload file of at most {LARGEST_FILE} bytes", value=stat.st_size, file=path)
    except (OSError, ValueError) as error:
        reason = "nothing there" if isinstance(error, FileNotFoundError) else str(error)
        raise InvalidInput("a workload file", found=reason, file=path) from None
    return _read(path, stat.st_mtime)


@lru_cache(maxsize=32)
def _read(path: Path, changed: float) -> Workload:
    del changed  # part of the cache key: a rewritten file is read again
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InvalidInput("JSON", found=f"{error.msg}", file=path, line=error.lineno) from None
    except UnicodeDecodeError:
        raise InvalidInput("text in UTF-8", found="something else", file=path) from None
    except OSError as error:
        raise InvalidInput("a file that can be read", found=error.strerror or str(error), file=path) from None
    if not isinstance(tree, dict) or tree.get("format") != "berth-workload":
        found = "no key format" if not isinstance(tree, dict) or "format" not in tree else repr(tree["format"])
        raise InvalidInput("format: berth-workload", found=found, key="format", file=path)
    if tree.get("version") != 1:
        raise InvalidInput("version 1, the only one so far", value=tree.get("version"), key="version", file=path)
    try:
        return Workload.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).removeprefix(".")
        words = first["msg"].removeprefix("Value error, ")
        words = words[0].lower() + words[1:]
        simple = isinstance(first["input"], (str, int, float, bool))
        value: object = first["input"] if simple and first["type"] != "missing" else ...
        raise InvalidInput(words, value=value, key=key or None, file=path) from None
