"""What a fitted workload is made of: a small file of shares and quantiles, facts about a trace and none of its rows.

A number of a job is a `Mix`: the commonest values with their shares, and the rest by quantiles. Jobs come in classes,
and inside a class numbers are drawn independently; so what hangs together does so because classes differ, or because
it lies in one row of a table (the amounts of all resources, with the machines that they need).

Axes: N draws, K resources.
"""

from __future__ import annotations

import json
import math
import os
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from berth.errors import InvalidInput, UnknownName
from berth.model import Floats, Resource

__all__ = [
    "FOLDER",
    "LEVELS",
    "Arrivals",
    "Demand",
    "JobClass",
    "Machine",
    "Mix",
    "Provenance",
    "Quantiles",
    "Speeds",
    "UnitOf",
    "Users",
    "Workload",
    "load_workload",
    "short",
    "workload_names",
]

FOLDER = Path(__file__).parents[2] / "data" / "workloads"
LARGEST_FILE = 4 * 2**20
DAY_S, WEEK_S = 86400.0, 604800.0

LEVELS: tuple[float, ...] = (
    *(0.0, 0.002, 0.005, 0.01, 0.02, 0.035),
    *(round(0.05 + 0.025 * i, 3) for i in range(37)),
    *(0.965, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0),
)
"""Where quantiles are taken that say nothing else: closer at both ends, where the mean of a long tail hangs."""

Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Quantiles(_Part):
    """A distribution by its quantile function: `values` at `levels`, geometric between them (even from a 0).

    >>> Quantiles(levels=[0, 0.5, 1], values=[1, 10, 1000]).draw(np.array([0.25, 0.75])).round(2).tolist()
    [3.16, 100.0]
    """

    values: Annotated[list[Amount], Field(min_length=2)]
    levels: list[Share] | None = Field(default=None, description="LEVELS where left out")

    @model_validator(mode="after")
    def _rising(self) -> Self:
        levels = self._levels()
        if len(levels) != len(self.values):
            raise ValueError(f"as many values as levels, {len(levels)}")
        if levels[0] != 0 or levels[-1] != 1 or any(a >= b for a, b in pairwise(levels)):
            raise ValueError("levels that rise from 0 to 1")
        if any(a > b for a, b in pairwise(self.values)):
            raise ValueError("values that do not fall")
        return self

    def _levels(self) -> list[float]:
        return list(LEVELS) if self.levels is None else self.levels

    def draw(self, luck: Floats) -> Floats:
        """The value at each level of `luck` in [0, 1), (N,) → (N,)."""
        levels, values = np.array(self._levels()), np.array(self.values)
        at = np.searchsorted(levels, luck, side="right").clip(1, len(levels) - 1)
        low, high = values[at - 1], values[at]
        part = (luck - levels[at - 1]) / (levels[at] - levels[at - 1])
        even = low <= 0
        drawn: Floats = np.where(even, high * part, np.where(even, 1.0, low) ** (1 - part) * high**part)
        return drawn

    def mean(self) -> float:
        """The mean of what is drawn, exact."""
        levels, values = np.array(self._levels()), np.array(self.values)
        low, high = values[:-1], values[1:]
        safe = np.where((low > 0) & (high > low * (1 + 1e-9)), high / np.where(low > 0, low, 1.0), math.e)
        inside = np.where(high > low * (1 + 1e-9), (high - low) / np.log(safe), low)
        return float((np.diff(levels) * np.where(low > 0, inside, high / 2)).sum())

    @classmethod
    def of(cls, sample: Floats) -> Self:
        """The quantiles of a sample (N,)."""
        return cls(values=[short(value) for value in np.quantile(sample, LEVELS)])

    @classmethod
    def from_cdf(cls, values: Floats, percent: Floats, lowest: float, highest: float) -> Self:
        """From a published curve: `percent` of all lie at or below each of `values`.

        A curve says little of its ends: `lowest` and `highest` are where it is taken to begin and to end.
        """
        levels, kept = [0.0], [lowest]
        for value, share in zip(values, np.asarray(percent) / 100, strict=True):
            if levels[-1] < share < 1 and value >= kept[-1]:
                levels.append(float(share))
                kept.append(float(value))
        return cls(levels=[*levels, 1.0], values=[*(short(v) for v in kept), short(max(highest, kept[-1]))])

    @classmethod
    def from_counts(cls, upper: Floats, count: Floats) -> Self:
        """From a histogram of values that are whole, or nearly: so many are `upper`, which rises."""
        ends = np.cumsum(count) / np.sum(count)
        at = np.searchsorted(ends, np.array(LEVELS) - 1e-12).clip(0, len(upper) - 1)
        return cls(values=[short(value) for value in np.asarray(upper)[at]])


