"""Policies compared sample by sample: means over samples, and paired differences with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from berth.lab.show.tables import as_table
from berth.lab.show.words import MISSING, percent, plus_minus
from berth.statistics import FEW, Estimate, estimate, holm, studentised

__all__ = [
    "HEADS",
    "LEVEL",
    "MEASURES",
    "TURNAROUND",
    "Difference",
    "counts_part",
    "difference_cells",
    "difference_heads",
    "differences",
    "over_samples",
    "print_differences",
    "sampled",
    "with_intervals",
]

MEASURES = ("mean_wait_seconds", "mean_bounded_slowdown", "utilisation")
"""Numbers that are compared between policies."""
TURNAROUND = "mean_turnaround_seconds"
"""Compared too where run times depend on the policy."""
HEADS = {TURNAROUND: "turnaround"} | dict(zip(MEASURES, ("wait", "slowdown", "used"), strict=True))
"""What tables call them."""
BOUNDED = (TURNAROUND, "mean_wait_seconds", "mean_bounded_slowdown")
"""Those of them that are lower bounds where jobs never started."""
LEVEL = 0.05
SUMMED = ("jobs", "never_started", "broken_decisions", "simulation_seconds")
"""Numbers that are summed over samples; of all others the mean is taken."""


@dataclass(frozen=True)
class Difference:
    """`policy` less `baseline` in one measure: the mean over samples, its interval, and p-values.

    `estimate` has the 95 % interval and the p-value of this difference alone; `adjusted` is the p-value after Holm's
    correction for all differences of the table. If jobs never started under one of the two policies, there is neither
    interval nor test, and the difference is a bound or says nothing.
    """

    policy: str
    baseline: str
    measure: str
    estimate: Estimate
    adjusted: float | None
    censored: tuple[bool, bool] = (False, False)
    """Whether jobs never started under the policy, and under the baseline."""

    @property
    def bound(self) -> str | None:
        """How the difference stands to the true one, if jobs never started: "at least", "at most" or "unknown"."""
        if not any(self.censored):
            return None
        if all(self.censored) or self.measure not in BOUNDED:
            return "unknown"
        return "at least" if self.censored[0] else "at most"

    @property
    def significant(self) -> bool | None:
        """Whether the difference is not zero, at 5 % for all differences together; None without a test."""
        return None if self.adjusted is None else self.adjusted < LEVEL

    def as_dict(self) -> dict[str, Any]:
        """The difference as a dictionary, for JSON."""
        return {
            "difference": self.estimate.mean,
            "low": self.estimate.low,
            "high": self.estimate.high,
            "p": self.estimate.chance,
            "p_holm": self.adjusted,
            "significant": self.significant,
            "bound": self.bound,
        }


def differences(
    each: Mapping[str, Sequence[Mapping[str, Any]]], baseline: str, measures: Sequence[str] = MEASURES
) -> list[Difference]:
    """Paired differences of all policies to `baseline`; `each` has the numbers of every sample by policy.

    With eight samples or more the interval is a bootstrap-t interval, below that Student's. Where jobs never started,
    means are bounds: nothing is tested.
    """
    starved = {policy: any(row.get("never_started") for row in rows) for policy, rows in each.items()}
    found: list[tuple[str, str, Estimate]] = []
    for policy, rows in each.items():
        if policy == baseline:
            continue
        for measure in measures:
            pairs = [(row.get(measure), base.get(measure)) for row, base in zip(rows, each[baseline], strict=True)]
            if any(value is None for pair in pairs for value in pair):
                continue
            table = np.array(pairs, dtype=np.float64)
            one = studentised(table, lambda means: means[..., 0] - means[..., 1])
            if one is not None and (starved[policy] or starved[baseline]):
                one = Estimate(one.mean, None, None, one.seeds)
            if one is not None:
                found.append((policy, measure, one))
    adjusted = holm(one.chance for _, _, one in found)
    return [
        Difference(policy, baseline, measure, one, p, (starved[policy], starved[baseline]))
        for (policy, measure, one), p in zip(found, adjusted, strict=True)
    ]


def over_samples(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers of a policy over its samples: sums of counts, means of everything else.

    A number that some sample lacks is taken over the others.

    >>> over_samples([{"jobs": 2, "mean_wait_seconds": 1.0}, {"jobs": 2, "mean_wait_seconds": 2.0}])
    {'jobs': 4, 'mean_wait_seconds': 1.5}
    """
    if len(rows) == 1:
        return dict(rows[0])
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row[name] for row in rows if row.get(name) is not None]
        if not values or isinstance(values[0], str):
            found[name] = values[0] if values else None
        elif isinstance(values[0], Mapping):
            found[name] = over_samples(values)
        else:
            found[name] = sum(values) if name in SUMMED else float(np.mean(values))
    return found


