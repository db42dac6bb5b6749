"""Rules for impossible and incomplete jobs, shared by the linter and the simulators.

Rules use the columns of a jobs table and a few that `Judge` adds: `_sized` (its size is known), `_least` (its smallest
amount), `_homes` (number of machines with a label that it accepts), `_room` (pieces of its size that fit on those at
once), `_again` (its name occurred before) and `_late` (it was submitted before a row above it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from berth.errors import InvalidInput
from berth.model import Resource
from berth.traces.rows import EXAMPLES

__all__ = ["DROPPED", "KEPT", "REPAIRED", "RULES", "Judge", "Rule", "Seen"]

DROPPED, REPAIRED, KEPT = "dropped", "repaired", "kept"
AMOUNTS, NO_SIZE = "amounts", "no size"


@dataclass(frozen=True)
class Rule:
    """A reason, the rows that it catches, and what is done with them (`action`, described in `remedy`).

    `shown` is the column that an example shows, `expected` describes a right value. `repair` gives the repaired
    columns.
    """

    reason: str
    when: pl.Expr
    action: str
    remedy: str
    shown: str
    expected: str
    repair: pl.Expr | None = None


def _drop(reason: str, when: pl.Expr, shown: str, expected: str) -> Rule:
    return Rule(reason, when, DROPPED, "left out", shown, expected)


def _mend(reason: str, when: pl.Expr, remedy: str, shown: str, expected: str, repair: pl.Expr | None) -> Rule:
    return Rule(reason, when, REPAIRED, remedy, shown, expected, repair)


_submit, _run, _wait, _estimate = (pl.col(f"{name}_s") for name in ("submit", "run", "wait", "estimate"))
_pieces, _none = pl.col("pieces"), pl.lit(None, dtype=pl.Float64)

RULES: tuple[Rule, ...] = (
    _drop("no submit time", _submit.is_null(), "submit_s", "a time"),
    _drop("negative submit time", _submit < 0, "submit_s", "a time ≥ 0"),
    _drop("still running", _run.is_null() & (pl.col("status") == "running"), "run_s", "a run time"),
    _drop("no run time", _run.is_null(), "run_s", "a run time"),
    _drop("run time not above 0", _run <= 0, "run_s", "a run time above 0"),
    _drop(NO_SIZE, ~pl.col("_sized"), "pieces", "a number of pieces, or amounts"),
    _drop("size not above 0", _pieces <= 0, "pieces", "a number of pieces above 0"),
    _drop("negative amount", pl.col("_least") < 0, AMOUNTS, "amounts ≥ 0"),
    _drop("label that no machine has", pl.col("_homes") == 0, "needs", "a label of a machine"),
    _drop("larger than any machine", pl.col("_room") == 0, AMOUNTS, "a piece that fits on a machine that it may use"),
    _drop(
        "larger than the cluster",
        pl.col("_room") < _pieces.fill_null(1),
        "pieces",
        "as many pieces as its machines hold at once",
    ),
    _drop("name seen before", pl.col("_again"), "job", "a name that no job above has"),
    _mend("started before it came", _wait < 0, "wait forgotten", "wait_s", "a wait ≥ 0", _none.alias("wait_s")),
    _mend(
        "estimate not above 0", _estimate <= 0, "its run time taken", "estimate_s", "a time above 0",
        _run.alias("estimate_s"),
    ),
    _mend("no estimate", _estimate.is_null(), "its run time taken", "estimate_s", "a time", _run.alias("estimate_s")),
    _mend("no number of pieces", _pieces.is_null(), "one taken", "pieces", "a number", pl.lit(1).alias("pieces")),
    _mend("out of order", pl.col("_late"), "sorted by submit time", "submit_s", "a time not before those above", None),
    Rule(
        "ran longer than estimated", (_estimate > 0) & (_estimate < _run), KEPT, "kept as it is", "estimate_s",
        "an estimate not below the run time",
    ),
)  # fmt: skip
"""In order: a dropped job counts for the first rule that catches it; later rules see only kept jobs."""

ZERO = "run time not above 0"
NEGATIVE = _drop("negative run time", _run < 0, "run_s", "a run time ≥ 0")
"""Takes the place of the rule `ZERO` if jobs of zero run time are kept."""
_SIZE_RULE = next(rule for rule in RULES if rule.reason == NO_SIZE)


def _not_given(resource: Resource) -> Rule:
    name = resource.name
    return _mend(
        f"no amount of {name}", pl.col(name).is_null(), "0 taken", name, "a number", pl.lit(0.0).alias(name)
    )  # fmt: skip


class Seen:
    """Set of hashes in sorted runs: 8 bytes each.

    >>> seen = Seen()
    >>> seen.add(np.array([5, 7, 5], np.uint64)).tolist(), seen.add(np.array([7, 8], np.uint64)).tolist()
    ([False, False, True], [True, False])
    """

    def __init__(self) -> None:
        self.runs: list[Any] = []

    def add(self, hashes: Any) -> Any:
        """Whether each hash was seen before, in earlier calls or earlier in this one."""
        values, first = np.unique(hashes, return_index=True)
        old = np.zeros(len(values), bool)
        for run in self.runs:
            old |= run[np.minimum(np.searchsorted(run, values), len(run) - 1)] == values
        again = np.ones(len(hashes), bool)
        again[first] = old
        if not old.all():
            self.runs.append(values[~old])
        while len(self.runs) > 1 and len(self.runs[-2]) <= 2 * len(self.runs[-1]):
            last = self.runs.pop()
            self.runs[-1] = np.sort(np.concatenate([self.runs[-1], last]), kind="stable")
        return again


class Judge:
    """Applies the rules to one table of jobs after the other, with the state that this needs.

    The state is the names of kept jobs as 64-bit hashes, 8 bytes per job. Two names of n collide with a probability of
    about n² / 4·10¹⁹.

    With `zero_run_times` jobs of zero run time are kept.

    If no job gives its size, each is one piece. So jobs without a size are kept until the first job with one; then the
    judge starts again (`sized`), and the jobs before count as jobs without a size.
    """

    def __init__(
        self,
        resources: Sequence[Resource],
        machines: pl.DataFrame | None,
        file: str = "",
        *,
        zero_run_times: bool = False,
    ) -> None:
        self.resources, self.file = tuple(resources), file or None
        self.sized, self.kept = False, 0
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[InvalidInput]] = {}
        rules = (NEGATIVE if zero_run_times and rule.reason == ZERO else rule for rule in RULES)
        self.rules = (*rules, *map(_not_given, self.resources))
        self.given = dict.fromkeys((resource.name for resource in resources), False)
        self._machines = None if machines is None or not len(machines) else usable_machines(machines, resources)
        self._seen, self._latest = Seen(), -np.inf
        self._sizeless: list[InvalidInput] = []

    def unknown(self) -> list[str]:
        """Resources unknown for all kept jobs, or for all machines."""
        there = self.given.keys() if self._machines is None else self._machines.columns
        return [name for name, given in self.given.items() if not given or name not in there]

    def __call__(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """Return the kept jobs, repaired, in their order; count the rest."""
        names = list(self.given)
        given = [pl.col(name).is_not_null() for name in ("pieces", *names)]
        table = jobs.with_columns(
            pl.any_horizontal(given).alias("_sized"),
            pl.min_horizontal(names).alias("_least") if names else pl.lit(0.0).alias("_least"),
            *self._places(jobs),
        )
        if not self.sized and table["_sized"].any():
            self._start_again()
        dropping = [rule for rule in self.rules if rule.action == DROPPED and (self.sized or rule.reason != NO_SIZE)]
        table = table.with_columns(_first_of([rule for rule in dropping if rule.shown != "job"]))
        named = table.filter(pl.col("_reason").is_null() & pl.col("job").is_not_null())
        again = np.zeros(len(jobs), bool)
        again[named["_row"].to_numpy()] = self._seen.add(named["job"].hash().to_numpy())
        table = table.with_columns(pl.Series("_again", again))
        table = table.with_columns(_first_of(dropping))
        if not self.sized:
            early = [rule.reason for rule in self._before_size()]
            late = table.filter(~pl.col("_reason").is_in(early).fill_null(False)).head(EXAMPLES - len(self._sizeless))
            self._sizeless += [self._example(_SIZE_RULE, row) for row in late.rows(named=True)]
        kept = table.filter(pl.col("_reason").is_null())
        self.kept += len(kept)
        before = pl.col("submit_s").cum_max().shift(1).fill_null(self._latest).clip(self._latest)
        kept = kept.with_columns((pl.col("submit_s") < before).alias("_late"))
        if len(kept):
            self._latest = max(self._latest, float(kept["submit_s"].max()))  # type: ignore[arg-type]
        for name in names:
            self.given[name] = self.given[name] or kept[name].null_count() < len(kept)
        for rule in self.rules:
            if rule.action == DROPPED:
                self._note(rule, table.filter(pl.col("_reason") == rule.reason))
            else:
                self._note(rule, kept.filter(rule.when))
        for rule in self.rules:
            if rule.repair is not None:
                name = rule.repair.meta.output_name()
                kept = kept.with_columns(pl.when(rule.when).then(rule.repair).otherwise(pl.col(name)).alias(name))
        return kept.select(jobs.columns)

    def _before_size(self) -> tuple[Rule, ...]:
        return self.rules[: self.rules.index(_SIZE_RULE)]

    def _start_again(self) -> None:
        """Recount after the first size: earlier jobs, unless an earlier rule caught them, have none."""
        early = [rule.reason for rule in self._before_size()]
        dropped = sum(
            self.counts[rule.reason] for rule in self.rules if rule.action == DROPPED and rule.reason not in early
        )
        lost = self.kept + dropped
        self.counts = Counter({reason: count for reason, count in self.counts.items() if reason in early})
        self.examples = {reason: kept for reason, kept in self.examples.items() if reason in early}
        if lost:
            self.counts[NO_SIZE], self.examples[NO_SIZE] = lost, self._sizeless
        self.given = dict.fromkeys(self.given, False)
        self._seen, self._latest = Seen(), -np.inf
        self.sized, self.kept = True, 0

    def _note(self, rule: Rule, caught: pl.DataFrame) -> None:
        if not len(caught):
            return
        self.counts[rule.reason] += len(caught)
        kept = self.examples.setdefault(rule.reason, [])
        for row in caught.head(EXAMPLES - len(kept)).rows(named=True):
            kept.append(self._example(rule, row))

    def _example(self, rule: Rule, row: dict[str, Any]) -> InvalidInput:
        line = row.get("line")
        if rule.shown == AMOUNTS:
            amounts = [
                f"{row[item.name]:g} {item.unit} {item.name}" for item in self.resources if row[item.name] is not None
            ]
            found = ", ".join(amounts) + (f", needs {row['needs']}" if row["needs"] else "")
            return InvalidInput(rule.expected, found=found, file=self.file, line=line)
        value = row[rule.shown]
        found = "none" if value is None else f"{value:g}" if isinstance(value, float) else repr(value)
        return InvalidInput(rule.expected, found=found, key=rule.shown, file=self.file, line=line)

    def _places(self, jobs: pl.DataFrame) -> list[pl.Series]:
        """`_homes` and `_room` of every job: machines that it may use, and pieces of its size that fit at once."""
        rows = len(jobs)
        homes, room = np.full(rows, np.inf), np.full(rows, np.inf)
        number = pl.Series("_row", np.arange(rows))
        if self._machines is not None and rows:
            known = [name for name in self.given if name in self._machines.columns]
            shapes = self._machines.group_by("label", *known, maintain_order=True).agg(pl.col("count").sum())
            capacity = {name: shapes[name].to_numpy() for name in known}
            count, labels = shapes["count"].to_numpy().astype(float), shapes["label"].to_list()
            wanted = {name: jobs[name].fill_null(0.0).to_numpy() for name in known}
            for (needs,), group in jobs.select("needs", number).group_by("needs"):
                accepted = None if needs is None else {word.strip() for word in str(needs).split("|")}
                at = group["_row"].to_numpy()
                homes[at], room[at] = 0.0, 0.0
                for shape in range(len(shapes)):
                    if accepted is None or labels[shape] in accepted:
                        homes[at] += count[shape]
                        room[at] += count[shape] * _fit(
                            [(capacity[name][shape], wanted[name][at]) for name in known], len(at)
                        )
        return [number, pl.Series("_homes", homes), pl.Series("_room", room)]


def _fit(pairs: list[tuple[float, Any]], rows: int) -> Any:
    """Number of pieces that fit on one machine: the least of capacity over amount, rounded down with a tolerance."""
    fit = np.full(rows, np.inf)
    for capacity, amount in pairs:
        asked = amount > 0
        with np.errstate(over="ignore"):  # an overflow counts as infinite
            fit[asked] = np.minimum(fit[asked], np.floor(capacity / amount[asked] * (1 + 1e-9)))
    return fit


def _first_of(rules: Sequence[Rule]) -> pl.Expr:
    """Reason of the first rule that catches a row, or null."""
    return pl.coalesce(pl.when(rule.when).then(pl.lit(rule.reason)) for rule in rules).alias("_reason")


def usable_machines(machines: pl.DataFrame, resources: Sequence[Resource]) -> pl.DataFrame:
    """Machines without resources that are unknown for all of them; a resource unknown for some is 0 there."""
    unknown = [resource.name for resource in resources if machines[resource.name].null_count() == len(machines)]
    names = [resource.name for resource in resources if resource.name not in unknown]
    return machines.drop(unknown).with_columns(
        pl.col("count").fill_null(1), pl.col("speed").fill_null(1.0), *(pl.col(name).fill_null(0.0) for name in names)
    )