class Mix(_Part):
    """A number: the commonest `values` with their `shares`, and the rest by quantiles.

    >>> Mix(values=[1, 64], shares=[0.75, 0.25]).draw(np.array([0.0, 0.8])).tolist()
    [1.0, 64.0]
    """

    values: list[Amount] = Field(default_factory=list)
    shares: list[Share] = Field(default_factory=list)
    rest: Quantiles | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if len(self.values) != len(self.shares):
            raise ValueError("a share for each value")
        total = sum(self.shares)
        if self.rest is None and abs(total - 1) > 1e-3:
            raise ValueError(f"shares that add up to 1 where there is no rest, not to {total:g}")
        if total > 1 + 1e-3:
            raise ValueError(f"shares that add up to at most 1, not to {total:g}")
        return self

    def draw(self, luck: Floats) -> Floats:
        """The value for each number in [0, 1), (N,) → (N,)."""
        ends = np.cumsum(self.shares)
        total = float(ends[-1]) if len(ends) else 0.0
        if self.rest is None:
            return np.array(self.values)[np.searchsorted(ends[:-1], luck, side="right")]
        if not self.values:
            return self.rest.draw(luck)
        common = luck < total
        left = max(1.0 - total, 1e-12)
        drawn: Floats = np.where(
            common,
            np.array(self.values)[np.searchsorted(ends[:-1], luck, side="right")],
            self.rest.draw(((luck - total) / left).clip(0.0, 1.0)),
        )
        return drawn

    def mean(self) -> float:
        """The mean of what is drawn."""
        common = sum(v * s for v, s in zip(self.values, self.shares, strict=True))
        total = sum(self.shares)
        return common / total if self.rest is None else common + max(1.0 - total, 0.0) * self.rest.mean()

    @classmethod
    def of(cls, sample: Floats, common: float = 0.01, most: int = 24) -> Self:
        """The values with at least this share, at most so many of them, and quantiles of the others."""
        values, counts = np.unique(sample, return_counts=True)
        top = _commonest(counts, common, most)
        if len(top) == len(values):
            return cls(values=[short(v, 9) for v in values], shares=_whole(counts / len(sample)))
        return cls(
            values=[short(v, 9) for v in values[top]],
            shares=[round(float(s), 5) for s in counts[top] / len(sample)],
            rest=Quantiles.of(sample[~np.isin(sample, values[top])]),
        )

    @classmethod
    def from_counts(cls, upper: Floats, count: Floats, common: float = 0.01, most: int = 24) -> Self:
        """The same from a histogram: so many are `upper`, which rises."""
        upper, count = np.asarray(upper, dtype=np.float64), np.asarray(count, dtype=np.float64)
        top = _commonest(count, common, most)
        if len(top) == len(upper):
            return cls(values=[short(v, 9) for v in upper], shares=_whole(count / count.sum()))
        others = np.setdiff1d(np.arange(len(upper)), top)
        return cls(
            values=[short(v, 9) for v in upper[top]],
            shares=[round(float(s), 5) for s in count[top] / count.sum()],
            rest=Quantiles.from_counts(upper[others], count[others]),
        )


class UnitOf(_Part):
    """A resource."""

    name: Annotated[str, Field(min_length=1)]
    unit: str = ""


class Machine(_Part):
    """`count` machines that are alike; `capacity` in the order of the resources."""

    capacity: list[Amount]
    count: Annotated[int, Field(ge=1)]
    label: str | None = None
    speed: Positive = 1.0


class Arrivals(_Part):
    """When jobs come: at events, whose rate follows the hours of the day and the days of the week.

    Gaps between events are drawn from one distribution in a time that runs as fast as the rate (a renewal process in
    operational time); each event brings `batch` jobs at the same moment. Hours and days count from the trace's zero.
    """

    events_per_hour: Positive
    hours: Annotated[list[Amount], Field(min_length=24, max_length=24)] = [1.0] * 24
    days: Annotated[list[Amount], Field(min_length=7, max_length=7)] = [1.0] * 7
    gap: Mix = Field(description="between events, in means of itself")
    batch: Mix = Mix(values=[1.0], shares=[1.0])
    repeat: Share = Field(default=0.0, description="how often a job is of the class and user of the one before it")
    whole_seconds: bool = False

    @model_validator(mode="after")
    def _some_time(self) -> Self:
        if not any(self.hours) or not any(self.days):
            raise ValueError("some hour and some day with arrivals")
        return self


