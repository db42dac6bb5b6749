"""Results of reproduced papers: runs, judged claims, and experiments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from berth.families import FAMILIES
from berth.lab.reproduce.experiments import Claim, Experiment, Setting
from berth.lab.run.cells import Cell, CellResult
from berth.model import Floats
from berth.registry import PolicySpec
from berth.statistics import Estimate

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "NEAR",
    "RULE",
    "SAME",
    "ClaimResult",
    "ExperimentResult",
    "Reproduced",
    "Run",
    "Verdict",
    "kept",
    "verdict_of",
]

POINTS = 300
"""Number of slots stored for curves."""


class Verdict(StrEnum):
    """Verdict on a claim."""

    reproduced = "reproduced"
    direction = "direction only"
    undecided = "undecided"
    refuted = "refuted"
    unclear = "cannot be judged"


@dataclass(frozen=True, eq=False)
class Run:
    """Stored part of a cell: means over slots by series, also over the first slots, and cumulative reward.

    `total` is the cumulative reward at each of `slots`; `seconds` are the percentiles, 0 to 100, of the decision time
    of a slot (empty for an oracle).
    """

    means: Mapping[str, float]
    first: Mapping[tuple[str, int], float]
    slots: Floats
    total: Floats
    length: int
    seconds: Floats

    def value(self, series: str, until: int | None = None) -> float | None:
        """Mean of a series over all slots, or over the first `until`; None if there is no such series or slot."""
        return self.means.get(series) if until is None else self.first.get((series, until))


def kept(record: CellResult, firsts: Iterable[tuple[str, int]]) -> Run:
    """Reduce a cell; `firsts` are the series needed over the first slots."""
    count = len(record.reward)
    spent = record.series.get("decide_seconds", np.zeros(0))
    slots = np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(np.int64))
    return Run(
        {name: float(series.mean()) for name, series in record.series.items()},
        {
            (name, until): float(record.series[name][:until].mean())
            for name, until in firsts
            if name in record.series and until <= count
        },
        (slots + 1).astype(np.float64),
        np.cumsum(record.reward)[slots],
        count,
        np.percentile(spent, np.arange(101)) if len(spent) else spent,
    )


@dataclass(frozen=True)
class ClaimResult:
    """A claim and its result: effects of the algorithm as printed and of berth's best, as fractions.

    `claimed` is the effect of the printed algorithm if infeasible decisions counted as they are; None if it broke no
    constraint. `readings` are the printed algorithm's effects in other readings of the claim. `verdict` judges
    `printed`, `best_verdict` judges `best`.
    """

    claim: Claim
    policy: str
    best_policy: str | None
    printed: Estimate | None
    claimed: Estimate | None
    best: Estimate | None
    readings: tuple[Estimate, ...] = ()
    verdict: Verdict = Verdict.undecided
    best_verdict: Verdict | None = None

    def as_dict(self) -> dict[str, Any]:
        """The claim as a dictionary, for JSON."""
        claim = self.claim
        return {
            "says": claim.says,
            "paper": claim.value if claim.value is not None else claim.direction,
            "metric": claim.metric,
            "where": claim.where,
            "over": claim.over,
            "against": claim.against,
            "arrivals": claim.arrivals,
            "policy": self.policy,
            "printed": self.printed and self.printed.as_dict(),
            "printed_unchecked": self.claimed and self.claimed.as_dict(),
            "best_policy": self.best_policy,
            "best": self.best and self.best.as_dict(),
            "unclear": claim.unclear,
            "readings": [reading.as_dict() for reading in self.readings],
            "verdict": self.verdict.value,
            "best_verdict": self.best_verdict and self.best_verdict.value,
        }


@dataclass(eq=False)
class ExperimentResult:
    """Result of an experiment: its points, a `Run` for each cell of each, its claims.

    `absent` are points whose trace is missing, `missing` gives the reason by trace, `traces` the SHA-256 of those that
    are played. Claims are `left_out` in the quick version, or `without_data` if a trace is missing.
    """

    experiment: Experiment
    quick: bool
    settings: tuple[Setting, ...]
    families: tuple[str, ...]
    absent: tuple[Setting, ...] = ()
    traces: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    runs: dict[int, dict[Cell, Run]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    claims: tuple[ClaimResult, ...] = ()
    left_out: tuple[Claim, ...] = ()
    without_data: tuple[Claim, ...] = ()

    @property
    def data(self) -> str:
        """Data used: synthetic data, fits of traces, or traces by file."""
        if not self.traces and not self.missing:
            return self.experiment.data
        return f"{self.experiment.data}: {', '.join(self.traces) or 'none of them is there'}"

    @property
    def not_run(self) -> list[str]:
        """Data that was not used, and why."""
        return [f"{trace}: {why}" for trace, why in self.missing.items()]

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """How many claims have each verdict."""
        return {verdict: sum(claim.verdict is verdict for claim in self.claims) for verdict in Verdict}

    @property
    def seeds(self) -> int:
        """Number of seeds of each point."""
        return max((len({cell.seed for cell in runs}) for runs in self.runs.values()), default=0)

    def named(self, place: int, name: str, arrivals: str) -> dict[int, Run]:
        """Runs of a policy or an oracle at a point, by seed."""
        setting = self.settings[place]
        oracle = name in FAMILIES[self.families[place]].lab.oracles and name in (setting.run.oracles or ())
        information = None if oracle else arrivals
        wanted = name if oracle else str(PolicySpec.parse(name))
        return {
            cell.seed: run
            for cell, run in self.runs.get(place, {}).items()
            if cell.name == wanted and cell.information == information
        }

    def values(
        self, place: int, name: str, arrivals: str, series: str, until: int | None = None, total: bool = False
    ) -> dict[int, float]:
        """Mean per slot, or `total`, of a number of a policy or an oracle at a point, by seed."""
        found: dict[int, float] = {}
        for seed, run in self.named(place, name, arrivals).items():
            value = run.value(series, until)
            if value is not None:
                found[seed] = value * (until or run.length) if total else value
        return found

    def places(self, where: Mapping[str, Any]) -> list[int]:
        """Indices of the points that match."""
        return [place for place, setting in enumerate(self.settings) if setting.is_at(where)]

    def as_dict(self) -> dict[str, Any]:
        """The experiment as a dictionary, for JSON."""
        experiment = self.experiment
        return {
            "experiment": experiment.name,
            "paper": experiment.paper,
            "figure": experiment.figure,
            "title": experiment.title,
            "data": self.data,
            "traces": dict(self.traces),
            "not_run": self.not_run,
            "quick": self.quick,
            "seeds": self.seeds,
            "verdicts": {verdict.value: count for verdict, count in self.verdicts.items()},
            "claims": [result.as_dict() for result in self.claims],
            "not_in_quick": [claim.says for claim in self.left_out],
            "without_data": [claim.says for claim in self.without_data],
            "failed": dict(self.failed),
        }


@dataclass(frozen=True, eq=False)
class Reproduced:
    """Result of `reproduce`."""

    experiments: tuple[ExperimentResult, ...]
    quick: bool
    seconds: float
    reused: int
    facts: Mapping[str, Any]
    out: str | None

    @property
    def failed(self) -> dict[str, str]:
        """Cells that failed, by experiment, point and cell."""
        return {f"{e.experiment.name}, {cell}": error for e in self.experiments for cell, error in e.failed.items()}

    def as_dict(self) -> dict[str, Any]:
        """The result as a dictionary, for JSON."""
        return {
            "rule": RULE,
            "quick": self.quick,
            "experiments": [result.as_dict() for result in self.experiments],
            "cells_reused": self.reused,
            "seconds": round(self.seconds, 3),
            "out": self.out,
        }

    def frame(self) -> pl.DataFrame:
        """Raw results: a row for each experiment, point, information setting, policy or oracle, and seed."""
        import polars as pl

        rows = [
            {
                "experiment": result.experiment.name,
                "point": str(result.settings[place]),
                "scenario": result.settings[place].scenario,
                "arrivals": cell.information,
                "policy": cell.name,
                "seed": cell.seed,
                "slots": run.length,
                **run.means,
            }
            for result in self.experiments
            for place, runs in sorted(result.runs.items())
            for cell, run in runs.items()
        ]
        return pl.DataFrame(rows, infer_schema_length=None)


NEAR = 0.25
"""Tolerance of the mean around the printed number, and of half of its interval, relative to that number."""
SAME = 0.05
"""Largest effect that counts as none."""

RULE = (
    "An effect is the difference of two means over seeds, relative to the second; its 95 % interval is a symmetric "
    "bootstrap-t interval over seeds, with the jackknife's standard error. A claim's side of zero is decided if the "
    "interval does not cross zero and the p-value is a discovery at a false discovery rate of 5 % over all claims "
    "(Benjamini and Hochberg). A claim is **reproduced** if its side is the paper's, and the mean is within "
    f"{100 * NEAR:g} % of the printed number with an interval no wider than that to each side; **direction only** if "
    "the side is the paper's and the number is not confirmed; **refuted** if the side is the other one; **undecided** "
    "if the side is open. If the paper prints no number, the side decides. “The same” is reproduced if the whole "
    f"interval is within ± {100 * SAME:g} %, refuted if the whole interval is outside, and else undecided. A claim "
    "**cannot be judged** if it depends on something that the paper does not say: then the range over readings is "
    "given. Verdicts are about the algorithm as printed, and its reward with feasible decisions."
)


def verdict_of(
    found: Estimate | None, value: float | None = None, direction: str | None = None, discovered: bool = True
) -> Verdict:
    """Judge one effect; `value` is the paper's number, else `direction` is `more`, `less` or `same`.

    >>> verdict_of(Estimate(0.12, 0.10, 0.14, 30), value=0.1133).value
    'reproduced'
    >>> verdict_of(Estimate(0.30, 0.28, 0.32, 30), value=0.1133).value
    'direction only'
    >>> verdict_of(Estimate(0.12, -0.01, 0.25, 30), value=0.1133).value
    'undecided'
    >>> verdict_of(Estimate(-0.12, -0.20, -0.04, 30), value=0.1133).value
    'refuted'
    """
    if found is None or found.low is None or found.high is None:
        return Verdict.undecided
    if direction == "same":
        if max(-found.low, found.high) <= SAME:
            return Verdict.reproduced
        return Verdict.refuted if found.low > SAME or found.high < -SAME else Verdict.undecided
    if not discovered or found.low <= 0.0 <= found.high:
        return Verdict.undecided
    upward = value > 0 if value is not None else direction == "more"
    if (found.mean > 0) is not upward:
        return Verdict.refuted
    if value is None or max(abs(found.mean - value), found.high - found.mean) <= NEAR * abs(value):
        return Verdict.reproduced
    return Verdict.direction
