"""Run experiments, and say of each claim of the paper whether it was found.

All cells of all experiments share their workers and one result directory: what several experiments have in common is
computed once, and what is done is never done again, whenever the run was stopped. The rule of the verdict is that of
`berth.lab.verdicts`; nothing here is decided by hand.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import berth
from berth.errors import InvalidInput
from berth.lab.cells import Cell, Record
from berth.lab.experiments import Claim, Experiment, Setting, chosen, settings_of
from berth.lab.families import FAMILIES
from berth.lab.manifest import manifest, now, versions
from berth.lab.plans import Outcome, Plan, Progress, Stopped, plan_comparison, run_plans, worker_count
from berth.lab.pool import leave_if_imported_by_worker, run_cells
from berth.lab.statistics import Estimate, estimate
from berth.lab.store import ResultDirectory, opened
from berth.lab.verdicts import RULE, Verdict, verdict_of, weakest
from berth.model import Floats
from berth.registry import PolicySpec

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ClaimResult", "ExperimentResult", "ReproduceInterrupted", "Reproduced", "Run", "effect", "reproduce"]

KIND = "berth reproduce"
POINTS = 300
"""Slots of a run that are kept for curves."""


@dataclass(frozen=True, eq=False)
class Run:
    """What is kept of a cell: means over slots by series, also over the first slots, and how reward adds up.

    `total` is the reward up to and with each of `slots`; `seconds` are the percentiles, 0 to 100, of what deciding took
    in a slot (empty for an oracle).
    """

    means: Mapping[str, float]
    first: Mapping[tuple[str, int], float]
    slots: Floats
    total: Floats
    length: int
    seconds: Floats

    def value(self, series: str, until: int | None = None) -> float | None:
        """The mean of a series over all slots, or over the first; None where there is no such series or slot."""
        return self.means.get(series) if until is None else self.first.get((series, until))


def _kept(record: Record, firsts: Iterable[tuple[str, int]]) -> Run:
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
    """A claim and what was found: the effect of the algorithm as printed and of berth's best, as parts of one.

    `claimed` is the effect that the printed algorithm would have if decisions that cannot be played were counted as
    they are; None where it broke no constraint. `verdict` is on `printed`, `best_verdict` says the same of `best`.
    """

    claim: Claim
    policy: str
    best_policy: str | None
    printed: Estimate | None
    claimed: Estimate | None
    best: Estimate | None
    verdict: Verdict
    best_verdict: Verdict | None

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
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
            "verdict": self.verdict.value,
            "best_verdict": self.best_verdict and self.best_verdict.value,
        }


@dataclass(eq=False)
class ExperimentResult:
    """What came of an experiment: its points, a `Run` for each cell of each, its claims."""

    experiment: Experiment
    quick: bool
    settings: tuple[Setting, ...]
    families: tuple[str, ...]
    runs: dict[int, dict[Cell, Run]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    claims: tuple[ClaimResult, ...] = ()
    left_out: tuple[Claim, ...] = ()

    @property
    def verdict(self) -> Verdict | None:
        """That of its weakest claim."""
        return weakest(result.verdict for result in self.claims)

    @property
    def seeds(self) -> int:
        """How many seeds each of its points has."""
        return max((len({cell.seed for cell in runs}) for runs in self.runs.values()), default=0)

    def named(self, place: int, name: str, arrivals: str) -> dict[int, Run]:
        """The runs of a policy or an oracle at a point, by seed."""
        setting = self.settings[place]
        oracle = name in FAMILIES[self.families[place]].oracles and name in (setting.run.oracles or ())
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
        """A number of a policy or an oracle at a point, by seed; its mean a slot, or its `total`."""
        found: dict[int, float] = {}
        for seed, run in self.named(place, name, arrivals).items():
            value = run.value(series, until)
            if value is not None:
                found[seed] = value * (until or run.length) if total else value
        return found

    def places(self, where: Mapping[str, Any]) -> list[int]:
        """The points that are meant."""
        return [place for place, setting in enumerate(self.settings) if setting.is_at(where)]

    def as_dict(self) -> dict[str, Any]:
        """The experiment for JSON."""
        experiment = self.experiment
        return {
            "experiment": experiment.name,
            "paper": experiment.paper,
            "figure": experiment.figure,
            "title": experiment.title,
            "data": experiment.data,
            "quick": self.quick,
            "seeds": self.seeds,
            "verdict": self.verdict and self.verdict.value,
            "claims": [result.as_dict() for result in self.claims],
            "not_in_quick": [claim.says for claim in self.left_out],
            "failed": dict(self.failed),
        }


@dataclass(frozen=True, eq=False)
class Reproduced:
    """Everything that came of `reproduce`."""

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
        """All of it as JSON takes it."""
        return {
            "rule": RULE,
            "quick": self.quick,
            "experiments": [result.as_dict() for result in self.experiments],
            "cells_reused": self.reused,
            "seconds": round(self.seconds, 3),
            "out": self.out,
        }

    def frame(self) -> pl.DataFrame:
        """The raw results: a row for each experiment, point, information setting, policy or oracle, and seed."""
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


class ReproduceInterrupted(KeyboardInterrupt):
    """Ctrl-C during a reproduction."""

    def __init__(self, done: int, total: int, out: str | None) -> None:
        kept = f"{done} of {total} cells are kept in {out}; the same command continues" if out else "nothing was kept"
        super().__init__(f"stopped; {kept}")


def reproduce(
    names: Sequence[str] | Sequence[Experiment],
    *,
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Reproduced:
    """Run experiments, given as `all`, a paper, PAPER/ID or a file; `quick` runs their versions of seconds.

    With `out`, every finished cell is kept there at once, and the report, plots and tables are written there.
    """
    leave_if_imported_by_worker()
    began = time.perf_counter()
    texts = [name for name in names if isinstance(name, str)]
    experiments = [*(chosen(texts) if texts else []), *(item for item in names if isinstance(item, Experiment))]
    results = [_result(experiment, quick) for experiment in experiments]
    plans, owners = _plans(results)
    with opened(out, KIND) as directory:
        facts: dict[str, Any] = _facts(experiments, results, quick)
        if directory is not None:
            directory.create({**manifest(facts), "kind": KIND})
        firsts = [_firsts(experiment) for experiment in experiments]
        reused = 0

        def finished(number: int, outcome: Outcome) -> None:
            nonlocal reused
            which, place = owners[number]
            result = results[which]
            result.runs[place] = {
                cell: _kept(outcome.records[cell], firsts[which]) for cell in outcome.cells if cell in outcome.records
            }
            failures = {c: f for c, f in outcome.failed.items() if not f.unsupported}
            result.failed.update({f"{result.settings[place]}, {cell}": f.error for cell, f in failures.items()})
            reused += outcome.reused

        try:
            run_plans(plans, directory, partial(run_cells, workers=worker_count(workers)), progress, finished)
        except Stopped as stop:
            raise ReproduceInterrupted(stop.done, stop.total, None if out is None else os.fspath(out)) from stop
        for result in results:
            _judge(result)
        where = None if out is None else os.fspath(out)
        found = Reproduced(tuple(results), quick, time.perf_counter() - began, reused, facts, where)
        if directory is not None:
            _write(directory, found)
        return found


def _result(experiment: Experiment, quick: bool) -> ExperimentResult:
    return ExperimentResult(experiment, quick, tuple(settings_of(experiment, quick)), ())


def _plans(results: Sequence[ExperimentResult]) -> tuple[list[Plan], list[tuple[int, int]]]:
    """A plan for each point of each experiment, and whose point each is."""
    plans: list[Plan] = []
    owners: list[tuple[int, int]] = []
    for which, result in enumerate(results):
        families: list[str] = []
        for place, setting in enumerate(result.settings):
            run = setting.run
            try:
                plan = plan_comparison(
                    setting.scenario, run.policies, run.seeds, run.baseline, run.arrivals, run.oracles, setting.changes
                )
            except InvalidInput as error:
                raise error.at(key=f"experiment {result.experiment.name}, {setting}") from None
            plans.append(plan)
            owners.append((which, place))
            families.append(plan.scenario.family)
        result.families = tuple(families)
    return plans, owners


def _firsts(experiment: Experiment) -> set[tuple[str, int]]:
    """Which series are asked for over the first slots only."""
    return {
        (series, claim.until)
        for claim in experiment.claims
        if claim.until is not None
        for series in (claim.metric, "reward", "claimed")
    }


def _judge(result: ExperimentResult) -> None:
    """Fill in the claims; in the quick version some may be about points or slots that are not run."""
    judged: list[ClaimResult] = []
    left: list[Claim] = []
    for claim in result.experiment.claims:
        here = result.places(claim.where) and (claim.against is None or result.places(claim.against))
        length = min((run.length for runs in result.runs.values() for run in runs.values()), default=0)
        if result.quick and (not here or (claim.until or 0) > length):
            left.append(claim)
        else:
            judged.append(_judged(result, claim))
    result.claims, result.left_out = tuple(judged), tuple(left)


def _judged(result: ExperimentResult, claim: Claim) -> ClaimResult:
    policy = claim.policy or result.experiment.printed
    best_policy = claim.best or (None if claim.policy else result.experiment.best)
    printed = effect(result, claim, policy, claim.metric)
    claimed = None
    if claim.metric == "reward" and _broke(result, claim, policy):
        claimed = effect(result, claim, policy, "claimed")
    best = None if best_policy is None else effect(result, claim, best_policy, claim.metric)
    return ClaimResult(
        claim,
        policy,
        best_policy,
        printed,
        claimed,
        best,
        verdict_of(printed, claim.value, claim.direction),
        None if best_policy is None else verdict_of(best, claim.value, claim.direction),
    )


def _broke(result: ExperimentResult, claim: Claim, policy: str) -> bool:
    return any(
        value > 0
        for place in result.places(claim.where)
        for value in result.values(place, policy, claim.arrivals, "violations").values()
    )


def effect(result: ExperimentResult, claim: Claim, policy: str, series: str) -> Estimate | None:
    """By which part the policy's number is above what the claim compares it with: mean and interval over seeds.

    None where a seed has nothing to compare with.
    """
    places = result.places(claim.where)
    if claim.against is not None:
        ours = _averaged([result.values(p, policy, claim.arrivals, series, claim.until, claim.total) for p in places])
        others = result.places(claim.against)
        theirs = _averaged([result.values(p, policy, claim.arrivals, series, claim.until, claim.total) for p in others])
        return _over_seeds([_above(ours, theirs)])
    effects: list[dict[int, float]] = []
    for place in places:
        family = FAMILIES[result.families[place]]
        oracle = claim.over in family.oracles and claim.over in (result.settings[place].run.oracles or ())
        # luck is not to count where an oracle knows means only
        measured = family.measured_in if oracle and series == "reward" else series
        ours = result.values(place, policy, claim.arrivals, measured, claim.until, claim.total)
        if isinstance(claim.over, str):
            compared = "reward" if oracle else series
            theirs = result.values(place, claim.over, claim.arrivals, compared, claim.until, claim.total)
        else:
            theirs = dict.fromkeys(ours, float(claim.over or 0.0))
        effects.append(_above(ours, theirs))
    return _over_seeds(effects)


def _above(ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[int, float]:
    """By which part ours is above theirs, seed by seed.

    A ratio to what is not positive says nothing: where a seed has that, differences are divided by the mean size of
    theirs over all seeds.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if all(theirs[seed] > 0 for seed in seeds):
        return {seed: ours[seed] / theirs[seed] - 1.0 for seed in seeds}
    size = math.fsum(abs(theirs[seed]) for seed in seeds) / len(seeds)
    return {seed: (ours[seed] - theirs[seed]) / size if size else math.nan for seed in seeds}


