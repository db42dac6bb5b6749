"""Types of the jobs of a log, classes of its machines, and true speeds by type and class.

A log rarely tells how fast which jobs run on which machines. A table of speeds does: a job then takes its run time in
the log, over the speed of its type on the class of its slowest machine. Policies are not told; some learn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import polars as pl
from pydantic import Field

from berth.errors import InvalidInput, UnknownName
from berth.files.wording import Mistake, Part, checked
from berth.files.yaml_tree import read_file
from berth.live.core.jobs import check_type
from berth.live.twin.streams import Speeds
from berth.live.twin.traces import OTHERS
from berth.random import stream
from berth.traces.throughputs import Throughputs, read_gavel, read_table
from berth.traces.trace import Trace

__all__ = ["TYPE_COLUMNS", "TypedJobs", "read_speeds", "typed_jobs"]

TYPE_COLUMNS = ("user", "group", "kind", "script", "needs", "size")
"""What a rule of types may name: columns of a trace, and `size`, what a job takes in all of GPUs or cores."""
LONGEST = 128
"""Characters of a type."""
FEW = 12
"""The number of types or classes that an error names."""


@dataclass(frozen=True)
class TypedJobs:
    """The type of each job (N,), the class of each machine (R,), and true speeds by type, class and spread.

    Without speeds, all are 1 wherever a job runs. `drawn`: the log does not tell types, and a seed drew them.
    """

    types: tuple[str, ...]
    classes: tuple[str, ...]
    speeds: Speeds = field(default_factory=dict)
    drawn: bool = False

    def where(self, type_: str) -> list[str]:
        """The classes on which jobs of a type can run."""
        return [name for name in dict.fromkeys(self.classes) if (type_, name, False) in self.speeds]


class _SpeedFile(Part):
    types: Annotated[dict[str, dict[str, Annotated[float, Field(gt=0)]]], Field(min_length=1)] = Field(
        description="speeds by type of job and class of machine; a job cannot run on a class that is missing"
    )


def read_speeds(name: str) -> Throughputs:
    """A table of speeds: `gavel`, a CSV file with the columns of Gavel's or Sia's table, or a YAML file of `types`."""
    if name == "gavel":
        return read_gavel()
    path = Path(name).expanduser()
    if path.suffix not in (".yaml", ".yml"):
        return read_table(path)
    made = checked(read_file(path, "speeds"), _SpeedFile, _bad_types)
    rows = made.types.items()
    return Throughputs("", {(t, c, apart): v for t, row in rows for c, v in row.items() for apart in (False, True)}, {})


def _bad_types(file: _SpeedFile) -> list[Mistake]:
    found = []
    for type_ in file.types:
        try:
            check_type(type_, type_)
        except InvalidInput as error:
            found.append(Mistake(("types", type_), error.expected, type_))
    return found


def typed_jobs(
    trace: Trace, rule: str | None, table: Throughputs | None, seed: int = 0, sample: str = ""
) -> TypedJobs | None:
    """The types of the jobs by a rule such as `user+size`, with their speeds by a table; None where both are None.

    Without a rule, the types are drawn from a table that tells their numbers of GPUs (anew for each `sample` of a log),
    or are the kinds of the log.

    >>> jobs = {"submit_s": [0.0, 1.0], "run_s": [9.0, 9.0], "user": ["ann", "bob"], "pieces": [1, 4]}
    >>> typed_jobs(Trace.of({**jobs, "cpu": [1.0, 1.0]}), "user+size", None).types
    ('ann/1', 'bob/4')
    """
    if rule is None and table is None:
        return None
    drawn = rule is None and table is not None and bool(table.gpus)
    types = _drawn(trace, table, seed, sample) if table is not None and drawn else _by_rule(trace, rule or "kind")
    classes = machine_classes(trace)
    return TypedJobs(types, classes, {} if table is None else _speeds(trace, types, classes, table), drawn)


def machine_classes(trace: Trace) -> tuple[str, ...]:
    """The class of each machine (R,): its label, or the name of its row where no machine has a label."""
    table = trace.machines
    column = "machine" if table["label"].null_count() == len(table) else "label"
    rows = zip(table[column].to_list(), table["count"].fill_null(1).to_list(), strict=True)
    return tuple(name or "plain" for name, many in rows for _ in range(many))


def _by_rule(trace: Trace, rule: str) -> tuple[str, ...]:
    names = list(dict.fromkeys(name.strip() for name in rule.split("+")))
    for name in names:
        if name not in TYPE_COLUMNS:
            raise UnknownName("column of types", name, TYPE_COLUMNS)
    known = [name for name in names if name == "size" or trace.jobs[name].null_count() < len(trace.jobs)]
    if not known:
        raise InvalidInput("a column that the log tells", value=rule, key="types")
    sizes = pl.Series("size", [f"{size:g}" for size in _sizes(trace).to_list()], dtype=pl.String)
    parts = [_words(sizes if name == "size" else trace.jobs[name]) for name in known]
    joined = pl.DataFrame(parts).select(pl.concat_str(pl.all(), separator="/").str.slice(0, LONGEST))
    return tuple(text.rstrip("/") for text in joined.to_series().to_list())


def _words(column: pl.Series) -> pl.Series:
    """Texts as parts of the name of a type."""
    text = column.fill_null("none").str.replace_all(r"[^A-Za-z0-9._@/-]|/{2,}|/$", "-")
    return text.str.replace_all(r"(^|/)([^A-Za-z0-9]|$)", "${1}x${2}")


def _drawn(trace: Trace, table: Throughputs, seed: int, sample: str) -> tuple[str, ...]:
    """Any type of the table with as many GPUs as the job, or with the next smaller number."""
    rng = stream(seed, "replay-types", *filter(None, [sample]))
    sizes = sorted(set(table.gpus.values()))
    types = {size: [t for t, gpus in table.gpus.items() if gpus == size] for size in sizes}
    there = [types[max((s for s in sizes if s <= gpus), default=sizes[0])] for gpus in _sizes(trace).to_list()]
    return tuple(names[int(rng.integers(len(names)))] for names in there)


def _sizes(trace: Trace) -> pl.Series:
    """What each job takes in all of GPUs, or of the first resource where the log tells of no GPUs."""
    names = [kind.name for kind in trace.resources]
    jobs, main = trace.jobs, "gpu" if "gpu" in names else next(iter(names), "")
    pieces = jobs["pieces"].fill_null(1)
    return pieces * jobs[main].fill_null(0.0) if main else pieces.cast(pl.Float64)


def _speeds(trace: Trace, types: Sequence[str], classes: Sequence[str], table: Throughputs) -> Speeds:
    """Speeds of these types on these classes."""
    known: dict[str, dict[tuple[str, bool], float]] = {}
    for (type_, class_, apart), speed in table.speed.items():
        known.setdefault(type_, {})[class_, apart] = speed
    found: dict[tuple[str, str, bool], float] = {}
    for type_ in dict.fromkeys(types):
        row = _row(known, type_)
        there = [name for name in dict.fromkeys(classes) if (name, False) in row]
        mine = {(type_, name, apart): row[name, apart] for name in there for apart in (False, True)}
        if not mine:
            expected = f"speeds of {type_} on a class of the machines: {_few(classes)}"
            raise InvalidInput(expected, found=_few(name for name, _ in row), key="speeds")
        found |= mine
    return found


def _row(known: Mapping[str, dict[tuple[str, bool], float]], type_: str) -> Mapping[tuple[str, bool], float]:
    row = known.get(type_, known.get(OTHERS))
    if row is None:
        raise InvalidInput(f"speeds of this type of job, or of {OTHERS}", value=type_, key="speeds")
    return row


def _few(names: Iterable[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:FEW]) + (", …" if len(unique) > FEW else "")