def with_intervals(
    row: dict[str, Any], rows: Sequence[Mapping[str, Any]], found: Sequence[Difference]
) -> dict[str, Any]:
    """The row of a policy with the intervals of its means (none of bounds), and its differences to the baseline."""
    if len(rows) < 2:
        return row
    compared = [one.measure for one in found if one.measure not in MEASURES]
    names = [
        name for name in dict.fromkeys([*compared, *MEASURES]) if name not in BOUNDED or not row.get("never_started")
    ]
    estimates = {name: estimate(each[name] for each in rows if each.get(name) is not None) for name in names}
    row = {**row, "samples": len(rows), "interval": {n: e.as_dict() for n, e in estimates.items() if e is not None}}
    own = [one for one in found if one.policy == row["policy"]]
    if own:
        row["against"] = {"baseline": own[0].baseline, **{one.measure: one.as_dict() for one in own}}
    return row


# --- in words


def counts_part(measurement: Mapping[str, Any]) -> bool:
    """Whether a warm-up or cool-down is left out."""
    return bool(measurement.keys() & {"warm_up", "cool_down"})


def sampled(measurement: Mapping[str, Any], samples: int) -> str:
    """What the samples are, to follow the number of jobs."""
    if measurement.get("replicas") is not None:
        return f" in {samples} replica{'s' * (samples > 1)}"
    length = measurement.get("window_length")
    size = f" of {length}" if length is not None else f" of {measurement.get('window_jobs')} jobs"
    return f" in {samples} window{'s' * (samples > 1)}{size}" if samples > 1 else ""


def spoken_difference(value: Estimate) -> str:
    """A difference of times with its interval, in the unit that suits the larger of them.

    >>> spoken_difference(Estimate(-5400.0, -7200.0, -3600.0, 4))
    '−1.5 ± 0.5 h'
    """
    largest = max(abs(value.mean), value.half or 0.0)
    units = ((2 * 86400.0, 86400.0, "d"), (3600.0, 3600.0, "h"), (120.0, 60.0, "min"), (0.0, 1.0, "s"))
    unit, letter = next((unit, letter) for least, unit, letter in units if largest >= least)
    half = "" if value.half is None else f" ± {value.half / unit:.1f}"
    return f"{value.mean / unit:+.1f}{half} {letter}".replace("-", "−")


def _told(one: Difference | None) -> str:
    if one is None:
        return MISSING
    if one.bound == "unknown":
        return "not comparable"
    sign = {"at least": "≥ ", "at most": "≤ "}.get(one.bound or "", "")
    value, mark = one.estimate, " *" if one.significant else "  " if one.significant is not None else ""
    if one.measure in (TURNAROUND, "mean_wait_seconds"):
        return sign + spoken_difference(value) + mark
    if one.measure == "utilisation":
        half = "" if value.half is None else f" ± {100 * value.half:.1f}"
        return f"{percent(value.mean, sign=True).removesuffix(' %')}{half} %{mark}"
    mean, half = plus_minus(value)
    return f"{sign}{'+' if value.mean > 0 else ''}{mean} {half}".rstrip() + mark


def compared_measures(found: Sequence[Difference]) -> tuple[str, ...]:
    """The measures that are compared: turnaround too, where it is."""
    return (TURNAROUND, *MEASURES) if any(one.measure == TURNAROUND for one in found) else MEASURES


def difference_heads(found: Sequence[Difference]) -> list[str]:
    """The names of the measures that are compared."""
    return [HEADS[measure] for measure in compared_measures(found)]


def difference_cells(found: Sequence[Difference]) -> dict[str, list[str]]:
    """For each policy its differences in what is compared, with intervals; a star marks significant ones."""
    by, measures = {(one.policy, one.measure): one for one in found}, compared_measures(found)
    return {policy: [_told(by.get((policy, measure))) for measure in measures] for policy, _ in by}


def differences_in_words(found: Sequence[Difference], samples: int, measurement: Mapping[str, Any]) -> str:
    """Explain the table of differences."""
    kind = "replica" if measurement.get("replicas") is not None else "window"
    method = "bootstrap-t" if samples >= FEW else "Student's t"
    tested = sum(one.bound is None for one in found)
    tests = f"{tested} differences" if tested > 1 else "one difference"
    said = f"Difference to {found[0].baseline}, {kind} by {kind}: mean"
    if tested:
        said += f" ± half of the 95 % interval ({method}, {samples} {kind}s)"
        said += f". * significant at 5 % after Holm's correction for {tests}"
    if tested < len(found):
        said += ". ≥, ≤ and not comparable: jobs never started under a policy, so that its means are lower bounds; "
        said += "such differences are not tested"
    return f"{said}."


def print_differences(
    found: Sequence[Difference], samples: int, measurement: Mapping[str, Any], console: Console
) -> None:
    """Print the differences to the baseline, if there are any."""
    if not found:
        return
    console.print()
    rows = [[policy, *cells] for policy, cells in difference_cells(found).items()]
    console.print(as_table(["policy", *difference_heads(found)], rows, least=8))
    console.print(Text(differences_in_words(found, samples, measurement), style="dim"))