def _averaged(values: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The mean over points, for each seed that all of them have."""
    seeds = set.intersection(*(set(found) for found in values)) if values else set()
    return {seed: math.fsum(found[seed] for found in values) / len(values) for seed in sorted(seeds)}


def _over_seeds(effects: Sequence[Mapping[int, float]]) -> Estimate | None:
    return estimate(_averaged(effects).values())


def _facts(experiments: Sequence[Experiment], results: Sequence[ExperimentResult], quick: bool) -> dict[str, Any]:
    folder = Path(berth.__file__).parent / "workloads"
    return {
        "quick": quick,
        "rule": RULE,
        "experiments": [
            {
                **experiment.model_dump(exclude={"claims", "plots"}, exclude_none=True),
                "sha256": experiment.digest,
                "points": [{"scenario": s.scenario, "changes": dict(s.changes)} for s in result.settings],
            }
            for experiment, result in zip(experiments, results, strict=True)
        ],
        "workloads": {
            path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.json"))
        },
        "versions": versions(),
        "started": now(),
    }


def _write(directory: ResultDirectory, found: Reproduced) -> None:
    from berth.lab.reproduce_plots import save_plots
    from berth.lab.reproduce_report import render_reproduced

    directory.write("results.parquet", found.frame().write_parquet)
    drawn = save_plots(found, directory)
    done = {**manifest(found.facts, now(), found.reused, len(found.failed)), "kind": KIND}
    directory.write_json("results.json", found.as_dict())
    directory.write_text("report.html", render_reproduced(found, drawn, done))
    directory.write_json("manifest.json", done)  # last: only now is everything there