class Demand(_Part):
    """What each piece takes of every resource, and on which machines; `share` of the jobs of its class."""

    amounts: list[Amount]
    share: Share
    needs: str | None = None


class JobClass(_Part):
    """Jobs that are alike: of one kind and about one size."""

    name: Annotated[str, Field(min_length=1)]
    kind: str | None = None
    share: Share
    pieces: Mix
    run_s: Mix
    estimate_ratio: Mix | None = Field(default=None, description="the user's estimate over the run time")
    estimated: Share = Field(default=0.0, description="of the jobs, those with an estimate")
    demands: list[Demand] = Field(default_factory=list, description="the commonest")
    rest: list[Quantiles] | None = Field(default=None, description="of all others, by resource")
    needs: str | None = Field(default=None, description="of all others")
    whole_seconds: bool = False

    @model_validator(mode="after")
    def _whole(self) -> Self:
        total = sum(demand.share for demand in self.demands)
        if total > 1 + 1e-3 or (self.rest is None and abs(total - 1) > 1e-3):
            raise ValueError(f"shares of demands that add up to 1, not to {total:g}")
        return self


class Users(_Part):
    """Shares of jobs by user, the busiest first: `cumulative` of the first `ranks` users."""

    ranks: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    cumulative: list[Share]

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if len(self.ranks) != len(self.cumulative) or self.ranks != sorted(set(self.ranks)):
            raise ValueError("ranks that rise, each with a cumulative share")
        return self


class Speeds(_Part):
    """How far the speed of nominally equal machines spreads, measured: evenly spaced quantiles."""

    between: Annotated[list[Positive], Field(min_length=2)] = Field(
        description="of a worker's mean speed over that of its job"
    )
    within: Annotated[list[Amount], Field(min_length=2)] = Field(
        description="of the coefficient of variation of one worker's speed over time"
    )


class File(_Part):
    """A file that was read."""

    name: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Provenance(_Part):
    """Where the numbers come from."""

    source: str
    licence: str = ""
    files: list[File] = Field(default_factory=list)
    rows: Annotated[int, Field(ge=0)] = 0
    span: str = ""
    synthetic: bool = Field(default=False, description="whether the trace itself was made by a model")
    assumed: list[str] = Field(default_factory=list, description="what the source does not tell and was supposed")
    berth: str = ""


class Workload(_Part):
    """A fitted workload; `generate` in `berth.traces.fitting.generate` makes jobs of it."""

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
        """The resources, as the rest of berth has them."""
        return tuple(Resource(entry.name, entry.unit) for entry in self.resources)

    def text(self) -> str:
        """The file: JSON with one line for each list of numbers."""
        told = self.model_dump(mode="json", exclude_defaults=True)
        return _lines({"format": self.format, "version": self.version, **told}, 0) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(self.text(), encoding="utf-8")
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def short(value: float, digits: int = 5) -> float:
    """A number with few digits: files stay small, and nothing fitted is known any better."""
    return float(f"{float(value):.{digits}g}")


def _commonest(counts: Any, common: float, most: int) -> Any:
    """Places of the values that a mix names: all, where they are few."""
    if len(counts) <= most:
        return np.arange(len(counts))
    top = np.flatnonzero(counts >= common * counts.sum())
    return np.sort(top[np.argsort(-counts[top], kind="stable")[:most]])


def _whole(shares: Floats) -> list[float]:
    """Rounded shares that still add up to 1."""
    rounded = np.round(shares, 6)
    rounded[int(np.argmax(shares))] += 1.0 - rounded.sum()
    return [round(float(share), 6) for share in rounded]


def _lines(tree: Any, depth: int) -> str:
    """JSON in which lists of numbers and small mappings take one line."""
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
    """Every workload that comes with berth, and its title."""
    return {path.stem: load_workload(path).title for path in sorted(FOLDER.glob("*.json"))}


def load_workload(name_or_path: str | Path) -> Workload:
    """A workload by name, or from a file.

    >>> load_workload("sdsc-sp2").provenance.rows > 50_000
    True
    >>> load_workload("sdsc-sp")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    berth.errors.UnknownName: unknown workload 'sdsc-sp'; did you mean 'sdsc-sp2'? (known: ...)
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
    del changed  # a part of the key: a file that was written again is read again
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
